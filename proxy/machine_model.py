"""How long a variant takes on a machine that nobody has measured: a roofline with a shared cache.

A layer's time on N cores is the longest of what its cores compute, what each reads from its L3, and
what all read from memory; beginning and ending it comes on top. Interference takes a part of the L3
away, so that more is read from memory, and beyond that a part of the memory's bandwidth.

What a variant asks for comes from its manifest: operations, the extent of its parallel loop, its
cache tile, and the bytes of its arguments. On n = min(N, extent) cores of c complexes the busiest
core runs k = ceil(extent / n) tasks. All of the following is in bytes, U being all that the layer
touches:

- A core reads max(U / n, k tiles) from its L3 where a tile doesn't fit its own cache, since each
  task then streams its tile; where it fits, at most U, as what tasks share stays there.
- An L3 holds what the tasks on its complex touch, F = extent / c tiles, from U / c to U. What
  interference leaves of it is S. The part max(0, 1 - S / F) of F is not there when it is wanted
  again. Tiles that are streamed again and again read that part of themselves from memory.
- Weights were read last one run of the model ago: of them at least the part max(0, 1 - c S / M) is
  gone, M being all that the model touches.

A level is a slow-down of the reference kernel, which reads from the L3. In the model interference
first pushes a part of that kernel's bytes out to memory, as large as gives the level, and takes the
same part of the L3 from the layer. Where all of it comes from memory, a higher level divides the
memory's bandwidth.

Neighbours that are blocks like ours take less of the L3 than bubbles: a core leaves to the others
of its complex what is theirs, and reaches no other complex (`beside_equals`). What such neighbours
share with all cores is the memory.

Limits: cores fill complexes one after another. What a complex reads from another's cache costs
what memory does on its link, and takes no memory bandwidth. Reading and computing overlap fully.
There is no set of cache lines, no prefetcher and no page.

Reference: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model
for multicore architectures", CACM 52(4), 2009, for the longest of compute and traffic; A. Ilic,
F. Pratas, L. Sousa, "Cache-aware roofline model", IEEE CAL 13(1), 2014, for a roof a cache level;
VELTAIR, section 3.3, for parallelism against locality under interference.
Differs: shares of the L3 in proportion to the bytes touched, in place of a stack-distance model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veltair.runtime.errors import ConfigError
from veltair.runtime.manifest import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from veltair.proxy.machine_file import Machine
    from veltair.runtime.manifest import Argument, Layer, Manifest, Variant

    Floats = NDArray[np.float64]

_KIB, _MIB = 1 << 10, 1 << 20
_PARTS = ("compute", "cache", "memory", "launch")
_SOME_ROWS = ("gather",)  # their tiles are all that they touch: rows of a table, not all of it
_TILE_OF_ALL = ("winograd",)  # tasks share one tile, so that it isn't read once for each
# Where `beside_equals` has levels: shares of the cores that are busy, then parts of the bandwidth.
_BUSY = (0.0, 0.5, 1.0)
_SPEEDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
FULL_LEVEL = len(_BUSY) - 1  # all cores busy, all of the bandwidth
_BYTES_A_MOVE = 4  # layers that compute nothing are said to do one operation each so many bytes


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a variant asks of a machine.

    Attributes:
        operations: of the whole layer; of one that only moves data, one each 4 bytes.
        extent: tasks that it can be divided into.
        tile_bytes: of the cache tile.
        weight_bytes: that it reads.
        other_bytes: that it reads and writes beside those.
        share: of a core's peak that its kernel reaches where nothing else holds it up.
        model_bytes: that the whole model touches in a run.
    """

    operations: float
    extent: int
    tile_bytes: float
    weight_bytes: float
    other_bytes: float
    share: float
    model_bytes: float = 0.0

    @property
    def bytes(self) -> float:
        """All that the layer touches."""
        return self.weight_bytes + self.other_bytes


