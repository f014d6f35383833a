"""The simulated evaluation, on a machine of 4 cores and the tiny model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import disturbed_profile, machine_table, write_tiny_artifact
from typer import Typer
from typer.testing import CliRunner

from veltair.eval.capacity.result import ModelTarget, Result, WorkloadFacts, read
from veltair.eval.capacity.simulated import command
from veltair.eval.capacity.simulated_at_aim import at_aims, at_aims_text
from veltair.eval.capacity.simulated_bound import least_core_ns
from veltair.eval.capacity.simulated_latency import latency_of
from veltair.eval.capacity.simulated_machine import (
    Setting,
    SimulatedMachine,
    with_versions,
)
from veltair.eval.capacity.simulated_questions import proxy_errors, questions
from veltair.eval.capacity.simulated_rates import PAPER_GAIN, gain
from veltair.eval.capacity.simulated_report import report
from veltair.eval.capacity.simulated_speeds import speeds
from veltair.eval.capacity.simulated_study import PLANNED, Plan, Study, median_qps
from veltair.eval.points import PointStore
from veltair.proxy.machine_file import find_machine, parse_machine, to_toml
from veltair.runtime._native import sched
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import Manifest

MEASURED_ON = parse_machine(machine_table())
MACHINE = MEASURED_ON.changed("processor.frequency_ghz", 0.02)  # a query takes some 6 ms of a core
QOS_NS = 20_000_000
WORKLOAD = """
[workload]
models = ["tiny"]
[qos.paper]
how = "made up"
[qos.paper.ms]
tiny = 20.0
"""


def facts(name: str) -> WorkloadFacts:
    model = ModelTarget(name=name, qos_ns=QOS_NS, share=1.0)
    return WorkloadFacts(name="one", models=(model,), targets="made up")


def tiny(folder: Path) -> Manifest:
    return write_tiny_artifact(folder / "tiny" / "1", profile=disturbed_profile())


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedMachine:
    manifest = tiny(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(MACHINE, "Made up."))
    return SimulatedMachine(
        {manifest.name: manifest},
        MACHINE,
        str(path),
        MEASURED_ON,
        PointStore(tmp_path / "points"),
        percentile=95,
    )


def run_at(simulated: SimulatedMachine, rate_qps: float, policy: str = "veltair") -> bool:
    asked = facts("tiny")
    run = simulated.run(asked, Setting(policy=policy), rate_qps=rate_qps, queries=400, seed=1)
    assert run.trial.figures["tiny"].queries == 380  # without the warm-up
    assert run.trial.figures["tiny"] == run.trial.figures["all"]
    return run.trial.met


def test_a_rate_is_met_or_not_and_runs_are_kept(simulated: SimulatedMachine) -> None:
    # 4 cores serve some 680 a second at most.
    assert run_at(simulated, 50)
    assert not run_at(simulated, 1000)
    kept = list(simulated._store.folder.glob("*.json"))
    assert len(kept) == 2
    assert run_at(simulated, 50)
    assert len(list(simulated._store.folder.glob("*.json"))) == 2
    assert run_at(simulated, 50, "layer")
    assert len(list(simulated._store.folder.glob("*.json"))) == 3


def test_a_setting_says_what_differs() -> None:
    assert Setting(policy="veltair").text == ""
    setting = Setting(
        policy="veltair",
        versions=2,
        machine=(("conflict_us", 0.0), ("proxy", "none")),
        policy_options=(("threshold_cores", 4),),
        slower=0.5,
    )
    assert setting.text == (
        "conflict_us=0, proxy=none, threshold_cores=4, versions=2, computing=0.5"
    )


def test_the_versions_that_are_kept_lose_least(tmp_path: Path) -> None:
    manifest = tiny(tmp_path)
    product = manifest.layers[0]
    layers = (
        msgspec.structs.replace(product, variants=(*product.variants, product.variants[1])),
        manifest.layers[1],
    )
    first, second, third = ((9, 9),), ((8, 8),), ((10, 1),)
    profile = msgspec.structs.replace(
        manifest.profile,
        cores=(1,),
        levels=(0.0, 1.0),
        layer_ns=((first, second, third), (((5, 5),),)),
        model_ns=((14, 14),),
    )
    manifest = msgspec.structs.replace(manifest, layers=layers, profile=profile)
    one, rows = with_versions(manifest, 1)
    assert rows == [0, 3]
    assert one.profile.layer_ns == ((first,), (((5, 5),),))
    two, rows = with_versions(manifest, 2)
    assert rows == [0, 2, 3]  # the third is nine times faster at a level, the second never twice
    assert two.profile.layer_ns[0] == (first, third)
    assert len(two.layers[0].variants) == 2
    assert with_versions(manifest, 5)[1] == [0, 2, 1, 3]


def test_fewer_versions_are_simulated(simulated: SimulatedMachine) -> None:
    asked = facts("tiny").models
    assert sum(simulated.profiles(asked, 5, 1.0)[0].variants) == 3
    (one,) = simulated.profiles(asked, 1, 1.0)
    assert sum(one.variants) == 2
    assert len(one.layer_bytes) == len(one.layer_ns)


def test_slower_kernels_take_longer(simulated: SimulatedMachine) -> None:
    asked = facts("tiny").models
    usual, slow = (simulated.profiles(asked, 5, part)[0].model_ns[0] for part in (1.0, 0.5))
    assert 1.9 * usual < slow < 2 * usual


def test_capacities_are_between_what_is_met_and_what_is_not(simulated: SimulatedMachine) -> None:
    said: list[str] = []
    study = Study(simulated, Plan(seeds=2, queries=400, rarest=1), said.append)
    asked = facts("tiny")
    found = study.capacity(asked, Setting(policy="veltair"))
    assert (found.state, found.setting, len(found.qps)) == ("found", "", 2)
    ideal_qps = study.ideal_qps(asked, Setting(policy="veltair"))
    assert 0 < median_qps(found) < study.target_qps(asked) <= 1.01 * ideal_qps
    assert run_at(simulated, found.qps[0])
    assert not run_at(simulated, found.qps[0] * 1.02)
    assert said[0].startswith("one: veltair")
    (solo,) = study.solos(asked, Setting(policy="veltair"))
    assert study.shortest_ms(asked)["tiny"] <= solo.p50_ms < QOS_NS / 1e6
    trials = study.loads(asked, Setting(policy="veltair"), median_qps(found))
    assert [trial.purpose for trial in trials][:2] == ["at_capacity", "at_half"]
    both = [Setting(policy=name) for name in ("layer", "veltair")]
    layer, full = study.usage(asked, both, median_qps(found))
    assert layer.rate_qps == full.rate_qps
    assert 0 < layer.cores <= 4


def test_who_plans_to_end_at_the_target_is_given_slack(simulated: SimulatedMachine) -> None:
    asked = facts("tiny")
    study = Study(simulated, Plan(seeds=1, queries=400, rarest=1), lambda _: None)
    usual = Setting(policy="layer")
    rates = study.slack(asked, usual)
    assert tuple(rates) == PLANNED
    chosen = study.at_best(asked, usual)
    assert rates[chosen.planned] == max(rates.values())
    # Queries that are planned on a fifth of the target end sooner, and are judged by all of it.
    whole, fifth = (
        simulated.run(asked, replace(usual, planned=part), rate_qps=5, queries=100, seed=1).trial
        for part in (1.0, 0.2)
    )
    assert fifth.figures["tiny"].mean_ms < whole.figures["tiny"].mean_ms / 1.5
    assert fifth.figures["tiny"].satisfied_share == 1
    assert (whole.setting, fifth.setting) == ("", "planned=0.2")
    # The kernels' speed has a slack of its own; other settings have their policy's.
    cheap = replace(usual, machine=(("conflict_us", 0.0),))
    assert study.at_best(asked, cheap).planned == chosen.planned
    assert study.at_best(asked, replace(cheap, slower=0.5)).slower == 0.5
    slow = study.slack(asked, replace(usual, slower=0.5))
    assert slow[study.at_best(asked, replace(cheap, slower=0.5)).planned] == max(slow.values())
    assert tuple(study.slack(asked, Setting(policy="deadline"))) == (1.0,)


def test_a_target_that_no_rate_keeps_has_no_capacity(simulated: SimulatedMachine) -> None:
    model = ModelTarget(name="tiny", qos_ns=200_000, share=1.0)
    hopeless = WorkloadFacts(name="hopeless", models=(model,), targets="made up")
    study = Study(simulated, Plan(seeds=1, queries=100, rarest=1), lambda _: None)
    found = study.capacity(hopeless, Setting(policy="layer"))
    assert (found.state, found.qps) == ("unmeetable", (0.0,))


def test_questions_begin_with_the_usual() -> None:
    machine = find_machine("threadripper_3990x", Path(), "machine")
    for question, settings in questions(machine).items():
        assert settings[0].text == "", question
        assert len(settings) == len({(each.policy, each.text) for each in settings})
    small, large = proxy_errors(machine)
    assert 0 < small < large < 1


def test_rate_and_latency_at_once_at_the_papers_rates(
    simulated: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PAPER_GAIN, "one", 0.5)
    asked = [facts("tiny"), replace(facts("tiny"), name="not of the paper")]
    study = Study(simulated, Plan(seeds=2, queries=200, rarest=1), lambda _: None)
    policies = ("layer", "veltair", "veltair-deadline")

    def text(base_qps: float) -> str:
        rows = at_aims(study, asked, policies, {("one", "layer"): base_qps})
        assert [(row["policy"], row["rate_qps"]) for row in rows] == [
            (policy, 1.5 * base_qps) for policy in policies[1:] if base_qps
        ]
        alone = {"workload": "one", "system": "veltair", "model": "tiny", "p50_ms": 8.0}
        extra = {"at_aims": rows, "alone": [alone], "shortest_ms": {"tiny": 2.0}}
        return "\n".join(at_aims_text(extra, [each.name for each in asked]))

    # 4 cores serve some 680 a second at most.
    slow, fast = text(20), text(2000)
    assert "| *queries/s* | 30 |" in slow
    assert "1.1 times that latency: `veltair` under one, `veltair-deadline` under one." in slow
    assert "| veltair | 0 of 2, " in fast
    assert "`veltair` under none, `veltair-deadline` under none." in fast
    (cell,) = (line for line in slow.splitlines() if line.startswith("| veltair | 2 of 2, "))
    over, shortest = cell.removeprefix("| veltair | 2 of 2, ").removesuffix(") |").split(" (")
    assert float(shortest) == pytest.approx(4 * float(over), abs=0.05)
    assert text(0) == ""


@pytest.fixture
def evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Result, dict[str, Any], str]:
    """What the command writes of the tiny model: its result, the rest, and the page."""
    tiny(tmp_path)
    (tmp_path / "mine.toml").write_text(to_toml(MACHINE, "Made up."))
    (tmp_path / "here.toml").write_text(to_toml(MEASURED_ON, "Made up."))
    (tmp_path / "small.toml").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    app = Typer()
    app.command()(command)
    options = "--machine mine.toml --measured-on here.toml --workloads small.toml --seeds 2 "
    options += (
        "--policies veltair,prema --queries 200 --rarest 1 --ablations small --speeds 0.5,1 -o out"
    )
    ran = CliRunner().invoke(app, ["tiny", *options.split()], catch_exceptions=False)
    assert ran.exit_code == 0
    extra = json.loads((tmp_path / "out" / "ablations.json").read_text())
    return read(tmp_path / "out"), extra, (tmp_path / "out" / "simulated.md").read_text()


def test_the_command_writes_a_result_and_a_page(
    evaluated: tuple[Result, dict[str, Any], str],
) -> None:
    result, extra, page = evaluated
    assert result.simulated
    assert [each.name for each in result.systems] == ["layer", "veltair", "prema"]
    assert gain(result, "small", "veltair") is not None
    assert {each["question"] for each in extra["ablations"]} == set(questions(MACHINE))
    assert page == report(result, extra)
    assert "| veltair |" in page
    assert "for x86-64-v3, with profiles measured on test (L2 0 KiB, L3 0 MiB)." in page
    assert page.count("## Slack") == 1
    assert "small: no rate to compare." in page
    assert page.count("| *no policy can keep more* | +") == 1
    assert page.count("## Ablation") == len(questions(MACHINE))
    assert [(each["policy"], each["computing"]) for each in extra["speeds"]] == [
        *(("layer", 0.5), ("layer", 1.0), ("veltair", 0.5), ("veltair", 1.0)),
    ]
    slow, usual = extra["speeds"][2:]
    assert 0 < slow["whole_qps"] <= slow["best_qps"] < usual["best_qps"]
    assert usual["best_qps"] == max(
        row["qps"] for row in extra["slack"] if row["policy"] == "veltair"
    )
    assert page.count("## Kernels somewhat slower and faster") == 1
    assert "## Kernels" not in report(result, extra | {"speeds": []})
    loaded, half = (
        page.partition(f"executing, {at}")[2]
        .partition("| veltair | ")[2]
        .split(" (")[0]
        .split(", ")
        for at in ("at the rate", "at half of it")
    )
    assert float(loaded[0]) > float(half[0]) >= float(half[1]) >= 1
    assert float(loaded[0]) > float(loaded[1])
    (asked,) = result.workloads
    found = latency_of(result, extra, asked, "veltair", "at_capacity")
    assert found is not None
    assert found.shortest == pytest.approx(found.planned * found.alone)  # of one model
    assert found.planned > 1
    assert f"At its rate one takes {found.alone:.2f} to {found.alone:.2f} times" in page
    assert f"Together they are {found.shortest:.2f} to" in page
    reached = "within" if found.executing <= 1.1 else "**not within**"
    assert f"executing is {reached} 1.1 times." in page
    assert latency_of(result, extra, asked, "block-6", "at_capacity") is None


def test_the_page_says_what_is_reached(
    evaluated: tuple[Result, dict[str, Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, extra, _ = evaluated
    monkeypatch.setitem(PAPER_GAIN, "small", 0.5)
    capacities = tuple(
        replace(each, qps={"layer": (10.0, 20.0), "veltair": (14.0, 32.0)}[each.system])
        for each in result.capacities
        if each.system != "prema"
    )
    extra["as_in_paper"] = [
        {"workload": "small", "policy": policy, "qps": qps}
        for policy, qps in (("layer", [8.0, 12.0, 16.0]), ("veltair", [14.0, 18.0, 30.0]))
    ]
    page = report(replace(result, capacities=capacities), extra)
    # Beyond the baseline with its best slack and without any, both by the medians.
    assert "the best of ours, `veltair`, +53%: reached" in page
    assert "as in the paper, which keeps 12: `veltair`, planned likewise, +50%, " in page
    assert ", `veltair` +91.7%: reached." in page
    monkeypatch.setitem(PAPER_GAIN, "small", 0.92)
    page = report(replace(result, capacities=capacities), extra)
    assert "`veltair`, +53%: **not reached**" in page
    assert "`veltair` +91.7%: **not reached**." in page


def at(policy: str, computing: float, whole: float, best: float) -> dict[str, Any]:
    return {
        "workload": "small",
        "policy": policy,
        "computing": computing,
        "whole_qps": whole,
        "best_qps": best,
    }


def test_gains_are_the_medians_over_the_speeds() -> None:
    rows = [at("layer", 0.9, 0, 20), at("layer", 1.0, 10, 20), at("layer", 1.1, 16, 18)]
    rows += [at("veltair-deadline", speed, *2 * [qps]) for speed, qps in ((0.9, 22), (1.0, 30))]
    page = speeds([*rows, at("veltair-deadline", 1.1, 36, 36)], {"small": 0.6})
    # At 0.9 the baseline keeps nothing of which its gain could be a part.
    assert (
        "| `veltair-deadline`, `layer` planned on the whole target | +162% (+125% to +200%) |"
        in page
    )
    assert "| `veltair-deadline`, `layer` with its best slack | +50% (+10% to +100%) |" in page
    (verdict,) = [line for line in page if line.startswith("- small: aim +60%")]
    assert "planned on the whole target by the median +162%, reached, at 2 of 2 speeds" in verdict
    assert "its best slack by the median +50%, **not reached**, at 1 of 3 speeds" in verdict
    (steps,) = [line for line in page if line.startswith("From one speed")]
    assert "`layer` on the whole target keeps less in 0 of 2" in steps
    assert "`layer` with its best slack keeps less in 1 of 2" in steps
    assert "`veltair-deadline` keeps less in 0 of 2" in steps
    assert "| 1 | 10, 20, 30 |" in page
    assert not any("`veltair`, both" in line for line in page)  # which was not asked


@pytest.mark.parametrize("given", ["fast", "1,0", "1;2", "nan", "11"])
def test_a_speed_that_is_none_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InputError, match="must be numbers from"):
        command([tmp_path / "tiny"], out=tmp_path / "out", speeds=given)
    assert not (tmp_path / "out").exists()


def one_layer() -> sched.ModelProfile:
    return sched.ModelProfile(
        qos_ns=1000,
        cores=[1, 2, 4],
        levels=1,
        model_ns=[1000, 600, 400],
        variants=[2],
        layer_ns=[1000, 700, 400, 1500, 600, 500],
    )


@pytest.mark.parametrize(
    ("target_ns", "core_ns"),
    [
        (math.inf, 1000),
        (2000, 1000),
        (1000, 1000),
        (600, 1200),
        (800, 1100),  # as often on one core as on two
        (400, 1600),
        (399, math.inf),
    ],
)
def test_the_least_processor_time(target_ns: float, core_ns: float) -> None:
    assert least_core_ns(one_layer(), 4, target_ns) == pytest.approx(core_ns, rel=1e-3)


def test_a_workload_without_its_artifacts_says_how_to_compile(tmp_path: Path) -> None:
    tiny(tmp_path)
    with pytest.raises(InputError, match="veltair compile resnet50"):
        command([tmp_path / "tiny"], out=tmp_path / "out", workloads="medium", policies="layer")


def test_an_artifact_that_the_machine_cannot_run_is_refused(tmp_path: Path) -> None:
    tiny(tmp_path)
    (tmp_path / "small.toml").write_text(WORKLOAD)
    narrow = parse_machine(machine_table()).changed("processor.vector_lanes", 4)
    (tmp_path / "mine.toml").write_text(to_toml(narrow, "Made up."))
    with pytest.raises(
        InputError, match=r"tiny: compiled for x86-64-v3, .* of 4; give an artifact"
    ):
        command(
            [tmp_path / "tiny"],
            out=tmp_path / "out",
            machine=str(tmp_path / "mine.toml"),
            workloads=str(tmp_path / "small.toml"),
        )
