"""A machine's unevenness is found again in the times of queries that came alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veltair.eval.unevenness import LEAST_MEMORY_NS, ProbeQuery, Unevenness, unevenness

STEP_NS = 1_000_000
LENGTHS_NS = {"long": 40_000_000, "short": 5_000_000}


def paces(spread: float, memory_ns: int, steps: int, seed: int) -> np.ndarray:
    """The pace of each step: what a step ahead keeps of the deviation is by the memory."""
    kept = math.exp(-STEP_NS / memory_ns)
    draws = np.random.default_rng(seed).standard_normal(steps)
    deviation = np.empty(steps)
    deviation[0] = draws[0]
    for step in range(1, steps):
        deviation[step] = kept * deviation[step - 1] + math.sqrt(1 - kept**2) * draws[step]
    return np.exp(spread * deviation)


def groups(spread: float, memory_ns: int, count: int = 60) -> list[list[list[ProbeQuery]]]:
    """Each of a series before and one after, 3 s between them; a group at a speed of its own."""
    found = []
    for seed in range(count):
        pace = paces(spread, memory_ns, 12_000, seed)
        at = 0
        group = []
        for _ in range(2):
            series = []
            for index in range(20):
                model = ("long", "short")[index * 7 % 5 % 2]
                took_ns = LENGTHS_NS[model] * pace[at : at + LENGTHS_NS[model] // STEP_NS].mean()
                took_ns *= 1 + seed % 3
                series.append(
                    ProbeQuery(model=model, begin_ns=at * STEP_NS, compute_ns=round(took_ns))
                )
                at += LENGTHS_NS[model] // STEP_NS + 5
            group.append(series)
            at += 3000
        found.append(group)
    return found


@pytest.mark.parametrize(("spread", "memory_ns"), [(0.1, 150_000_000), (0.3, 60_000_000)])
def test_spread_and_memory_are_found(spread: float, memory_ns: int) -> None:
    found = unevenness(groups(spread, memory_ns))
    assert found.spread == pytest.approx(spread, rel=0.15)
    assert found.memory_ns == pytest.approx(memory_ns, rel=0.4)


def test_what_has_no_memory_is_noise_of_single_queries() -> None:
    """The simulated pace then changes as fast as it may, and queries' times vary as much."""
    random = np.random.default_rng(0)
    times = random.lognormal(math.log(10e6), 0.2, (40, 2, 20))
    queries = [
        [
            [
                ProbeQuery(model="m", begin_ns=20_000_000 * index, compute_ns=round(took_ns))
                for index, took_ns in enumerate(series)
            ]
            for series in group
        ]
        for group in times
    ]
    found = unevenness(queries)
    assert found.memory_ns == pytest.approx(LEAST_MEMORY_NS, rel=1)
    assert 0.2 < found.spread < 0.3


def test_an_even_machine_is_even() -> None:
    queries = [ProbeQuery(model="m", begin_ns=index, compute_ns=5) for index in range(9)]
    assert unevenness([(queries, queries)]).spread == pytest.approx(0, abs=1e-9)
    nothing = Unevenness(spread=0.0, memory_ns=LEAST_MEMORY_NS)
    assert unevenness([]) == nothing
    assert unevenness([([queries[0]], [queries[1]])]) == nothing