@dataclass(frozen=True, kw_only=True)
class Times:
    """What a time is made of, float64[C, L] each, ns, by core count and level.

    Attributes:
        compute: of the busiest core.
        cache: of the busiest core's reading from the L3.
        memory: of reading from memory.
        launch: of beginning and ending.
        read_bytes: what is read from memory.
    """

    compute: Floats
    cache: Floats
    memory: Floats
    launch: Floats
    read_bytes: Floats

    @property
    def total(self) -> Floats:
        """The whole time."""
        return np.maximum(np.maximum(self.compute, self.cache), self.memory) + self.launch

    def bound_by(self, cores: int = 0, level: int = 0) -> str:
        """Which part decides, at an index of core counts and one of levels."""
        parts = {name: float(getattr(self, name)[cores, level]) for name in _PARTS}
        return max(parts, key=parts.__getitem__)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What interference leaves of a machine, by core count and level.

    Attributes:
        slowdowns: of the reference kernel, ascending from 0: the levels.
        left: float64[C or 1, L], parts of the L3.
        speed: float64[C or 1, L], parts of memory's bandwidth.
    """

    slowdowns: tuple[float, ...]
    left: Floats
    speed: Floats


def times(work: Work, machine: Machine, cores: Sequence[int], levels: Sequence[float]) -> Times:
    """Returns what a variant takes on each of some core counts, at each of some levels.

    Args:
        work: of the variant.
        machine: where.
        cores: from 1 to the machine's.
        levels: slow-downs of the reference kernel, from 0.
    """
    return times_under(work, machine, cores, beside_bubbles(machine, levels))


def times_under(
    work: Work, machine: Machine, cores: Sequence[int], conditions: Conditions
) -> Times:
    """The same under any conditions."""
    asked = np.asarray(cores, dtype=np.float64)[:, None]
    left, speed = conditions.left, conditions.speed
    used = np.minimum(asked, work.extent)
    tasks = np.ceil(work.extent / used)
    core_work = work.operations / work.extent * tasks
    compute = core_work / (machine.peak_gflops * work.share)
    cache = _core_bytes(work, machine, used, tasks) / machine.caches.l3_core_gbps
    memory, read_bytes = _memory(work, machine, used, left, speed)
    launch = machine.launch.base_ns + (asked - 1) * machine.launch.core_ns
    shape = memory.shape
    return Times(
        compute=np.broadcast_to(compute, shape),
        cache=np.broadcast_to(cache, shape),
        memory=memory,
        launch=np.broadcast_to(launch, shape),
        read_bytes=np.broadcast_to(read_bytes, shape),
    )


def highest_level(machine: Machine) -> float:
    """The level at which all that the reference kernel reads comes from memory."""
    return max(machine.caches.l3_core_gbps / machine.memory.core_gbps - 1, 0.0)


def beside_bubbles(machine: Machine, levels: Sequence[float]) -> Conditions:
    """What bubbles leave that slow the reference kernel by so much."""
    left, speed = squeezed(machine, np.asarray(levels, dtype=np.float64)[None, :])
    return Conditions(slowdowns=tuple(levels), left=left, speed=speed)


def beside_equals(machine: Machine, cores: Sequence[int]) -> Conditions:
    """What blocks leave of each other as a machine's cores fill up, then as its memory saturates.

    The reference kernel runs on one core.

    Args:
        machine: whose.
        cores: of a block.

    Raises:
        ConfigError: no level could be told: the reference kernel shares nothing.
    """
    together = machine.complex_cores
    counts = np.asarray(cores, dtype=np.float64)[:, None]
    others = 1 - counts / (together * np.ceil(counts / together))
    busy = np.array([*_BUSY, *(1.0 for _ in _SPEEDS)])[None, :]
    speed = np.array([*(1.0 for _ in _BUSY), *_SPEEDS])[None, :]
    pushed = pushed_by_equals(machine)
    highest = highest_level(machine)
    if pushed == 0 or highest == 0:
        raise ConfigError(
            f"{machine.processor.name}: each core has its L3 to itself, or reads memory as fast, "
            "so that no neighbour slows the reference kernel; simulate levels by occupancy"
        )
    slowdowns = pushed * busy * ((1 + highest) / speed - 1)
    return Conditions(
        slowdowns=tuple(map(float, slowdowns[0])),
        left=1 - busy * others,
        speed=np.broadcast_to(speed, (len(cores), speed.shape[1])),
    )


def pushed_by_equals(machine: Machine) -> float:
    """Part of the reference kernel's L3 that blocks on all other cores take."""
    return 1 - 1 / machine.complex_cores


def squeezed(machine: Machine, levels: Floats) -> tuple[Floats, Floats]:
    """Returns what interference leaves, as parts of 1: of the L3, and of memory's bandwidth.

    Args:
        machine: whose.
        levels: slow-downs of the reference kernel, from 0.
    """
    highest = highest_level(machine)
    pushed = np.minimum(levels / highest, 1) if highest > 0 else np.where(levels > 0, 1.0, 0.0)
    return 1 - pushed, (1 + np.minimum(levels, highest)) / (1 + levels)


