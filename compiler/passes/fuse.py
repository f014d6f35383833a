"""Fuses element-wise operations into the convolution or matrix product before them.

A step is taken while the value so far has one reader: a bias or scale by channel, an activation, a
residual tensor of the same shape that is ready by then, and `x * sigmoid(x)`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veltair.compiler.graph import EpilogueStep, Graph, Op
from veltair.compiler.passes.normalise import drop_unused

HOSTS = ("Conv", "MatMul", "BatchMatMul")
_GATES = {"sigmoid": "silu"}


def fuse(graph: Graph) -> Graph:
    """Fuses every host's epilogue, in execution order."""
    fusion = _Fusion(graph)
    for index, op in enumerate(graph.ops):
        if op.kind in HOSTS:
            fusion.extend(index)
    return drop_unused(fusion.result())


class _Fusion:
    """The state of the pass: operations by index, `None` where one was fused away."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = dict(graph.tensors)
        self.ops: list[Op | None] = list(graph.ops)
        self.consumers = graph.consumers()
        self.producers = graph.producers()

    def result(self) -> Graph:
        return replace(
            self.graph, tensors=self.tensors, ops=tuple(op for op in self.ops if op is not None)
        )

    def extend(self, host: int) -> None:
        """Fuses all that can follow the operation at `host`."""
        while self._fuse_one(host) or self._fuse_gate(host):
            pass

    def _current(self, host: int) -> Op:
        op = self.ops[host]
        assert op is not None
        return op

    def _readers(self, name: str) -> list[int]:
        return [] if name in self.graph.outputs else self.consumers.get(name, [])

    def _take(self, host: int, step: EpilogueStep, taken: tuple[int, ...], output: str) -> None:
        op = self._current(host)
        nodes = op.nodes
        for index in taken:
            fused = self.ops[index]
            assert fused is not None
            nodes += fused.nodes
            self.ops[index] = None
        self.ops[host] = op.replaced(outputs=(output,), epilogue=(*op.epilogue, step), nodes=nodes)
        self.producers[output] = host

    def _fuse_one(self, host: int) -> bool:
        value = self._current(host).outputs[0]
        readers = self._readers(value)
        if len(readers) != 1:
            return False
        op = self.ops[readers[0]]
        if op is None or op.kind != "Default" or len(op.protos) != 1:
            return False
        step = op.attrs.get("step") or self._binary_step(host, value, op)
        if step is None:
            return False
        self._take(host, step, (readers[0],), op.outputs[0])
        return True

    def _binary_step(self, host: int, value: str, op: Op) -> EpilogueStep | None:
        proto = op.protos[0]
        if proto.op_type not in ("Add", "Mul"):
            return None
        other = next((n for n in proto.input if n != value), None)
        if other is None or self.tensors[other].dtype != "float32":
            return None
        kind = proto.op_type.lower()
        if self.tensors[other].data is not None:
            channel = self._channel(host, value, other)
            if channel is None:
                return None
            return EpilogueStep(kind=kind, operand="channel", tensor=channel)
        ready = self.producers.get(other, -1) < host
        if self._matches(host, value, other) and ready:
            return EpilogueStep(kind=kind, operand="tensor", tensor=other)
        return None

    def _matches(self, host: int, value: str, other: str) -> bool:
        """Whether the operand has the output's shape.

        For batched products it may spread over all dimensions but the last, as a mask does.
        """
        shape, theirs = self.tensors[value].shape, self.tensors[other].shape
        if self._current(host).kind != "BatchMatMul" or len(theirs) != len(shape):
            return theirs == shape
        return theirs[-1] == shape[-1] and all(
            size in (1, whole) for size, whole in zip(theirs, shape, strict=True)
        )

    def _channel(self, host: int, value: str, other: str) -> str | None:
        """The operand as float32[channels] if it has one value a channel of the host's output."""
        data = self.tensors[other].data
        assert data is not None
        shape = self.tensors[value].shape
        axis = 1 if self._current(host).kind == "Conv" else len(shape) - 1
        if data.ndim > len(shape):
            return None
        full = data.reshape((1,) * (len(shape) - data.ndim) + data.shape)
        if any(size != 1 for i, size in enumerate(full.shape) if i != axis):
            return None
        row = np.ascontiguousarray(np.broadcast_to(full.reshape(-1), (shape[axis],)))
        name = f"{value}.{other}.channel"
        like = self.tensors[other]
        self.tensors[name] = replace(like, name=name, shape=row.shape, data=row)
        return name

    def _fuse_gate(self, host: int) -> bool:
        """`x * sigmoid(x)`: the value is read by its gate and by the product of both."""
        value = self._current(host).outputs[0]
        readers = sorted(set(self._readers(value)))
        if len(readers) != 2:
            return False
        gate, product = (self.ops[i] for i in readers)
        if gate is None or product is None or len(product.protos) != 1:
            return False
        step = gate.attrs.get("step")
        gated = (
            step is not None
            and step.kind in _GATES
            and product.protos[0].op_type == "Mul"
            and set(product.protos[0].input) == {value, gate.outputs[0]}
            and len(self._readers(gate.outputs[0])) == 1
        )
        if not gated or step is None:
            return False
        silu = EpilogueStep(kind=_GATES[step.kind])
        self._take(host, silu, (readers[0], readers[1]), product.outputs[0])
        return True
