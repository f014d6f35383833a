"""What the benchmark of the level makes of what it saw."""

from __future__ import annotations

import numpy as np
import pytest

from veltair.eval.bench_level import followed

MS = 1_000_000
PERIOD_S = 0.1
CHANGES = [(index * 100 * MS, index % 2 == 0) for index in range(8)]


def looks(delay_ms: int, beside: float, without: float) -> np.ndarray:
    """A level that follows each change after a delay, looked at every ms."""
    rows = []
    for at_ms in range(800):
        behind = max(at_ms - delay_ms, 0) // 100
        level = beside if behind % 2 == 0 else without
        rows.append((at_ms * MS, level + 0.001 * (at_ms // 100 % 2), 0.5))
    return np.array(rows)


def test_how_long_it_takes() -> None:
    found = followed(looks(30, 0.5, 0.1), CHANGES, PERIOD_S)
    assert found["apart"]
    assert found["beside"]["p50"] == pytest.approx(0.5, abs=0.01)
    assert found["without"]["p50"] == pytest.approx(0.1, abs=0.01)
    assert found["fall_ns"]["p50"] == 30 * MS
    assert found["rise_ns"]["p90"] == 30 * MS
    assert found["known"] == 1


def test_a_level_that_never_follows() -> None:
    seen = looks(30, 0.5, 0.1)
    seen[seen[:, 0] < 50 * MS, 1] = 0.1  # the first one
    assert followed(seen, CHANGES, PERIOD_S)["rise_ns"]["p90"] > 30 * MS


def test_levels_that_are_not_apart() -> None:
    random = np.random.default_rng(0)
    seen = looks(30, 0.1, 0.1)
    seen[:, 1] += np.repeat(random.normal(0, 0.1, 16), 50)
    found = followed(seen, CHANGES, PERIOD_S)
    assert not found["apart"]
    assert "rise_ns" not in found


def test_a_level_that_is_not_known() -> None:
    seen = looks(30, 0.5, 0.1)
    seen[:, 1] = np.nan
    assert followed(seen, CHANGES, PERIOD_S)["known"] == 0
