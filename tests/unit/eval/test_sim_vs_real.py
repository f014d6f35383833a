"""What the simulator's check makes of the queries between slices."""

from __future__ import annotations

import numpy as np
import pytest

from veltair.eval.capacity.system import Observed
from veltair.eval.sim_vs_real import Probes, Slice, slowdown_beside
from veltair.eval.unevenness import ProbeQuery
from veltair.runtime.simulate.arrivals import Arrivals

MS = 1_000_000
NOTHING = np.zeros(0, np.int64)


def probes(alone_ms: tuple[int, ...], beside_ms: tuple[int, ...]) -> Probes:
    """Of one model; and one query of another, which must not count."""

    def queries(times_ms: tuple[int, ...]) -> list[ProbeQuery]:
        asked = [("a", ms) for ms in times_ms] + [("b", 900)]
        return [ProbeQuery(model=name, begin_ns=0, compute_ns=ms * MS) for name, ms in asked]

    return Probes(alone=queries(alone_ms), beside=queries(beside_ms))


def part(before: Probes, after: Probes) -> Slice:
    """A slice of no queries."""
    return Slice(
        arrivals=Arrivals(time_ns=NOTHING, model=NOTHING.astype(np.int32)),
        observed=Observed(
            submitted_ns=NOTHING, start_ns=NOTHING, end_ns=NOTHING, outcome=NOTHING, errors=()
        ),
        before=before,
        after=after,
    )


def test_the_speed_of_a_slice_is_of_both_ends_and_as_much_of_those_alone_as_of_others() -> None:
    found = part(probes((10, 12), (18, 18)), probes((10,) * 6, (14,)))
    # Alone 82/8 of 10 expected, beside others 50/3 of 12.5.
    assert found.speed("a", 10 * MS, 12.5 * MS) == pytest.approx((1.025 + 50 / 37.5) / 2)
    assert found.speed("b", 900 * MS, 900 * MS) == 1


def test_what_neighbours_cost_is_of_a_whole_run_and_counts_each_probe_once() -> None:
    middle = probes((20, 20), (24, 24))
    slices = [part(probes((10,), (10,)), middle), part(middle, probes((10,), (12,)))]
    found = slowdown_beside(slices, ["a", "b"])
    # Alone 10 + 20 + 20 + 10, beside others 10 + 24 + 24 + 12.
    assert found == pytest.approx({"a": 70 / 60, "b": 1})


def test_neighbours_never_help() -> None:
    faster = probes((10,), (9,))
    assert slowdown_beside([part(faster, faster)], ["a"]) == {"a": 1}
