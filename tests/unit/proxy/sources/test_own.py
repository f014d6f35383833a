"""The source that whoever runs blocks feeds."""

from __future__ import annotations

import pytest

from veltair.proxy.sources.own import Blocks, OwnBlocks, reading
from veltair.proxy.sources.reading import Scope
from veltair.runtime._native import ipc
from veltair.runtime.errors import InputError


def test_blocks_weigh_by_their_time_alone() -> None:
    times = iter([100, 400, 1000])
    source = OwnBlocks(lambda: next(times))
    source.add(300, 100)
    source.add(900, 900)
    first = source.read()
    found = {count.name: (count.value, count.confidence) for count in first.counts}
    assert found == {"blocks": (2, 1.0), "block_slowdown": (pytest.approx(0.2), 0.25)}
    assert (first.time_ns, first.elapsed_ns) == (400, 300)
    again = source.read()
    assert [(count.name, count.value) for count in again.counts] == [("blocks", 0)]
    assert [lack.name for lack in again.missing] == ["block_slowdown", "block_level"]
    source.close()


def test_many_blocks_are_believed() -> None:
    source = OwnBlocks()
    for _ in range(50):
        source.add(110, 100)
    assert {count.confidence for count in source.read().counts} == {1.0}


def test_sensitive_blocks_say_most_of_the_level() -> None:
    source = OwnBlocks()
    # At a level of 0.5; the second one was late for a reason of its own.
    source.add(1_500_000, 1_000_000, sensitivity_ns=1_000_000)
    source.add(1_500_000, 1_000_000, sensitivity_ns=10_000)
    found = {count.name: count for count in source.read().counts}
    assert found["block_level"].value == pytest.approx(0.5, abs=0.01)
    assert found["block_level"].unit == "ratio"


def test_a_level_is_believed_by_the_sensitivity_of_its_blocks() -> None:
    def confidence(sensitivity_ns: float, blocks: int) -> float:
        source = OwnBlocks()
        for _ in range(blocks):
            source.add(1_000_000, 1_000_000, sensitivity_ns)
        counts = {count.name: count for count in source.read().counts}
        return counts["block_level"].confidence

    # An error of 0.1 in the level is worth half: a noise of 5 %, and a drift of 3 %, over a
    # sensitivity of ten times as much. Of four blocks the noise is half as much, the drift isn't.
    assert confidence(583_095, 1) == pytest.approx(0.5, rel=1e-5)
    assert confidence(390_512, 4) == pytest.approx(0.5, rel=1e-5)
    assert confidence(1_000, 1) < 0.001
    assert confidence(5_000_000, 100) > 0.99


def test_any_number_of_blocks_that_nothing_disturbs_says_little() -> None:
    many = Blocks(blocks=1_000_000, took_ns=10**12, alone_ns=10**12, weight=1_000_000 * 5e4**2)
    level, _ = ipc.own_features(many.totals)
    assert level.confidence == pytest.approx(1 / (1 + 6**2), rel=0.01)


def test_places_are_core_complexes() -> None:
    sums = {"cores 0-7": Blocks(blocks=1, took_ns=3, alone_ns=2), "cores 8-15": Blocks()}
    found = reading(sums, time_ns=5, elapsed_ns=4)
    assert {count.scope for count in found.counts} == {Scope.COMPLEX}
    by_place = {(count.name, count.where): count.value for count in found.counts}
    assert by_place == {
        ("blocks", "cores 0-7"): 1,
        ("block_slowdown", "cores 0-7"): 0.5,
        ("blocks", "cores 8-15"): 0,
    }
    assert [lack.name for lack in found.missing] == ["block_level"]


@pytest.mark.parametrize(
    ("block_ns", "alone_ns", "sensitivity"), [(0, 1, 0), (1, 0, 0), (5, 1, -1)]
)
def test_times_that_are_none(block_ns: int, alone_ns: int, sensitivity: float) -> None:
    with pytest.raises(InputError, match="times are above 0"):
        OwnBlocks().add(block_ns, alone_ns, sensitivity)
