"""The record of a server's decisions: begun on rank 0, written by all ranks."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from veltair.runtime._native import sched
from veltair.runtime.record import begin_record, make_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.server.repository import ServedModel

_LOGGER = logging.getLogger(__name__)


def begin_server_record(
    path: Path, models: Sequence[ServedModel], *, cores: int, workers: int
) -> None:
    """Writes the header of a run: the machine, and the profiles that its workers will decide by.

    Args:
        path: a new file, or a record, which gets another run.
        models: in the segment's order.
        cores: that are served on.
        workers: places in the worker table.

    Raises:
        InputError: the file can't be written, or is there and no record.
    """
    unknown = sched.ModelProfile.unknown()
    header = make_header(
        "monotonic",
        cores=cores,
        workers=workers,
        models=[(f"{model.name}/{model.version}", model.profile or unknown) for model in models],
    )
    os.close(begin_record(path, [header], field="[server] record", append=True))


class OpenRecord:
    """One process's hand on the record, and its one warning where that can't be written.

    Attributes:
        descriptor: to write to, until `close`; None: nothing is recorded.
    """

    def __init__(self, path: str | None, *, who: str) -> None:
        """Opens the file that rank 0 has begun.

        Args:
            path: of the file; None: nothing is recorded.
            who: serves on without it, as the warning says.
        """
        self._who = who
        self.descriptor: int | None = None
        self._path = path
        self._warned = False
        if path is None:
            return
        try:
            self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            self.warn(error.errno or errno.EIO)

    def close(self) -> None:
        """Lets go of the file: the native recorder has a descriptor of its own."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def warn(self, error: int) -> None:
        """Says, the first time, that decisions are not recorded any more; 0 is no error."""
        if error == 0 or self._warned:
            return
        self._warned = True
        _LOGGER.warning(
            "[server] record %s: can't be written (%s); %s serves on, and records no more "
            "decisions",
            self._path,
            os.strerror(error),
            self._who,
        )
