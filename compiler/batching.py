"""A model of one sample as one of a batch: first dimensions times its size, the rest as it is.

Exporters write the batch down where they mean whatever it is: in the shapes that `Reshape` makes,
in the sizes of `Resize`. Those are rewritten so that they mean the same for one sample. Whether the
samples of a batch are then independent of each other, ONNX Runtime's answers tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from veltair.compiler.binding import Array, Shape
from veltair.compiler.clean import infer_shapes
from veltair.compiler.front import Front, Source, lowered
from veltair.compiler.graph import Graph
from veltair.compiler.inference import value_shapes
from veltair.compiler.nodes import describe
from veltair.compiler.reference import (
    TOLERANCE,
    Reference,
    answered,
    reference_run,
    relative_difference,
)
from veltair.runtime.errors import InputError

_REMEDY = "leave out --batch, or export the model so that its first dimensions can be larger"


class Batcher:
    """Makes batches of a model of one sample: its model first, from which the rest is made."""

    def __init__(self, source: Source, front: Front) -> None:
        """Does nothing yet.

        Args:
            source: of the model.
            front: of one sample; its constants are those of every batch.
        """
        self._source = source
        self._front = front

    def batched(self, size: int) -> onnx.ModelProto:
        """A copy of the model that runs so many samples at once.

        Raises:
            InputError: there is none.
        """
        for name in self._front.graph.framed:
            raise InputError(
                f"{self._source.path}: --batch {size}: only its value tells the size of '{name}', "
                f"so the samples of a batch can't be told apart; {_REMEDY}"
            )
        return batched(self._source.path, self._front.model, size)

    def graph(self, several: onnx.ModelProto) -> Graph:
        """The graph of a batch, with the constants of that of one sample.

        Raises:
            UnsupportedOperatorError: a node that nothing here runs.
        """
        graph = lowered(self._source, several)
        tensors = {
            name: t
            if t.data is None
            else replace(t, data=self._constants.get(_content(t.data), t.data))
            for name, t in graph.tensors.items()
        }
        return graph.with_ops(graph.ops, tensors)

    def reference(
        self, several: onnx.ModelProto, size: int, defined: Collection[str] = ()
    ) -> Reference | None:
        """A batch and its outputs by ONNX Runtime, which are those of its samples.

        Args:
            several: the model of a batch.
            size: samples.
            defined: nodes that ONNX's own implementation runs: see `reference_run`.

        Returns:
            None where ONNX Runtime refuses whatever inputs are drawn.

        Raises:
            InputError: the samples of a batch aren't independent of each other.
        """
        path, graph, model = self._source.path, self._front.graph, self._front.model
        specs = [graph.spec(name) for name in graph.inputs]
        alone = reference_run(model, defined=defined)
        drawn = [answered(alone, specs, seed) for seed in range(size)]
        samples = [sample for sample in drawn if sample is not None]
        if len(samples) < size:
            return None
        feed = {spec.name: np.concatenate([s.feed[spec.name] for s in samples]) for spec in specs}
        answers = zip(*(sample.expected for sample in samples), strict=True)
        expected = [np.concatenate(values) for values in answers]
        try:
            together = reference_run(several, defined=defined)(feed)
        except Exception as error:  # ONNX Runtime's exceptions share no other base
            raise InputError(
                f"{path}: --batch {size}: {' '.join(str(error).split())}; {_REMEDY}"
            ) from error
        for value, one, got in zip(model.graph.output, expected, together, strict=True):
            difference = relative_difference(np.asarray(got), one)
            if not difference <= TOLERANCE:
                raise InputError(
                    f"{path}: --batch {size}: output '{value.name}' of a batch differs from its "
                    f"samples' own by {difference:.0e} of its range, so they aren't independent "
                    f"of each other; {_REMEDY}"
                )
        return Reference(feed=feed, expected=expected)

    @cached_property
    def _constants(self) -> dict[tuple[str, tuple[int, ...], bytes], Array]:
        tensors = self._front.graph.tensors.values()
        return {_content(t.data): t.data for t in tensors if t.data is not None}


def _content(data: Array) -> tuple[str, tuple[int, ...], bytes]:
    dense = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return data.dtype.name, data.shape, hashlib.sha256(dense.data).digest()


def batched(path: Path, model: onnx.ModelProto, size: int) -> onnx.ModelProto:
    """A copy that runs so many samples at once.

    Args:
        path: of the model, for messages.
        model: clean, of one sample.
        size: samples, at least 2.

    Raises:
        InputError: an input or output has no dimension of samples, or a node none but one.
    """
    one = value_shapes(model)
    several = onnx.ModelProto()
    several.CopyFrom(model)
    graph = several.graph
    for value in graph.input:
        shape = one[value.name][0] if value.name in one else ()
        if not shape:
            raise InputError(
                f"{path}: --batch {size}: input '{value.name}' has no first dimension that is "
                f"known, which the samples of a batch could be along; {_REMEDY}"
            )
        value.type.tensor_type.shape.dim[0].dim_value = shape[0] * size
    _rewrite_constants(several, one, size)
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        several = infer_shapes(several, strict=True)
    except onnx.shape_inference.InferenceError as error:
        text = " ".join(str(error).split())
        raise InputError(f"{path}: --batch {size}: {text}; {_REMEDY}") from error
    _check_dimensions(path, several, one, size)
    return several


def _rewrite_constants(
    model: onnx.ModelProto, one: Mapping[str, tuple[Shape, int]], size: int
) -> None:
    """Replaces constants that have the number of samples in them, where their meaning is known."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain not in ("", "ai.onnx"):
            continue
        index, rewritten = rule
        name = node.input[index] if len(node.input) > index else ""
        if name not in constants or node.input[0] not in one or node.output[0] not in one:
            continue
        value = numpy_helper.to_array(constants[name])
        read, written = one[node.input[0]][0], one[node.output[0]][0]
        changed = rewritten(node, value, read, written, size) if value.size else value
        if np.array_equal(changed, value):
            continue
        own = f"{node.name}.batched"  # another node may read the constant and mean it
        model.graph.initializer.append(numpy_helper.from_array(changed, own))
        node.input[index] = own


