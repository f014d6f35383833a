"""One query at a time against the fastest runtimes: `python -m veltair.eval.bench_solo`.

Each network is compiled with the shipped logs and timed in turns with ONNX Runtime and OpenVINO, in
a process of its own for each instruction set and thread count; AVX2 with the peers held to it. Each
case is saved as soon as it is measured, and a case that is saved is measured again only where the
compiler, the engine, the logs or the network changed since, or with `--fresh`.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from veltair import models
from veltair.compiler.target_options import choose_isa
from veltair.eval.bench_command import parse_counts
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.children import stopped_by_signals
from veltair.eval.fma_peak import build_peak
from veltair.eval.held import Hold, build_hold
from veltair.eval.interleave import Plan
from veltair.eval.networks import choose_networks, compiled_network, export, inputs_digest
from veltair.eval.own_process import in_own_process
from veltair.eval.patience import Patience
from veltair.eval.peers import PEERS, check_peers
from veltair.eval.record import revision, write_result
from veltair.eval.run_options import (
    RESULTS,
    Attempts,
    Out,
    WaitS,
)
from veltair.eval.solo_case import Libraries, solo_case
from veltair.eval.solo_figures import MEAN, Case
from veltair.eval.solo_report import markdown
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.files import write_whole
from veltair.runtime.manifest import Isa
from veltair.runtime.run_command import first_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

STEM = "solo"
SCRATCH = Path("build/solo")


def command(
    out: Out = RESULTS,
    networks: Annotated[str, typer.Option(help="All that there are, if not set.")] = "",
    threads: Annotated[str, typer.Option(help="Thread counts.")] = "1,2",
    isas: Annotated[
        str, typer.Option(help="Instruction sets; all that this CPU has, if not set.")
    ] = "",
    seconds: Annotated[float, typer.Option(min=0.1, help="To measure each case.")] = 10.0,
    attempts: Attempts = 2,
    wait_s: WaitS = 10.0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compile and measure what was measured again.")
    ] = False,
    scratch: Annotated[Path, typer.Option(help="Where artifacts are kept.")] = SCRATCH,
) -> None:
    """Time the networks against ONNX Runtime and OpenVINO."""
    names = choose_networks(networks)
    check_peers(list(PEERS))
    usable = sorted(os.sched_getaffinity(0))
    choices = [first_cpus(usable, count) for count in parse_counts(threads)]
    sets = _choose_isas(isas)
    out.mkdir(parents=True, exist_ok=True)
    plan = Plan(budget_ns=round(seconds * 1e9))
    results = Results(out, origin("bench_solo"), plan)
    with stopped_by_signals():
        for isa in sets:
            libraries = _libraries(isa, scratch)
            try:
                if libraries.hold is not None:
                    in_own_process("CPUID", _can_hold, libraries.hold)
            except VeltairError as error:
                results.leave_out(isa, str(error))
                continue
            bench = Bench(isa, plan, Patience(attempts=attempts, wait_s=wait_s), libraries, scratch)
            for name in names:
                bench.measure(name, choices, results, fresh=fresh)
    print((out / f"{STEM}.md").read_text())


class Results:
    """The files of the results, written anew after each case."""

    def __init__(self, folder: Path, made: dict[str, Any], plan: Plan) -> None:
        """Reads the cases that are there."""
        self._folder = folder
        path = folder / f"{STEM}.json"
        before = json.loads(path.read_text()) if path.is_file() else {}
        self._result: dict[str, Any] = made | {
            "plan": asdict(plan),
            "not_measured": {},
            "cases": before.get("cases", []),
        }
        self.save()

    def find(self, name: str, isa: str, cores: int) -> Case | None:
        """Returns the case of a network, where there is one."""
        return next((c for c in self._result["cases"] if _key(c) == (isa, name, cores)), None)

    def put(self, case: Case) -> None:
        """Saves a case in the place of the one before."""
        others = [c for c in self._result["cases"] if _key(c) != _key(case)]
        self._result["cases"] = sorted([*others, case], key=_order)
        self.save()

    def leave_out(self, isa: str, why: str) -> None:
        """Says why an instruction set isn't measured."""
        print(f"{STEM}: {isa} is not measured: {why}", flush=True)
        self._result["not_measured"][isa] = why
        self._result["cases"] = [c for c in self._result["cases"] if c["isa"] != isa]
        self.save()

    def save(self) -> None:
        """Writes both files."""
        write_result(self._folder / f"{STEM}.json", self._result)
        page = markdown(self._result, models.names())
        write_whole(self._folder / f"{STEM}.md", page.encode())


class Bench:
    """Measures networks on one instruction set."""

    def __init__(
        self, isa: Isa, plan: Plan, patience: Patience, libraries: Libraries, scratch: Path
    ) -> None:
        """Measures nothing yet."""
        self._isa = isa
        self._plan = plan
        self._patience = patience
        self._libraries = libraries
        self._scratch = scratch

    def measure(
        self, name: str, choices: Sequence[Sequence[int]], results: Results, *, fresh: bool
    ) -> None:
        """Compiles a network where it isn't yet, and measures it on each choice of processors."""
        inputs = inputs_digest(self._isa, "runtime/native/engine")
        found = {tuple(cpus): results.find(name, self._isa, len(cpus)) for cpus in choices}
        missing = [
            cpus for cpus, case in found.items() if fresh or not case or case["inputs"] != inputs
        ]
        if not missing:
            print(f"{STEM}: {name}, {self._isa}: measured before", flush=True)
            return
        print(f"{STEM}: {name}, {self._isa}: compiling", flush=True)
        libraries = self._libraries
        onnx = export(name, self._scratch / "onnx")
        repository = self._scratch / self._isa
        folder, compiled = compiled_network(name, onnx, self._isa, repository, fresh=fresh)
        for cpus in missing:
            print(f"{STEM}: {name}, {self._isa}: measuring on {len(cpus)}", flush=True)
            what = f"{name} on {len(cpus)}"
            measure = partial(
                in_own_process, what, solo_case, folder, onnx, cpus, PEERS, self._plan, libraries
            )
            case, disturbance = self._patience.quietest(measure)
            results.put(
                {
                    **case,
                    "inputs": inputs,
                    "revision": revision(),
                    "compiled": asdict(compiled),
                    "disturbance": asdict(disturbance),
                }
            )


def _libraries(isa: Isa, scratch: Path) -> Libraries:
    """Builds the native helpers; what the processor lacks needn't be held back."""
    held = isa == "x86-64-v3" and available_isa() == "x86-64-v4"
    return Libraries(
        peak=build_peak(isa, scratch / f"fma_peak-{isa}.so"),
        hold=build_hold(scratch / "hold_to_avx2.so") if held else None,
    )


def _can_hold(library: Path) -> None:
    Hold(library)


def _choose_isas(text: str) -> list[Isa]:
    available = choose_isa("auto")
    newest_first = list(MEAN)
    has = newest_first[newest_first.index(available) :]
    wanted = [word for word in text.split(",") if word]
    for word in wanted:
        if word not in has:
            known = word in get_args(Isa)
            raise InputError(
                f"--isas {text}: {'this CPU lacks ' if known else 'no instruction set '}{word}; "
                f"choose from {', '.join(has)}"
            )
    return [isa for isa in has if not wanted or isa in wanted]


def _key(case: Case) -> tuple[str, str, int]:
    return case["isa"], case["model"], case["cores"]


def _order(case: Case) -> tuple[int, int, int]:
    return list(MEAN).index(case["isa"]), models.names().index(case["model"]), case["cores"]


if __name__ == "__main__":
    run_benchmark("bench_solo", command)
