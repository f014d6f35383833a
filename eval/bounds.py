"""`make bench`: measures what the design is held to and writes it to `eval/results`.

Each measurement is a command of its own that saves a JSON file with the machine, the revision and
the command line. The README's table puts their figures beside the bounds; none is typed in.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veltair import models
from veltair.eval.children import python
from veltair.eval.solo_figures import figures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Result = dict[str, Any]

FOLDER = Path("build/bench")
RESULTS = Path("eval/results")
README = Path("README.md")
TITLE = "# What the design is held to, measured by `make bench`"
BEGIN, END = "<!-- bounds -->", "<!-- end of bounds -->"
SERVED = "resnet50"
IDLE = ("resnet50", "googlenet", "mobilenet_v2")  # heavier ones hardly notice idleness
QPS = 20
PEERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
COMPILE_S = {"resnet50": 60, "bert_base": 90, "bert_large": 180}
COMPILE_GB = {"bert_base": 5, "bert_large": 8}
TABLE_2 = (
    "resnet50",
    "googlenet",
    "efficientnet_b0",
    "mobilenet_v2",
    "ssd300_vgg16",
    "tiny_yolov2",
    "bert_large",
)
SEARCH_MIN = 10
VERSIONS_COST = 1.05
BATCHED, BATCH = "resnet50", 8
BATCH_SHARE = 0.95  # on one core
FALLBACK_COST = 1.05
FALLEN = ("resnet50", "mobilenet_v2")
# Evictors disturb on any machine. So wide a network has 34 MB of weights: more than a core's own
# caches hold, and less than a last one.
DISTURBED = ("--wide", 1448, "--co-runner", "evictors")
MIB = 1 << 20
COMMAND = "make bench"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        what: is measured.
        bound: the most that it may be; None where there is no promise.
        measured: what it is, a median where it varies.
        unit: of both.
        source: the result's file.
        is_least: the bound is the least that it may be.
        kind: what several rows have in common that the README shows as one.
    """

    what: str
    bound: float | None
    measured: float
    unit: str
    source: str
    is_least: bool = False
    kind: str = ""

    @property
    def strain(self) -> float:
        """How near it is to its bound, or beyond: above 1 the bound is not kept."""
        assert self.bound
        return self.bound / self.measured if self.is_least else self.measured / self.bound

    @property
    def kept(self) -> str:
        """Whether the bound is kept, as the table says it."""
        if self.bound is None:
            return ""
        over = self.measured - self.bound
        return "yes" if (over >= 0 if self.is_least else over <= 0) else "**no**"


