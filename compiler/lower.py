"""Turns placed operations into kernel requests: a spec, its builder, its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from veltair.compiler import kernels
from veltair.compiler.binding import Array
from veltair.compiler.fallback import Segment
from veltair.compiler.graph import EpilogueStep, Graph, Op
from veltair.compiler.kernels import spec as specs
from veltair.compiler.kernels.spec import Kernel, Step, View
from veltair.compiler.passes.plan import Placement, Plan
from veltair.runtime.manifest import Border, compact_strides

FREE_KINDS = ("Reshape", "ConcatView")  # only names: no kernel runs


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A constant argument and how its kernel wants it packed."""

    data: Array
    packing: Literal["weight", "channel", "none"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One layer before its kernel is built.

    Attributes:
        key: equal for layers that can share a kernel.
        build: makes the kernel.
        arguments: in the kernel's order: placed views of activations, and constants.
        op: label, e.g. `conv3x3+add+relu`.
        flops: floating-point operations.
        segment: what runs in place of a kernel; None where the layer is compiled.
        cleared: borders to clear before it runs.
    """

    key: Any
    build: Callable[[], Kernel]
    arguments: tuple[Placement | Constant, ...]
    op: str
    nodes: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    flops: int
    segment: Segment | None = None
    cleared: tuple[Border, ...] = ()


def lower(graph: Graph, plan: Plan, isa: str, ops: Sequence[Op] | None = None) -> list[Request]:
    """One request for each operation that runs: of `ops`, or of the whole graph."""
    lowering = _Lowering(graph, plan, isa)
    wanted = graph.ops if ops is None else ops
    return [lowering.request(op) for op in wanted if op.kind not in FREE_KINDS]


def _view(place: Placement) -> View:
    return View(shape=place.shape, strides=place.strides, dtype=place.dtype)


def _permuted(place: Placement, order: tuple[int, ...]) -> Placement:
    """The view whose dimensions are those of `place` in another order."""
    return replace(
        place,
        shape=tuple(place.shape[i] for i in order),
        strides=tuple(place.strides[i] for i in order),
    )


def _spread(place: Placement, shape: tuple[int, ...]) -> Placement:
    """The view that repeats dimensions of size 1 as often as `shape` says."""
    strides = tuple(
        0 if size == 1 else stride for size, stride in zip(place.shape, place.strides, strict=True)
    )
    return replace(place, shape=shape, strides=strides)


@dataclass(frozen=True)
class _Core:
    """The part of a request that differs by kind."""

    key: Any
    build: Callable[[], Kernel]
    arguments: list[Placement | Constant]
    label: str
    flops: int


def _step_label(step: EpilogueStep) -> str:
    return "bias" if (step.kind, step.operand) == ("add", "channel") else step.kind


class _Lowering:
    def __init__(self, graph: Graph, plan: Plan, isa: str) -> None:
        self.graph = graph
        self.plan = plan
        self.isa = isa

    def request(self, op: Op) -> Request:
        rules: dict[str, Callable[[Op], _Core]] = {
            "Conv": self._conv,
            "MatMul": self._matmul,
            "BatchMatMul": self._batch_matmul,
            "Pool": self._pool,
            "LRN": self._lrn,
            "Softmax": self._softmax,
            "LayerNorm": self._layer_norm,
            "Gather": self._gather,
            "Relayout": self._relayout,
            "Tir": self._tir,
            "Fallback": self._fallback,
        }
        core = rules[op.kind](op)
        activations = [n for n in op.reads if self.graph.tensors[n].data is None]
        label = "+".join([core.label, *(_step_label(s) for s in op.epilogue)])
        return Request(
            key=core.key,
            build=core.build,
            arguments=tuple(core.arguments),
            op=label,
            nodes=op.nodes,
            input_shapes=tuple(self._told_shape(n) for n in activations),
            output_shapes=tuple(self._told_shape(n) for n in op.outputs),
            flops=core.flops,
            segment=op.attrs.get("segment"),
            cleared=tuple(self.plan.cleared.get(op.outputs[0], ())),
        )

    # --- operands ---------------------------------------------------------------------------

    def _place(self, name: str) -> Placement:
        return self.plan.placements[name]

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.graph.tensors[name].shape

    def _told_shape(self, name: str) -> tuple[int, ...]:
        """The shape as the manifest tells it: of a framed tensor with -1 for what isn't known."""
        framed = self.graph.framed.get(name)
        return self._shape(name) if framed is None else framed.shape

    def _constant(self, name: str) -> Array:
        data = self.graph.tensors[name].data
        assert data is not None
        return data

    def _rows(self, name: str, rank: int) -> Placement:
        """The tensor with its leading dimensions flattened, so that `rank` remain."""
        place = self._place(name)
        shape = (1,) * rank + place.shape
        tail = shape[len(shape) - rank + 1 :]
        flat = (math.prod(shape[: len(shape) - rank + 1]), *tail)
        return replace(place, shape=flat, strides=compact_strides(flat))

    def _steps(
        self, op: Op, place: Callable[[str], Placement]
    ) -> tuple[tuple[Step, ...], list[Placement | Constant]]:
        """The epilogue as kernels take it, and its operands in order."""
        steps, operands = [], []
        for step in op.epilogue:
            operand = self._operand(step, place)
            view = _view(operand) if isinstance(operand, Placement) else None
            steps.append(Step(kind=step.kind, operand=step.operand, params=step.params, view=view))
            if operand is not None:
                operands.append(operand)
        return tuple(steps), operands

    def _operand(
        self, step: EpilogueStep, place: Callable[[str], Placement]
    ) -> Placement | Constant | None:
        if step.tensor is None:
            return None
        if step.operand == "channel":
            return Constant(data=self._constant(step.tensor), packing="channel")
        return place(step.tensor)

    # --- kinds ------------------------------------------------------------------------------

    def _conv(self, op: Op) -> _Core:
        weight = self._constant(op.inputs[1])
        data = self._place(op.inputs[0]).padded(op.attrs["pads"])
        output = self._place(op.outputs[0])
        n, out_channels, out_h, out_w = self._shape(op.outputs[0])
        steps, operands = self._steps(op, self._place)
        conv = specs.ConvSpec(
            batch=n,
            in_channels=self._shape(op.inputs[0])[1],
            out_channels=out_channels,
            groups=op.attrs["groups"],
            kernel=op.attrs["kernel"],
            strides=op.attrs["strides"],
            dilations=op.attrs["dilations"],
            out_hw=(out_h, out_w),
            data=_view(data),
            output=_view(output),
            data_plain=op.attrs["data_plain"],
            output_plain=op.attrs["output_plain"],
            epilogue=steps,
        )
        kind = "dwconv" if conv.groups == conv.in_channels == out_channels else "conv"
        height, width = conv.kernel
        return _Core(
            key=conv,
            build=lambda: kernels.build_conv2d(conv, self.isa),
            arguments=[data, Constant(data=weight, packing="weight"), *operands, output],
            label=f"{kind}{height}x{width}",
            flops=2 * n * out_h * out_w * weight.size,
        )

    def _matmul(self, op: Op) -> _Core:
        weight = self._constant(op.inputs[1])
        data, output = self._rows(op.inputs[0], 2), self._rows(op.outputs[0], 2)
        steps, operands = self._steps(op, lambda name: self._rows(name, 2))
        (m, k), n = data.shape, weight.shape[1]
        matmul = specs.MatmulSpec(
            m=m, k=k, n=n, data=_view(data), output=_view(output), epilogue=steps
        )
        return _Core(
            key=matmul,
            build=lambda: kernels.build_matmul(matmul, self.isa),
            arguments=[data, Constant(data=weight, packing="weight"), *operands, output],
            label="matmul",
            flops=2 * m * k * n,
        )

    def _batch_matmul(self, op: Op) -> _Core:
        left, right, written = op.attrs["perms"]
        a, b = (
            _permuted(self._place(op.inputs[0]), left),
            _permuted(self._place(op.inputs[1]), right),
        )
        # The transpose that would make what is written of the result, the other way round.
        output = _permuted(self._place(op.outputs[0]), tuple(np.argsort(written)))
        steps, operands = self._steps(op, lambda name: _spread(self._place(name), output.shape))
        matmul = specs.BatchMatmulSpec(a=_view(a), b=_view(b), output=_view(output), epilogue=steps)
        return _Core(
            key=matmul,
            build=lambda: kernels.build_batch_matmul(matmul, self.isa),
            arguments=[a, b, *operands, output],
            label="batch_matmul",
            flops=2 * math.prod(output.shape) * a.shape[-1],
        )

    def _pool(self, op: Op) -> _Core:
        data, output = self._place(op.inputs[0]), self._place(op.outputs[0])
        pool = specs.PoolSpec(
            kind=op.attrs["kind"],
            kernel=op.attrs["kernel"],
            strides=op.attrs["strides"],
            dilations=op.attrs["dilations"],
            pads=op.attrs["pads"],
            count_include_pad=op.attrs["count_include_pad"],
            data=_view(data),
            output=_view(output),
        )
        height, width = pool.kernel
        return _Core(
            key=pool,
            build=lambda: kernels.build_pool2d(pool, self.isa),
            arguments=[data, output],
            label=f"{pool.kind}pool{height}x{width}",
            flops=math.prod(self._shape(op.outputs[0])) * height * width,
        )

    def _lrn(self, op: Op) -> _Core:
        data, output = self._place(op.inputs[0]), self._place(op.outputs[0])
        shape = self._shape(op.inputs[0])
        lrn = specs.LrnSpec(channels=shape[1], data=_view(data), output=_view(output), **op.attrs)
        return _Core(
            key=lrn,
            build=lambda: kernels.build_lrn(lrn, self.isa),
            arguments=[data, output],
            label="lrn",
            flops=math.prod(shape) * (2 * lrn.size + 3),
        )

    def _softmax(self, op: Op) -> _Core:
        columns = op.attrs["columns"]
        data, output = (self._columns(n, columns) for n in (op.inputs[0], op.outputs[0]))
        softmax = specs.SoftmaxSpec(data=_view(data), output=_view(output), log=op.attrs["log"])
        return _Core(
            key=softmax,
            build=lambda: kernels.build_softmax(softmax, self.isa),
            arguments=[data, output],
            label="log_softmax" if softmax.log else "softmax",
            flops=4 * math.prod(data.shape),
        )

    def _layer_norm(self, op: Op) -> _Core:
        columns = op.attrs["columns"]
        data, output = (self._columns(n, columns) for n in (op.inputs[0], op.outputs[0]))
        constants = [Constant(data=self._constant(n), packing="channel") for n in op.inputs[1:]]
        norm = specs.LayerNormSpec(
            data=_view(data),
            output=_view(output),
            epsilon=op.attrs["epsilon"],
            has_bias=len(constants) > 1,
        )
        return _Core(
            key=norm,
            build=lambda: kernels.build_layer_norm(norm, self.isa),
            arguments=[data, *constants, output],
            label="layer_norm",
            flops=8 * math.prod(data.shape),
        )

    def _gather(self, op: Op) -> _Core:
        axis, shape = op.attrs["axis"], self._shape(op.inputs[0])
        outer, width = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        count = math.prod(self._shape(op.inputs[1]))
        data, data_view = self._dense(op.inputs[0], (outer, shape[axis], width))
        index, index_view = self._dense(op.inputs[1], (count,))
        output, output_view = self._dense(op.outputs[0], (outer, count, width))
        gather = specs.GatherSpec(data=data_view, index=index_view, output=output_view)
        return _Core(
            key=gather,
            build=lambda: kernels.build_gather(gather, self.isa),
            arguments=[data, index, output],
            label="gather",
            flops=0,
        )

    def _dense(self, name: str, shape: tuple[int, ...]) -> tuple[Placement | Constant, View]:
        """A tensor, constant or not, as if it had another shape of the same elements."""
        tensor = self.graph.tensors[name]
        view = View(shape=shape, strides=compact_strides(shape), dtype=tensor.dtype)
        if tensor.data is not None:
            return Constant(data=tensor.data.reshape(shape), packing="none"), view
        return replace(self._place(name), shape=shape, strides=view.strides), view

    def _columns(self, name: str, columns: int) -> Placement:
        place = self._place(name)
        flat = (math.prod(place.shape) // columns, columns)
        return replace(place, shape=flat, strides=compact_strides(flat))

    def _relayout(self, op: Op) -> _Core:
        data, output = self._place(op.inputs[0]), self._place(op.outputs[0])
        relayout = specs.RelayoutSpec(
            channels=self._shape(op.inputs[0])[1], data=_view(data), output=_view(output)
        )
        kinds = {4: "plain", 5: "packed"}
        return _Core(
            key=relayout,
            build=lambda: kernels.build_relayout(relayout, self.isa),
            arguments=[data, output],
            label=f"{kinds[len(data.shape)]}_to_{kinds[len(output.shape)]}",
            flops=0,
        )

    def _tir(self, op: Op) -> _Core:
        spec = kernels.tir_spec(op.attrs["func"], op.attrs["name"])
        arguments: list[Placement | Constant] = []
        for name in op.inputs:
            data = self.graph.tensors[name].data
            arguments.append(
                self._place(name) if data is None else Constant(data=data, packing="none")
            )
        return _Core(
            key=spec,
            build=lambda: kernels.build_default(spec, self.isa),
            arguments=[*arguments, *(self._place(o) for o in op.outputs)],
            label=op.attrs["name"],
            flops=sum(math.prod(self._shape(o)) for o in op.outputs),
        )

    def _fallback(self, op: Op) -> _Core:
        segment: Segment = op.attrs["segment"]
        return _Core(
            key=segment.nodes,
            build=_no_kernel,
            arguments=[self._place(name) for name in (*op.inputs, *op.outputs)],
            label=segment.label,
            flops=sum(math.prod(self._shape(name)) for name in op.outputs),
        )


def _no_kernel() -> Kernel:
    raise AssertionError("a segment has no kernel")
