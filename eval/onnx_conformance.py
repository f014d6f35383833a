"""Runs ONNX's backend test suite against the compiler: `python -m veltair.eval.onnx_conformance`.

Each test of the suite compiles a model, mostly of one operator, and compares its outputs with those
that ONNX states. A test counts as `compiled` where every layer is, as `fallback` where a part or
all of it ran on ONNX Runtime, as `refused` where the compile says that it can't be served, and as
`failed` otherwise.
"""

from __future__ import annotations

import re
import selectors
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.children import python
from veltair.eval.conformance_child import STATUSES, TOLERANCES, Outcome, suite
from veltair.eval.record import write_result

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = "onnx_conformance"
NODES = "OnnxBackendNodeModelTest"
# Of the tests of single operators that are compiled at least, among those of these types.
LEAST_COMPILED = 0.75
COUNTED_TYPES = frozenset(
    [
        "FLOAT",
        "FLOAT16",
        "BOOL",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
    ]
)
RESULTS = Path("eval/results")
# What refusals say, and the reason that they have in common.
_GROUPS = {
    r"is of type (\w+); clients": "an input or output is of type {}, which clients can't send",
    r"a (sequence|optional); clients|is a (list|NoneType); give|is not a tensor": (
        "an input or output is a sequence or an optional value, no tensor"
    ),
    r"of domain '([\w.]+)'; rewrite": "no model to serve has operators of domain {}",
    r"Could not find an implementation for (\w+)": (
        "TVM can't lower it, and ONNX Runtime lacks {} for its types"
    ),
    r"construct locale with name:([\w-]+\.\w+-?\d*)": (
        "ONNX Runtime needs the locale {}, which this machine lacks"
    ),
    r"official support for domain ai.onnx is till opset (\d+)": (
        "TVM can't lower it, and ONNX Runtime takes opsets to {}"
    ),
    r"Batchwise recurrent operations": (
        "TVM can't lower it, and ONNX Runtime has no recurrent operators of layout 1"
    ),
}
LEGEND = """\
A test is *compiled* where every layer is, *fallback* where ONNX Runtime runs a part or all of it,
*refused* where the compile says that nothing here serves it: its inputs or outputs are no tensors
that clients can send (sequences, optional values, types of 2 and 4 bits, 8-bit floats), or neither
TVM nor ONNX Runtime has an operator, or has it for such types; *skipped* where it asks for what no
compile can give, or for what we do otherwise on purpose: see the end; and *failed* otherwise.
Inputs that give shapes, axes or counts are bound at compile time, as shapes are:
`veltair compile --value`."""


def command(
    out: Annotated[
        Path, typer.Option(help="Folder for onnx_conformance.json and onnx_conformance.md.")
    ] = RESULTS,
    tests: Annotated[str, typer.Option(help="Only tests whose name contains this.")] = "",
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Tests run at once.")] = 2,
    limit_s: Annotated[float, typer.Option(min=1, help="For one test.")] = 120.0,
) -> None:
    """Run ONNX's backend test suite and count what is compiled, falls back and fails."""
    names = [name for name in suite() if tests in name]
    outcomes = run(names, jobs, limit_s)
    result = {**origin(MODULE), **summary(outcomes)}
    out.mkdir(parents=True, exist_ok=True)
    write_result(out / "onnx_conformance.json", result)
    (out / "onnx_conformance.md").write_text(report(result), encoding="utf-8")
    print(headline(result))
    if result["all"]["failed"]:
        raise typer.Exit(1)


def run(names: Sequence[str], jobs: int, limit_s: float) -> list[Outcome]:
    """Runs tests in processes of their own; one that crashes or hangs fails, and no other.

    Returns:
        The outcomes in the order of the names.
    """
    waiting: Queue[str] = Queue()
    for name in names:
        waiting.put(name)
    with ThreadPoolExecutor(jobs) as pool:
        found = [pool.submit(_worker, waiting, limit_s) for _ in range(jobs)]
    by_name = {outcome.name: outcome for each in found for outcome in each.result()}
    return [by_name[name] for name in names]


