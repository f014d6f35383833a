"""The workloads' files: what comes with the package, what is refused, and what arrives."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veltair.eval.capacity.workloads import (
    FOLDER,
    RunSection,
    changed_run,
    parse_workload,
    planned_seconds,
    poisson,
    read_workload,
)
from veltair.models.catalog import recipe
from veltair.runtime.errors import ConfigError, InputError

PATH = Path("mine.toml")


def table(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A good workload's table, with changes."""
    return {
        "workload": {"models": ["a", "b"], "shares": "inverse_qos"},
        "run": {"min_seconds": 2, "min_queries": 10, "max_seconds": 60},
        "qos": {"paper": {"how": "by hand", "ms": {"a": 10, "b": 40}}},
        **changes,
    }


@pytest.mark.parametrize("name", ["light", "medium", "heavy", "mix"])
def test_the_packages_workloads_have_the_papers_targets(name: str) -> None:
    facts = read_workload(name).facts("paper")
    for model in facts.models:
        assert model.qos_ns == recipe(model.name).paper_qos_ms * 1e6
    assert sum(model.share for model in facts.models) == pytest.approx(1)
    if name != "mix":
        assert len({model.share for model in facts.models}) == 1


def test_the_mix_has_all_models_in_inverse_proportion_to_their_targets() -> None:
    mix = read_workload("mix").facts("paper")
    of_all = {
        each.name
        for name in ("light", "medium", "heavy")
        for each in read_workload(name).facts("paper").models
    }
    assert {model.name for model in mix.models} == of_all
    assert len(of_all) == 7
    products = [model.share * model.qos_ns for model in mix.models]
    assert products == pytest.approx([products[0]] * 7)


def test_the_measured_targets_are_the_same_in_each_file() -> None:
    files = [read_workload(path.stem) for path in FOLDER.glob("*.toml")]
    measured = [file.qos["small"] for file in files if "small" in file.qos]
    assert len(measured) in (0, len(files))
    ms: dict[str, float] = {}
    for section in measured:
        assert all(ms.setdefault(name, value) == value for name, value in section.ms.items())


def test_a_file_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[workload]\nmodels = ["a"]\n[qos.small]\nhow = "a guess"\n[qos.small.ms]\na = 2.5\n'
    )
    facts = read_workload(str(path)).facts("small")
    assert (facts.name, facts.targets) == ("mine", "a guess")
    assert facts.models[0].qos_ns == 2_500_000


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"runs": {}}, r"\[runs\]: unknown section; did you mean 'run'"),
        ({"workload": {"models": []}}, "workload.models"),
        ({"workload": {"model": ["a"]}}, "did you mean 'models'"),
        ({"workload": {"models": ["a", "a"]}}, "names 'a' twice"),
        ({"workload": {"models": ["a"], "shares": "often"}}, "'equal', 'inverse_qos'"),
        ({"run": {"min_seconds": 9, "max_seconds": 8}}, "min_seconds = 9 is above"),
        ({"run": {"min_queries": 0}}, "run.min_queries"),
        ({"qos": 3}, r"write each as \[qos.NAME\]"),
        ({"qos": {"small": {"ms": {"a": 1, "b": 1}}}}, "qos.small.how is missing"),
        ({"qos": {"small": {"how": "x", "ms": {"a": 1}}}}, "no target of b"),
        ({"qos": {"small": {"how": "x", "ms": {"a": 1, "b": 0}}}}, "ms.b = 0.0: a latency"),
        ({"qos": {"small": {"how": "x", "ms": {"a": 1, "b": float("nan")}}}}, "ms.b = nan"),
        ({"qos": {"small": {"how": "x", "ms": {"a": 1, "b": 1, "c": 1}}}}, "unknown model"),
    ],
)
def test_what_breaks_a_rule_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_workload(table(**changes), PATH)


def test_targets_that_were_not_measured_say_how() -> None:
    workload = parse_workload(table(), PATH)
    with pytest.raises(ConfigError, match=r"veltair\.eval\.capacity\.targets measures it"):
        workload.facts("small")
    with pytest.raises(ConfigError, match="it has paper"):
        workload.facts("large")


def test_an_unknown_workload_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'medium'"):
        read_workload("medum")
    with pytest.raises(ConfigError, match="can't be read"):
        read_workload("nowhere/mine.toml")


def test_runs_have_both_minima_up_to_the_maximum() -> None:
    facts = parse_workload(table(), PATH).facts("paper")
    assert [model.share for model in facts.models] == pytest.approx([0.8, 0.2])
    run = RunSection(min_seconds=2, min_queries=10, max_seconds=60)
    assert planned_seconds(facts, run, 1000) == 2
    assert planned_seconds(facts, run, 10) == pytest.approx(5)  # 2 queries a second of the rarer
    assert planned_seconds(facts, run, 0.1) == 60


def test_arrivals_come_from_the_seed_and_the_repetition() -> None:
    facts = parse_workload(table(), PATH).facts("paper")
    run = RunSection(min_seconds=100, min_queries=1, max_seconds=100)
    slow, fast = poisson(facts, run, 10), poisson(facts, run, 20)
    np.testing.assert_allclose(slow.time_ns / 2, fast.time_ns[: len(slow.time_ns)], atol=2)
    assert np.bincount(slow.model) / 1000 == pytest.approx([0.8, 0.2], abs=0.05)
    again = poisson(facts, run, 10, repetition=1)
    assert not np.array_equal(again.time_ns, slow.time_ns)
    seeded = poisson(facts, changed_run(run, seed=2), 10)
    np.testing.assert_array_equal(seeded.time_ns, again.time_ns)


def test_a_run_without_room_is_refused() -> None:
    with pytest.raises(InputError, match="--min-seconds is 90"):
        changed_run(RunSection(max_seconds=60), min_seconds=90)


def kept_qps(seed: int, min_queries: int) -> int:
    """What an oldest-first queue keeps of medium, with two cores that always take the same.

    Targets are as they were when docs/scheduling.md was written.
    """
    medium = read_workload("medium")
    facts = medium.facts("small")
    names = [model.name for model in facts.models]
    takes_ns = [{"resnet50": 60e6, "googlenet": 20e6}[name] for name in names]
    target_ns = [{"resnet50": 101e6, "googlenet": 51e6}[name] for name in names]
    run = changed_run(
        medium.run, seed=seed, min_seconds=8, min_queries=min_queries, max_seconds=1e5
    )
    for rate_qps in range(6, 60):
        arrivals = poisson(facts, run, rate_qps)
        free_ns = [0.0, 0.0]
        in_time = [0, 0]
        for time_ns, model in zip(arrivals.time_ns, arrivals.model, strict=True):
            end_ns = max(heapq.heappop(free_ns), time_ns) + takes_ns[model]
            heapq.heappush(free_ns, end_ns)
            in_time[model] += end_ns - time_ns <= target_ns[model]
        if min(in_time / np.bincount(arrivals.model)) < 0.95:
            return rate_qps - 1
    raise AssertionError("it keeps every rate")


def test_short_runs_differ_by_their_arrivals() -> None:
    """The figures of docs/scheduling.md."""
    by_length = {n: [kept_qps(seed, n) for seed in range(1, 9)] for n in (100, 400, 1600)}
    assert by_length[100][:2] == [14, 26]
    spreads = [(min(kept), max(kept)) for kept in by_length.values()]
    assert spreads == [(8, 26), (15, 21), (17, 20)]
