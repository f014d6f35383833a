"""Compares the zoo's graphs with ONNX Runtime: `python -m veltair.eval.light_models`.

The `onnx` package carries them: graphs of the model zoo that have `ConstantOfShape` in the place of
their weights. Each gets seeded weights there, is compiled at batch 1 and 4, and compared on random
inputs. Nothing is profiled: the seconds are those of a compile without it, on a machine that may be
busy.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import typer
from onnx import numpy_helper

from veltair.compiler.binding import Array
from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.progress import Silent
from veltair.compiler.reference import TOLERANCE, random_inputs, relative_difference
from veltair.compiler.target_options import choose_isa
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, write_result
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.machine import usable_cores
from veltair.runtime.model import Model

BATCHES = (1, 4)
_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
_PREFIX = "light_"
# What passes a weight on as it is, but for its shape.
_SHAPES_ONLY = ("Reshape", "Unsqueeze")


def names() -> tuple[str, ...]:
    """Of the graphs, without `light_`."""
    return tuple(sorted(f.stem.removeprefix(_PREFIX) for f in _FOLDER.glob(f"{_PREFIX}*.onnx")))


def light_model(name: str, batch: int) -> onnx.ModelProto:
    """One of the graphs, with weights, for a batch size.

    Raises:
        InputError: there is none of that name, or it can't have that batch size.
    """
    if name not in names():
        raise InputError(f"{name!r} is no such graph; there are {', '.join(names())}")
    model = onnx.load(_FOLDER / f"{_PREFIX}{name}.onnx")
    model.ir_version = 4  # the first whose initializers need not be inputs
    draw_weights(model.graph, np.random.default_rng(0))
    bind_batch(model.graph, batch)
    return model


def draw_weights(graph: onnx.GraphProto, rng: np.random.Generator) -> None:
    """Puts drawn weights in the place of what each `ConstantOfShape` makes.

    Those of convolutions and products are scaled by the square root of two over the terms of a sum,
    those of batch normalisation are near what leaves a tensor as it is, or quarters it where
    a residual takes it: activations stay in range through any depth. Of batch normalisation what
    the graph has is drawn too: it belongs to weights that the graph hasn't.
    """
    constants = {t.name: t for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in constants]
    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = numpy_helper.to_array(constants.pop(node.input[0]))
            name = node.output[0]
            data = _weight(_use(graph, name), tuple(map(int, shape)), rng)
            constants[name] = numpy_helper.from_array(data, name)
        else:
            nodes.append(node)
    summed = {i for n in nodes if n.op_type == "Sum" for i in n.input}
    for node in (n for n in nodes if n.op_type == "BatchNormalization"):
        for index, name in enumerate(node.input[1:], 1):
            data = _weight((node.op_type, index), tuple(constants[name].dims), rng)
            data *= 0.25 if index == 1 and node.output[0] in summed else 1
            constants[name] = numpy_helper.from_array(data, name)
    del graph.node[:], graph.input[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    graph.initializer.extend(constants.values())


def _use(graph: onnx.GraphProto, name: str) -> tuple[str, int]:
    """Operator and number of the input that reads a weight first."""
    for node in graph.node:
        if name in node.input:
            if node.op_type in _SHAPES_ONLY:
                return _use(graph, node.output[0])
            return node.op_type, list(node.input).index(name)
    return "", 0


def _weight(use: tuple[str, int], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    normal = rng.standard_normal(shape).astype(np.float32)
    match use:
        case ("Conv" | "Gemm", 1):
            # A Gemm's has a row for each output here, as a convolution's has.
            return normal * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        case ("BatchNormalization", 1 | 4) | ("Mul", _):
            return np.float32(1) + np.float32(0.1) * np.clip(normal, -3, 3)
        case _:
            return np.float32(0.1) * normal


def bind_batch(graph: onnx.GraphProto, batch: int) -> None:
    """Gives inputs, outputs and what reshapes to a batch of 1 another batch size.

    Raises:
        InputError: one of them begins otherwise than with a batch of 1.
    """
    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if not dims or dims[0].dim_value != 1:
            raise InputError(f"'{value.name}' has no batch of 1 to make {batch} of")
        dims[0].dim_value = batch
    constants = {t.name: t for t in graph.initializer}
    reshapes = [n for n in graph.node if n.op_type == "Reshape" and n.input[0] not in constants]
    for name in sorted({node.input[1] for node in reshapes}):
        shape = numpy_helper.to_array(constants[name]).copy()
        if shape[0] != 1:
            raise InputError(f"'{name}' reshapes to {shape.tolist()}: no batch of 1")
        shape[0] = batch
        constants[name].CopyFrom(numpy_helper.from_array(shape, name))


def agreement(name: str, batch: int, folder: Path) -> dict[str, Any]:
    """Compiles a graph for a batch size and compares it with ONNX Runtime.

    Returns:
        `difference`, the largest of an output to ONNX Runtime's as a share of its range, and
        `spread`, how far from each other the output's values are over the largest of them (near 0
        where all are the same, and a comparison says little); `layers` and those that `fall_back`;
        `seconds` of the compile. Or `refused`, why the graph can't have that batch size; or
        `failed`, what the compiler says.
    """
    try:
        model = light_model(name, batch)
    except InputError as error:
        return {"refused": str(error)}
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    options = CompileOptions(
        model=path,
        repository=folder / "repository",
        name=name,
        version=batch,
        qos_ns=0,
        shapes={},
        isa=choose_isa("auto"),
        jobs=usable_cores(),
        force=False,
        profiled=False,
    )
    begun = time.monotonic()
    try:
        compile_model(options, Silent())
    except VeltairError as error:
        return {"failed": str(error)}
    seconds = time.monotonic() - begun
    loaded = Model.load(options.target)
    return {
        **_compared(loaded, path),
        "layers": len(loaded.manifest.layers),
        "fall_back": sum(layer.fallback is not None for layer in loaded.manifest.layers),
        "seconds": round(seconds, 1),
    }


def _compared(loaded: Model, path: Path) -> dict[str, float]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = random_inputs(loaded.manifest.inputs, np.random.default_rng(1))
    got = loaded.run(feed)
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(None, feed), strict=True))
    return {
        "difference": max(relative_difference(got[n], e) for n, e in expected.items()),
        "spread": min(float(np.ptp(e) / np.abs(e).max()) for e in expected.values()),
    }


def command(
    networks: Annotated[str, typer.Option(help="All graphs that there are, if not set.")] = "",
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="A batch size; once for each.  [default: 1, 4]")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Compile the graphs that come with onnx, and compare them with ONNX Runtime."""
    chosen = [word for word in networks.split(",") if word] or names()
    for name in set(chosen) - set(names()):
        raise InputError(f"--networks {networks}: no {name!r}; there are {', '.join(names())}")
    check_writable(json_file)
    result = origin("light_models") | {"tolerance": TOLERANCE}
    rows: list[dict[str, Any]] = []
    for name in chosen:
        for size in batch or BATCHES:
            with tempfile.TemporaryDirectory(prefix="veltair-light-") as folder:
                row = {"network": name, "batch": size} | agreement(name, size, Path(folder))
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            rows.append(row)
    if json_file is not None:
        write_result(json_file, result | {"cases": rows})
    wrong = [f"{row['network']} at batch {row['batch']}" for row in rows if not agrees(row)]
    if wrong:
        raise VeltairError(f"disagrees with ONNX Runtime or fails to compile: {', '.join(wrong)}")


def agrees(row: dict[str, Any]) -> bool:
    """Whether a result is within the tolerance; a batch that a graph can't have is no fault."""
    return "refused" in row or row.get("difference", np.inf) <= TOLERANCE


if __name__ == "__main__":
    run_benchmark("light_models", command)
