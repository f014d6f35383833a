"""Reads an ONNX file and cleans its graph: one static, constant-folded graph of standard operators.

ONNX Runtime's basic optimisation level folds constants and batch normalisation and drops what
inference doesn't need; it emits standard operators only.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import onnx
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter
import onnxruntime

from veltair.compiler.binding import Array, Shape, bind
from veltair.compiler.checks.attributes import check_attributes, check_equations
from veltair.compiler.checks.sizes import check_sizes
from veltair.compiler.definitions import (
    OLDEST_RUNTIME_OPSET,
    ONNX_DOMAINS,
    RUNTIME_DOMAINS,
    inline,
    operators_of,
    opset_of,
)
from veltair.compiler.fold import fold_constants
from veltair.compiler.inference import inferred, value_shapes
from veltair.compiler.nodes import all_nodes, describe, put_in_order, subgraphs
from veltair.compiler.onnx_file import LARGE_BYTES, load_weights, read_model
from veltair.compiler.onnx_process import CrashError, SlowError, onnx_process
from veltair.runtime.errors import InputError, UnsupportedOperatorError
from veltair.runtime.scratch import scratch

OLDEST_OPSET = 7  # older ones are converted
# The newest that every ONNX Runtime that we take reads; later ones only add types.
_NEWEST_IR = 10
_SETTLED_OPSET = 21
# How it says that it lacks what the model has, and doesn't say that the model is wrong.
_LACKING = re.compile(r"NOT_IMPLEMENTED|Type Error|not supported|under development|locale")
# How it names a node in what it says, and what it says of itself: its files and ours.
_QUOTED = tuple(
    re.compile(p) for p in (r"\((?:\")?([^()\"]+)(?=[)\"])", r"(?:ame|ode): ?'?(.+?)'?(?=\)|\s|$)")
)
_OWN_PLACES = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S+ failed:|"
    r"Exception during initialization: |This is an invalid model\. |"
    r"/onnxruntime_src/\S+:\d+ .*?\)(?: const)? "
)


def load_clean(
    path: Path,
    shapes: Mapping[str, Shape],
    inlined: Collection[str] = (),
    values: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    """Reads `path`, binds shapes and values to its inputs and cleans the graph.

    Shapes that depend on the data stay unknown: what has them falls back.

    Args:
        path: an ONNX file, with its external data beside it if it has any.
        shapes: shape of each input that has symbolic dimensions.
        inlined: operators that are replaced by what ONNX defines them by.
        values: of inputs that shall be constants: see `binding.bind`.

    Returns:
        A checked model: shapes inferred, a name of its own for each node, no initializer among the
        inputs.

    Raises:
        InputError: the file can't be used, an input's shape isn't known, or a shape or a value
            doesn't fit its input.
        UnsupportedOperatorError: a node that neither we nor ONNX Runtime have an operator for.
    """
    model = _read(path)
    check_equations(path, model)
    model = _readable(path, model)
    bind(path, model, shapes, values or {})
    model = inline(model, inlined)
    _check_domains(model)
    check_attributes(path, model)
    load_weights(path, model)
    stated = opset_of(model)
    model.ir_version = min(model.ir_version, _NEWEST_IR)
    refusals = []
    for opset in _settled_opsets(model):
        _state_opset(model, opset)
        try:
            return _optimise(path, model)
        except _RefusedError as error:
            refusals.append(error)
    return _clean_alone(path, model, stated, refusals[0])


def _read(path: Path) -> onnx.ModelProto:
    model = read_model(path)
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:  # what it raises has no base of its own
        raise InputError(
            f"{path}: its functions can't be put in the place of their calls "
            f"({_first_line(error)}); export it without functions"
        ) from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _settled_opsets(model: onnx.ModelProto) -> list[int]:
    """The versions that mean the same of which ONNX Runtime takes one the likeliest, best first.

    It refuses those newer than itself, and has not every type of the newest of an operator.

    An operator means at one version of the operator set what it meant at the one that defined it
    last, so that of all operators the newest definition will do.
    """
    opset = opset_of(model)
    needed = max(
        (
            onnx.defs.get_schema(kind, opset).since_version
            for domain, kind in operators_of(model.graph)
            if domain in ONNX_DOMAINS and onnx.defs.has(kind, opset)
        ),
        default=0,
    )
    settled = max(needed, min(opset, _SETTLED_OPSET))
    older = [
        version
        for version in (_runtime_opset(), _SETTLED_OPSET)
        if version < settled and _means_the_same(model.graph, opset, version)
    ]
    return [*([settled] if settled <= _runtime_opset() or not older else []), *older]


def _state_opset(model: onnx.ModelProto, opset: int) -> None:
    others = [o for o in model.opset_import if o.domain not in ONNX_DOMAINS]
    del model.opset_import[:]
    model.opset_import.extend([onnx.helper.make_opsetid("", opset), *others])


@functools.cache
def _runtime_opset() -> int:
    """The newest version of ONNX's operators that this ONNX Runtime takes; it says so nowhere."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    value = onnx.helper.make_tensor_value_info
    ends = [[value(name, onnx.TensorProto.FLOAT, [1])] for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", *ends)
    for opset in range(onnx.defs.onnx_opset_version(), OLDEST_RUNTIME_OPSET, -1):
        imports = [onnx.helper.make_opsetid("", opset)]
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=_NEWEST_IR)
        with contextlib.suppress(Exception):  # its exceptions share no other base
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return opset
    return OLDEST_RUNTIME_OPSET


