"""Content codings of answers: which one a client asked for, and applying it."""

from __future__ import annotations

import zlib

from veltair.runtime.server.bodies import CODINGS

# Floating-point results hardly shrink at any level; the fastest wastes the least on them.
LEVEL = 1


def choose_coding(accepted: bytes) -> bytes | None:
    """Reads an Accept-Encoding header.

    Returns:
        `gzip` or `deflate`, whichever has the higher weight, `gzip` if they are equal; None for no
        coding.
    """
    weights: dict[bytes, float] = {}
    for item in accepted.lower().split(b","):
        name, _, parameter = item.partition(b";")
        weights[name.strip()] = _weight(parameter)
    default = weights.get(b"*", 0.0)
    best = max(CODINGS, key=lambda coding: weights.get(coding, default))
    return best if weights.get(best, default) > 0 else None


def compress(data: bytes, coding: bytes) -> bytes:
    """Applies a coding in `CODINGS`."""
    stream = zlib.compressobj(LEVEL, wbits=CODINGS[coding])
    return stream.compress(data) + stream.flush()


def _weight(parameter: bytes) -> float:
    name, _, value = parameter.partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
