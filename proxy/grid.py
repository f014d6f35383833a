"""What calibration puts beside each layer: nothing, a grid of bubbles or evictors, other layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from veltair.proxy.bubbles import BYTES_PER_GB, BYTES_PER_MB
from veltair.proxy.works import Work
from veltair.runtime._native import proxy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.proxy.disturber import Disturber

_FOOTPRINTS = (0.125, 0.5, 2.0)  # of a bubble's share of the L3: within it, half of it, beyond it
_RATES = (0.2, 0.45, 0.7, 1.0)  # of what a bubble of that footprint reaches
_SHARES = 8  # even parts of the memory that evictors throw out
_NEIGHBOURS = 3
_MOST_BYTES = 128 << 20  # a virtual machine names caches that it shares with many
_LEAST_BYTES = 1 << 20


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a layer is measured beside.

    Attributes:
        footprint_bytes: of each bubble; 0 where there is none.
        bytes_per_s: of each bubble.
        neighbour: the layer that runs beside; None where none does.
        evicted_millionths: of the layer's weights that are thrown out of the caches meanwhile, and
            of the reference kernel's memory while that runs.
    """

    footprint_bytes: int = 0
    bytes_per_s: int = 0
    neighbour: Work | None = None
    evicted_millionths: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether there is nothing beside."""
        return self == ALONE

    def __str__(self) -> str:
        """Names it as a message would."""
        if self.neighbour is not None:
            return f"beside {self.neighbour}"
        if self.is_alone:
            return "alone"
        if self.evicted_millionths:
            return f"evictors of {self.evicted_millionths / proxy.WHOLE_SHARE:.3g} of its weights"
        return (
            f"bubbles of {self.footprint_bytes / BYTES_PER_MB:.3g} MB at "
            f"{self.bytes_per_s / BYTES_PER_GB:.3g} GB/s"
        )

    def begin(self, disturber: Disturber, work: Work | None = None) -> None:
        """Has it done, to a layer, or to the reference kernel where there is none."""
        if self.neighbour is not None:
            disturber.work(self.neighbour)
        elif self.evicted_millionths:
            disturber.evict(self.evicted_millionths, work)
        elif self.is_alone:
            disturber.rest()
        else:
            disturber.bubbles(self.footprint_bytes, self.bytes_per_s)


ALONE = Setting()


def footprints(l3_bytes: int, bubbles_per_cache: int) -> tuple[int, ...]:
    """Returns the bytes of the grid's bubbles, ascending.

    Args:
        l3_bytes: of one shared cache.
        bubbles_per_cache: that share it.
    """
    share = l3_bytes / bubbles_per_cache
    sizes = {min(max(round(part * share), _LEAST_BYTES), _MOST_BYTES) for part in _FOOTPRINTS}
    return tuple(sorted(size - size % _LEAST_BYTES for size in sizes))


def settings(
    disturber: Disturber, sizes: Sequence[int], works: Sequence[Work]
) -> tuple[Setting, ...]:
    """Returns the grid on this machine: nothing, bubbles up to their highest rates, and layers.

    Args:
        disturber: whose bubbles' rates are tried.
        sizes: footprints in bytes.
        works: of which the neighbours are, evenly spread over what they touch, the most included.
    """
    grid = [ALONE]
    for size in sizes:
        highest = disturber.highest_rate(size)
        grid += [Setting(footprint_bytes=size, bytes_per_s=round(highest * r)) for r in _RATES]
    return (*grid, *(Setting(neighbour=work) for work in neighbours(works)))


def evicting_settings(works: Sequence[Work]) -> tuple[Setting, ...]:
    """Returns the grid of evictors: nothing, shares up to all, and layers as in `settings`."""
    shares = (round(proxy.WHOLE_SHARE * (i + 1) / _SHARES) for i in range(_SHARES))
    grid = (ALONE, *(Setting(evicted_millionths=share) for share in shares))
    return (*grid, *(Setting(neighbour=work) for work in neighbours(works)))


def neighbours(works: Sequence[Work]) -> list[Work]:
    """Returns the layers that others are measured beside, by ascending size."""
    by_bytes = sorted(works, key=lambda work: (work.bytes, str(work)))
    places = np.linspace(0, len(by_bytes) - 1, _NEIGHBOURS + 1)[1:]  # the smallest disturbs nobody
    return [by_bytes[index] for index in sorted({round(place) for place in places})]
