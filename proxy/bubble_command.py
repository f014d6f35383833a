"""`veltair bubble`: co-runners with a set footprint in the shared cache and a set bandwidth."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veltair.proxy.bubbles import BYTES_PER_GB, BYTES_PER_MB, Bubbles, settings_of
from veltair.proxy.ending import ended_by_signals
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.files import write_whole
from veltair.runtime.machine import machine_facts
from veltair.runtime.server.guardian import stop_with_parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.proxy.bubbles import Achieved, BubbleSettings
    from veltair.proxy.ending import Ended

_WINDOW_S = 0.1
_CLOSE = 0.05  # of the rate: what counts as kept


def command(
    footprint_mb: Annotated[
        float, typer.Option(help="MB (10^6 bytes) that each bubble touches, all of them.")
    ],
    gbps: Annotated[
        float, typer.Option(help="GB/s that each bubble moves: bytes read and bytes written.")
    ],
    cores: Annotated[
        int, typer.Option(help="How many bubbles: one on each of the last N usable processors.")
    ] = 1,
    seconds: Annotated[
        float | None, typer.Option(help="How long; until SIGINT or SIGTERM if not given.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="A file to write what was achieved to.")
    ] = None,
    parent: Annotated[
        int | None, typer.Option(help="Number of the parent process: end when it ends.")
    ] = None,
) -> None:
    """Disturb what else runs: move memory through the shared cache at a set rate.

    The bubbles keep their processors busy. A rate that the machine can't reach is no error: the
    report says what was achieved, and how much of the schedule was missed.
    """
    settings = settings_of(footprint_mb, gbps)
    cpus = _last_cpus(cores)
    if seconds is not None and not 0 < seconds < threading.TIMEOUT_MAX:
        raise InputError(f"--seconds {seconds:g}: give a number above 0, or leave it out")
    if json_file is not None and not json_file.parent.is_dir():
        raise InputError(
            f"--json {json_file}: there is no folder {json_file.parent}; create it first"
        )
    with ended_by_signals() as ended:
        if parent is not None:
            _end_with(parent)
        with Bubbles(cpus, settings.footprint_bytes) as bubbles:
            print(
                f"bubbles on the processors {', '.join(map(str, cpus))}, each "
                f"{settings.footprint_bytes / BYTES_PER_MB:g} MB at "
                f"{settings.bytes_per_s / BYTES_PER_GB:g} GB/s",
                flush=True,
            )
            windows = _run(bubbles, settings, seconds, ended)
            done = bubbles.achieved()
            bubbles.set_rate(0)
    report = _report(settings, done, windows)
    print(_sentence(report))
    if json_file is not None:
        _write(json_file, report)


class _Windows:
    """The rates of the slowest bubble in the best and the worst tenth of a second."""

    def __init__(self) -> None:
        self.slowest = float("inf")
        self.fastest = 0.0

    def add(self, before: Sequence[Achieved], now: Sequence[Achieved]) -> None:
        """Takes the time between two readings in."""
        for first, second in zip(before, now, strict=True):
            elapsed_ns = second.elapsed_ns - first.elapsed_ns
            rate = (second.bytes - first.bytes) * 1e9 / max(elapsed_ns, 1)
            self.slowest = min(self.slowest, rate)
            self.fastest = max(self.fastest, rate)


def _run(
    bubbles: Bubbles, settings: BubbleSettings, seconds: float | None, ended: Ended
) -> _Windows:
    windows = _Windows()
    bubbles.set_rate(settings.bytes_per_s)
    end_s = None if seconds is None else time.monotonic() + seconds
    before = bubbles.achieved()
    while True:
        left_s = _WINDOW_S if end_s is None else end_s - time.monotonic()
        if left_s <= 0 or ended.wait(min(_WINDOW_S, left_s)):
            return windows
        now = bubbles.achieved()
        if now[0].elapsed_ns - before[0].elapsed_ns >= _WINDOW_S * 1e9 / 2:
            windows.add(before, now)
            before = now


def _last_cpus(cores: int) -> tuple[int, ...]:
    """The last processors, since whoever shares a machine out begins with the first."""
    usable = sorted(os.sched_getaffinity(0))
    if not 1 <= cores <= len(usable):
        raise InputError(
            f"--cores {cores}: this process may use {len(usable)}; give a number from 1 to "
            f"{len(usable)}"
        )
    return tuple(usable[-cores:])


def _end_with(parent: int) -> None:
    """Lets the kernel send SIGTERM when the parent ends, however it ends."""
    stop_with_parent()
    if os.getppid() != parent:  # it never was, or has ended before the kernel was asked
        raise VeltairError(
            f"--parent {parent}: the parent of this process is {os.getppid()}; either {parent} has "
            "ended, or it started this command by way of another process"
        )


def _report(
    settings: BubbleSettings, done: Sequence[Achieved], windows: _Windows
) -> dict[str, Any]:
    wanted = settings.bytes_per_s
    achieved = [each.bytes_per_s for each in done]
    enough = windows.fastest > 0
    return {
        "machine": machine_facts(),
        "footprint_bytes": settings.footprint_bytes,
        "wanted_gbps": wanted / BYTES_PER_GB,
        "achieved_gbps": sum(achieved) / len(achieved) / BYTES_PER_GB,
        "error": min(achieved) / wanted - 1,
        "slowest_window_gbps": windows.slowest / BYTES_PER_GB if enough else None,
        "fastest_window_gbps": windows.fastest / BYTES_PER_GB if enough else None,
        "window_s": _WINDOW_S,
        "bubbles": [
            {
                "cpu": each.cpu,
                "gbps": each.bytes_per_s / BYTES_PER_GB,
                "bytes": each.bytes,
                "elapsed_ns": each.elapsed_ns,
                "missed_ns": each.missed_ns,
            }
            for each in done
        ],
    }


def _sentence(report: dict[str, Any]) -> str:
    missed = max(each["missed_ns"] / max(each["elapsed_ns"], 1) for each in report["bubbles"])
    text = (
        f"achieved {report['achieved_gbps']:.4g} GB/s a bubble, the slowest "
        f"{report['error']:+.2%} off the rate"
    )
    if report["fastest_window_gbps"] is not None:
        text += (
            f"; {report['slowest_window_gbps']:.4g} to {report['fastest_window_gbps']:.4g} in "
            f"windows of {report['window_s']:g} s"
        )
    if report["error"] < -_CLOSE:
        text += (
            f"; {missed:.0%} of the schedule was missed: the machine can't reach this rate, or "
            "others had the processors"
        )
    return text


def _write(path: Path, report: dict[str, Any]) -> None:
    try:
        write_whole(path, (json.dumps(report, indent=1) + "\n").encode())
    except OSError as error:
        raise InputError(f"--json {path}: can't be written ({error.strerror})") from error
