"""Counters of machines that we don't have, simulated: what training learns from without any.

The model is small on purpose: it has what the level depends on, and nothing that is made for a
linear model to find. A layer and what disturbs it, on three cores, share a last cache and a memory.
The sizes are those of a core complex of a Threadripper 3990X, the machine of the paper.

- Everybody wants a footprint in the cache and reads it at a rate. The cache is divided by the
  rates, no one getting more than its footprint; what lacks of a footprint is missed.
- A miss waits for the memory, a hit for the cache. Either's latency rises as 1 / (1 - use) with the
  use of its bandwidth.
- A layer takes its arithmetic, plus its references, each at the cache's or the memory's latency,
  as many at a time as its access pattern allows. Rates depend on times and times on the cache's
  division: both are iterated until they agree.
- Counters have 2 % of noise each, miss counters some misses that no footprint explains, and
  prefetches are counted as references.

The level is the slow-down of the reference kernel, a layer of 2 MB with hardly any arithmetic, by
the same model. Layers, bubbles and neighbours are drawn from a seed; none is fitted to a machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from veltair.proxy.observations import Observation
from veltair.proxy.sources.reading import Count, Reading, Scope

Maker = Literal["intel", "amd"]
SOURCES: dict[Maker, str] = {"intel": "perf-task", "amd": "perf-uncore"}
_LINE_BYTES = 64
_NS_PER_S = 1e9
_WINDOW_S = 0.1
_NOISE = 0.02
_PREFETCHED = 0.1  # references that the program didn't make
_BASE_MISSES = 0.02
_ITERATIONS = 60
_MOST_USE = 0.92
_FOOTPRINTS_MB = (2, 8, 32)
_RATES_GBPS = (1, 4, 10, 25)
_NEIGHBOURS = 3
_OTHERS = 3  # cores that share the cache with the layer's


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the parties share.

    Attributes:
        cache_bytes: the last cache.
        cache_bytes_per_s: that all can read of it together.
        memory_bytes_per_s: that all can move together.
        cache_ns: of a reference that hits.
        memory_ns: of one that misses, while the memory is idle.
        ghz: of the cores.
    """

    cache_bytes: float = 16e6
    cache_bytes_per_s: float = 150e9
    memory_bytes_per_s: float = 25e9
    cache_ns: float = 13.0
    memory_ns: float = 90.0
    ghz: float = 3.0


@dataclass(frozen=True, kw_only=True)
class Party:
    """A layer, or a bubble.

    Attributes:
        footprint_bytes: that it reads in each run.
        compute_ns: of a run.
        overlap: references that wait at the same time.
        flops: of a run.
        bytes_per_s: of a bubble, the rate that it wants; 0 for a layer, which goes as fast as it
            can.
    """

    footprint_bytes: float
    compute_ns: float = 0.0
    overlap: float = 8.0
    flops: float = 0.0
    bytes_per_s: float = 0.0

    @property
    def references(self) -> float:
        """Of a run."""
        return self.footprint_bytes / _LINE_BYTES


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a party did beside another.

    Attributes:
        run_ns: of one run.
        miss_rate: of its references.
    """

    run_ns: float
    miss_rate: float


REFERENCE = Party(footprint_bytes=2e6, compute_ns=10_000.0, overlap=10.0)


def run_together(machine: Machine, parties: Sequence[Party]) -> list[Ran]:
    """Returns what each of some parties does beside the others."""
    ran = [Ran(run_ns=_alone_ns(machine, each), miss_rate=_BASE_MISSES) for each in parties]
    for _ in range(_ITERATIONS):
        rates = [each.references / now.run_ns for each, now in zip(parties, ran, strict=True)]
        held = _shares(machine.cache_bytes, parties, rates)
        misses = [
            _BASE_MISSES + (1 - _BASE_MISSES) * (1 - part / each.footprint_bytes)
            for each, part in zip(parties, held, strict=True)
        ]
        moved = sum(r * m for r, m in zip(rates, misses, strict=True)) * _LINE_BYTES * _NS_PER_S
        read = sum(rates) * _LINE_BYTES * _NS_PER_S
        latency = (
            machine.cache_ns / (1 - min(read / machine.cache_bytes_per_s, _MOST_USE)),
            machine.memory_ns / (1 - min(moved / machine.memory_bytes_per_s, _MOST_USE)),
        )
        ran = [
            Ran(
                run_ns=(now.run_ns + _run_ns(each, miss, latency)) / 2,
                miss_rate=miss,
            )
            for each, now, miss in zip(parties, ran, misses, strict=True)
        ]
    return ran


def simulated(maker: Maker, layers: int = 40, seed: int = 0) -> list[Observation]:
    """Returns what a calibration would have seen.

    Args:
        maker: whose counters: `intel` counts a task's own references to the last cache, `amd` those
            of all cores that share it.
        layers: that are drawn.
        seed: of layers and noise.
    """
    draw = random.Random(seed)
    machine = Machine()
    drawn = [_layer(draw) for _ in range(layers)]
    beside: list[Party | None] = [None]
    beside += [
        Party(footprint_bytes=mb * 1e6, bytes_per_s=gbps * 1e9)
        for mb in _FOOTPRINTS_MB
        for gbps in _RATES_GBPS
    ]
    beside += sorted(drawn, key=lambda each: each.footprint_bytes)[-_NEIGHBOURS:]
    found = []
    for setting, other in enumerate(beside):
        level = _slowdown(machine, REFERENCE, other)
        for index, layer in enumerate(drawn):
            ran = run_together(machine, _parties(layer, other))
            parties = list(zip(_parties(layer, other), ran, strict=True))
            make = _intel if maker == "intel" else _amd
            found.append(
                Observation(
                    layer=f"layer {index}",
                    round=0,
                    setting=setting,
                    level=level,
                    slowdown=_slowdown(machine, layer, other),
                    readings={SOURCES[maker]: make(draw, machine, parties)},
                )
            )
    return found


def _parties(layer: Party, other: Party | None) -> list[Party]:
    return [layer] if other is None else [layer, *[other] * _OTHERS]


def _slowdown(machine: Machine, layer: Party, other: Party | None) -> float:
    alone = run_together(machine, [layer])[0]
    return run_together(machine, _parties(layer, other))[0].run_ns / alone.run_ns - 1


def _layer(draw: random.Random) -> Party:
    """From a convolution's reuse to a matrix-vector product, from 0.5 to 30 MB."""
    footprint = 10 ** draw.uniform(5.7, 7.5)
    flops_a_byte = 10 ** draw.uniform(-0.3, 2.0)
    flops = footprint * flops_a_byte
    compute_ns = flops / draw.uniform(60, 150)
    overlap = draw.uniform(5, 12)
    return Party(footprint_bytes=footprint, compute_ns=compute_ns, overlap=overlap, flops=flops)