def _worker(waiting: Queue[str], limit_s: float) -> list[Outcome]:
    outcomes = []
    process = _start()
    try:
        while True:
            name = waiting.get_nowait()
            outcome = _ask(process, name, limit_s)
            if outcome is None:
                process.kill()
                ended = process.wait()
                reason = f"crashed: exit code {ended}" if ended > 0 else "crashed or hung"
                outcome = Outcome(name=name, category="", status="failed", reason=reason)
                process = _start()
            outcomes.append(outcome)
            print(f"{outcome.status:<9} {name}", flush=True)
    except Empty:
        return outcomes
    finally:
        process.kill()
        process.wait()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        python("veltair.eval.conformance_child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _ask(process: subprocess.Popen[bytes], name: str, limit_s: float) -> Outcome | None:
    """A test's outcome; None where the process ends or says nothing in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(name.encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    line = _line(process.stdout, limit_s)
    return msgspec.json.decode(line, type=Outcome) if line else None


def _line(stream: IO[bytes], limit_s: float) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline() if selector.select(limit_s) else b""


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns counts: of all tests, of those of counted types and one operator, by operator.

    Also each test that was refused or failed, and why.
    """
    nodes = [o for o in outcomes if o.category == NODES and set(o.types) <= COUNTED_TYPES]
    counted = _counts(nodes)
    ran = counted["compiled"] + counted["fallback"]
    by_operator: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if len(outcome.operators) == 1:
            by_operator.setdefault(outcome.operators[0], []).append(outcome)
    return {
        "all": _counts(outcomes),
        "counted": {**counted, "compiled_share": counted["compiled"] / ran if ran else 0.0},
        "operators": {name: _counts(of) for name, of in sorted(by_operator.items())},
        "refusals": _reasons(outcomes, "refused"),
        "refused_for": _refused_for(outcomes),
        "skips": _reasons(outcomes, "skipped"),
        "failures": _reasons(outcomes, "failed"),
        "tolerances": {
            name: f"absolute {atol:g}: {why}"
            for name, (atol, why) in TOLERANCES.items()
            if any(o.name == f"{name}_cpu" for o in outcomes)
        },
        "fallbacks": dict(
            Counter(reason for o in outcomes for reason in set(map(_kind, o.fallen))).most_common()
        ),
    }


def _reasons(outcomes: Sequence[Outcome], status: str) -> dict[str, str]:
    return {o.name: o.reason for o in outcomes if o.status == status}


def _refused_for(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """How many tests of each operator were refused for each reason; most tests first."""
    found: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        if outcome.status == "refused":
            kind = outcome.operators[0] if len(outcome.operators) == 1 else "several operators"
            found.setdefault(_group(outcome.reason), Counter())[kind] += 1
    ordered = sorted(found.items(), key=lambda item: (-item[1].total(), item[0]))
    return {reason: dict(counter.most_common()) for reason, counter in ordered}


def _group(reason: str) -> str:
    for pattern, common in _GROUPS.items():
        match = re.search(pattern, reason)
        if match:
            return common.format(*match.groups())
    return reason


def _kind(reason: str) -> str:
    """The operator of a reason."""
    return reason.split(" ", 1)[0]


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    counter = Counter(outcome.status for outcome in outcomes)
    return {status: counter[status] for status in STATUSES}


def headline(result: dict[str, Any]) -> str:
    """Returns the counts in two lines."""
    counts, share = result["all"], result["counted"]["compiled_share"]
    told = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
    return (
        f"{sum(counts.values())} tests: {told}\n"
        f"Of single operators on fp32, fp16, integers and bools {share:.1%} are "
        f"compiled, the others fall back (bound {LEAST_COMPILED:.0%})"
    )


def report(result: dict[str, Any]) -> str:
    """Returns the page: the counts, a row an operator, what failed, and why others don't count."""
    lines = [
        "# ONNX's backend test suite",
        "",
        f"Made by `{result['command']}` at revision {result['revision']}.",
        "",
        *headline(result).splitlines(),
        "",
        LEGEND,
        "",
        f"| operator | {' | '.join(STATUSES)} |",
        f"|---|{'---:|' * len(STATUSES)}",
    ]
    for name, counts in result["operators"].items():
        lines.append(f"| {name} | {' | '.join(str(counts[s] or '') for s in STATUSES)} |")
    lines += _listed("Failures", result["failures"])
    lines += _grouped(result["refused_for"])
    lines += _listed("Skipped", result["skips"])
    lines += _listed("Compared less closely", result["tolerances"])
    return "\n".join(lines) + "\n"


def _listed(title: str, reasons: dict[str, str]) -> list[str]:
    if not reasons:
        return []
    return ["", f"## {title}", "", *(f"- `{n}`: {_plain(why)}" for n, why in reasons.items())]


def _grouped(reasons: dict[str, dict[str, int]]) -> list[str]:
    """A row a reason of refusals; each test's own words are in the other file."""
    if not reasons:
        return []
    lines = ["", "## Refusals", "", "| reason | tests | of |", "|---|---:|---|"]
    for reason, counts in reasons.items():
        kinds = ", ".join(f"{kind} {count}" for kind, count in counts.items())
        lines.append(f"| {_plain(reason)} | {sum(counts.values())} | {kinds} |")
    return lines


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


if __name__ == "__main__":
    run_benchmark(MODULE, command)
