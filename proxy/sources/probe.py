"""A software probe: what a step to a random line costs now. For machines without counters.

A thread of low priority walks 64 dependent steps, rests, and goes on; `probe_walk.h` in
`runtime/native/proxy` has it, and says what bounds its cost and its place in the caches.

What a walk sees: its lines were last touched a round of the buffer ago. Alone on a machine of one's
own they are still in the shared cache, and a step costs its latency; others push them out in
proportion to their pressure, and then it costs the memory's, which rises with the memory's load.
Where a hypervisor shares the processor with others, lines don't outlive a rest even alone, so what
is left to see is the memory's latency and its load. The same steps a second time (`probe_again`)
come from the core's own cache: if they slow down too, it is the core.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from veltair.proxy.sources.reading import Count, Missing, Reading, Scope
from veltair.proxy.topology import cpu_ranges
from veltair.runtime._native import proxy
from veltair.runtime.errors import InputError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from veltair.proxy.sources.computer import Computer

BUDGET = 0.005  # of one core
_UNKNOWN_SHARE_BYTES = 2 << 20  # where Linux doesn't say what the caches are
_LARGEST_BYTES = 32 << 20  # a virtual machine names caches that it shares with many
_ENOUGH = 8  # walks a reading
_STEPS = "ns a step"


class Probe:
    """The probe on some cores: pinned to one of them, or wherever among several there is room."""

    def __init__(
        self,
        cores: Sequence[int],
        computer: Computer,
        alone_ns: float | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Begins to walk.

        Args:
            cores: where it may run.
            computer: whose files tell the size of the caches.
            alone_ns: a step with nothing beside it, as calibrated; without it there is no
                slow-down, only times.
            clock: monotonic, in ns.

        Raises:
            SourceError: it can't run there.
            InputError: `alone_ns` isn't above 0.
        """
        if alone_ns is not None and not alone_ns > 0:
            raise InputError(f"a step that takes {alone_ns:g} ns alone: give a time above 0")
        self.name = "probe"
        self._alone_ns = alone_ns
        self._clock = clock
        cache = computer.cache_of(cores[0])
        share = _UNKNOWN_SHARE_BYTES if cache is None else cache.share_bytes
        try:
            self._walk = proxy.ProbeWalk(list(cores), min(share, _LARGEST_BYTES), budget=BUDGET)
        except (ValueError, MemoryError) as error:
            raise SourceError(f"probe on the cores {cpu_ranges(cores)}: {error}") from error
        self._where = f"cores {cpu_ranges(cores)}" if len(cores) > 1 else f"core {cores[0]}"
        # Where it floats, it is the caches of all of them that it sees.
        shared = cache is not None and set(cores) <= set(cache.cpus)
        several = Scope.COMPLEX if shared else Scope.MACHINE
        self._scope = several if len(cores) > 1 else Scope.CORE

    @property
    def buffer_bytes(self) -> int:
        """What the walks go through."""
        return self._walk.buffer_bytes

    def read(self) -> Reading:
        """Returns what the walks since the last read found; all is missing where there were none.

        `probe_step` is the median, `probe_step_low` and `_high` the 10th and 90th percentile,
        `probe_again` of the same steps from the core's own cache, `probe_cost` the share of a core
        that the probe took, `probe_slowdown` (time now / time alone) - 1.
        """
        seen = self._walk.reading()
        counts = [self._count("probe_walks", float(seen.walks), "walks", 1.0)]
        if seen.elapsed_ns > 0:
            cost = seen.cpu_ns / seen.elapsed_ns
            counts.append(self._count("probe_cost", cost, "cores", 1.0))
        missing = []
        if seen.walks:
            whole = seen.walks / (seen.walks + seen.interrupted)
            confidence = min(1.0, seen.walks / _ENOUGH) * whole
            found = {
                "probe_step": seen.median,
                "probe_step_low": seen.low,
                "probe_step_high": seen.high,
                "probe_again": seen.again,
            }
            counts += [self._count(name, ns, _STEPS, confidence) for name, ns in found.items()]
            if self._alone_ns is not None:
                slowdown = seen.median / self._alone_ns - 1
                counts.append(self._count("probe_slowdown", slowdown, "ratio", confidence))
        else:
            reason = (
                f"no walk has ended since the last read {seen.elapsed_ns / 1e6:.1f} ms ago "
                f"({seen.interrupted} interrupted): read less often, or leave the probe a core"
            )
            missing.append(Missing(name="probe_step", where=self._where, reason=reason))
        return Reading(
            time_ns=self._clock(),
            elapsed_ns=seen.elapsed_ns,
            counts=tuple(counts),
            missing=tuple(missing),
        )

    def close(self) -> None:
        """Ends the thread and gives its memory back."""
        del self._walk

    def _count(self, name: str, value: float, unit: str, confidence: float) -> Count:
        return Count(
            name=name,
            value=value,
            unit=unit,
            scope=self._scope,
            where=self._where,
            confidence=confidence,
        )
