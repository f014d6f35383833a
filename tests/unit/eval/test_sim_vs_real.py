"""What the simulator's check makes of the queries between slices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veltair.eval.capacity.system import Observed
from veltair.eval.sim_vs_real import Probes, Slice, slowdown_beside, steadiest
from veltair.eval.unevenness import ProbeQuery
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import REFUSED, SERVED

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
        zero_ns=0,
        before=before,
        after=after,
    )


def test_the_speed_of_a_slice_is_of_both_ends_and_as_much_of_those_alone_as_of_others() -> None:
    found = part(probes((10, 12), (18, 18)), probes((10,) * 6, (14,)))
    # Alone 82/8 of 10 expected, beside others 50/3 of 12.5.
    assert found.speed("a", 10 * MS, 12.5 * MS) == pytest.approx((1.025 + 50 / 37.5) / 2)
    assert found.speed("b", 900 * MS, 900 * MS) == 1


def test_ends_are_of_the_queries_that_were_served() -> None:
    nothing = probes((10,), (10,))
    found = replace(
        part(nothing, nothing),
        arrivals=Arrivals(time_ns=np.array([0, 5, 9]), model=np.zeros(3, np.int32)),
        observed=Observed(
            submitted_ns=np.zeros(3, np.int64),
            start_ns=np.array([1, -1, 10]),
            end_ns=np.array([7, 6, 20]),
            outcome=np.array([SERVED, REFUSED, SERVED]),
            errors=(),
        ),
        zero_ns=100,
    )
    assert found.ends() == {100: 107, 109: 120}


def test_what_neighbours_cost_is_of_a_whole_run() -> None:
    first = part(probes((10,), (10,)), probes((20, 20), (24, 24)))
    found = slowdown_beside([first, part(probes((10,), (12,)), probes((10,), (12,)))], ["a", "b"])
    # Alone 10 + 20 + 20 + 10 + 10, beside others 10 + 24 + 24 + 12 + 12.
    assert found == pytest.approx({"a": 82 / 70, "b": 1})


def test_neighbours_never_help() -> None:
    faster = probes((10,), (9,))
    assert slowdown_beside([part(faster, faster)], ["a"]) == {"a": 1}


def test_a_change_is_of_all_probes_together_in_either_direction() -> None:
    # Of b nothing changed: the fourth root of a quarter and of 4 is what is left.
    assert part(probes((10,), (10,)), probes((20,), (20,))).change() == pytest.approx(2**0.5 - 1)
    assert part(probes((20,), (20,)), probes((10,), (10,))).change() == pytest.approx(2**0.5 - 1)
    assert part(probes((10,), (20,)), probes((20,), (10,))).change() == pytest.approx(0)


@pytest.mark.parametrize(
    ("ends", "tries", "counts"),
    [
        ((10, 10, 10, 10), 1, 0),
        ((10, 20, 20, 10), 2, 1),  # faster again, after a try at one speed
        ((10, 20, 40, 20), 3, 0),  # never steady: all changed as much
        ((10, 40, 30, 10), 3, 1),  # nor here, but the second changed least
    ],
)
def test_a_slice_is_run_again_while_the_machine_changes(
    ends: tuple[int, ...], tries: int, counts: int
) -> None:
    at = [probes((ms,), (ms,)) for ms in ends]
    left = iter(at[1:])

    def run(before: Probes) -> Slice:
        return part(before, next(left))

    found = steadiest(run, at[0])
    assert len(found) == tries
    assert [each.before for each in found] == at[:tries]
    assert min(found, key=Slice.change) is found[counts]
