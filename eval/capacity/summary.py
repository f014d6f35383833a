"""What an evaluation prints at its end: a table, and who was best where that is decided."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.table import Table

from veltair.eval.capacity.search import best

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.capacity.result import Capacity, Result


def table(result: Result) -> Table:
    """Returns each system's capacity for each workload: the median, and the range about it."""
    rows = Table(title=f"Queries a second with {result.percentile:g} % of each model's in time")
    rows.add_column("system")
    for workload in result.workloads:
        rows.add_column(workload.name, justify="right")
    found = {(each.workload, each.system): each for each in result.capacities}
    for system in result.systems:
        cells = [found.get((workload.name, system.name)) for workload in result.workloads]
        if system.kind != "null":
            rows.add_row(system.name, *(_cell(each) for each in cells))
    return rows


def notes(result: Result) -> list[str]:
    """Returns a line for each workload, and one for each capacity that needs one."""
    kinds = {system.name: system.kind for system in result.systems}
    lines = []
    for workload in result.workloads:
        capacities = [each for each in result.capacities if each.workload == workload.name]
        lines.append(f"{workload.name}: {_verdict(capacities, kinds)}")
    for each in result.capacities:
        if each.note:
            lines.append(f"{each.workload}: {each.system} is {each.state}: {each.note}")
    return lines


def _verdict(capacities: Sequence[Capacity], kinds: dict[str, str]) -> str:
    winner = best(capacities)
    if winner is None:
        return "no winner is named: the repetitions do not decide it"
    qps = statistics.median(winner.qps)
    text = f"{winner.system} serves most, {qps:.1f} queries a second"
    peers = [each for each in capacities if kinds[each.system] == "peer" and each.qps]
    if kinds[winner.system] == "ours" and peers:
        peer = max(peers, key=lambda each: statistics.median(each.qps))
        ratio = qps / statistics.median(peer.qps)
        text += f", {ratio:.2f} times the best peer ({peer.system} at {peer.setting})"
    return text


def _cell(capacity: Capacity | None) -> str:
    if capacity is None:
        return "-"
    if not capacity.qps:
        return capacity.state
    low, high = min(capacity.qps), max(capacity.qps)
    text = f"{statistics.median(capacity.qps):.1f} ({low:.1f} to {high:.1f})"
    return f"{text} {capacity.state}" if capacity.state != "found" else text
