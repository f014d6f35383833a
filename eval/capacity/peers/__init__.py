"""The systems that Veltair is compared with, each at the best of a small grid of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.capacity.system import System

# Imported only where they are used: processes that the peers start are modules of this package.
# ruff: noqa: PLC0415


def peers() -> Sequence[System]:
    """Returns every peer, installed or not: see `System.missing`."""
    from veltair.eval.capacity.peers.alone.engines import ENGINES
    from veltair.eval.capacity.peers.in_process import InProcess
    from veltair.eval.capacity.peers.products import LitServe, MlServer, RayServe
    from veltair.eval.capacity.peers.whole_server import WholeServer

    engines = (InProcess(engine) for engine in ENGINES)
    servers = (WholeServer(product) for product in (MlServer(), RayServe(), LitServe()))
    return (*engines, *servers)
