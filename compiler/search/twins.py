"""Versions of a batch's layers where nobody has searched them: those of one sample's.

A kernel's choice is of tiles, which say how a part of the work is done; a batch has more parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from veltair.compiler.kernels.choices import Choice
from veltair.compiler.lower import Request
from veltair.compiler.search.spaces import check
from veltair.compiler.search.variants import spec_of

Choices = Sequence[Choice]


def twins(
    requests: Sequence[Request],
    choices: Sequence[Choices],
    one: Sequence[Request],
    of_one: Sequence[Choices],
    isa: str,
) -> list[Choices]:
    """The choices of a batch's layers; what a layer lacks is taken from its twin.

    Args:
        requests: of the batch.
        choices: that were found for each; none where it wasn't searched.
        one: the layers of one sample.
        of_one: that were found for each of these.
        isa: instruction set.
    """
    known = {(r.nodes, r.op): own for r, own in zip(one, of_one, strict=True)}
    return [
        own or [c for c in known.get((r.nodes, r.op), ()) if _fits(r, c, isa)]
        for r, own in zip(requests, choices, strict=True)
    ]


def _fits(request: Request, choice: Choice, isa: str) -> bool:
    spec = spec_of(request)
    if spec is None:
        return False
    try:
        check(spec, isa, choice)
    except ValueError:
        return False
    return True
