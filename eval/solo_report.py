"""The page of `bench_solo`: the figures that are held to bounds, each network, what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veltair.eval.page.text import revision_text
from veltair.eval.solo_figures import Case, best_peer, figures, is_slow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def markdown(result: dict[str, Any], networks: Sequence[str]) -> str:
    """Returns the page.

    Args:
        result: as its JSON file has it.
        networks: that there are, measured or not.
    """
    cases = result["cases"]
    lines = [
        "# One query at a time, against the fastest runtimes",
        "",
        f"Made by `python -m veltair.eval.bench_solo` on {result['machine']['cores']} cores "
        f"({result['machine']['cpu']}). All engines compute in fp32 with the thread count set, "
        "bound to as many processors, hot, in turns; ratios are medians of rounds. Ours is "
        "compiled with the logs of `tuning_logs/` alone. For x86-64-v3 on a processor that has "
        "more, the peers' process is held to AVX2: CPUID answers without the newer instruction "
        "sets, and no kernel that OpenVINO names is of them.",
        "",
        "| what | bound | aim | measured | kept |",
        "|---|---:|---:|---:|---|",
        *_figures(cases, networks),
        "",
        *(f"- {isa} is not measured: {why}" for isa, why in result["not_measured"].items()),
        *_networks(cases),
        *_limits([case for case in cases if is_slow(case)]),
    ]
    return "\n".join(lines) + "\n"


def _figures(cases: Sequence[Case], networks: Sequence[str]) -> Iterator[str]:
    for figure in figures(cases, networks):
        bound, aim = (figure.goal.bound, figure.goal.aim) if figure.goal else (None, None)
        cells = [_number(value, figure.unit) for value in (bound, aim, figure.measured)]
        yield f"| {figure.what} | {' | '.join(cells)} | {figure.kept} |"


def _networks(cases: Sequence[Case]) -> Iterator[str]:
    if not cases:
        return
    yield from [
        "## Each network",
        "",
        "Times in milliseconds, medians; best: the fastest peer's time over ours, and the rounds' "
        "10th to 90th percentile; logs: layers whose versions come from the logs, and their share "
        "of the operations; others: what other processes and the host took of the processors.",
        "",
        "| network | ISA | threads | ours | ONNX Runtime | OpenVINO | best | p10..p90 | of peak "
        "| logs | others | revision |",
        "|---|---|" + "---:|" * 9 + "---|",
    ]
    yield from (_network(case) for case in cases)


def _network(case: Case) -> str:
    engines = {row["engine"]: row for row in case["engines"]}
    times = [
        f"{engines[name]['run_ns']['p50'] / 1e6:.2f}" if name in engines else ""
        for name in ("veltair", *_NAMES)
    ]
    name, speed = best_peer(case)
    ratio = engines[name]["ratio"]
    compiled = case["compiled"]
    disturbed = case["disturbance"]
    cells = [
        case["model"],
        case["isa"],
        f"{case['cores']}",
        *times,
        f"{speed:.2f}",
        f"{1 / ratio['p90']:.2f}..{1 / ratio['p10']:.2f}",
        f"{case['peak']['share']['p50']:.0%}" if "peak" in case else "",
        f"{compiled['layers_from_logs']}/{compiled['layers']}, {compiled['flops_from_logs']:.0%}",
        f"{disturbed['others'] + disturbed['steal']:.1%}",
        revision_text(case["revision"]),
    ]
    return f"| {' | '.join(cells)} |"


def _limits(cases: Sequence[Case]) -> Iterator[str]:
    if not cases:
        return
    yield from [
        "",
        "## What limits the networks below the mean's bound",
        "",
        "Their layers with the most time, hot, one after the other: the share of the run, the "
        "rate, and what a layer reads and writes at least, a second. A layer near the peak is "
        "bound by its arithmetic; one far from it, with many bytes a second, by memory; one far "
        "from it with few, by its code.",
    ]
    for case in cases:
        name, speed = best_peer(case)
        peak = f", one core's FMA peak {_peak(case):.0f} GFLOP/s" if "peak" in case else ""
        threads = f"{case['cores']} thread{'s' if case['cores'] > 1 else ''}"
        yield from [
            "",
            f"### {case['model']}, {case['isa']}, {threads}: {speed:.2f} of {_NAMES[name]}'s "
            f"speed{peak}",
            "",
            "| layer | operator | version | us | share | GFLOP/s | of peak | MB | GB/s |",
            "|---|---|---|---:|---:|---:|---:|---:|---:|",
        ]
        yield from (_layer(layer, case) for layer in case["layers"])


def _layer(layer: dict[str, Any], case: Case) -> str:
    of_peak = f"{layer['gflops'] / _peak(case):.0%}" if "peak" in case else ""
    cells = [
        layer["name"],
        layer["op"],
        layer["variant"],
        f"{layer['us']:.0f}",
        f"{layer['share']:.1%}",
        f"{layer['gflops']:.0f}",
        of_peak,
        f"{layer['touched_bytes'] / 1e6:.2f}",
        f"{layer['gbytes_per_s']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _peak(case: Case) -> float:
    return float(case["peak"]["gflops"]["p50"])


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g} {unit}".rstrip()
