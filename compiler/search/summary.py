"""What a compile says about its search, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from veltair.compiler.search.samples import SearchReport
from veltair.compiler.versions import MOST_LOSS


def search_summary(report: SearchReport) -> Iterator[str]:
    """Lines for a person: how many samples and versions, and a QoS that is out of reach."""
    searched = [layer for layer in report.layers if layer.samples]
    if not searched:
        yield (
            "no layer has samples in a tuning log: each has one version, its cost model's; "
            "`veltair tune` or --trials N searches more"
        )
        return
    samples = sum(len(layer.samples) for layer in searched)
    removed = [len(layer.removed) for layer in searched]
    kept = sum(s.is_chosen for layer in searched for s in layer.samples) + sum(removed)
    dropped = sum(layer.dropped for layer in searched)
    took = f" in {report.wall_ns / 1e9:.1f} s" if report.wall_ns else ", all from tuning logs"
    yield (
        f"{len(searched)} of {len(report.layers)} layers chose {kept} versions among {samples} "
        f"samples{took}; {dropped:,} candidates were dropped before building"
    )
    if any(removed):
        single = sum(
            sum(s.is_chosen for s in layer.samples) == 1 for layer in searched if layer.removed
        )
        yield (
            f"{sum(removed)} versions were removed again, without which no layer is more than "
            f"{MOST_LOSS:.0%} slower at any level of interference; {single} layers have one left: "
            "nothing measured here tells their versions apart by more"
        )
    foreign = [layer for layer in searched if layer.machine]
    if foreign:
        yield (
            f"{len(foreign)} of them chose by samples of another machine ({foreign[0].machine}); "
            "`veltair tune` measures the fastest of those here"
        )
    missed = [layer for layer in searched if layer.missed_ns]
    if missed:
        worst = max(missed, key=lambda layer: layer.missed_ns)
        yield (
            f"the QoS of {report.qos_ns / 1e6:g} ms is out of reach of {len(missed)} layers even "
            f"alone on all cores: their fastest versions are kept; {worst.name} misses its share "
            f"of {worst.qos_share_ns / 1e6:.3f} ms by {worst.missed_ns / 1e6:.3f} ms"
        )
