"""Made-up results of evaluations, for tests of what reads them: nothing in here was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from veltair.eval.capacity.result import (
    MEASURED,
    Bar,
    Capacity,
    Gantt,
    ModelTarget,
    Result,
    Solo,
    State,
    SystemFacts,
    Trial,
    WorkloadFacts,
)
from veltair.eval.latency_figures import Figures
from veltair.runtime.disturbance import Disturbance

HOSTILE = '</script><b id="hostile">&"\',\n=1+1'
WORKLOADS = {
    "light": ("efficientnet_b0", "mobilenet_v2", "tiny_yolov2"),
    "medium": ("resnet50", "googlenet"),
    "heavy": ("ssd300_vgg16", "bert_large"),
}
SOLO_MS = {
    "efficientnet_b0": 4.0,
    "mobilenet_v2": 2.0,
    "tiny_yolov2": 5.5,
    "resnet50": 12.0,
    "googlenet": 9.0,
    "ssd300_vgg16": 140.0,
    "bert_large": 310.0,
}
OURS = ("model", "layer", "block-6", "prema", "veltair-as", "veltair", "deadline")
PEERS = ("onnxruntime", "openvino", "rayserve", "mlserver", "litserve")
# Of the light workload, in queries a second; others are parts of it.
_LIGHT_QPS = {
    "model": 120.0,
    "layer": 150.0,
    "block-6": 160.0,
    "prema": 90.0,
    "veltair-as": 190.0,
    "veltair": 240.8,
    "deadline": 238.0,
    "onnxruntime": 80.0,
    "openvino": 101.0,
    "rayserve": 55.0,
}
_PART = {"light": 1.0, "medium": 0.2, "heavy": 0.0125}
LOADS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
PERCENTILE = 95.0


def whole_result(**changes: Any) -> Result:  # noqa: ANN401 # any field
    """Three workloads, twelve systems and a null server, every state at least once."""
    capacities = [_capacity(w, s) for w in WORKLOADS for s in (*OURS, *PEERS)]
    found = [each for each in capacities if each.qps]
    result = Result(
        origin={
            "command": "veltair eval --workloads light,medium,heavy -o made_up",
            "version": "0.0.0",
            "revision": "0123456789abcdef",
            "machine": {"cpu": "A processor of tests", "cores": 4, "l3_bytes": 1 << 25},
            "load_average_before": 0.02,
        },
        simulated=False,
        percentile=PERCENTILE,
        plan={"repetitions": 3, "workloads": ["light", "medium"], "search": {"precision": 0.02}},
        workloads=tuple(_workload(name) for name in WORKLOADS),
        systems=tuple(_system(name) for name in (*OURS, *PEERS, "null")),
        trials=(
            *(trial for each in found for trial in _trials(each)),
            *(_null_trial(workload) for workload in WORKLOADS),
        ),
        capacities=tuple(capacities),
        solos=tuple(
            Solo(model=m, system=s, mean_ms=ms, p50_ms=0.98 * ms)
            for m, ms in SOLO_MS.items()
            for s in (*OURS, *PEERS[:3])
        ),
        gantts=(gantt("light", "veltair"), gantt("medium", "veltair", cores=4)),
    )
    return replace(result, **changes)


def simulated_result() -> Result:
    """The same without peers, on a machine model of 64 cores."""
    real = whole_result()
    systems = tuple(replace(each, kind="simulated") for each in real.systems if each.name in OURS)
    return replace(
        real,
        origin=real.origin | {"machine": "Made-up 64-core model"},
        simulated=True,
        cores=64,
        systems=systems,
        trials=tuple(
            replace(t, disturbance=None, late_p99_ms=None) for t in real.trials if t.system in OURS
        ),
        capacities=tuple(each for each in real.capacities if each.system in OURS),
        gantts=(gantt("heavy", "veltair", cores=64),),
    )


def hostile_result() -> Result:
    """One model whose name is markup, a separator, a quote, a line's end and a formula."""
    target = ModelTarget(name=HOSTILE, qos_ns=10_000_000, share=1.0)
    whole = whole_result()
    trials = [replace(t, figures=_renamed(t.figures)) for t in whole.trials]
    return replace(
        whole,
        workloads=(WorkloadFacts(name="light", models=(target,), targets="made up"),),
        trials=tuple(trial for trial in trials if trial.workload == "light"),
        capacities=tuple(each for each in whole.capacities if each.workload == "light"),
        solos=(Solo(model=HOSTILE, system="veltair", mean_ms=2.0, p50_ms=2.0),),
        gantts=(gantt("light", "veltair", models=(HOSTILE,)),),
        plan={HOSTILE: HOSTILE},
        systems=(*whole.systems[:-1], replace(whole.systems[-1], error=HOSTILE)),
    )


def figures(
    qps: float, load: float, solo_ms: float, *, queries: int = 1000, wait: float = 0.4
) -> Figures:
    """Of a model whose queries wait longer as the load rises."""
    mean_ms = solo_ms * (1 + wait * load + 3 * max(load - 1, 0))
    share = min(1.0, 0.99 - 0.04 * load) - 0.9 * max(load - 1, 0)
    return Figures(
        queries=queries,
        served=queries - 10,
        refused=7,
        failed=3,
        offered_qps=qps,
        satisfied_qps=qps * share,
        satisfied_share=share,
        mean_ms=mean_ms,
        p50_ms=0.9 * mean_ms,
        p95_ms=2.1 * mean_ms,
        p99_ms=3.3 * mean_ms,
        wait_ms=mean_ms - 0.9 * solo_ms,
        service_ms=0.9 * solo_ms,
    )


