"""The systems that Veltair is compared with, each at the best of a small grid of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.capacity.peers.alone.engines import ENGINES
from veltair.eval.capacity.peers.in_process import InProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.capacity.system import System


def peers() -> Sequence[System]:
    """Returns every peer, installed or not: see `System.missing`."""
    return tuple(InProcess(engine) for engine in ENGINES)
