"""Evictors: co-runners that throw the memory of others out of the caches.

What disturbs a layer whose cache is shared is that its lines are gone when it reads them again. A
bubble does that by moving memory of its own through the cache, as another model does. Where this
machine's processors share a cache that they can't fill, as those of a virtual machine on a large
host, its neighbours on the host can do it to it, and no bubble of its own can. There evictors stand
in for the neighbours: they flush a share of the victims' lines, so that these come from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.proxy.co_runners import CoRunners
from veltair.runtime._native import proxy
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A part of a file that others have mapped, as models have their weights.

    Attributes:
        path: of the file.
        begin_bytes: of the part; pages go whole.
        end_bytes: of the part.
    """

    path: Path
    begin_bytes: int
    end_bytes: int

    @classmethod
    def whole(cls, path: Path) -> Victim:
        """All of a file.

        Raises:
            InputError: it isn't there.
        """
        return cls(path=path, begin_bytes=0, end_bytes=_size(path))


class Evictors(CoRunners):
    """One evictor on each of some processors, all of the same victims, for a `with`'s length."""

    def __init__(self, cpus: Sequence[int], victims: Sequence[Victim]) -> None:
        """Makes them at rest.

        Args:
            cpus: numbers of the processors.
            victims: at least one.

        Raises:
            InputError: a victim isn't there, or a processor can't be used.
        """
        parts = [
            proxy.Victim(str(each.path), _size(each.path), each.begin_bytes, each.end_bytes)
            for each in victims
        ]
        try:
            self._evictors = [proxy.Evictor(cpu, parts) for cpu in cpus]
        except ValueError as error:
            raise InputError(f"evictors on the processors {list(cpus)}: {error}") from error

    def end(self) -> None:
        """Ends them."""
        self._evictors.clear()

    def set_rate(self, rate: int) -> None:
        """Sets how much of the victims' memory is thrown out, in millionths; 0 rests."""
        for evictor in self._evictors:
            evictor.set_share(rate)

    def highest_rate(self) -> int:
        """Returns the rate at which all of it is; they rest."""
        self.set_rate(0)
        return int(proxy.WHOLE_SHARE)

    def evicted_bytes(self) -> list[int]:
        """Returns how many bytes each has flushed since its rate was last set, again and again."""
        return [evictor.evicted_bytes() for evictor in self._evictors]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror}); give a file's path") from error
