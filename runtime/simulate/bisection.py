"""The highest rate for which something holds, by bisection."""

from __future__ import annotations

from collections.abc import Callable

WIDEST_STEP = 1.5


def bracket(
    holds: Callable[[float], bool],
    begin_qps: float,
    lowest_qps: float,
    highest_qps: float,
    step: float = WIDEST_STEP,
) -> tuple[float, float]:
    """Finds a rate that holds and one that doesn't, by steps that widen.

    Args:
        holds: asked of a rate; taken to hold below each rate for which it does.
        begin_qps: above 0, where the search begins.
        lowest_qps: no lower rate is tried; 0.0 stands for the rate that holds then.
        highest_qps: no higher rate is tried; infinity stands for the one that doesn't then.
        step: above 1, from the first rate to the next. Where that wasn't enough the begin was a bad
            guess, so each further step is its predecessor's square, up to `WIDEST_STEP`.

    Returns:
        The rates, the one that holds first.
    """
    rate_qps, widest = begin_qps, max(step, WIDEST_STEP)
    if holds(rate_qps):
        while rate_qps * step < highest_qps:
            low_qps, rate_qps = rate_qps, rate_qps * step
            if not holds(rate_qps):
                return low_qps, rate_qps
            step = min(step * step, widest)
        return rate_qps, float("inf")
    while rate_qps / step > lowest_qps:
        high_qps, rate_qps = rate_qps, rate_qps / step
        if holds(rate_qps):
            return rate_qps, high_qps
        step = min(step * step, widest)
    return 0.0, rate_qps


def bisect(
    holds: Callable[[float], bool],
    low_qps: float,
    high_qps: float,
    *,
    tolerance: float,
    lowest_qps: float = 0.0,
) -> float:
    """Returns the highest rate between two that holds, as a bisection finds it.

    Args:
        holds: asked of a rate; taken to hold below each rate for which it does.
        low_qps: holds, or is 0.
        high_qps: finite; doesn't hold.
        tolerance: the search ends when the rate is known this well, as a share of it.
        lowest_qps: the search ends, too, when the rate is known to be below this.
    """
    while high_qps - low_qps > tolerance * high_qps and high_qps > lowest_qps:
        rate_qps = (low_qps + high_qps) / 2
        if holds(rate_qps):
            low_qps = rate_qps
        else:
            high_qps = rate_qps
    return low_qps