def _reshape(node: onnx.NodeProto, target: Array, read: Shape, written: Shape, _: int) -> Array:
    """The first dimension as that of what is read, or as whatever is left."""
    zero_is_size = any(a.name == "allowzero" and a.i for a in node.attribute)
    if 0 in written or zero_is_size or target[0] == 0:
        return target
    first = 0 if read and read[0] == written[0] else -1
    others = target[1:] if first == 0 else np.asarray(written[1:], target.dtype)
    return np.asarray([first, *others], target.dtype)


def _resize(_: onnx.NodeProto, target: Array, read: Shape, written: Shape, size: int) -> Array:
    """As many samples as there are."""
    return np.asarray([target[0] * size, *target[1:]], target.dtype)


# Where operators read constants that may have the number of samples in them.
_RULES = {"Reshape": (1, _reshape), "Resize": (3, _resize)}


def _check_dimensions(
    path: Path, model: onnx.ModelProto, one: Mapping[str, tuple[Shape, int]], size: int
) -> None:
    """Refuses outputs that aren't those of one sample, so many times one after the other."""
    several = value_shapes(model)
    for value in model.graph.output:
        name = value.name
        shape = one[name][0] if name in one else None
        if shape and name in several and several[name][0] == (shape[0] * size, *shape[1:]):
            continue
        got = list(several[name][0]) if name in several else "of a shape that its value tells"
        culprit = _first_unbatched(model, one, size)
        raise InputError(
            f"{path}: --batch {size}: output '{name}' would be {got}, and "
            f"{'not ' + str([shape[0] * size, *shape[1:]]) if shape else 'its samples unknown'}"
            f"{f': {culprit} is of one sample only' if culprit else ''}; {_REMEDY}"
        )


def _first_unbatched(
    model: onnx.ModelProto, one: Mapping[str, tuple[Shape, int]], size: int
) -> str:
    """The first node that reads a batch and writes none."""
    several = value_shapes(model)
    grown = {value.name for value in model.graph.input}
    for node in model.graph.node:
        reads = any(name in grown for name in node.input)
        for name in node.output:
            if name in one and name in several and one[name][0] != several[name][0]:
                grown.add(name)
            elif reads:
                return describe(node)
    return ""
