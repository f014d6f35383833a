"""Compares a compiled model with ONNX Runtime on the same inputs.

ONNX's own implementation of an operator stands in for ONNX Runtime's where that one is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import EncodeError
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from veltair.compiler.binding import Array
from veltair.compiler.fallback import Segment, split
from veltair.compiler.inference import value_shapes
from veltair.runtime.errors import MismatchError
from veltair.runtime.manifest import Manifest, TensorSpec
from veltair.runtime.model import Model, sample_inputs
from veltair.runtime.scratch import scratch

Run = Callable[[Mapping[str, Array]], Sequence[Any]]  # inputs by name to outputs
TOLERANCE = 1e-3  # largest difference to ONNX Runtime, as a share of the output's range
_BFLOAT16_TOLERANCE = 2**-5  # of a type of 8 bits, rounded a few times on the way
_NEIGHBOURS = 16
_ROUNDING = 1e-6  # of an input's range: some units of float32's last place


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Inputs of a model, by name, and what ONNX Runtime makes of them, in the outputs' order.

    Attributes:
        feed: the inputs.
        expected: the outputs.
        run: what made them; None where they were put together.
    """

    feed: dict[str, Array]
    expected: list[Array]
    run: Run | None = None

    def neighbours(self) -> list[list[Array]]:
        """What it makes of inputs that differ by no more than rounding, several times.

        Where a model sorts, or takes the best, rounding decides between what is nearly equal, and
        another order is as right.
        """
        if self.run is None:
            return []
        rng = np.random.default_rng(0)
        made = []
        for _ in range(_NEIGHBOURS):
            feed = {name: _moved(array, rng) for name, array in self.feed.items()}
            made.append([np.asarray(y) for y in self.run(feed)])
        return made


def reference_run(
    model: onnx.ModelProto, *, optimised: bool = True, defined: Collection[str] = ()
) -> Run:
    """What runs a model to compare with: ONNX Runtime, or what defines ONNX where that refuses it.

    Args:
        model: clean.
        optimised: whether ONNX Runtime may change the graph.
        defined: names of nodes that ONNX's own implementation runs in any case.
    """
    if defined:
        return _mixed_run(model, defined)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = _session(model, options)
    except Exception:  # its exceptions share no other base; of a wrong model, a compile has ended
        return partial(ReferenceEvaluator(model).run, None)
    return partial(session.run, None)


def definition(model: onnx.ModelProto, node: onnx.NodeProto) -> Run:
    """What ONNX's own implementation makes of one node of a clean model."""
    known = value_shapes(model)
    ends = [
        [onnx.helper.make_tensor_value_info(name, known[name][1], known[name][0]) for name in names]
        for names in (dict.fromkeys(filter(None, node.input)), filter(None, node.output))
    ]
    graph = onnx.helper.make_graph([node], "node", *ends)
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    return partial(ReferenceEvaluator(alone).run, None)


def _mixed_run(model: onnx.ModelProto, defined: Collection[str]) -> Run:
    """Runs a model in parts: nodes of these names by their definition, ONNX Runtime the others."""
    others = {n.name: "as ONNX Runtime has it" for n in model.graph.node if n.name not in defined}
    parts = split(model, others)
    steps: list[tuple[Collection[str], Collection[str], Run]] = []
    for part in parts.items:
        if isinstance(part, Segment):
            steps.append((part.inputs, part.outputs, reference_run(part.model)))
        else:
            reads, writes = list(filter(None, part.input)), list(filter(None, part.output))
            steps.append((reads, writes, definition(model, part)))
    constants = {name: numpy_helper.to_array(tensor) for name, tensor in parts.constants.items()}

    def run(feed: Mapping[str, Array]) -> Sequence[Any]:
        values = {**constants, **feed}
        for reads, writes, step in steps:
            made = step({name: values[name] for name in reads})
            values |= dict(zip(writes, made, strict=True))
        return [values[output.name] for output in model.graph.output]

    return run


