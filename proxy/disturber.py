"""What disturbs a calibration: bubbles, evictors, or layers of artifacts, in its own process.

Sources that count a process's events must not count its disturbers', and a loop in Python must not
wait for another thread's.
"""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from veltair.proxy.bubbles import Bubbles
from veltair.proxy.evictors import Evictors
from veltair.proxy.works import Runner
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path
    from types import TracebackType

    from veltair.proxy.evictors import Victim
    from veltair.proxy.works import Work

_BEGIN_S = 120  # to load the artifacts
_ANSWER_S = 30


class Disturber:
    """The process, for the length of a `with`; at rest until it is told otherwise."""

    def __init__(
        self,
        cpus: Sequence[int],
        footprints: Sequence[int],
        folders: Sequence[Path],
        reference: Sequence[Victim] = (),
    ) -> None:
        """Starts it.

        Args:
            cpus: that it keeps busy while it disturbs.
            footprints: in bytes, of the bubbles on each of these.
            folders: of the artifacts whose layers it can run, or evict.
            reference: memory of the reference kernel, where that is to be evicted.

        Raises:
            VeltairError: it can't be made ready; the message is its own.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, tuple(cpus), tuple(footprints), tuple(folders), tuple(reference)),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._answer(_BEGIN_S)

    def __enter__(self) -> Disturber:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends it."""
        self._pipe.close()
        self._process.join(_ANSWER_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def rest(self) -> None:
        """Disturbs nobody."""
        self._ask("rest")

    def bubbles(self, footprint_bytes: int, bytes_per_s: int) -> None:
        """Moves so much memory on each processor."""
        self._ask("bubbles", footprint_bytes, bytes_per_s)

    def evict(self, millionths: int, work: Work | None) -> None:
        """Throws so much of a layer's weights out of the caches; None: of the reference kernel."""
        self._ask("evict", millionths, work)

    def highest_rate(self, footprint_bytes: int) -> int:
        """Returns the bytes a second that the slowest bubble reaches at full speed, and rests."""
        return int(self._ask("highest_rate", footprint_bytes))

    def work(self, work: Work) -> None:
        """Runs a layer again and again."""
        self._ask("work", work)

    def _ask(self, what: str, *arguments: object) -> Any:  # noqa: ANN401 # each request's own
        try:
            self._pipe.send((what, *arguments))
        except OSError as error:
            raise VeltairError(_gone(error)) from error
        return self._answer(_ANSWER_S)

    def _answer(self, seconds: float) -> Any:  # noqa: ANN401 # as above
        try:
            if not self._pipe.poll(seconds):
                raise VeltairError(_gone(f"no answer in {seconds:g} s"))
            error, answer = self._pipe.recv()
        except (EOFError, OSError) as lost:
            raise VeltairError(_gone(lost or "it has ended")) from lost
        if error is not None:
            raise error
        return answer


def _gone(why: object) -> str:
    return (
        f"the process that disturbs is gone ({why}); the system's log may say why (out of memory); "
        "run the same command again to go on"
    )


class _Served:
    """The other side: does what it is asked."""

    def __init__(
        self,
        cpus: Sequence[int],
        footprints: Sequence[int],
        folders: Sequence[Path],
        reference: tuple[Victim, ...],
    ) -> None:
        self._cpus = cpus
        self._runner = Runner(folders, cpus)
        self._reference = reference
        self._held = ExitStack()
        self._evicting = self._held.enter_context(ExitStack())
        self._bubbles = {size: self._held.enter_context(Bubbles(cpus, size)) for size in footprints}
        self.repeated: Work | None = None

    def rest(self) -> None:
        self.repeated = None
        self._evicting.close()
        for bubbles in self._bubbles.values():
            bubbles.set_rate(0)

    def evict(self, millionths: int, work: Work | None) -> None:
        self.rest()
        victims = self._runner.weights(work) if work is not None else self._reference
        if victims:
            evictors = self._evicting.enter_context(Evictors(self._cpus, victims))
            evictors.set_rate(millionths)

    def bubbles(self, footprint_bytes: int, bytes_per_s: int) -> None:
        self.rest()
        self._bubbles[footprint_bytes].set_rate(bytes_per_s)

    def highest_rate(self, footprint_bytes: int) -> int:
        self.rest()
        return self._bubbles[footprint_bytes].highest_rate()

    def work(self, work: Work) -> None:
        self.rest()
        self.repeated = work

    def repeat(self) -> None:
        assert self.repeated is not None
        self._runner.run(self.repeated)

    def close(self) -> None:
        self._held.close()


def _serve(
    pipe: Connection,
    cpus: Sequence[int],
    footprints: Sequence[int],
    folders: Sequence[Path],
    reference: tuple[Victim, ...],
) -> None:
    """Answers requests until the other end is closed, as it is too when its process ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent hears them, and ends this
    try:
        served = _Served(cpus, footprints, folders, reference)
    except VeltairError as error:
        pipe.send((error, None))
        return
    pipe.send((None, None))
    while True:
        if served.repeated is not None and not pipe.poll():
            served.repeat()
            continue
        try:
            what, *arguments = pipe.recv()
        except EOFError:
            break
        try:
            pipe.send((None, getattr(served, what)(*arguments)))
        except VeltairError as error:
            served.rest()
            pipe.send((error, None))
    served.close()
