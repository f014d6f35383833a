"""Quantities as pages write them."""

from __future__ import annotations

import math


def bytes_text(size: float) -> str:
    """A size, e.g. `64 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def time_text(ns: float) -> str:
    """A time, e.g. `1.25 ms`."""
    if ns < 1e3:
        return f"{ns:.0f} ns"
    return f"{ns / 1e3:.3g} us" if ns < 1e6 else f"{ns / 1e6:.4g} ms"


def number_text(value: float) -> str:
    """A figure with three digits or all of those before its point, e.g. `0.0512`, `33.1`, `1204`.

    Differs from `{:.3g}`, which rounds 1204 to `1.2e+03`.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"


def revision_text(revision: str) -> str:
    """The first ten digits of a revision; `+` after them: with changes of its own."""
    return revision[:10] + "+" * revision.endswith("+changes")


def share_text(value: float) -> str:
    """A share in percent, e.g. `94.7 %`."""
    return f"{100 * value:.1f} %"
