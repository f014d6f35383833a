"""Rank 0's watch over local clients: one that dies gives everything back."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veltair.runtime._native import ipc


class AttachedClients:
    """The client table's processes. One thread owns it."""

    def __init__(self, segment: ipc.Segment, board: ipc.Board) -> None:
        """Watches nobody yet."""
        self._segment = segment
        self._board = board
        self._watched: dict[tuple[int, int], int] = {}  # (client, pid) to the process's descriptor

    def descriptors(self) -> list[int]:
        """Returns descriptors that are readable when a client's process has ended."""
        return list(self._watched.values())

    def look(self) -> None:
        """Finds clients that came, went, or died."""
        attached = {
            (client, pid)
            for client, pid in enumerate(self._segment.client_pids())
            if pid not in {0, os.getpid()}
        }
        for left in set(self._watched) - attached:
            os.close(self._watched.pop(left))
        for client, pid in attached - set(self._watched):
            try:
                self._watched[client, pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                self._board.remove_client(client)
        for (client, pid), descriptor in list(self._watched.items()):
            if _has_ended(descriptor):
                os.close(self._watched.pop((client, pid)))
                self._board.remove_client(client)


def _has_ended(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
