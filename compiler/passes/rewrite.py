"""The tool of a pass that replaces operations one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import onnx
from onnx import helper

from veltair.compiler.binding import Array
from veltair.compiler.graph import Graph, Layout, Op, Tensor


@dataclass
class Rewriter:
    """Tensors and operations of the graph that a pass is making."""

    graph: Graph
    tensors: dict[str, Tensor] = field(init=False)
    ops: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Starts from the old graph's tensors."""
        self.tensors = dict(self.graph.tensors)

    def fresh(self, base: str) -> str:
        """A tensor name not yet taken, made from `base`."""
        name, count = base, 1
        while name in self.tensors:
            name, count = f"{base}.{count}", count + 1
        return name

    def constant(self, base: str, data: Array) -> str:
        """Adds a constant and returns its name."""
        name = self.fresh(base)
        self.tensors[name] = Tensor(name=name, shape=data.shape, dtype=data.dtype.name, data=data)
        return name

    def activation(self, like: str, suffix: str, *, layout: Layout | None = None) -> str:
        """Adds an activation of the shape of `like` and returns its name."""
        old = self.tensors[like]
        name = self.fresh(f"{like}{suffix}")
        self.tensors[name] = replace(old, name=name, data=None, layout=layout or old.layout)
        return name

    def data(self, name: str) -> Array | None:
        """The value of a constant; None for an activation or a missing optional input."""
        return self.tensors[name].data if name in self.tensors else None

    def emit(self, op: Op) -> None:
        """Appends an operation."""
        self.ops.append(op)

    def finish(self) -> Graph:
        """The new graph."""
        return replace(self.graph, tensors=self.tensors, ops=tuple(self.ops))


Rule = Callable[[Rewriter, Op], None]


def swap_names(op: Op, swap: Mapping[str, str]) -> Op:
    """A copy of the operation over other tensors; names not in `swap` stay."""
    return op.replaced(
        inputs=tuple(swap.get(n, n) for n in op.inputs),
        outputs=tuple(swap.get(n, n) for n in op.outputs),
        epilogue=tuple(
            replace(s, tensor=s.tensor and swap.get(s.tensor, s.tensor)) for s in op.epilogue
        ),
        protos=tuple(renamed_node(p, swap) for p in op.protos),
    )


def renamed_node(proto: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of the node that reads and writes other tensors."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    copy.input[:] = [names.get(n, n) for n in proto.input]
    copy.output[:] = [names.get(n, n) for n in proto.output]
    return copy


def emit_default(rewriter: Rewriter, op: Op) -> None:
    """Emits the operation as one that the Relax importer lowers."""
    outputs = tuple(o for o in op.outputs if o)
    rewriter.emit(op.replaced(kind="Default", inputs=default_reads(op), outputs=outputs))


def default_reads(op: Op) -> tuple[str, ...]:
    """The tensors that an operation reads, each once."""
    return tuple(dict.fromkeys(name for name in op.inputs if name))


def is_float(rewriter: Rewriter, *names: str) -> bool:
    """Whether all tensors are float32."""
    return all(rewriter.tensors[n].dtype == "float32" for n in names)


def binary(op: Op, kind: str, inputs: tuple[str, str], output: str) -> Op:
    """An element-wise operation of two tensors in the place of `op`."""
    proto = helper.make_node(kind, list(inputs), [output], name=op.nodes[0])
    return Op(
        kind="Default",
        inputs=tuple(dict.fromkeys(inputs)),
        outputs=(output,),
        nodes=op.nodes,
        protos=(proto,),
    )
