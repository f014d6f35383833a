"""Gives every image tensor its layout and inserts the copies between layouts.

Convolutions, pools and LRN want packed channels; element-wise runs and concatenations follow their
inputs; everything else, and the graph's outputs, is plain. A padded operator needs a border of
zeros around its input, which only some kernels can write into: where the producer can't, a copy
(`Relayout`) makes the bordered tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from veltair.compiler.graph import VIEW_KINDS, EpilogueStep, Graph, Layout, Op
from veltair.compiler.passes.rewrite import Rewriter, renamed_node, swap_names

FEW_CHANNELS = 4

# Element-wise operators that keep finite lanes finite: safe on the unused lanes of packed tensors.
_SAFE = {
    "Add",
    "Sub",
    "Mul",
    "Relu",
    "Clip",
    "Sigmoid",
    "Tanh",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Elu",
    "Softplus",
    "Abs",
    "Neg",
    "Max",
    "Min",
    "Erf",
    "Gelu",
}


def assign_layouts(graph: Graph, lanes: int) -> Graph:
    """Layouts for all tensors, with the copies between them.

    Args:
        graph: normalised and fused.
        lanes: float32 lanes of a vector.
    """
    return _Layouts(graph, lanes).run()


class _Layouts:
    def __init__(self, graph: Graph, lanes: int) -> None:
        self.graph = graph
        self.lanes = lanes
        self.rewriter = Rewriter(graph)
        self.copies: dict[tuple[str, str], str] = {}
        self.writers: dict[str, str] = {}
        self.bordered: set[str] = set()
        self.parts: set[str] = set()  # tensors that lie in a concatenation

    def run(self) -> Graph:
        rules = {
            "Conv": self._conv,
            "Pool": self._packed_op,
            "LRN": self._packed_op,
            "Concat": self._concat,
            "Reshape": self._reshape,
            "Default": self._default,
        }
        for op in self.graph.ops:
            rules.get(op.kind, self._plain_op)(op)
        outputs = {name: self._as(name, "plain") for name in self.graph.outputs}
        return self._rename_outputs(outputs)

    # --- copies -----------------------------------------------------------------------------

    def _layout(self, name: str) -> Layout:
        return self.rewriter.tensors[name].layout

    def _as(self, name: str, layout: Layout) -> str:
        """`name` in `layout`, by a copy if it has another; constants are plain."""
        tensor = self.rewriter.tensors[name]
        if tensor.layout == layout:
            return name
        return self._copy(name, f"@{layout}", layout)

    def _copy(self, name: str, suffix: str, layout: Layout) -> str:
        key = (name, suffix)
        if key not in self.copies:
            self.copies[key] = self._copy_again(name, suffix, layout)
        return self.copies[key]

    def _copy_again(self, name: str, suffix: str = "@part", layout: Layout = "packed") -> str:
        out = self.rewriter.activation(name, suffix, layout=layout)
        self._emit(Op(kind="Relayout", inputs=(name,), outputs=(out,)))
        return out

    def _bordered(self, name: str) -> str:
        """`name`, or a copy of it, in a buffer that can have a border."""
        if name in self.bordered:
            return name
        if not self._free(name):
            name = self._copy(name, "@bordered", self._layout(name))
        self.bordered.add(name)
        return name

    def _free(self, name: str) -> bool:
        """Whether the tensor's writer can write into any buffer, and nothing else needs that."""
        return (
            self.writers.get(name) in VIEW_KINDS
            and name not in self.graph.outputs
            and name not in self.bordered
            and name not in self.parts
        )

    def _set_layout(self, names: Iterable[str], layout: Layout) -> None:
        for name in names:
            old = self.rewriter.tensors[name]
            self.rewriter.tensors[name] = replace(old, layout=layout)

    def _emit(self, op: Op) -> None:
        self.writers.update(dict.fromkeys(op.outputs, op.kind))
        self.rewriter.emit(op)

    def _steps(self, op: Op, layout: Layout) -> tuple[EpilogueStep, ...]:
        """The epilogue with its tensors in `layout`."""
        return tuple(
            replace(s, tensor=self._as(s.tensor, layout))
            if s.operand == "tensor" and s.tensor is not None
            else s
            for s in op.epilogue
        )

    # --- rules ------------------------------------------------------------------------------

    def _conv(self, op: Op) -> None:
        weight = self.rewriter.tensors[op.inputs[1]].shape
        groups = op.attrs["groups"]
        channels = self.rewriter.tensors[op.inputs[0]].shape[1]
        depthwise = groups == channels == weight[0]
        blocked = weight[0] // groups % self.lanes == 0 and weight[1] % self.lanes == 0
        plain_out = groups > 1 and not depthwise and not blocked
        few = groups == 1 and channels <= FEW_CHANNELS and self._layout(op.inputs[0]) == "plain"
        data = self._as(op.inputs[0], "plain" if plain_out or few else "packed")
        if any(op.attrs["pads"]):
            data = self._bordered(data)
        layout: Layout = "plain" if plain_out else "packed"
        steps = self._steps(op, layout)
        self._set_layout(op.outputs, layout)
        attrs = {**op.attrs, "data_plain": plain_out or few, "output_plain": plain_out}
        self._emit(op.replaced(inputs=(data, op.inputs[1]), attrs=attrs, epilogue=steps))

    def _packed_op(self, op: Op) -> None:
        inputs = tuple(self._as(n, "packed") for n in op.inputs)
        self._set_layout(op.outputs, "packed")
        self._emit(op.replaced(inputs=inputs))

    def _concat(self, op: Op) -> None:
        channels = [self.rewriter.tensors[n].shape[1] for n in op.inputs]
        packed = any(self._layout(n) == "packed" for n in op.inputs)
        if not packed or any(c % self.lanes for c in channels[:-1]):
            return self._default(op.replaced(kind="Default"))
        inputs = tuple(self._as(n, "packed") for n in op.inputs)
        self._set_layout(op.outputs, "packed")
        return self._emit(op.replaced(kind="ConcatView", inputs=self._parts(inputs)))

    def _parts(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Each part in a buffer of its own kind: written by one view writer, used by no other."""
        parts = []
        for name in inputs:
            part = name if self._free(name) else self._copy_again(name)
            self.parts.add(part)
            parts.append(part)
        return tuple(parts)

    def _reshape(self, op: Op) -> None:
        source = self.rewriter.tensors[op.inputs[0]]
        # A packed tensor of one pixel lies as its channels do: only the name changes.
        one_pixel = source.layout == "packed" and source.shape[2:] == (1, 1)
        flat = one_pixel and (source.shape[1] % self.lanes == 0 or source.shape[0] == 1)
        data = op.inputs[0] if flat else self._as(op.inputs[0], "plain")
        self._emit(op.replaced(inputs=(data,)))

    def _plain_op(self, op: Op) -> None:
        inputs = tuple(self._as(n, "plain") for n in op.inputs)
        self._emit(op.replaced(inputs=inputs, epilogue=self._steps(op, "plain")))

    def _default(self, op: Op) -> None:
        if self._stays_packed(op):
            renames = {n: self._as(n, "packed") for n in op.inputs if not self._constant(n)}
            self._set_layout(op.outputs, "packed")
        else:
            renames = {n: self._as(n, "plain") for n in op.inputs if not self._constant(n)}
        inputs = tuple(renames.get(n, n) for n in op.inputs)
        protos = tuple(renamed_node(p, renames) for p in op.protos)
        packed = all(self._layout(o) == "packed" for o in op.outputs)
        attrs = {**op.attrs, "packed": packed}
        self._emit(op.replaced(inputs=inputs, protos=protos, attrs=attrs))

    def _constant(self, name: str) -> bool:
        return self.rewriter.tensors[name].data is not None

    def _stays_packed(self, op: Op) -> bool:
        """Whether an element-wise operation can run over packed tensors as they lie."""
        if len(op.outputs) != 1 or any(p.op_type not in _SAFE for p in op.protos):
            return False
        activations = [n for n in op.inputs if not self._constant(n)]
        if not any(self._layout(n) == "packed" for n in activations):
            return False
        out = self.rewriter.tensors[op.outputs[0]]
        return (
            out.dtype == "float32"
            and len(out.shape) == 4
            and all(self._broadcasts(n, out.shape) for n in op.inputs)
        )

    def _broadcasts(self, name: str, out: tuple[int, ...]) -> bool:
        tensor = self.rewriter.tensors[name]
        if tensor.data is not None:
            return tensor.data.ndim <= 4 and tensor.dtype == "float32"
        return len(tensor.shape) == 4 and tensor.shape[1] == out[1]

    def _rename_outputs(self, outputs: dict[str, str]) -> Graph:
        """Gives a converted output its client's name, and the tensor that had it another."""
        moved = {old: new for old, new in outputs.items() if old != new}
        if not moved:
            return self.rewriter.finish()
        names = {old: self.rewriter.fresh(f"{old}@packed") for old in moved}
        swap = {**{new: old for old, new in moved.items()}, **names}
        tensors = {
            swap.get(name, name): replace(tensor, name=swap.get(name, name))
            for name, tensor in self.rewriter.tensors.items()
        }
        return self.graph.with_ops((swap_names(op, swap) for op in self.rewriter.ops), tensors)