def _shares(cache: float, parties: Sequence[Party], rates: Sequence[float]) -> list[float]:
    """Divides the cache by rate; what one doesn't want is divided among the others."""
    held = [0.0] * len(parties)
    open_to = set(range(len(parties)))
    left = cache
    while open_to:
        total = sum(rates[i] for i in open_to)
        full = [
            i for i in open_to if parties[i].footprint_bytes <= left * rates[i] / max(total, 1e-12)
        ]
        for i in full or open_to:
            wanted = parties[i].footprint_bytes
            held[i] = wanted if full else left * rates[i] / max(total, 1e-12)
        if not full:
            return held
        left -= sum(held[i] for i in full)
        open_to -= set(full)
    return held


def _run_ns(party: Party, miss: float, latency: tuple[float, float]) -> float:
    cache_ns, memory_ns = latency
    reference_ns = (1 - miss) * cache_ns + miss * memory_ns
    wait_ns = party.references * reference_ns / party.overlap
    wanted_ns = party.footprint_bytes / party.bytes_per_s * _NS_PER_S if party.bytes_per_s else 0.0
    return max(party.compute_ns + wait_ns, wanted_ns)


def _alone_ns(machine: Machine, party: Party) -> float:
    return _run_ns(party, _BASE_MISSES, (machine.cache_ns, machine.memory_ns))


_Parties = Sequence[tuple[Party, Ran]]


def _intel(draw: random.Random, machine: Machine, parties: _Parties) -> Reading:
    """What the layer's own threads counted."""
    layer, ran = parties[0]
    runs = _WINDOW_S * _NS_PER_S / ran.run_ns
    references = layer.references * runs
    values = {
        "instructions": (layer.flops / 12 + 4 * layer.references) * runs,
        "cycles": _WINDOW_S * _NS_PER_S * machine.ghz,
        "llc_references": references * (1 + _PREFETCHED),
        "llc_misses": references * ran.miss_rate,
        "flops": layer.flops * runs,
    }
    return _reading(draw, values, Scope.TASK, "process 4001")


def _amd(draw: random.Random, _machine: Machine, parties: _Parties) -> Reading:
    """What the complex counted, of all that ran on it."""
    accesses, misses = 0.0, 0.0
    for party, ran in parties:
        references = party.references * _WINDOW_S * _NS_PER_S / ran.run_ns
        accesses += references * (1 + _PREFETCHED)
        misses += references * ran.miss_rate
    values = {"l3_accesses": accesses, "l3_misses": misses}
    return _reading(draw, values, Scope.COMPLEX, "cores 0-7")


def _reading(draw: random.Random, values: dict[str, float], scope: Scope, where: str) -> Reading:
    counts = tuple(
        Count(
            name=name,
            value=value * draw.gauss(1.0, _NOISE),
            unit="events",
            scope=scope,
            where=where,
            confidence=1.0,
        )
        for name, value in values.items()
    )
    elapsed_ns = round(_WINDOW_S * _NS_PER_S)
    return Reading(time_ns=elapsed_ns, elapsed_ns=elapsed_ns, counts=counts)