def _means_the_same(graph: onnx.GraphProto, opset: int, older: int) -> bool:
    """Whether the nodes have nothing that an older version lacks, but for types.

    Differs: ONNX promises no more than that a version with another number may differ. What versions
    so new have changed so far is types and attributes; each node's types are checked where it runs.
    """
    for node in graph.node:
        if node.domain not in ONNX_DOMAINS or not onnx.defs.has(node.op_type, older):
            return False
        new, old = (onnx.defs.get_schema(node.op_type, version) for version in (opset, older))
        known = {name: str(a.default_value) for name, a in old.attributes.items()}
        given = {attribute.name for attribute in node.attribute}
        changed = {n for n, a in new.attributes.items() if known.get(n) != str(a.default_value)}
        if changed & given or any(n in known and n not in given for n in changed):
            return False
        if not all(_means_the_same(inner, opset, older) for inner in subgraphs(node)):
            return False
    return True


def _readable(path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that we read."""
    newest = onnx.defs.onnx_opset_version()
    opset = opset_of(model)
    if opset == 0:  # operators of other domains only: what ours are is not said
        opset = _SETTLED_OPSET
        model.opset_import.append(onnx.helper.make_opsetid("", opset))
    if opset > newest:
        raise InputError(
            f"{path}: opset {opset}; Veltair reads opsets to {newest}; export the model with one "
            "of those, or convert it with onnx.version_converter"
        )
    if opset >= OLDEST_OPSET:
        return model
    load_weights(path, model)
    try:
        _spread_slopes(model)
        return onnx.version_converter.convert_version(model, OLDEST_OPSET)
    except _UNCONVERTED as error:
        raise InputError(
            f"{path}: opset {opset}, which ONNX can't convert to {OLDEST_OPSET} "
            f"({_first_line(error)}); export the model with opset {OLDEST_OPSET} to {newest}"
        ) from error


_UNCONVERTED = (
    onnx.shape_inference.InferenceError,
    onnx.version_converter.ConvertError,
    RuntimeError,
    ValueError,
)


def _spread_slopes(model: onnx.ModelProto) -> None:
    """Gives each slope of a `PRelu` the shape that has it a channel's by today's broadcasting.

    Before opset 7 one dimension was the channels; ONNX's converter leaves it the last one.
    """
    shapes = value_shapes(inferred(model))
    slopes = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "PRelu" or len(node.input) != 2:  # ONNX's converter says what is amiss
            continue
        data, slope_name = node.input
        if slope_name not in slopes or data not in shapes:
            continue
        slope, rank = slopes[slope_name], len(shapes[data][0])
        if len(slope.dims) == 1 and slope.dims[0] > 1:
            slope.dims.extend([1] * (rank - 2))
            for value in model.graph.input:  # older formats list it there too
                if value.name == slope.name:
                    value.CopyFrom(
                        onnx.helper.make_tensor_value_info(value.name, slope.data_type, slope.dims)
                    )


def _check_domains(model: onnx.ModelProto) -> None:
    opset = opset_of(model)
    for node in all_nodes(model.graph):
        known = node.domain in ONNX_DOMAINS and onnx.defs.has(node.op_type, opset)
        if not known and node.domain not in RUNTIME_DOMAINS:
            domain = f" of domain '{node.domain}'" if node.domain else ""
            raise UnsupportedOperatorError(
                f"{describe(node)}: not an operator of ONNX's opset {opset}{domain}; "
                "rewrite the model with standard operators"
            )


class _RefusedError(Exception):
    """ONNX Runtime lacks an operator or a type; its cause is the error to tell."""


def _optimise(path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
    with scratch("clean") as folder:
        before, after = folder / "before.onnx", folder / "after.onnx"
        _save(model, before)
        # Inference copies a model several times over: the weights come behind it.
        with contextlib.suppress(onnx.shape_inference.InferenceError):  # the optimiser says why
            _check_sizes(path, infer_shapes(onnx.load(before, load_external_data=False)))
        _run_optimiser(path, model, before, after)
        try:
            model = infer_shapes(onnx.load(after, load_external_data=False))
        except onnx.shape_inference.InferenceError as error:
            raise _explain(path, model, str(error)) from error
        _check_sizes(path, model)
        onnx.load_external_data_for_model(model, str(folder))
        return model


def _run_optimiser(path: Path, model: onnx.ModelProto, before: Path, after: Path) -> None:
    try:
        if not onnx_process().run("clean", before, after, large_bytes=LARGE_BYTES):
            return
        _name_nodes(model)  # so that what it says names one
        _save(model, before)
        refusal = onnx_process().run("clean", before, after, large_bytes=LARGE_BYTES)
    except SlowError as error:
        raise InputError(
            f"{path}: ONNX Runtime comes to no end with it ({error}); check what its nodes count "
            "to, and export the model again"
        ) from error
    except CrashError as error:
        culprit = _crashing(before, after)
        where = f"{describe(culprit)}: " if culprit is not None else ""
        raise InputError(
            f"{path}: {where}ONNX Runtime crashes on it ({error}); check its attributes and its "
            "constants, and export the model again"
        ) from error
    explained = _explain(path, model, refusal)
    if _LACKING.search(refusal):
        onnx.load_external_data_for_model(model, str(before.parent))
        raise _RefusedError from explained
    raise explained


def _crashing(before: Path, after: Path) -> onnx.NodeProto | None:
    """The node without which ONNX Runtime doesn't crash; None where it crashes on none alone."""
    model = onnx.load(before, load_external_data=False)
    nodes = list(model.graph.node)
    file = before.with_name("part.onnx")  # its weights are those of `before`
    fewest, most = 1, len(nodes) + 1
    while fewest < most:
        middle = (fewest + most) // 2
        del model.graph.node[:]
        model.graph.node.extend(nodes[:middle])
        del model.graph.output[:]
        made = [name for node in nodes[:middle] for name in node.output if name]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
        file.write_bytes(model.SerializeToString())
        try:
            onnx_process().run("clean", file, after, large_bytes=LARGE_BYTES)
            fewest = middle + 1
        except CrashError:
            most = middle
    return nodes[most - 1] if most <= len(nodes) else None


def _save(model: onnx.ModelProto, file: Path) -> None:
    """Writes a model and moves its weights out of it, into a file beside the other."""
    onnx.save(
        model,
        file,
        save_as_external_data=True,
        location=f"{file.stem}.bin",
        size_threshold=LARGE_BYTES,
    )


def _clean_alone(
    path: Path, model: onnx.ModelProto, stated: int, refusal: _RefusedError
) -> onnx.ModelProto:
    """Cleans a model of which ONNX Runtime refuses an operator or a type.

    Args:
        path: of the model, for messages.
        model: of settled versions.
        stated: the opset of the file: only that may have a type that it uses.
        refusal: ONNX Runtime's.

    Raises:
        VeltairError: by ONNX's rules too, it is no valid model.
    """
    put_in_order(model.graph)
    for opset in dict.fromkeys((opset_of(model), stated)):
        _state_opset(model, opset)
        with contextlib.suppress(onnx.shape_inference.InferenceError, ValueError, RuntimeError):
            typed = inferred(model, strict=True, check_type=True)
            _check_sizes(path, typed)
            return infer_shapes(fold_constants(typed))
    explained = refusal.__cause__
    assert explained is not None
    raise explained


def _name_nodes(model: onnx.ModelProto) -> None:
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        base = node.name or f"{node.op_type}_{index}"
        node.name, count = base, 1
        while node.name in taken:
            node.name, count = f"{base}.{count}", count + 1
        taken.add(node.name)


def _explain(path: Path, model: onnx.ModelProto, refusal: str) -> Exception:
    """Turns ONNX Runtime's refusal into ours, naming the node if its text does."""
    text = _OWN_PLACES.sub("", refusal.strip().partition("\n")[0]).strip()
    named = {node.name: node for node in all_nodes(model.graph)}
    quoted = [found for pattern in _QUOTED for found in pattern.findall(text)]
    node = next((named[name] for name in quoted if name in named), None)
    if node is None:
        return InputError(f"{path}: not a valid ONNX model: {text}; export it again")
    if "NOT_IMPLEMENTED" in refusal and f" {node.op_type}(" in text:
        return UnsupportedOperatorError(f"{describe(node)}: {text}")
    return InputError(f"{path}: {describe(node)}: not valid: {text}; export it again")


def infer_shapes(model: onnx.ModelProto, *, strict: bool = False) -> onnx.ModelProto:
    """A copy with shapes, as far as they don't depend on data, and a name for each node.

    Raises:
        onnx.shape_inference.InferenceError: it is strict, and shapes don't fit each other.
    """
    result = inferred(model, strict=strict)
    _name_nodes(result)
    return result


def _check_sizes(path: Path, model: onnx.ModelProto) -> None:
    check_sizes(path, model, value_shapes(model))
