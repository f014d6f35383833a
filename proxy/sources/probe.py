"""A software probe: what a step to a random line costs now. For machines without counters.

A thread of low priority walks 64 dependent steps, rests some milliseconds, and goes on;
`probe_walk.h` in `runtime/native/proxy` has it, and says what bounds its cost and its place in the
caches.

What a walk sees: its 64 lines were last touched a rest ago, and the walk itself pushed them out of
the core's own caches. Alone on a machine of one's own they are still in the shared one, and a step
costs its latency; others push them out in proportion to their pressure, and then it costs the
memory's, which rises with the memory's load (`probe_step`). The same steps a second time come from
the shared cache, whatever happened in the rest, and cost its latency under the load that is there
(`probe_again`). Where a hypervisor shares the processor with others, lines outlive no rest even
alone: there `probe_step` is the memory's, and rises little (`proxy/README.md` has figures).

Differs: the buffer is as large as a core's share of the L3, but a walk doesn't go through all of
it: within the budget a round would take half a minute, in which every line is lost on any machine,
so that a step would tell the memory's latency and nothing else. `eval/bench_probe.py` measures
both.
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

BUDGET = 0.0045  # of one core: a reading may have a walk more than its time, and stays below 0.5 %
_UNKNOWN_SHARE_BYTES = 2 << 20  # where Linux doesn't say what the caches are
LINES = 64  # a walk: more than any core's own cache has ways
_LEAST_STRIDE_BYTES = 128 << 10  # a multiple of one way of the second cache, on all that we know
_MOST_STRIDE_BYTES = 512 << 10  # a virtual machine names caches that it shares with many
_SMALL_PAGES = 0.5  # confidence where lines may have stayed in the core's own cache
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
        stride = stride_bytes(share)
        try:
            self._walk = proxy.ProbeWalk(list(cores), stride * LINES, stride, LINES, BUDGET)
        except (ValueError, MemoryError) as error:
            raise SourceError(f"probe on the cores {cpu_ranges(cores)}: {error}") from error
        self._where = f"cores {cpu_ranges(cores)}" if len(cores) > 1 else f"core {cores[0]}"
        # Where it floats, it is the caches of all of them that it sees.
        shared = cache is not None and set(cores) <= set(cache.cpus)
        several = Scope.COMPLEX if shared else Scope.MACHINE
        self._scope = several if len(cores) > 1 else Scope.CORE

    @property
    def buffer_bytes(self) -> int:
        """What the lines are spread over."""
        return self._walk.buffer_bytes

    def read(self) -> Reading:
        """Returns what the walks since the last read found; all is missing where there were none.

        `probe_step` is the median, `probe_step_low` and `_high` the 10th and 90th percentile,
        `probe_again` of the same steps a second time at once, `probe_cost` the share of a core that
        the probe took, `probe_slowdown` (time now / time alone) - 1. Without huge pages nobody
        knows whether lines stayed in the core's own cache: the confidence is half then.
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
            confidence *= 1.0 if self._walk.huge else _SMALL_PAGES
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


def stride_bytes(share_bytes: int) -> int:
    """Returns the stride at which the lines of a walk cover about a core's share of the L3.

    A power of two, and no less than what the second cache has in one way: all lines then fall into
    one set of it.
    """
    wanted = min(max(share_bytes // LINES, _LEAST_STRIDE_BYTES), _MOST_STRIDE_BYTES)
    return 1 << wanted.bit_length() - 1
