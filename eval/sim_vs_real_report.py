"""The comparison as a page: both sides, the differences, and what explains those beyond a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from veltair.eval.latency_figures import Figures
    from veltair.eval.sim_vs_real import Point

LATENCY_BOUND = 0.10
SHARE_BOUND = 0.03
_NOTABLE = 0.01  # of the processors, or of a latency
_HEADING = (
    "| policy | load | queries/s | model | mean ms real | simulated | diff | p95 ms real | "
    "simulated | diff | satisfied % real | simulated | diff | within |"
)


def differences(real: Figures, simulated: Figures) -> tuple[float, float, float]:
    """Returns simulated against real: of the mean, of p95 (relative), of the satisfied share."""
    return (
        simulated.mean_ms / real.mean_ms - 1,
        simulated.p95_ms / real.p95_ms - 1,
        simulated.satisfied_share - real.satisfied_share,
    )


def is_within(real: Figures, simulated: Figures) -> bool:
    """Whether all three differences keep their bounds; a figure that is missing keeps none."""
    mean, p95, share = differences(real, simulated)
    return abs(mean) <= LATENCY_BOUND and abs(p95) <= LATENCY_BOUND and abs(share) <= SHARE_BOUND


def markdown(result: dict[str, Any], points: Sequence[Point]) -> str:
    """Returns the page.

    Args:
        result: as its JSON file has it.
        points: in the order of their rows.
    """
    within = sum(is_within(point.real["all"], point.simulated["all"]) for point in points)
    foretold = sum(is_within(point.real["all"], point.foretold["all"]) for point in points)
    lines = [
        "# The simulator against the server",
        "",
        f"Made by `{result['command']}` at revision {result['revision']} on "
        f"{result['machine']['cores']} cores ({result['machine']['cpu']}), load average before "
        f"{result['load_average_before']:.2f}. {' and '.join(result['workload']['models'])} in "
        f"equal parts, {result['workload']['queries']} Poisson arrivals a run (seed "
        f"{result['workload']['seed']}), the same for every policy and for both sides; "
        f"{result['workers']} workers. A load of 1 is {_capacities(result)} queries/s: all "
        "cores busy at the profiles' least processor time. Targets are "
        f"{result['qos_scale']:g} times the artifacts'. Latency counts from the planned arrival "
        "to the end that the server recorded.",
        "",
        f"Of {len(points)} points {within} are within the bounds: mean and p95 within "
        f"{LATENCY_BOUND:.0%}, satisfied share within {SHARE_BOUND * 100:g} points. Here the "
        "simulated machine has the pace that the real one had meanwhile, in steps of "
        f"{result['pace_step_ms']:g} ms: the time that blocks took, by the server's record, over "
        "what the simulator takes for their layers on as many cores beside as many busy ones. So "
        "service times are of the run itself, and what is compared is what the simulator makes of "
        "them: queues, cores, blocks, policies.",
        "",
        *_table((point, "all", point.simulated) for point in points),
        "",
        "## Foretold by queries between slices alone",
        "",
        "The same without a look at the run: the simulated machine's pace is that of queries sent "
        f"before and after each slice. Of {len(points)} points {foretold} are within the bounds. "
        "Waiting grows much faster than the time of a block, so a host that changes within a "
        "slice puts these off first.",
        "",
        *_table((point, "all", point.foretold) for point in points),
        "",
        "## What differs, and where",
        "",
        "Waiting is from the arrival to the begin of the first block, service from there to the "
        "end. Then shares of all processors during the real run; and, over the run's slices, the "
        "machine's pace over what the calibration says, by their blocks; how much longer all "
        "blocks took than what is foretold; and what foretells it: the time of queries sent alone "
        "and beside others, before and after the slice, over what the calibration says; how much "
        "longer those beside others took than those alone, which the simulator's interference "
        "levels have in both tables; and how uneven their times are before and after one slice, "
        "the deviation of the logarithm and for how long it stays: so is the machine where it is "
        "foretold, by several draws of it. A slice during which they changed by more than "
        f"{result['steady']:.0%} was run again.",
        "",
        "| policy | load | waiting ms real | simulated | service ms real | simulated | "
        "driver late ms | driver | other processes | stolen by the host | pace | over what is "
        "foretold | time of a query | beside others | uneven | again |",
        "|---" * 16 + "|",
        *map(_where, points),
        "",
        *(line for point in points for line in _reasons(point)),
        "",
        "## Parameters, measured before the runs",
        "",
        *(line for each in result["calibrations"] for line in [*_parameters(result, each), ""]),
        "## By model",
        "",
        *_table(
            (point, name, point.simulated)
            for point in points
            for name in point.real
            if name != "all"
        ),
    ]
    return "\n".join(lines) + "\n"


def _table(rows: Iterable[tuple[Point, str, dict[str, Figures]]]) -> list[str]:
    """Of points, models and one of the points' simulated sides."""
    return [_HEADING, "|---" * (_HEADING.count("|") - 1) + "|", *(_row(*row) for row in rows)]