def _session(
    model: onnx.ModelProto, options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    make = partial(
        onnxruntime.InferenceSession, sess_options=options, providers=["CPUExecutionProvider"]
    )
    try:
        return make(model.SerializeToString())
    except EncodeError:  # over 2 GB, which only files with data beside them hold
        with scratch("reference") as folder:
            file = folder / "model.onnx"
            onnx.save(model, file, save_as_external_data=True, location="model.bin")
            session = make(str(file))
            onnx.load_external_data_for_model(model, str(folder))  # saving has moved it out
            return session


def check(loaded: Model, reference: Reference) -> float:
    """Largest difference to ONNX Runtime over the outputs, as a share of each output's range.

    Every variant of every layer runs: first all first ones, then all second ones, and so on. What
    differs by more from one output may agree, element by element, with one of the reference's
    neighbours.

    Raises:
        MismatchError: the difference is above `TOLERANCE`.
    """
    counts = [len(layer.variants) for layer in loaded.manifest.layers]
    neighbours: list[list[Array]] | None = None
    worst = 0.0
    for variant in range(max(counts, default=1)):
        chosen = [min(variant, count - 1) for count in counts]
        feed = {name: _bits(array) for name, array in reference.feed.items()}
        got = loaded.run(feed, variants=chosen)
        try:
            difference = _compare(loaded.manifest, got, reference.expected, variant)
        except MismatchError:
            if neighbours is None:
                neighbours = reference.neighbours()
            nearest = _nearest(loaded.manifest, got, [reference.expected, *neighbours])
            difference = _compare(loaded.manifest, got, nearest, variant)
        worst = max(worst, difference)
    return worst


def answered(run: Run, specs: Sequence[TensorSpec], seed: int = 0) -> Reference | None:
    """Inputs that a model takes, and its outputs; None where none of those drawn is taken.

    An input can be an index, or a shape, which ONNX Runtime refuses where it is too large.
    """
    rng = np.random.default_rng(seed)
    for feed in (random_inputs(specs, rng), sample_inputs(specs, seed)):
        try:
            return Reference(feed=feed, expected=[np.asarray(y) for y in run(feed)], run=run)
        except Exception:  # ONNX Runtime's exceptions share no other base, nor do NumPy's
            continue
    return None


def _bits(array: Array) -> Array:
    """The array as a compiled model takes it: bfloat16 as uint16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _moved(array: Array, rng: np.random.Generator) -> Array:
    """Floats that differ from these by no more than rounding."""
    if not np.issubdtype(array.dtype, np.floating) or array.size == 0:
        return array
    noise = rng.uniform(-_ROUNDING, _ROUNDING, array.shape) * float(np.ptp(array))
    moved: Array = (array + noise).astype(array.dtype)
    return moved


def _nearest(
    manifest: Manifest, got: Mapping[str, Array], references: Sequence[Sequence[Array]]
) -> list[Array]:
    """Of several runs' outputs, the first's with each element of the run that it is nearest to."""
    found = []
    for i, spec in enumerate(manifest.outputs):
        first, computed = references[0][i], got[spec.name]
        if computed.shape != first.shape or first.dtype.kind not in "fiu":
            found.append(first)
            continue
        several = np.stack([run[i] for run in references if run[i].shape == first.shape])
        apart = np.abs(several.astype(np.float64) - computed.astype(np.float64))
        best = np.argmin(np.where(np.isnan(apart), np.inf, apart), axis=0)
        found.append(np.take_along_axis(several, best[np.newaxis], axis=0)[0])
    return found


def _compare(
    manifest: Manifest, got: Mapping[str, Array], expected: Sequence[Array], variant: int
) -> float:
    """The largest difference of a run with each layer's variant of a number."""
    worst = 0.0
    for spec, reference in zip(manifest.outputs, expected, strict=True):
        computed, tolerance = got[spec.name], TOLERANCE
        if spec.dtype == "bfloat16":
            computed, tolerance = computed.view(reference.dtype), _BFLOAT16_TOLERANCE
        difference = relative_difference(computed, reference)
        if not difference <= tolerance:
            raise MismatchError(
                f"output '{spec.name}' differs from ONNX Runtime's by {difference:.2e} of its "
                f"range, more than {tolerance:.0e}, with variant {variant} of the layers; this is "
                "a defect of the compiler: please report the model"
            )
        worst = max(worst, difference)
    return worst


def random_inputs(specs: Sequence[TensorSpec], rng: np.random.Generator) -> dict[str, Array]:
    """Inputs to check and profile with: normal floats, small integers, words."""
    feed: dict[str, Array] = {}
    for spec in specs:
        if spec.is_framed:
            words = rng.choice(["one", "Two", "", "three"], [max(n, 1) for n in spec.shape])
            feed[spec.name] = words.astype(np.object_)
        elif np.issubdtype(np.dtype(spec.dtype), np.floating):
            feed[spec.name] = np.asarray(rng.standard_normal(spec.shape)).astype(spec.dtype)
        else:
            feed[spec.name] = np.asarray(rng.integers(0, 2, spec.shape)).astype(spec.dtype)
    return feed


def relative_difference(got: Array, reference: Array) -> float:
    """Largest absolute difference as a share of the reference's range; infinite if shapes differ.

    Strings don't differ or differ infinitely.

    Not-a-number and infinity agree with themselves only.
    """
    if got.shape != reference.shape or got.dtype != reference.dtype:
        return float("inf")
    if reference.size == 0:
        return 0.0
    if reference.dtype.name == "bfloat16":  # NumPy doesn't know it for a floating type
        got, reference = got.astype(np.float32), reference.astype(np.float32)
    if reference.dtype == np.object_:  # strings
        return 0.0 if np.array_equal(got, reference) else float("inf")
    same = got == reference
    if np.issubdtype(reference.dtype, np.floating):
        same |= np.isnan(got) & np.isnan(reference)
    a, b = got[~same].astype(np.float64), reference[~same].astype(np.float64)
    if a.size == 0:
        return 0.0
    if not np.all(np.isfinite(a)) or not np.all(np.isfinite(b)):
        return float("inf")
    finite = reference[np.isfinite(reference)].astype(np.float64)
    spread = max(float(finite.max() - finite.min()), float(np.abs(finite).max()), 1e-30)
    return float(np.max(np.abs(a - b)) / spread)
