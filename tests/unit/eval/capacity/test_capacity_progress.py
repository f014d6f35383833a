"""The time left of an evaluation, from the pace of what was measured."""

from __future__ import annotations

import pytest

from veltair.eval.capacity.progress import Estimate


def test_the_time_left_follows_the_pace_of_what_was_measured() -> None:
    estimate = Estimate({"a": 10.0, "b": 20.0, "c": 30.0})
    assert (estimate.share, estimate.left_s) == (0.0, 60.0)
    estimate.end("a", 15.0, measured=True)
    assert estimate.share == pytest.approx(1 / 6)
    assert estimate.left_s == pytest.approx(75)  # half as slow again as was thought
    estimate.end("b", 0.0, measured=False)  # kept from before: says nothing of the pace
    assert estimate.left_s == pytest.approx(45)
    estimate.end("c", 30.0, measured=True)
    assert (estimate.share, estimate.left_s) == (1.0, 0.0)


def test_nothing_to_do_is_done() -> None:
    assert (Estimate({}).share, Estimate({}).left_s) == (1.0, 0.0)
