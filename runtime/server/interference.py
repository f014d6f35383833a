"""What a server measures the interference level by, checked before anything starts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from veltair.proxy.proxy_file import ProxyFile
from veltair.proxy.sampler import AUTO, OWN, Sampling
from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.kinds import KINDS, Works
from veltair.proxy.topology import core_complexes
from veltair.runtime.errors import InputError
from veltair.runtime.machine import cores_to_serve
from veltair.runtime.server.repository import is_measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.config import ServeConfig

_LOGGER = logging.getLogger(__name__)


def read_sampling(config: ServeConfig, computer: Computer | None = None) -> Sampling | None:
    """Returns what is sampled; None where the level isn't measured.

    Args:
        config: the server's.
        computer: where sources are opened; this one if not given.

    Raises:
        InputError: the file of models can't be used, or the source that was asked for can't.
    """
    if not is_measured(config):
        return None
    computer = computer or Computer()
    cpus = tuple(cores_to_serve(config.engine))
    source = config.interference.source
    file = _read_file(config.interference.proxy, computer, cpus)
    if source not in (AUTO, OWN):
        _check_source(source, file, computer, cpus)
    return Sampling(
        cpus=cpus,
        complexes=(0,) * len(cpus) if config.engine.virtual_cores else core_complexes(cpus),
        computer=computer,
        source=source,
        file=file,
    )


def _read_file(name: str, computer: Computer, cpus: Sequence[int]) -> ProxyFile | None:
    if not name:
        return None
    path = Path(name)
    file = ProxyFile.read(path)
    file.check_sources(path, [OWN, *_working(file.sources, computer, cpus)])
    doubt = file.doubt()
    if doubt:
        _LOGGER.warning("%s: %s", path, doubt)
    return file


def _working(names: Sequence[str], computer: Computer, cpus: Sequence[int]) -> list[str]:
    return [
        kind.name
        for kind in KINDS
        if kind.name in names and kind.look(computer, cpus).works is Works.YES
    ]


def _check_source(
    source: str, file: ProxyFile | None, computer: Computer, cpus: Sequence[int]
) -> None:
    if file is None:
        raise InputError(
            f"[interference] source = {source!r}: what it counts becomes a level by a model, and "
            "none is named; make one (`veltair calibrate`) and name it (`proxy`), or take "
            f"{OWN!r} as the source"
        )
    if source not in file.sources:
        raise InputError(
            f"[interference] source = {source!r}: the models of `proxy` are of "
            f"{', '.join(file.sources)}; take one of these, or calibrate with that source"
        )
    verdict = next(kind for kind in KINDS if kind.name == source).look(computer, cpus)
    if verdict.works is Works.NO:
        raise InputError(
            f"[interference] source = {source!r}: it doesn't work here ({verdict.reason}); "
            f"{verdict.remedy}, or take {AUTO!r}"
        )