def _row(point: Point, name: str, side: dict[str, Figures]) -> str:
    real, simulated = point.real[name], side[name]
    mean, p95, share = differences(real, simulated)
    cells = (
        point.policy,
        f"{point.load:g}",
        f"{real.offered_qps:.1f}",
        name,
        f"{real.mean_ms:.2f}",
        f"{simulated.mean_ms:.2f}",
        f"{mean:+.1%}",
        f"{real.p95_ms:.2f}",
        f"{simulated.p95_ms:.2f}",
        f"{p95:+.1%}",
        f"{real.satisfied_share * 100:.1f}",
        f"{simulated.satisfied_share * 100:.1f}",
        f"{share * 100:+.1f}",
        "yes" if is_within(real, simulated) else "no",
    )
    return "| " + " | ".join(cells) + " |"


def _where(point: Point) -> str:
    real, simulated = point.real["all"], point.simulated["all"]
    disturbance = point.disturbance
    speed = "; ".join(
        f"{name} {min(factors):.2f} to {max(factors):.2f}" for name, factors in point.speed.items()
    )
    beside = "; ".join(f"{name} {factor - 1:+.1%}" for name, factor in point.beside.items())
    return (
        f"| {point.policy} | {point.load:g} | {real.wait_ms:.2f} | {simulated.wait_ms:.2f} | "
        f"{real.service_ms:.2f} | {simulated.service_ms:.2f} | {point.late_ms:.2f} | "
        f"{disturbance.driver:.1%} | {disturbance.others:.1%} | {disturbance.steal:.1%} | "
        f"{min(point.pace):.2f} to {max(point.pace):.2f} | {point.over_foretold - 1:+.1%} | "
        f"{speed} | {beside} | {point.unevenness.spread:.2f}, "
        f"{point.unevenness.memory_ns / 1e6:.0f} ms | {point.again} |"
    )


def _reasons(point: Point) -> list[str]:
    """What the measurements say about a point beyond its bounds."""
    real, simulated = point.real["all"], point.simulated["all"]
    if is_within(real, simulated):
        return []
    service = simulated.service_ms - real.service_ms
    waiting = simulated.wait_ms - real.wait_ms
    parts = [
        f"of the mean's difference of {simulated.mean_ms - real.mean_ms:+.2f} ms, "
        f"{service:+.2f} ms are service and {waiting:+.2f} ms waiting"
    ]
    for share, what in (
        (point.disturbance.others, "other processes used {:.1%} of the processors"),
        (point.disturbance.steal, "the host took {:.1%} of them"),
        (point.disturbance.driver, "the driver itself used {:.1%}"),
    ):
        if share >= _NOTABLE:
            parts.append(what.format(share))
    if point.late_ms > _NOTABLE * real.mean_ms:
        parts.append(f"queries were submitted {point.late_ms:.2f} ms late on average")
    if real.failed or real.refused != simulated.refused:
        parts.append(
            f"{real.refused} queries refused and {real.failed} failed, simulated "
            f"{simulated.refused} refused"
        )
    parts += [f"an error was: {error}" for error in point.errors]
    return [f"- {point.policy} at {point.load:g}, beyond the bounds: {'; '.join(parts)}."]


def _capacities(result: dict[str, Any]) -> str:
    values = [each["capacity_qps"] for each in result["calibrations"]]
    return ", ".join(f"{value:.1f}" for value in values) + (
        " (by the calibration of each load)" if len(values) > 1 else ""
    )


def _parameters(result: dict[str, Any], calibration: dict[str, Any]) -> list[str]:
    measured = calibration["measured"]
    costs = measured["costs"]
    others = calibration["disturbance"]["others"]
    lines = [
        f"For the runs at {calibration['load']:g}; meanwhile other processes used {others:.1%} "
        "of the processors.",
        "",
        "| what | measured | in the simulator |",
        "|---|---|---|",
        f"| arrival to begin, cores free | {costs['start_ns'] / 1e3:.0f} us | arrivals are seen "
        "that much later |",
        f"| boundary between blocks, cores unchanged | {costs['boundary_ns'] / 1e3:.1f} us | "
        "`machine.decision_us` |",
        f"| core granted to its first work in a running block | {costs['gain_ns'] / 1e3:.0f} us "
        "| `machine.conflict_us` |",
    ]
    for name, profile in measured["profiles"].items():
        times = ", ".join(f"{row[0] / 1e6:.2f}" for row in profile["model_ns"])
        cores = ", ".join(map(str, profile["cores"]))
        lines += [
            f"| {name} on {cores} cores, served alone | {times} ms | the profile of both sides; "
            f"target {result['qos_ns'][name] / 1e6:g} ms |",
        ]
    return lines
