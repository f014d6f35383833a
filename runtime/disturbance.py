"""What else a machine's processors did while something was measured on it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import psutil

NOTABLE = 0.03  # of all processors, by others: worth measuring again
LOOK_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Shares of all processors.

    Attributes:
        driver: this process, which measures.
        others: neither this process nor what it started: about 0 on a quiet machine.
        steal: taken by the host of a virtual machine.
    """

    driver: float
    others: float
    steal: float

    @property
    def is_notable(self) -> bool:
        """Whether a measurement under it should be repeated."""
        return self.others + self.steal > NOTABLE


class Watch:
    """Counts processor time from its making to `seen`."""

    def __init__(self) -> None:
        """Begins."""
        self._before = _times()

    def seen(self) -> Disturbance:
        """Returns what has happened since."""
        wall, busy, stolen, driver, started = (
            after - before for before, after in zip(self._before, _times(), strict=True)
        )
        return Disturbance(
            driver=driver / wall,
            others=max(busy - driver - started, 0.0) / wall,
            steal=stolen / wall,
        )


def wait_for_quiet(patience_s: float) -> None:
    """Waits until nothing else disturbs, or `patience_s` have passed."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        watch = Watch()
        time.sleep(LOOK_S)
        if not watch.seen().is_notable:
            return


def _times() -> tuple[float, float, float, float, float]:
    """Seconds: the clock of all processors, busy, stolen, this process's, what it started."""
    times = psutil.cpu_times()
    busy = times.user + times.system + times.nice + times.irq + times.softirq
    this = psutil.Process()
    own = this.cpu_times()
    started = own.children_user + own.children_system  # those that have ended
    for process in this.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            started += sum(process.cpu_times()[:4])
    wall = time.monotonic() * (psutil.cpu_count() or 1)
    return wall, busy, getattr(times, "steal", 0.0), own.user + own.system, started
