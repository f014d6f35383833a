"""Times each convolution and matrix product of a network against ONNX Runtime's own node.

A peer's node is timed by its profiler, so its copies between layouts don't count. Both sides run
hot, round by round in turn; quoted are ratios of medians. Run as
`python -m veltair.eval.bench_kernels --model resnet50`. More than one thread runs on TVM's own
pool, which spins: only an otherwise idle machine gives figures then, and `veltair bench` measures
our engine's threads.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import tvm
import typer
from onnx import TensorProto, helper, numpy_helper, shape_inference

from veltair import models
from veltair.compiler import codegen
from veltair.compiler.kernels import build_conv2d, build_matmul
from veltair.compiler.kernels.spec import ConvSpec, Kernel, MatmulSpec, Step, View
from veltair.runtime.manifest import LANES, compact_strides

Array = npt.NDArray[np.float32]
_RELU = (Step(kind="add", operand="channel"), Step(kind="relu"))
_WARM_UP = 3
_PEER_OPS = {"Conv", "Gemm", "FusedConv", "FusedGemm"}


@dataclass(frozen=True)
class Shape:
    """A layer's shape; a matrix product is a 1x1 convolution of one pixel a row."""

    op: str
    in_channels: int
    out_channels: int
    groups: int
    hw: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]

    @property
    def out_hw(self) -> tuple[int, int]:
        """Output rows and columns."""
        top, left, bottom, right = self.pads
        padded = (self.hw[0] + top + bottom, self.hw[1] + left + right)
        rows, columns = (
            (size - k) // s + 1
            for size, k, s in zip(padded, self.kernel, self.strides, strict=True)
        )
        return rows, columns

    @property
    def flops(self) -> int:
        """Floating-point operations, a multiply-add counted as two."""
        steps = self.in_channels // self.groups * math.prod(self.kernel)
        return 2 * steps * self.out_channels * math.prod(self.out_hw)

    @property
    def name(self) -> str:
        """A line that tells it from the model's other shapes."""
        kernel, hw = ("x".join(map(str, pair)) for pair in (self.kernel, self.hw))
        extra = f"/{self.strides[0]}" if self.strides != (1, 1) else ""
        extra += f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.op} {kernel}{extra} {hw} {self.in_channels}->{self.out_channels}"


@dataclass(frozen=True)
class Row:
    """One measured shape; times in microseconds."""

    shape: str
    count: int
    variant: str
    gflops: float
    ours_us: float
    peer_us: float


def shapes_of(model: onnx.ModelProto) -> Counter[Shape]:
    """The convolutions and matrix products of a model, with how often each occurs."""
    model = shape_inference.infer_shapes(model)
    dims = {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]
    }
    weights = {w.name: tuple(w.dims) for w in model.graph.initializer}
    found: Counter[Shape] = Counter()
    for node in model.graph.node:
        if node.op_type == "Conv":
            found[_conv_shape(node, dims[node.input[0]], weights[node.input[1]])] += 1
        elif node.op_type == "Gemm":
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            k, n = weights[node.input[1]]
            k, n = (n, k) if attributes.get("transB") else (k, n)
            one = (1, 1)
            found[Shape("Gemm", k, n, 1, one, one, one, (0, 0, 0, 0))] += 1
    return found


def _conv_shape(node: onnx.NodeProto, data: Sequence[int], weight: Sequence[int]) -> Shape:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    strides, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0, 0, 0, 0])
    return Shape(
        "Conv",
        data[1],
        weight[0],
        attributes.get("group", 1),
        (data[2], data[3]),
        (weight[2], weight[3]),
        (strides[0], strides[1]),
        (pads[0], pads[1], pads[2], pads[3]),
    )


def _kernel_of(shape: Shape, isa: str) -> tuple[Kernel, list[View]]:
    """Our kernel with bias and ReLU, and the views of its data and output."""
    lanes = LANES[isa]
    if shape.op == "Gemm":
        views = [_dense(1, shape.in_channels), _dense(1, shape.out_channels)]
        spec = MatmulSpec(
            m=1,
            k=shape.in_channels,
            n=shape.out_channels,
            data=views[0],
            output=views[1],
            epilogue=_RELU,
        )
        return build_matmul(spec, isa), views
    top, left, bottom, right = shape.pads
    hw = (shape.hw[0] + top + bottom, shape.hw[1] + left + right)
    plain = shape.in_channels < lanes
    blocks = math.ceil(shape.in_channels / lanes)
    data = _dense(1, shape.in_channels, *hw) if plain else _dense(1, blocks, *hw, lanes)
    output = _dense(1, math.ceil(shape.out_channels / lanes), *shape.out_hw, lanes)
    conv = ConvSpec(
        batch=1,
        in_channels=shape.in_channels,
        out_channels=shape.out_channels,
        groups=shape.groups,
        kernel=shape.kernel,
        strides=shape.strides,
        dilations=(1, 1),
        out_hw=shape.out_hw,
        data=data,
        output=output,
        data_plain=plain,
        epilogue=_RELU,
    )
    return build_conv2d(conv, isa), [data, output]


def _dense(*shape: int) -> View:
    return View(shape=shape, strides=compact_strides(shape))


