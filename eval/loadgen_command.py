"""`veltair loadgen`: loads a server with MLPerf LoadGen and reports what it kept."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from veltair.eval.children import child, python, stopped_by_signals
from veltair.eval.loadgen_plan import Plan, Record, Scenario
from veltair.eval.loadgen_report import (
    Report,
    check_schedule,
    loadgen_figures,
    note,
    our_figures,
    read_summary,
    share_in_time,
    table,
)
from veltair.eval.record import check_writable, provenance, write_result
from veltair.eval.served import serving
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import InputError, NotFoundError, VeltairError

if TYPE_CHECKING:
    from veltair.runtime.client import ModelInfo

SAMPLES = 32
NULL_DURATION_NS = 2_000_000_000
SLOWEST_END_FACTOR = 10  # a test that takes this many times its duration has hung
SLOWEST_END_S = 60.0


def command(
    *,
    model: Annotated[str, typer.Option(help="The model to load.")],
    scenario: Annotated[
        str, typer.Option(help="LoadGen's: Server, SingleStream or Offline.")
    ] = "Server",
    repository: Annotated[
        Path | None, typer.Option(help="Start a server of these artifacts.")
    ] = None,
    attach: Annotated[
        str | None, typer.Option(help="Load the running server at this address instead.")
    ] = None,
    qps: Annotated[
        float | None, typer.Option(help="Queries a second, due (Server) or expected (Offline).")
    ] = None,
    duration: Annotated[float, typer.Option(help="Seconds of load.")] = 10.0,
    latency_ms: Annotated[
        float | None, typer.Option(help="Target of one query; default: the model's QoS.")
    ] = None,
    percentile: Annotated[
        float, typer.Option(help="Share of the queries that must meet it, percent.")
    ] = 95.0,
    workers: Annotated[int, typer.Option(help="Worker ranks of the server.")] = 2,
    config: Annotated[Path | None, typer.Option(help="The server's serve.toml.")] = None,
    seed: Annotated[int, typer.Option(help="Of samples, schedule and order.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the report here as JSON.")] = None,
    log_dir: Annotated[
        Path | None, typer.Option(help="Keep LoadGen's logs in this folder.")
    ] = None,
) -> None:
    """Load a server with MLPerf LoadGen; print its verdict and ours side by side."""
    if (repository is None) == (attach is None):
        raise InputError(
            f"--repository is {repository}, --attach is {attach}; give one of them: the artifacts "
            "to serve, or the address of a server that runs"
        )
    _check_numbers(scenario, qps, duration, latency_ms, percentile)
    check_writable(json)
    origin = provenance("veltair loadgen")
    with ExitStack() as stack:
        stack.enter_context(stopped_by_signals())
        logs = log_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        logs.mkdir(parents=True, exist_ok=True)
        address = attach
        if address is None:
            assert repository is not None
            address = stack.enter_context(serving(repository, workers=workers, config=config))
        info = _find(address, model)
        plan = Plan(
            scenario=msgspec.convert(scenario, Scenario),
            qps=qps or 1e9 / max(info.expected_ns, 1),
            duration_ns=round(duration * 1e9),
            latency_ns=_latency_ns(info, latency_ms),
            percentile=percentile,
            seed=seed,
            model=model,
            address=address,
            expected_ns=info.expected_ns,
            samples=SAMPLES,
            log_folder=str(logs.resolve()),
        )
        report = measure(plan)
    console = Console()
    console.print(table(report))
    console.print(note(report))
    if json is not None:
        result = msgspec.to_builtins(report)
        del result["plan"]["log_folder"]  # says nothing of the test, and may be gone
        write_result(json, {**origin, **result})


def measure(plan: Plan) -> Report:
    """Runs a test and the same against the null model, each in a process of its own.

    Raises:
        VeltairError: a test did not end as it should.
    """
    null_folder = Path(plan.log_folder) / "null"
    null_folder.mkdir(exist_ok=True)
    null_plan = msgspec.structs.replace(
        plan,
        address=None,
        duration_ns=min(plan.duration_ns, NULL_DURATION_NS),
        expected_ns=0,
        log_folder=str(null_folder),
    )
    overhead = our_figures(null_plan, _run(null_plan))
    record = _run(plan)
    ours = our_figures(plan, record)
    summary = read_summary(Path(plan.log_folder))
    theirs = loadgen_figures(summary)
    check_schedule(ours, theirs)
    return Report(
        plan=plan,
        loadgen=theirs,
        ours=ours,
        in_time=share_in_time(plan, record),
        failures=record.failures,
        overhead=overhead,
        summary=summary,
    )


def _run(plan: Plan) -> Record:
    folder = Path(plan.log_folder)
    plan_file, record_file = folder / "plan.json", folder / "record.json"
    plan_file.write_bytes(msgspec.json.encode(plan))
    record_file.unlink(missing_ok=True)
    limit_s = plan.duration_ns / 1e9 * SLOWEST_END_FACTOR + SLOWEST_END_S
    command_line = python("veltair.eval.loadgen", str(plan_file), str(record_file))
    with child(command_line) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired as error:
            raise VeltairError(
                f"the test has not ended after {limit_s:.0f} s, for {plan.duration_ns / 1e9:g} s "
                "of load; ask for fewer queries a second"
            ) from error
    if code != 0:
        raise VeltairError(f"the test ended with code {code}; its message is above")
    return msgspec.json.decode(record_file.read_bytes(), type=Record)


def _find(address: str, model: str) -> ModelInfo:
    with LocalClient.attach(address) as client:
        infos = client.models()
    versions = [info for info in infos if info.name == model]
    if not versions:
        served = ", ".join(sorted({info.name for info in infos})) or "none"
        raise NotFoundError(
            f"model {model!r} is not served at {address}; served: {served}; correct --model"
        )
    info = max(versions, key=lambda info: (info.state == "ready", info.version))
    if info.state != "ready":
        raise VeltairError(f"model {model!r} is {info.state}: {info.reason}; mend it first")
    return info


def _latency_ns(info: ModelInfo, latency_ms: float | None) -> int:
    if latency_ms is not None:
        return round(latency_ms * 1e6)
    if info.qos_ns == 0:
        raise InputError(
            f"model {info.name!r} was compiled without a QoS target, so there is none to test; "
            "give one with --latency-ms"
        )
    return info.qos_ns


def _check_numbers(
    scenario: str,
    qps: float | None,
    duration: float,
    latency_ms: float | None,
    percentile: float,
) -> None:
    try:
        msgspec.convert(scenario, Scenario)
    except msgspec.ValidationError as error:
        raise InputError(
            f"--scenario is {scenario!r}; it must be Server, SingleStream or Offline"
        ) from error
    if qps is None and scenario != "SingleStream":
        raise InputError(
            f"--qps is not given; {scenario} needs the queries a second, e.g. --qps 20"
        )
    for name, value, low, high in (
        ("--qps", qps, 0.01, 1e6),
        ("--duration", duration, 0.1, 86_400.0),
        ("--latency-ms", latency_ms, 0.001, 3.6e6),
        ("--percentile", percentile, 1.0, 99.99),
    ):
        if value is not None and not low <= value <= high:
            raise InputError(f"{name} is {value:g}; it must be from {low:g} to {high:g}")
