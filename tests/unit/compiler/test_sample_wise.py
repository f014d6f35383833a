"""Which layers of a batch run sample by sample, and that they compute the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import Quiet, options_alone
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler import arrangement
from veltair.compiler.building import Builder
from veltair.compiler.layer_costs import LayerCosts
from veltair.compiler.passes import allocation
from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.sample_wise import order
from veltair.runtime.manifest import Batch, Manifest
from veltair.runtime.model import Model

SIZE = 3


def network(path: Path) -> Path:
    """Convolutions with borders, a residual sum, a concatenation, a pool and a product."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((32, 3, 3, 3)) / 5,
        "w1": rng.standard_normal((32, 32, 3, 3)) / 17,
        "w2": rng.standard_normal((16, 32, 1, 1)) / 6,
        "w3": rng.standard_normal((16, 32, 3, 3)) / 17,
        "w4": rng.standard_normal((32, 10)) / 6,
    }
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], **pads),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], **pads),
        helper.make_node("Add", ["c1", "r0"], ["a1"]),
        helper.make_node("Relu", ["a1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Conv", ["r1", "w3"], ["c3"], **pads),
        helper.make_node("Concat", ["c2", "c3"], ["k"], axis=1),
        helper.make_node("MaxPool", ["k"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sigmoid", ["p"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w4"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 10, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def growing(path: Path) -> Path:
    """Layers of which each writes more than the one before; a border around each."""
    channels = [16, 16, 16, 64, 16]
    rng = np.random.default_rng(0)
    weights = [
        (rng.standard_normal((many, few, 3, 3)) / 12).astype(np.float32)
        for few, many in itertools.pairwise(channels)
    ]
    nodes = [
        helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], pads=[1, 1, 1, 1])
        for i in range(len(weights))
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 10, 8])]
        for name in ("t0", f"t{len(weights)}")
    ]
    initializers = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", *ends, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def options_of(tmp_path: Path, write: Callable[[Path], Path] = network) -> CompileOptions:
    tmp_path.mkdir(exist_ok=True)
    return options_alone(write(tmp_path / "m.onnx"), batches=(SIZE,))


@pytest.mark.parametrize("seed", range(6))
def test_any_arrangement_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The compile compares it with ONNX Runtime; this, that it is arranged at all."""
    counts: list[tuple[int, int]] = []

    def masks(_: Path, __: Manifest, batch: Batch, builder: Builder) -> list[list[bool]]:
        rng = np.random.default_rng(seed)
        can = [index is not None for index in builder.twins(batch.size)]
        mask = [may and (seed == 0 or rng.random() < 0.6) for may in can]
        counts.append((sum(mask), len(mask)))
        return [mask]

    def last(_: Path, __: Manifest, candidates: list[Batch]) -> Batch:
        return candidates[-1]

    monkeypatch.setattr(arrangement, "_masks", masks)
    monkeypatch.setattr(arrangement, "_fastest", last)
    result = compile_model(options_of(tmp_path), Quiet())
    assert result.difference is not None
    ((chosen, layers),) = counts
    assert chosen > 0
    assert len(result.manifest.batches[0].layers) == layers + chosen * (SIZE - 1)
    one, several = (Model.load(tmp_path / "repository" / "m", batch=n) for n in (1, SIZE))
    x = np.random.default_rng(seed).standard_normal((SIZE, 3, 10, 8)).astype(np.float32)
    for _ in range(2):  # twice: the arena is no longer fresh
        alone = np.concatenate([one.run({"x": sample[np.newaxis]})["y"] for sample in x])
        np.testing.assert_allclose(several.run({"x": x})["y"], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cleared_from", [0, allocation.CLEARED_FROM_BYTES])
def test_samples_leave_each_other_what_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleared_from: int
) -> None:
    """A tensor that is read last in layers that run by sample is read by the last sample too."""
    monkeypatch.setattr(allocation, "CLEARED_FROM_BYTES", cleared_from)

    def masks(_: Path, __: Manifest, batch: Batch, builder: Builder) -> list[list[bool]]:
        can = [index is not None for index in builder.twins(batch.size)]
        assert can[2:4] == [True, True]
        return [[2 <= index < 4 for index in range(len(can))]]

    monkeypatch.setattr(arrangement, "_masks", masks)
    monkeypatch.setattr(arrangement, "_fastest", lambda _, __, found: found[-1])
    result = compile_model(options_of(tmp_path, growing), Quiet())
    assert result.difference is not None
    layers = result.manifest.at(SIZE).layers
    assert len(layers) == len(result.manifest.layers) + 2 * (SIZE - 1)
    assert any(layer.cleared for layer in layers) == (cleared_from == 0)
    one, several = (Model.load(tmp_path / "repository" / "m", batch=n) for n in (1, SIZE))
    x = np.random.default_rng(1).standard_normal((SIZE, 16, 10, 8)).astype(np.float32)
    for _ in range(2):
        alone = np.concatenate([one.run({"t0": sample[np.newaxis]})["t4"] for sample in x])
        np.testing.assert_allclose(several.run({"t0": x})["t4"], alone, rtol=1e-4, atol=1e-4)


def test_memory_is_for_what_is_alive_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sample by sample from the first layer to the last, a batch needs hardly more than one."""
    monkeypatch.setattr(
        arrangement,
        "_masks",
        lambda _, __, n, b: [[index is not None for index in b.twins(n.size)]],
    )
    arenas = []
    for pick in (0, -1):  # the batch by layers of its own, and sample by sample
        monkeypatch.setattr(arrangement, "_fastest", lambda _, __, found, pick=pick: found[pick])
        result = compile_model(options_of(tmp_path / str(pick)), Quiet())
        arenas.append(result.manifest.at(SIZE).activation_bytes)
    assert arenas[1] < arenas[0]
    assert arenas[1] < 2 * result.manifest.activation_bytes