def _weights(shape: Shape, rng: np.random.Generator) -> tuple[Array, Array]:
    dims = (shape.out_channels, shape.in_channels // shape.groups, *shape.kernel)
    weight = rng.standard_normal(dims).astype(np.float32)
    return weight, rng.standard_normal(shape.out_channels).astype(np.float32)


class _Ours:
    """Our kernel under TVM's own thread pool."""

    def __init__(self, shape: Shape, isa: str, weight: Array, bias: Array) -> None:
        self.kernel, (data, output) = _kernel_of(shape, isa)
        pack, pack_channel = self.kernel.pack_weight, self.kernel.pack_channel
        assert pack is not None
        assert pack_channel is not None
        onnx_weight = weight.reshape(weight.shape[:2]).T if shape.op == "Gemm" else weight
        rng = np.random.default_rng(0)
        arrays = [
            rng.random(data.shape, dtype=np.float32),
            pack(onnx_weight),
            pack_channel(bias),
            np.zeros(output.shape, np.float32),
        ]
        self._arguments = [tvm.runtime.tensor(a) for a in arrays]
        self._module = codegen.lower("kernel", self.kernel.func, isa)

    def times_us(self, runs: int) -> list[float]:
        """Time of each of some runs."""
        timer = self._module.time_evaluator("kernel", tvm.cpu(), number=1, repeat=runs)
        return [seconds * 1e6 for seconds in timer(*self._arguments).results]


class _Peer:
    """ONNX Runtime on a model of one node, timed by its profiler."""

    def __init__(self, shape: Shape, weight: Array, bias: Array, threads: int, work: Path) -> None:
        model = _one_node(shape, weight, bias)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_profiling = True
        options.profile_file_prefix = str(work / "profile")
        options.log_severity_level = 3
        self._session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        self._feed = {"x": np.random.default_rng(0).random(dims, dtype=np.float32)}

    def run(self, runs: int) -> None:
        """Some runs; their times are in the profile."""
        for _ in range(runs):
            self._session.run(None, self._feed)

    def times_us(self) -> list[float]:
        """The node's time in each run so far, which must be the last call."""
        events = json.loads(Path(self._session.end_profiling()).read_text())
        return [
            float(event["dur"])
            for event in events
            if event.get("cat") == "Node" and event["args"].get("op_name") in _PEER_OPS
        ]


def _one_node(shape: Shape, weight: Array, bias: Array) -> onnx.ModelProto:
    if shape.op == "Gemm":
        dims, out = [1, shape.in_channels], [1, shape.out_channels]
        weight = weight.reshape(weight.shape[:2])
        node = helper.make_node("Gemm", ["x", "w", "b"], ["c"], transB=1)
    else:
        dims = [1, shape.in_channels, *shape.hw]
        out = [1, shape.out_channels, *shape.out_hw]
        node = helper.make_node(
            "Conv",
            ["x", "w", "b"],
            ["c"],
            kernel_shape=shape.kernel,
            strides=shape.strides,
            pads=shape.pads,
            group=shape.groups,
        )
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["c"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def measure(shape: Shape, *, count: int, isa: str, threads: int, rounds: int, work: Path) -> Row:
    """Times one shape, both sides in turn."""
    weight, bias = _weights(shape, np.random.default_rng(1))
    peer = _Peer(shape, weight, bias, threads, work)
    ours = _Ours(shape, isa, weight, bias)
    runs = max(2, min(50, int(2e8 / shape.flops)))
    ours.times_us(_WARM_UP)
    peer.run(_WARM_UP)
    times = []
    for _ in range(rounds):
        peer.run(runs)
        times += ours.times_us(runs)
    ours_us = float(np.median(times))
    return Row(
        shape=shape.name,
        count=count,
        variant=ours.kernel.variant_id,
        gflops=shape.flops / ours_us / 1e3,
        ours_us=ours_us,
        peer_us=float(np.median(peer.times_us()[_WARM_UP:])),
    )


def _report(rows: Sequence[Row], threads: int, title: str) -> None:
    print(f"\n{title}, {threads} thread(s): microseconds, hot")
    print(f"{'shape':38} {'x':>2} {'ours':>8} {'peer':>8} {'ratio':>6} {'GFLOP/s':>8}  variant")
    for row in rows:
        ratio = row.ours_us / row.peer_us
        print(
            f"{row.shape:38} {row.count:2} {row.ours_us:8.1f} {row.peer_us:8.1f} {ratio:6.2f} "
            f"{row.gflops:8.1f}  {row.variant}"
        )
    ours, peer = (sum(getattr(r, name) * r.count for r in rows) for name in ("ours_us", "peer_us"))
    print(f"{'sum':38}    {ours:8.1f} {peer:8.1f} {ours / peer:6.2f}")


def main(
    *,
    model: Annotated[str, typer.Option(help="Recipe, see `veltair export`.")] = "resnet50",
    threads: Annotated[str, typer.Option(help="Thread counts, comma-separated.")] = "1",
    isa: Annotated[str, typer.Option(help="x86-64-v3 or x86-64-v4.")] = "x86-64-v4",
    rounds: Annotated[int, typer.Option(help="Rounds in turn a shape.")] = 7,
    only: Annotated[str, typer.Option(help="Measure shapes whose name contains this.")] = "",
    output: Annotated[Path | None, typer.Option("--json", help="Write the rows here too.")] = None,
) -> None:
    """Times each convolution and matrix product of a network against ONNX Runtime."""
    found = [(s, n) for s, n in shapes_of(models.build(model)).items() if only in s.name]
    counts = [int(part) for part in threads.split(",")]
    # TVM's pool takes its size from here once, and can then only be used in part.
    os.environ["TVM_NUM_THREADS"] = str(max(counts))
    configure = tvm.get_global_func("runtime.config_threadpool")
    results: dict[str, list[dict[str, Any]]] = {}
    for count in counts:
        configure(1, count)
        with tempfile.TemporaryDirectory() as work:
            rows = [
                measure(s, count=n, isa=isa, threads=count, rounds=rounds, work=Path(work))
                for s, n in found
            ]
        _report(rows, count, f"{model} {isa}")
        results[str(count)] = [asdict(row) for row in rows]
    if output is not None:
        output.write_text(json.dumps({"model": model, "isa": isa, "threads": results}, indent=1))


if __name__ == "__main__":
    typer.run(main)