def gantt(
    workload: str, system: str, *, cores: int = 4, models: tuple[str, ...] | None = None
) -> Gantt:
    """Blocks one after the other on pairs of cores, with gaps, of lengths from 1 to 30 ms."""
    names = WORKLOADS[workload] if models is None else models
    bars: list[Bar] = []
    for first in range(cores // 2):
        at_ms = 1.5 * first % 11
        while at_ms < 1000:
            number = len(bars)
            length_ms = 1 + (7 * number + 3 * first) % 30
            bars.append(
                Bar(
                    # The outermost two, which are not neighbours, then the next two, inwards.
                    cores=(first, cores - 1 - first),
                    model=names[number % len(names)],
                    query=number // 3,
                    layers=(10 * (number % 3), 10 * (number % 3) + 9),
                    version=number % 5,
                    begin_ns=int(at_ms * 1e6),
                    end_ns=int((at_ms + length_ms) * 1e6),
                )
            )
            at_ms += length_ms + number % 3
    bars.sort(key=lambda bar: bar.begin_ns)
    return Gantt(workload=workload, system=system, rate_qps=200.0, bars=tuple(bars))


def _workload(name: str) -> WorkloadFacts:
    models = WORKLOADS[name]
    return WorkloadFacts(
        name=name,
        models=tuple(
            ModelTarget(name=m, qos_ns=int(3e6 * SOLO_MS[m]), share=1 / len(models)) for m in models
        ),
        targets="three times the latency alone, made up",
    )


def _system(name: str) -> SystemFacts:
    kind = "null" if name == "null" else "peer" if name in PEERS else "ours"
    error = {
        "mlserver": "it ended with status 1 before it served: no such module <mlserver.cli>",
        "litserve": "the package litserve is not installed: make peers",
    }.get(name, "")
    log = "logs/mlserver.txt" if name == "mlserver" else ""
    return SystemFacts(name=name, kind=kind, version="1.2.3", error=error, log=log)


def _capacity(workload: str, system: str) -> Capacity:
    state, note = _state(workload, system)
    qps: tuple[float, ...] = ()
    if state in MEASURED:
        wide = 0.3 if state == "noisy" else 0.02
        qps = tuple(
            _LIGHT_QPS[system] * _PART[workload] * (1 + wide * turn) for turn in (-1, 0.0, 0.5)
        )
    setting = "2 sessions x 2 threads" if system in PEERS else ""
    return Capacity(
        workload=workload, system=system, setting=setting, state=state, qps=qps, note=note
    )


def _state(workload: str, system: str) -> tuple[State, str]:
    if system == "mlserver":
        return "failed", ""
    if system == "litserve":
        return "skipped", ""
    if (workload, system) in {("heavy", "rayserve"), ("heavy", "prema")}:
        return "unmeetable", "bert_large had 31.0 % of its queries in time at 1 query/s"
    if (workload, system) == ("medium", "openvino"):
        return "noisy", "repetitions from 14.1 to 23.2 queries/s"
    return "found", ""


def _trials(capacity: Capacity) -> list[Trial]:
    qps = capacity.qps[1]
    runs = [_trial(capacity, "at_half", qps / 2, 0.5), _trial(capacity, "at_capacity", qps, 1.0)]
    runs += [_trial(capacity, "sweep", load * qps, load) for load in LOADS]
    if capacity.system in PEERS:
        runs += [
            replace(_trial(capacity, "grid", part * qps, part), setting=setting, met=met)
            for setting in (capacity.setting, "1 session x 4 threads", "THROUGHPUT")
            for part, met in ((0.6, True), (0.8, setting == capacity.setting), (1.2, False))
        ]
    return runs


def _trial(capacity: Capacity, purpose: str, rate_qps: float, load: float) -> Trial:
    models = WORKLOADS[capacity.workload]
    waits = 0.15 + 0.25 * (len(capacity.system) % 5)  # so that systems differ
    each = {
        m: figures(rate_qps / len(models), load, SOLO_MS[m], queries=400, wait=waits + 0.2 * i)
        for i, m in enumerate(models)
    }
    whole = figures(rate_qps, load, sum(SOLO_MS[m] for m in models) / len(models))
    dear = {"layer": 0.7, "model": 1.2}.get(capacity.system, 0.8)
    return Trial(
        workload=capacity.workload,
        system=capacity.system,
        setting=capacity.setting,
        purpose=purpose,
        repetition=0,
        rate_qps=rate_qps,
        met=load <= 1,
        figures={"all": whole} | each,
        core_usage=min(dear * load, 1.0),
        late_p99_ms=0.08,
        disturbance=Disturbance(driver=0.01, others=0.004, steal=0.001),
        seconds=20.0,
    )


def _null_trial(workload: str) -> Trial:
    """Of the server that computes nothing, at the rate of the best of the others."""
    best = _capacity(workload, "veltair")
    run = _trial(best, "at_capacity", best.qps[1], 0.0)
    return replace(
        run,
        system="null",
        core_usage=0.02,
        figures={n: replace(f, p50_ms=0.125) for n, f in run.figures.items()},
    )


def _renamed(several: dict[str, Figures]) -> dict[str, Figures]:
    first, *_ = (name for name in several if name != "all")
    return {"all": several["all"], HOSTILE: several[first]}