def _core_bytes(work: Work, machine: Machine, used: Floats, tasks: Floats) -> Floats:
    """What the busiest core reads from its L3."""
    tiles = tasks * work.tile_bytes
    if work.tile_bytes <= machine.caches.l2_kib * _KIB:
        tiles = np.minimum(tiles, work.bytes)
    return np.maximum(tiles, work.bytes / used)


def _memory(
    work: Work, machine: Machine, used: Floats, left: Floats, speed: Floats
) -> tuple[Floats, Floats]:
    """The longest of what all read at memory's rate or their cores', and one complex's; bytes."""
    if work.bytes == 0:
        nothing = np.zeros(np.broadcast_shapes(used.shape, left.shape))
        return nothing, nothing
    complexes = np.ceil(used / machine.complex_cores)
    share = machine.caches.l3_mib * _MIB * left
    tiles = work.extent / complexes * work.tile_bytes
    held = np.clip(tiles, work.bytes / complexes, work.bytes)
    gone = np.maximum(1 - share / held, 0)
    model_bytes = max(work.model_bytes, work.bytes)
    weights_gone = np.maximum(gone, 1 - complexes * share / model_bytes)
    part = (work.weight_bytes * weights_gone + work.other_bytes * gone) / work.bytes
    streams = work.tile_bytes > machine.caches.l2_kib * _KIB
    again = np.maximum(tiles - held, 0) * gone if streams else 0.0
    rates = machine.memory
    link_ns = (held * part + again) / rates.complex_gbps
    # A complex reads from another's cache what that has read from memory already.
    everything = work.bytes * part + complexes * again
    all_ns = everything / np.minimum(rates.total_gbps, used * rates.core_gbps)
    return np.asarray(np.maximum(link_ns, all_ns) / speed), np.asarray(everything)


def work_of(
    layer: Layer, variant: Variant, shares: Mapping[str, float], model_bytes: float = 0.0
) -> Work:
    """Returns what a manifest says of a variant.

    Args:
        layer: the variant's.
        variant: one of the layer's.
        shares: of a core's peak, by algorithm.
        model_bytes: see `model_bytes_of`; 0 for a layer that is alone.

    Raises:
        ConfigError: nobody has measured kernels of the variant's algorithm.
    """
    if variant.algorithm not in shares:
        raise ConfigError(
            f"{layer.name}: no share of the peak is known for kernels of {variant.algorithm!r}, "
            f"only for {', '.join(sorted(shares))}; measure it with "
            "`python -m veltair.eval.machine_model`"
        )
    weights, others = _touched_by(variant)
    tile_bytes = float(variant.tile_bytes)
    if variant.algorithm in _TILE_OF_ALL:
        tile_bytes = (weights + others) / variant.parallel_extent
    return Work(
        operations=operations_of(layer, weights + others),
        extent=variant.parallel_extent,
        tile_bytes=tile_bytes,
        weight_bytes=weights,
        other_bytes=others,
        share=shares[variant.algorithm],
        model_bytes=model_bytes,
    )


def operations_of(layer: Layer, touched_bytes: float) -> float:
    """A layer's floating-point operations, or of one that only moves data its moves."""
    return float(layer.flops) if layer.flops > 0 else touched_bytes / _BYTES_A_MOVE


def model_bytes_of(manifest: Manifest) -> int:
    """All that a model touches in a run: the weights of first variants, and the activations."""
    weights = {
        (argument.offset_bytes, _size(argument))
        for layer in manifest.layers
        for argument in layer.variants[0].arguments
        if argument.storage == "weights"
    }
    return sum(size for _, size in weights) + manifest.activation_bytes


def _touched_by(variant: Variant) -> tuple[float, float]:
    """Bytes of weights, and of all else, that a variant reads and writes."""
    if variant.algorithm in _SOME_ROWS:
        return 0.0, float(variant.parallel_extent * variant.tile_bytes)
    weights = sum(_size(a) for a in variant.arguments if a.storage == "weights")
    return float(weights), float(sum(map(_size, variant.arguments)) - weights)


def _size(argument: Argument) -> int:
    """Bytes of a view; a dimension that repeats the same elements counts once."""
    sizes = (n for n, s in zip(argument.shape, argument.strides, strict=True) if s != 0)
    return math.prod(sizes) * ITEM_BYTES[argument.dtype]
