"""The memory plan keeps every value until its last reader, and every border zero.

Borders that are cleared in each run stand in memory of which nothing is known before.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.clean import infer_shapes
from veltair.compiler.graph import VIEW_KINDS, Graph, Op, from_model
from veltair.compiler.lower import FREE_KINDS
from veltair.compiler.passes import allocation, prepare
from veltair.compiler.passes.allocation import CLEARED_FROM_BYTES, Sizes
from veltair.compiler.passes.plan import Placement, Plan, plan_memory
from veltair.runtime.manifest import ITEM_BYTES, Border, compact_strides

LANES = (8, 16)


class RandomNetwork:
    """Draws a small network of image operators over tensors of one height and width."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.batch = draw(st.integers(1, 2))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values = {"x": draw(st.sampled_from([3, 8, 12]))}  # name to channels

    def build(self) -> onnx.ModelProto:
        for _ in range(self.draw(st.integers(1, 9))):
            rule = self.draw(
                st.sampled_from([self.conv, self.add, self.concat, self.pool, self.exp])
            )
            rule()
        last = list(self.values)[-1]
        outputs = {last, *(self.pick() for _ in range(3))} - {"x"}
        graph = helper.make_graph(
            self.nodes,
            "g",
            [
                helper.make_tensor_value_info(
                    "x", TensorProto.FLOAT, [self.batch, self.values["x"], 5, 5]
                )
            ],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in sorted(outputs)],
            self.weights,
        )
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])

    def pick(self) -> str:
        return self.draw(st.sampled_from(list(self.values)))

    def emit(self, op: str, inputs: list[str], channels: int, **attributes: object) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{name}", **attributes))
        self.values[name] = channels

    def conv(self) -> None:
        source, kernel = self.pick(), self.draw(st.sampled_from([1, 3, 5]))
        channels = self.draw(st.sampled_from([8, 12, 16]))
        weight = np.zeros((channels, self.values[source], kernel, kernel), np.float32)
        name = f"w{len(self.nodes)}"
        self.weights.append(numpy_helper.from_array(weight, name))
        self.emit("Conv", [source, name], channels, pads=[kernel // 2] * 4)

    def add(self) -> None:
        first = self.pick()
        same = [n for n, c in self.values.items() if c == self.values[first]]
        self.emit("Add", [first, self.draw(st.sampled_from(same))], self.values[first])

    def concat(self) -> None:
        parts = [self.pick() for _ in range(self.draw(st.integers(1, 3)))]
        self.emit("Concat", parts, sum(self.values[p] for p in parts), axis=1)

    def pool(self) -> None:
        source = self.pick()
        self.emit("MaxPool", [source], self.values[source], kernel_shape=[3, 3], pads=[1] * 4)

    def exp(self) -> None:
        source = self.pick()
        self.emit("Exp", [source], self.values[source])


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    return RandomNetwork(draw).build()


def positions(place: Placement) -> npt.NDArray[np.int64]:
    """Element positions that a placement covers in its storage."""
    assert place.offset_bytes % 4 == 0
    index = np.full((), place.offset_bytes // 4)
    for size, stride in zip(place.shape, place.strides, strict=True):
        index = index[..., None] + np.arange(size) * stride
    return index.reshape(-1)


GARBAGE = -1


class Memory:
    """Which tensor's value each element of each storage holds; 0 where there is a zero."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self.graph, self.plan = graph, plan
        self.ids = {name: i + 1 for i, name in enumerate(plan.placements)}
        self.values: dict[str, npt.NDArray[np.int64]] = {}  # what each tensor held when made
        self.held: dict[tuple[str, int], npt.NDArray[np.int64]] = {
            ("arena", 0): np.full(plan.sizes.arena_bytes // 4, GARBAGE),
            ("bordered", 0): np.zeros(plan.sizes.bordered_bytes // 4, int),
        }
        for kind, names in (("input", graph.inputs), ("output", graph.outputs)):
            for i, name in enumerate(names):
                size = math.prod(graph.tensors[name].shape)
                self.held[(kind, i)] = np.zeros(size, int)

    def at(self, place: Placement) -> npt.NDArray[np.int64]:
        return self.held[(place.storage, place.index)][positions(place)]

    def write(self, name: str) -> None:
        place = self.plan.placements[name]
        self.held[(place.storage, place.index)][positions(place)] = self.ids[name]
        self.values[name] = self.at(place)

    def clear(self, border: Border) -> None:
        """Sets what lies around the inside to zero, of a tensor that begins at the offset."""
        begin = border.offset_bytes // ITEM_BYTES[border.dtype]
        held = self.held[("arena", 0)][begin : begin + math.prod(border.shape)]
        rows = held.reshape(*border.shape)
        top, left, bottom, right = border.margins
        inside = np.zeros(border.shape, bool)
        height, width = border.shape[2:4]
        inside[:, :, top : height - bottom, left : width - right] = True
        rows[~inside] = 0

    def clear_before(self, op: Op) -> None:
        for border in self.plan.cleared.get(op.outputs[0], ()):
            self.clear(border)
        for name in op.reads:
            if name in self.values:
                self.check(name)  # clearing took nothing from it

    def rename(self, op: Op) -> None:
        """An operation without a kernel gives what its inputs hold another name."""
        for name in op.inputs:
            self.check(name)
        self.values[op.outputs[0]] = self.at(self.plan.placements[op.outputs[0]])
        held = set(self.values[op.outputs[0]])
        assert held == {v for name in op.inputs for v in set(self.values[name])}

    def check(self, name: str) -> None:
        assert np.array_equal(self.at(self.plan.placements[name]), self.values[name]), name

    def check_apart(self, name: str, reads: tuple[str, ...]) -> None:
        """What a kernel writes overlaps nothing that it still reads."""
        place = self.plan.placements[name]
        written = set(positions(place))
        for other in reads:
            read = self.plan.placements.get(other)
            if read is not None and (read.storage, read.index) == (place.storage, place.index):
                assert not written.intersection(positions(read)), (name, other)

    def check_border(self, name: str, pads: tuple[int, int, int, int]) -> None:
        place = self.plan.placements[name]
        outside = set(positions(place.padded(pads))) - set(positions(place))
        held = self.held[(place.storage, place.index)]
        assert not any(held[i] for i in outside), name


def plan_and_run(model: onnx.ModelProto, lanes: int) -> Plan:
    """Plans a network and checks that every read sees what was written, and zeros around it."""
    graph = prepare(from_model(infer_shapes(model)), lanes)
    plan = plan_memory(graph, lanes)
    memory = Memory(graph, plan)
    for name in graph.inputs:
        memory.write(name)
    for op in graph.ops:
        if op.kind in ("Reshape", "ConcatView"):
            memory.rename(op)
            continue
        for name in op.reads:
            if graph.tensors[name].data is not None:
                continue
            memory.check(name)
            place = plan.placements[name]
            assert op.kind in VIEW_KINDS or place.strides == compact_strides(place.shape)
        if op.kind == "Conv" and any(op.attrs["pads"]):
            memory.check_border(op.inputs[0], op.attrs["pads"])
        memory.clear_before(op)
        for name in op.outputs:
            memory.check_apart(name, op.reads)
            memory.write(name)
    for name in graph.outputs:
        memory.check(name)
        assert plan.placements[name].storage == "output"
    return plan


def chain(layers: list[tuple[int, int, int]]) -> onnx.ModelProto:
    """Convolutions one after the other: channels, kernel and stride of each."""
    nodes, weights, channels = [], [], 16
    for index, (outputs, kernel, stride) in enumerate(layers):
        weight = np.zeros((outputs, channels, kernel, kernel), np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        names = (f"t{index}", f"w{index}")
        form = {"pads": [kernel // 2] * 4, "strides": [stride] * 2}
        nodes.append(helper.make_node("Conv", names, [f"t{index + 1}"], **form))
        channels = outputs
    ends = ("t0", [1, 16, 5, 5]), (f"t{len(layers)}", None)
    first, last = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends)
    graph = helper.make_graph(nodes, "g", [first], [last], weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


# From which size on borders are cleared: all, some, and none of these tests' tensors.
CLEARED_FROM = st.sampled_from([0, 4 << 10, CLEARED_FROM_BYTES])


@contextlib.contextmanager
def cleared_from(size_bytes: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "CLEARED_FROM_BYTES", size_bytes)
        yield


@settings(max_examples=400, deadline=None)
@given(networks(), st.sampled_from(LANES), CLEARED_FROM)
def test_every_read_sees_the_value_written_and_a_zero_border(
    model: onnx.ModelProto, lanes: int, size_bytes: int
) -> None:
    with cleared_from(size_bytes):
        plan = plan_and_run(model, lanes)
    if size_bytes == 0:
        assert plan.sizes.bordered_bytes == 0
    if size_bytes == CLEARED_FROM_BYTES:
        assert not plan.cleared


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([16, 32, 64]), st.sampled_from([3, 5]), st.sampled_from([1, 1, 2])
        ),
        min_size=4,
        max_size=8,
    ),
    st.sampled_from(LANES),
    CLEARED_FROM,
)
def test_borders_are_zero_whoever_had_the_memory_before(
    layers: list[tuple[int, int, int]], lanes: int, size_bytes: int
) -> None:
    with cleared_from(size_bytes):
        plan_and_run(chain(layers), lanes)


def test_bordered_tensors_share_whole_channels() -> None:
    # Tensors of 1, 1, 2, 4 and 1 blocks of 16 channels, 7x7 with their borders, of which two follow
    # on each other, then two without a border.
    plan = plan_and_run(chain([(16, 3, 1), (32, 3, 1), (64, 3, 1), (16, 3, 1), (16, 1, 1)]), 16)
    bordered, plain = 7 * 7 * 16 * 4, 5 * 5 * 16 * 4
    assert plan.sizes == Sizes(arena_bytes=2 * plain, bordered_bytes=(2 + 4) * bordered)


def test_what_is_cleared_shares_memory_with_all() -> None:
    bordered = 7 * 7 * 16 * 4
    with cleared_from(2 * bordered):
        plan = plan_and_run(chain([(16, 3, 1), (32, 3, 1), (64, 3, 1), (16, 3, 1), (16, 1, 1)]), 16)
    # The tensors of 2 and 4 blocks, one of which lies where the last two are later.
    assert plan.sizes == Sizes(arena_bytes=(2 + 4) * bordered, bordered_bytes=2 * bordered)


def test_what_runs_in_any_order_shares_nothing() -> None:
    model = chain([(16, 1, 1), (16, 1, 1), (16, 1, 1), (16, 1, 1), (16, 1, 1)])
    graph = prepare(from_model(infer_shapes(model)), 16)
    kernels = [op for op in graph.ops if op.kind not in FREE_KINDS]
    one = plan_memory(graph, 16).sizes.arena_bytes
    together = plan_memory(graph, 16, times=[0] * len(graph.ops)).sizes.arena_bytes
    assert one == 2 * 5 * 5 * 16 * 4
    assert together == (len(kernels) - 1) * 5 * 5 * 16 * 4


def test_a_plan_begins_where_another_ends() -> None:
    graph = prepare(from_model(infer_shapes(chain([(16, 3, 1), (16, 3, 1), (16, 1, 1)]))), 16)
    base = Sizes(arena_bytes=1000, bordered_bytes=100)
    plan = plan_memory(graph, 16, base=base)
    ends = {"arena": 1024, "bordered": 128}  # the next lines
    for place in plan.placements.values():
        assert place.storage not in ends or place.offset_bytes >= ends[place.storage]
    alone = plan_memory(graph, 16).sizes
    assert plan.sizes == Sizes(
        arena_bytes=1024 + alone.arena_bytes, bordered_bytes=128 + alone.bordered_bytes
    )