TIMES = st.lists(
    st.tuples(st.integers(1, 100), st.integers(1, 100), st.booleans()), min_size=1, max_size=7
)
CONTEXTS = st.lists(st.lists(st.integers(1, 100), min_size=4, max_size=4), min_size=7, max_size=7)


def masks_of(count: int) -> list[list[bool]]:
    return [[bool(n >> i & 1) for i in range(count)] for n in range(1 << count)]


@given(times=TIMES, switch=st.integers(0, 60))
def test_the_choice_is_the_best_of_all(times: list[tuple[int, int, bool]], switch: int) -> None:
    one, several, can = ([row[i] for row in times] for i in range(3))

    def cost(mask: list[bool]) -> float:
        if any(m and not c for m, c in zip(mask, can, strict=True)):
            return math.inf
        switches = sum(a != b for a, b in itertools.pairwise(mask))
        ran = sum(o if m else s for m, o, s in zip(mask, one, several, strict=True))
        return ran + switch * switches

    chosen = LayerCosts(one, several, can, switch).cheapest()
    assert cost(chosen) == min(map(cost, masks_of(len(times))))


@given(contexts=CONTEXTS)
def test_what_was_measured_in_its_place_is_learnt(contexts: list[list[int]]) -> None:
    """With what layers cost beside others unknown and no less, the best is found by looking."""

    def layers(mask: list[bool]) -> list[int]:
        before = [mask[0], *mask[:-1]]
        return [row[2 * m + b] for row, m, b in zip(contexts, mask, before, strict=True)]

    count = len(contexts)
    for row in contexts:  # none is cheaper beside one that runs otherwise
        row[1] = max(row[1], row[0])
        row[2] = max(row[2], row[3])
    costs = LayerCosts(layers([True] * count), layers([False] * count), [True] * count, 0)
    looked = []
    while (mask := costs.cheapest()) not in looked:
        looked.append(mask)
        costs.learn(mask, layers(mask))
    assert sum(layers(mask)) == min(sum(layers(mask)) for mask in masks_of(count))


@given(data=st.data())
def test_steps_stand_for_the_requests_of_their_runs(data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=1, max_size=9))
    found = order(mask, SIZE)
    assert [found.count(i) for i in range(len(mask))] == [SIZE if m else 1 for m in mask]
    assert sorted(set(found), key=found.index) == list(range(len(mask)))


def test_arrangements_are_looked_at_until_one_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each way to weigh the cores. Whichever is the fastest here, it runs and is right."""
    monkeypatch.setattr(arrangement, "_TURNS_NS", 0)
    offered: list[int] = []
    learnt: list[int] = []

    def cheapest(costs: LayerCosts) -> list[bool]:
        offered.append(min(2 + len(offered), 3))
        return [index == offered[-1] for index in range(len(costs._costs))]

    def learn(_: LayerCosts, chosen: list[bool], costs: NDArray[np.float64]) -> None:
        assert (costs > 0).all()
        learnt.append(chosen.index(True))

    monkeypatch.setattr(LayerCosts, "cheapest", cheapest)
    monkeypatch.setattr(LayerCosts, "learn", learn)
    result = compile_model(options_of(tmp_path, growing), Quiet())
    assert result.difference is not None
    assert offered == [2, 3, 3, 3]
    # By both ways.
    assert learnt == [2, 2, 3, 3]
