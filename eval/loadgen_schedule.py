"""When LoadGen's Server scenario wants each query, worked out beforehand from its seed.

LoadGen tells a system under test which samples to run, not when they were due; but latency has to
be counted from when they were due, also here. Its schedule is drawn by `std::mt19937` through
`std::exponential_distribution`, both of which are defined exactly, so it is drawn here again. Each
run checks it against LoadGen's own mean latency (`loadgen_report.check_schedule`).

Reference: MLPerf LoadGen, `GenerateQueries` and `ScheduleDistribution<Server>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STATE_WORDS = 624
_MASK = 0xFFFFFFFF


def loadgen_seeds(seed: int) -> tuple[int, int, int]:
    """Returns LoadGen's seeds of a test: of its schedule, of its samples' indices, of its library.

    Args:
        seed: the plan's.
    """
    schedule, index, library = (int(s) for s in np.random.SeedSequence(seed).generate_state(3))
    return schedule, index, library


def server_schedule(seed: int, qps: float, queries: int) -> NDArray[np.int64]:
    """Returns when each query is due.

    Args:
        seed: LoadGen's `schedule_rng_seed`.
        qps: LoadGen's `server_target_qps`.
        queries: how many.

    Returns:
        int64[queries], nanoseconds from the first query's time.
    """
    if queries == 0:
        return np.zeros(0, np.int64)
    words = _mt19937(seed).random_raw(2 * queries).astype(np.float64)
    # std::generate_canonical<double, 53> of a 32-bit generator: two words, the low one first.
    uniform = (words[0::2] + words[1::2] * 2.0**32) / 2.0**64
    gaps_ns = (-np.log1p(-uniform) / qps * 1e9).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(gaps_ns)[:-1]])


def _mt19937(seed: int) -> np.random.MT19937:
    """Returns the generator seeded as C++ does it; NumPy's own seeding gives another state."""
    key = [seed & _MASK]
    for i in range(1, _STATE_WORDS):
        previous = key[-1]
        key.append((1812433253 * (previous ^ (previous >> 30)) + i) & _MASK)
    generator = np.random.MT19937()
    generator.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(key, np.uint32), "pos": _STATE_WORDS},
    }
    return generator
