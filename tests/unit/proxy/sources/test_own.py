"""The source that whoever runs blocks feeds."""

from __future__ import annotations

import pytest

from veltair.proxy.sources.own import OwnBlocks
from veltair.runtime.errors import InputError


def test_blocks_weigh_by_their_time_alone() -> None:
    times = iter([100, 400, 1000])
    source = OwnBlocks(lambda: next(times))
    source.add(300, 100)
    source.add(900, 900)
    reading = source.read()
    found = {count.name: (count.value, count.confidence) for count in reading.counts}
    assert found == {"blocks": (2, 1.0), "block_slowdown": (pytest.approx(0.2), 0.25)}
    assert (reading.time_ns, reading.elapsed_ns) == (400, 300)
    again = source.read()
    assert [(count.name, count.value) for count in again.counts] == [("blocks", 0)]
    assert [lack.name for lack in again.missing] == ["block_slowdown"]
    source.close()


def test_many_blocks_are_believed() -> None:
    source = OwnBlocks()
    for _ in range(50):
        source.add(110, 100)
    assert {count.confidence for count in source.read().counts} == {1.0}


@pytest.mark.parametrize(("block_ns", "alone_ns"), [(0, 1), (1, 0), (5, -1)])
def test_times_that_are_none(block_ns: int, alone_ns: int) -> None:
    with pytest.raises(InputError, match="both are above 0"):
        OwnBlocks().add(block_ns, alone_ns)