def main() -> int:
    """Measures everything, or only writes the table again."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--table-only", action="store_true", help="from the files that are there")
    RESULTS.mkdir(parents=True, exist_ok=True)
    try:
        if not parser.parse_args().table_only:
            measure()
    except subprocess.CalledProcessError as error:  # the command has said why
        return error.returncode
    table = report(saved_results())
    (RESULTS / "bounds.md").write_text(f"{TITLE}\n\n{table}")
    text = in_readme(README.read_text(), summary(saved_results()), BEGIN, END)
    README.write_text(text)
    print(table)
    return 0


def measure() -> None:
    """Runs every benchmark, one after the other, first the one that compiles the networks.

    Raises:
        subprocess.CalledProcessError: one failed, and has said why.
    """
    run("veltair.eval.bench_compile", FOLDER, "--json", RESULTS / "compile.json")
    peers = [name for name in PEERS if importlib.util.find_spec(name)]
    if len(peers) == len(PEERS):
        run("veltair.eval.bench_solo", "--out", RESULTS)
    batches = FOLDER / "batches"
    run(
        *("veltair.runtime.cli", "compile", FOLDER / f"{BATCHED}.onnx", "-o", batches, "--force"),
        *("--batch", f"1,{BATCH}"),
    )
    run("veltair.eval.bench_batch", batches / BATCHED, "--json", RESULTS / "batch.json")
    whole = [FOLDER / f"{name}.onnx" for name in FALLEN]
    run("veltair.eval.bench_fallback", *whole, "--json", RESULTS / "fallback.json")
    together = [FOLDER / name / name for name in TABLE_2]
    run("veltair.eval.bench_together", *together, "--json", RESULTS / "together.json")
    run("veltair.eval.bench_search", "--out", RESULTS)
    run("veltair.eval.bench_qos_share", FOLDER, "--json", RESULTS / "qos_share.json")
    run(
        *("veltair.eval.bench_idle", *(FOLDER / name / name for name in IDLE)),
        *("--cores", "1,2", "--against", ",".join(peers)),
        *(f"--onnx={FOLDER / name}.onnx" for name in IDLE),
        *("--json", RESULTS / "idle.json"),
    )
    run("veltair.eval.bench_decision", "--json", RESULTS / "decision.json")
    run("veltair.eval.bench_batching", "--json", RESULTS / "batching.json")
    run("veltair.eval.bench_simulator", "--json", RESULTS / "simulator.json")
    run("veltair.eval.bench_launch", "--json", RESULTS / "launch.json")
    run(
        *("veltair.eval.bench_server", FOLDER / SERVED, "--model", SERVED),
        *("--json", RESULTS / "server.json"),
    )
    run(
        *("veltair.eval.bench_blocks", FOLDER / SERVED / SERVED),
        *("--json", RESULTS / "blocks.json"),
    )
    run("veltair.eval.bench_http", "--json", RESULTS / "http.json")
    run("veltair.eval.bench_probe", "--json", RESULTS / "probe.json")
    run(
        *("veltair.eval.bench_level", FOLDER / SERVED / SERVED, *DISTURBED),
        *("--json", RESULTS / "level.json"),
    )
    trained = FOLDER / "proxy.json"
    run(
        *("veltair.runtime.cli", "calibrate", "-o", trained, "--minutes", "7"),
        *("--co-runner", "evictors"),
    )
    run(
        *("veltair.eval.bench_level", FOLDER / SERVED / SERVED, *DISTURBED),
        *("--proxy", trained, "--json", RESULTS / "level_trained.json"),
    )
    run(
        *("veltair.runtime.cli", "loadgen", "--repository", FOLDER / SERVED, "--model", SERVED),
        *("--qps", QPS, "--duration", "30", "--json", RESULTS / "loadgen.json"),
    )
    run(
        *("veltair.eval.capacity.loadgen_check", "--repository", FOLDER / SERVED),
        *("--models", SERVED, "--repetitions", "1", "--fresh", "--output", RESULTS),
    )


def run(*module_and_arguments: object) -> None:
    """Runs a module of ours; its output goes to ours."""
    command = python(*map(str, module_and_arguments))
    print(f"\n{' '.join(command[1:])}", flush=True)
    subprocess.run(command, check=True)


def report(results: Mapping[str, Result]) -> str:
    """Writes the table in Markdown.

    Args:
        results: content of each result's file, by its name.
    """
    return _table(_rows(results), results)


def summary(results: Mapping[str, Result]) -> str:
    """Writes what has a bound in Markdown, of rows of one kind the one nearest to its bound.

    Args:
        results: content of each result's file, by its name.
    """
    kinds: dict[str, list[Row]] = {}
    for row in _rows(results):
        if row.bound is not None:
            kinds.setdefault(row.kind or row.what, []).append(row)
    shown = []
    for kind, rows in kinds.items():
        worst = max(rows, key=lambda row: row.strain)
        of = f": the worst of {len(rows)}" if len(rows) > 1 else ""
        shown.append(replace(worst, what=kind + of))
    return _table(shown, results) + f"\nAll of it is in `{RESULTS / 'bounds.md'}`.\n"


def _rows(results: Mapping[str, Result]) -> list[Row]:
    return [row for name, rows in _ROWS.items() if name in results for row in rows(results[name])]


def _table(rows: Sequence[Row], results: Mapping[str, Result]) -> str:
    lines = [
        "| what | bound | measured | kept | file |",
        "|---|---:|---:|---|---|",
    ]
    lines += [
        f"| {row.what} | {_bound(row)} | {_number(row.measured, row.unit)} "
        f"| {row.kept} | `{row.source}` |"
        for row in rows
    ]
    lines += [
        "",
        f"Medians, by `{COMMAND}`; each file in `{RESULTS}` has the spread, the command, the "
        "revision and the machine:",
        f"{' / '.join(sorted({_machine(result) for result in results.values()} - {''}))}.",
    ]
    return "\n".join(lines) + "\n"


def in_readme(readme: str, text: str, begin: str, end: str) -> str:
    """Returns the README with a text in its place, between two comments."""
    before, has_begin, rest = readme.partition(begin)
    _, has_end, after = rest.partition(end)
    assert has_begin, f"the README has no {begin}"
    assert has_end, f"the README has no {end}"
    return f"{before}{begin}\n{text}{end}{after}"


def saved_results() -> dict[str, Result]:
    """Reads the results that are there."""
    return {path.name: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}


def _machine(result: Result) -> str:
    machine = result.get("machine")
    return f"{machine['cpu']}, {machine['cores']} cores" if machine else ""


def _bound(row: Row) -> str:
    least = "at least " if row.is_least and row.bound is not None else ""
    return least + _number(row.bound, row.unit)


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g} {unit}".rstrip()


def _compile_rows(result: Result) -> Iterator[Row]:
    for name, compiled in result["networks"].items():
        yield Row(
            what=f"`veltair compile`, {name}",
            bound=COMPILE_S.get(name),
            measured=compiled["wall_ns"] / 1e9,
            unit="s",
            source="compile.json",
        )
        yield Row(
            what=f"the most memory of that, {name}",
            bound=COMPILE_GB.get(name),
            measured=compiled["peak_bytes"] / 1e9,
            unit="GB",
            source="compile.json",
        )


def _solo_rows(result: Result) -> Iterator[Row]:
    for figure in figures(result["cases"], models.names()):
        yield Row(
            what=figure.what,
            bound=figure.goal.bound if figure.goal else None,
            measured=figure.measured,
            unit=figure.unit,
            source="solo.json",
            is_least=True,
        )
    differences = (
        engine["difference"] for case in result["cases"] for engine in case["engines"][1:]
    )
    yield Row(
        what="largest difference to either peer, of the output's range",
        bound=1e-3,
        measured=max(differences, default=0.0),
        unit="",
        source="solo.json",
    )


def _search_rows(result: Result) -> Iterator[Row]:
    if (speed := result.get("speed")) and speed["steps"]:
        last = speed["steps"][-1]
        close = all(ratio["p50"] <= speed["close"] for ratio in last["ratio"].values())
        yield Row(
            what=f"{speed['network']} from an empty log to within {speed['close'] - 1:.0%} of the "
            "shipped logs' speed" + ("" if close else f": not with {last['trials']} trials"),
            bound=SEARCH_MIN,
            measured=last["search_ns"] / 60e9 if close else math.inf,
            unit="min",
            source="search.json",
        )
    if cost := result.get("versions"):
        yield Row(
            what=f"compile with a search for {cost['versions']} versions, time over that for one",
            bound=VERSIONS_COST,
            measured=cost["wall"]["p50"],
            unit="",
            source="search.json",
        )


def _share_rows(result: Result) -> Iterator[Row]:
    for name, network in result["networks"].items():
        flops, measured = (network["shares"][share] for share in ("flops", "measured"))
        # On one core: on more, levels are estimated. A compile may find fewer levels than another.
        level = min(len(flops["levels"]), len(measured["levels"])) - 1
        yield Row(
            what=f"{name} on one core, {'interference' if level else 'alone'}: versions by shares "
            "of measured time, time over that by shares of operations",
            bound=None,
            measured=measured["best_ns"][0][level] / flops["best_ns"][0][level],
            unit="",
            source="qos_share.json",
        )


def _idle_rows(result: Result) -> Iterator[Row]:
    for case in result["cases"]:
        cores = f"{case['cores']} core{'s' if case['cores'] > 1 else ''}"
        ours, *peers = ({**row, **row["after"][0]} for row in case["engines"])
        first = f"{case['model']} on {cores}, first query after {ours['idle_ns'] / 1e6:g} ms"
        yield Row(
            what=f"{first}, time over back to back",
            bound=None,
            measured=ours["penalty"]["p50"],
            unit="",
            source="idle.json",
        )
        for peer in peers:
            yield Row(
                what=f"{first}, time over {PEERS[peer['engine']]}'s",
                bound=None,
                measured=peer["ratio"]["p50"],
                unit="",
                source="idle.json",
            )


def _together_rows(result: Result) -> Iterator[Row]:
    yield Row(
        what=f"{len(result['models'])} networks in one server: a worker's memory beyond weights",
        bound=result["worker_bytes"] / MIB,
        measured=max(result["workers_private_bytes"].values()) / MIB,
        unit="MiB",
        source="together.json",
    )


def _batch_rows(result: Result) -> Iterator[Row]:
    for case in result["cases"]:
        cores = f"{case['cores']} core{'s' if case['cores'] > 1 else ''}"
        for batch in case["batches"]:
            held = (case["model"], case["cores"], batch["size"]) == (BATCHED, 1, BATCH)
            yield Row(
                what=f"{case['model']} on {cores}, a batch of {batch['size']}: time over that of "
                "its samples",
                bound=BATCH_SHARE if held else None,
                measured=batch["ratio"]["p50"],
                unit="",
                source="batch.json",
            )


def _fallback_rows(result: Result) -> Iterator[Row]:
    for case in result["cases"]:
        cores = f"{case['cores']} core{'s' if case['cores'] > 1 else ''}"
        yield Row(
            what=f"{case['model']} on {cores}, all of it fallen back: time over ONNX Runtime's",
            bound=FALLBACK_COST,
            measured=case["engines"][1]["ratio"]["p50"],
            unit="",
            source="fallback.json",
            kind="a model that falls back wholly, time over ONNX Runtime's",
        )


def _launch_rows(result: Result) -> Iterator[Row]:
    for what, name in (
        ("empty parallel launch, gang awake", "empty_launch"),
        ("waking a parked gang", "all_cores_asleep"),
    ):
        measured = result["results"][name]
        yield Row(
            what=what,
            bound=measured["bound_ns"] / 1e3,
            measured=measured["p50_ns"] / 1e3,
            unit="us",
            source="launch.json",
        )


def _decision_rows(result: Result) -> Iterator[Row]:
    for policy, events in result["policies"].items():
        yield Row(
            what=f"one decision of `{policy}`, {result['layers']} layers, {result['cores']} cores",
            bound=result["bound_ns"] / 1e3,
            measured=max(event["p50"] for event in events.values()) / 1e3,
            unit="us",
            source="decision.json",
            kind=f"one decision of a policy, {result['layers']} layers, {result['cores']} cores",
        )


def _batching_rows(result: Result) -> Iterator[Row]:
    for policy, loads in result["policies"].items():
        yield Row(
            what=f"one request through `{policy}` and `first-fit`, {result['models']} models, "
            f"{result['devices']} devices",
            bound=1e6 / result["bound_requests_per_s"],
            measured=max(1e6 / load["requests_per_s"]["p50"] for load in loads.values()),
            unit="us",
            source="batching.json",
            kind=f"one request batched and placed, {result['models']} models, "
            f"{result['devices']} devices",
        )


def _simulator_rows(result: Result) -> Iterator[Row]:
    for policy, events_per_s in result["policies"].items():
        yield Row(
            what=f"one block event of the simulator under `{policy}`",
            bound=1e6 / result["bound_per_s"],
            measured=1e6 / events_per_s["p50"],
            unit="us",
            source="simulator.json",
            kind="one block event of the simulator",
        )


def _server_rows(result: Result) -> Iterator[Row]:
    private = max(result["workers_private_bytes"].values())
    for what, bound, measured, unit in (
        ("run-queue push to start, idle worker", 60, result["queue_ns"]["p50"] / 1e3, "us"),
        (f"start until ready, {SERVED}", 3, result["start_ns"]["p50"] / 1e9, "s"),
        ("idle server, all processes, of one core", 2, result["idle_share"] * 100, "%"),
        (
            "worker's memory beyond shared weights and its arena",
            50,
            (private - result["arena_bytes"]) / MIB,
            "MiB",
        ),
    ):
        yield Row(what=what, bound=bound, measured=measured, unit=unit, source="server.json")


def _blocks_rows(result: Result) -> Iterator[Row]:
    for what, bound, measured in (
        ("block to block in a worker, same cores", 5, result["boundary_ns"]["p50"]),
        ("the same, other cores each time", 60, result["boundary_changing_ns"]["p50"]),
        (
            "a core taken back from a running kernel until it is let go, mean",
            100,
            result["let_go"]["mean_ns"],
        ),
    ):
        yield Row(what=what, bound=bound, measured=measured / 1e3, unit="us", source="blocks.json")


def _http_rows(result: Result) -> Iterator[Row]:
    http = next(way for way in result["ways"] if way["way"] == "HTTP, bare socket")
    yield Row(
        what="HTTP round trip beside the model, 600 KB input",
        bound=result["bound_ns"] / 1e6,
        measured=(http["round_trip_ns"]["p50"] - result["kernels_ns"]) / 1e6,
        unit="ms",
        source="http.json",
    )


def _loadgen_rows(result: Result) -> Iterator[Row]:
    plan = result["plan"]
    yield Row(
        what=f"LoadGen Server, {plan['model']}, {plan['qps']:g} queries a second: "
        f"within {plan['latency_ns'] / 1e6:g} ms",
        bound=None,
        measured=result["ours"]["satisfied"] * 100,
        unit="%",
        source="loadgen.json",
    )


def _loadgen_check_rows(result: Result) -> Iterator[Row]:
    for each in result["models"]:
        yield Row(
            what=f"highest rate by LoadGen's verdict against ours, the same runs, {each['model']}",
            bound=result["agree"] * 100,
            measured=abs(each["verdict_ratio"] - 1) * 100,
            unit="%",
            source="loadgen_check.json",
        )


def _probe_rows(result: Result) -> Iterator[Row]:
    group = result["reads"]["perf_group"]
    if "p50" in group:  # a container may forbid it
        yield Row(
            what="reading a group of counters",
            bound=group["bound_ns"] / 1e3,
            measured=group["p50"] / 1e3,
            unit="us",
            source="probe.json",
        )
    own = result["rows"][0]
    yield Row(
        what="the probe, share of one core",
        bound=own["cost_bound"] * 100,
        measured=own["cost"] * 100,
        unit="%",
        source="probe.json",
    )


def _trained_level_rows(result: Result) -> Iterator[Row]:
    for row in _level_rows(result):
        yield replace(
            row, what=f"{row.what}, with a trained `proxy.json`", source="level_trained.json"
        )


def _level_rows(result: Result) -> Iterator[Row]:
    block = result["block"]
    yield Row(
        what="the interference level, of each block",
        bound=block["bound_ns"] / 1e3,
        measured=max(block["more_ns"]["p50"], 0.0) / 1e3,
        unit="us",
        source="level.json",
    )
    for row in result["throughput"]:
        yield Row(
            what=f"throughput that measuring the level costs, {row['model']}",
            bound=row["bound"] * 100,
            measured=(1 - row["ratio"]["p50"]) * 100,
            unit="%",
            source="level.json",
        )
    for row in result["follow"]:
        if row["apart"]:  # else the co-runner disturbs the model too little to be told
            yield Row(
                what=f"the level follows a co-runner that comes, {row['model']}",
                bound=row["bound_ns"] / 1e6,
                measured=row["rise_ns"]["p50"] / 1e6,
                unit="ms",
                source="level.json",
            )


_ROWS = {
    "compile.json": _compile_rows,
    "solo.json": _solo_rows,
    "search.json": _search_rows,
    "qos_share.json": _share_rows,
    "idle.json": _idle_rows,
    "together.json": _together_rows,
    "batch.json": _batch_rows,
    "fallback.json": _fallback_rows,
    "launch.json": _launch_rows,
    "decision.json": _decision_rows,
    "batching.json": _batching_rows,
    "simulator.json": _simulator_rows,
    "server.json": _server_rows,
    "blocks.json": _blocks_rows,
    "http.json": _http_rows,
    "loadgen.json": _loadgen_rows,
    "loadgen_check.json": _loadgen_check_rows,
    "probe.json": _probe_rows,
    "level.json": _level_rows,
    "level_trained.json": _trained_level_rows,
}

if __name__ == "__main__":
    sys.exit(main())
