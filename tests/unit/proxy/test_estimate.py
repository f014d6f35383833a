"""Estimates of one moment, and what is believed over many."""

from __future__ import annotations

import pytest
from proxy_models import count, linear_model, proxy_file, reading, term

from veltair.proxy.estimate import SmoothLevel, estimate_level
from veltair.proxy.features import Features, features
from veltair.proxy.proxy_file import Estimate

MEMORY_NS = 20_000_000
MS = 1_000_000


def seen(**counts: float) -> Features:
    return features([reading(*(count(name, value) for name, value in counts.items()))])


def test_own_blocks_tell_where_nothing_is_trained() -> None:
    assert estimate_level(None, seen(block_level=0.3), ["self"]).level == pytest.approx(0.3)
    assert estimate_level(None, seen(block_level=-0.3), ["self"]).level == -0.3
    assert estimate_level(None, seen(block_slowdown=0.3), ["self"]).confidence == 0


def test_a_trained_model_comes_first() -> None:
    file = proxy_file(linear_model(term("probe_step", mean=100, scale=10), sources=("probe",)))
    found = seen(block_level=0.3, probe_step=100)
    assert estimate_level(file, found, ["self", "probe"]).level == 1.0  # its intercept
    # Without its source, or its count, our own blocks.
    assert estimate_level(file, found, ["self"]).level == pytest.approx(0.3)
    missing = estimate_level(file, seen(block_level=0.3), ["self", "probe"])
    assert missing.level == pytest.approx(0.3)
    assert estimate_level(file, {}, ["self", "probe"]).confidence == 0


def followed(level: float, confidence: float, times_ms: list[int]) -> list[Estimate]:
    smooth = SmoothLevel(0)
    believed = [smooth.add(Estimate(level=0.0, confidence=confidence), 0, MEMORY_NS)]
    believed += [
        smooth.add(Estimate(level=level, confidence=confidence), at * MS, MEMORY_NS)
        for at in times_ms
    ]
    return believed


def test_a_step_is_followed_within_50_ms() -> None:
    believed = followed(0.5, 0.8, [20, 40])
    assert [each.level > 0.5 * 0.8 for each in believed] == [False, False, True]
    assert followed(0.5, 0.8, list(range(10, 50, 10)))[-1].level > 0.5 * 0.8


def test_confident_estimates_count_most() -> None:
    smooth = SmoothLevel(0)
    smooth.add(Estimate(level=1.0, confidence=0.1), 0, MEMORY_NS)
    assert smooth.add(Estimate(level=0.0, confidence=0.9), 0, MEMORY_NS).level == pytest.approx(0.1)


def test_nothing_is_believed_for_long() -> None:
    smooth = SmoothLevel(0)
    nothing = Estimate(level=0.0, confidence=0.0)
    assert smooth.add(nothing, 0, MEMORY_NS).confidence == 0
    smooth.add(Estimate(level=0.7, confidence=1.0), 0, MEMORY_NS)
    half = smooth.add(nothing, 20 * MS, MEMORY_NS)
    assert (half.level, half.confidence) == (0.7, pytest.approx(0.368, abs=0.001))
    assert smooth.add(nothing, 120 * MS, MEMORY_NS).confidence < 0.01
    # Long blocks are waited for.
    smooth.add(Estimate(level=0.7, confidence=1.0), 200 * MS, MEMORY_NS)
    assert smooth.add(nothing, 300 * MS, 200 * MS).confidence == pytest.approx(0.607, abs=0.001)
