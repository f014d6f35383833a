"""Whether a control stayed the same."""

from __future__ import annotations

import pytest

from veltair.proxy.steadiness import steadiness


def test_rounds_that_are_off_are_left_out() -> None:
    seen = steadiness({0: [100, 101], 1: [99, 100], 2: [130, 128], 3: [100, 300, 100]})
    assert seen.kept == (0, 1, 3)  # one slow measurement is no drift
    assert seen.rounds == 4
    assert seen.drift == pytest.approx(0.29, abs=0.01)
    assert seen.is_enough


def test_two_rounds_are_too_few() -> None:
    assert not steadiness({0: [100], 1: [100]}).is_enough
    assert steadiness({0: [100], 1: [100], 2: [100]}).is_enough


def test_more_than_half_lost_is_too_much() -> None:
    wandering = {number: [100 * 1.3**number] for number in range(7)}
    wandering |= {7: [100 * 1.3**3], 8: [100 * 1.3**3]}
    seen = steadiness(wandering)
    assert seen.kept == (3, 7, 8)
    assert not seen.is_enough
