"""What the cases of `bench_solo` come to: speed over the best peer, by network and over all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from veltair.runtime.manifest import Isa

Case = dict[str, Any]

PEAK_NETWORK = "resnet50"
PERCENT = 100


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a figure is held to: at least this."""

    bound: float
    aim: float


MEAN: dict[Isa, Goal] = {
    "x86-64-v4": Goal(bound=1.0, aim=1.25),
    "x86-64-v3": Goal(bound=0.9, aim=1.0),
}
WORST: dict[Isa, Goal] = {"x86-64-v4": Goal(bound=0.9, aim=1.0)}
PEAK: dict[Isa, Goal] = {"x86-64-v4": Goal(bound=80, aim=90)}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the summary.

    Attributes:
        what: is measured.
        measured: what it is.
        goal: what it is held to; None where there is no promise.
        unit: of both.
    """

    what: str
    measured: float
    goal: Goal | None
    unit: str = ""

    @property
    def kept(self) -> str:
        """Whether the bound is kept, and the aim reached, as a table says it."""
        if self.goal is None:
            return ""
        if self.measured >= self.goal.aim:
            return "yes, and the aim"
        return "yes" if self.measured >= self.goal.bound else "**no**"


def best_peer(case: Case) -> tuple[str, float]:
    """Returns the fastest peer and its time over ours, the median of the rounds' ratios."""
    speeds = {peer["engine"]: 1 / peer["ratio"]["p50"] for peer in case["engines"][1:]}
    name = min(speeds, key=lambda engine: speeds[engine])
    return name, speeds[name]


def figures(cases: Sequence[Case], networks: Sequence[str]) -> Iterator[Figure]:
    """Gives the figures over all networks.

    Args:
        cases: of any instruction sets and thread counts.
        networks: that there are; a mean over fewer says so.
    """
    for isa, threads in sorted({(c["isa"], c["cores"]) for c in cases}, key=_newest_first):
        of = [c for c in cases if (c["isa"], c["cores"]) == (isa, threads)]
        speeds = {case["model"]: best_peer(case)[1] for case in of}
        where = f"{isa}, {threads} thread{'s' if threads > 1 else ''}"
        some = "" if len(of) == len(networks) else f" (of {len(of)} of {len(networks)} networks)"
        yield Figure(
            what=f"{where}: best peer's time over ours, geometric mean{some}",
            measured=geometric_mean(list(speeds.values())),
            goal=MEAN[isa],
        )
        worst = min(speeds, key=lambda name: speeds[name])
        yield Figure(
            what=f"{where}: the worst network, {worst}{some}",
            measured=speeds[worst],
            goal=WORST.get(isa),
        )
        for case in of:
            if case["model"] == PEAK_NETWORK and "peak" in case:
                yield Figure(
                    what=f"{where}: share of the measured FMA peak, {PEAK_NETWORK}",
                    measured=case["peak"]["share"]["p50"] * PERCENT,
                    goal=PEAK.get(isa),
                    unit="%",
                )


def geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def is_slow(case: Case) -> bool:
    """Whether a network pulls the mean below its bound."""
    return best_peer(case)[1] < MEAN[case["isa"]].bound


def _newest_first(key: tuple[Isa, int]) -> tuple[int, int]:
    isa, threads = key
    return list(MEAN).index(isa), threads
