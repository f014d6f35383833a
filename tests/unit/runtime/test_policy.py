"""The policies as Python sees them: a state in, a decision and its reason out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veltair.runtime._native import sched, sim


def profile(qos_ns: int, model_ns: tuple[int, ...] = (100, 60, 40)) -> sched.ModelProfile:
    """A model of three layers, measured on 1, 2 and 4 cores."""
    return sched.ModelProfile(
        qos_ns=qos_ns,
        cores=(1, 2, 4),
        levels=1,
        model_ns=model_ns,
        variants=[1, 1, 1],
        layer_ns=[1] * 9,
    )


def state(models: list[sched.ModelProfile], **changes: object) -> sched.State:
    """Two tasks wait, task 1 first; worker 0 is idle, worker 1 runs task 2 from layer 1 on."""
    fields: dict[str, object] = {
        "tasks": [
            sched.Task(model=0),
            sched.Task(model=len(models) - 1),
            sched.Task(model=0, next_layer=1),
        ],
        "queue": [1, 0],
        "workers": [sched.Running(), sched.Running(task=2)],
        "total_cores": 4,
        "free_cores": 4,
        **changes,
    }
    return sched.State(models=models, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("qos_ns", "cores", "reason"),
    [
        (100, 1, "meets the latency target"),
        (99, 2, "meets the latency target"),
        (40, 4, "meets the latency target"),
        (39, 4, "no measured core count"),
        (0, 4, "no latency target"),
    ],
)
def test_a_task_takes_the_fewest_cores_that_meet_its_target(
    qos_ns: int, cores: int, reason: str
) -> None:
    models = [profile(qos_ns)]
    policy = sched.make_policy("model", 4, models)
    decision = policy.decide(state(models), sched.EventKind.WORKER_IDLE, 0, 0)
    assert decision.cores == cores
    assert reason in decision.reason
    assert sched.needed_cores(models[0], 4).cores == cores


def test_first_come_first_served_over_whole_models() -> None:
    models = [profile(100), profile(60)]
    policy = sched.make_policy("model", 4, models)
    decision = policy.decide(state(models), sched.EventKind.WORKER_IDLE, 0, 0)
    assert (decision.task, decision.layer_begin, decision.layer_end) == (1, 0, 3)
    assert (decision.cores, decision.level) == (2, 0)


def test_a_block_end_goes_on_with_the_workers_own_task() -> None:
    models = [profile(100)]
    policy = sched.make_policy("model", 4, models)
    decision = policy.decide(state(models), sched.EventKind.BLOCK_END, 1, 0)
    assert (decision.task, decision.layer_begin, decision.layer_end) == (2, 1, 3)


def test_no_task_waits() -> None:
    models = [profile(100)]
    policy = sched.make_policy("model", 4, models)
    decision = policy.decide(state(models, queue=[]), sched.EventKind.WORKER_IDLE, 0, 0)
    assert decision.task == sched.NONE
    assert decision.reason == "no task waits"


def test_the_same_state_gives_the_same_decision() -> None:
    models = [profile(60)]
    policy = sched.make_policy("model", 4, models)
    again = sched.make_policy("model", 4, models)
    for event, worker in ((sched.EventKind.WORKER_IDLE, 0), (sched.EventKind.BLOCK_END, 1)):
        decisions = [
            made.decide(state(models), event, worker, now_ns)
            for made in (policy, again)
            for now_ns in (0, 9)
        ]
        answers = {
            (d.task, d.layer_begin, d.layer_end, d.cores, d.level, d.reason) for d in decisions
        }
        assert len(answers) == 1


def test_policies_are_made_by_name() -> None:
    for name in (*sched.policy_names(), "block-1", "block-9999"):
        assert sched.make_policy(name, 1, []).name == name
    assert {"model", "layer", "block-6", "prema", "veltair", "deadline"} <= set(
        sched.policy_names()
    )
    assert sched.make_batching("none").name == "none"
    assert sched.make_placement("local").name == "local"
    with pytest.raises(ValueError, match="no scheduling policy `fifo`; known: model, layer"):
        sched.make_policy("fifo", 1, [])
    with pytest.raises(ValueError, match="known: none"):
        sched.make_batching("all")
    with pytest.raises(ValueError, match="known: local"):
        sched.make_placement("far")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queue": [3]}, "queue names no task: 3 of 3"),
        ({"queue": [-1]}, "queue names no task: -1"),
        ({"queue": [0, 1, 0]}, "task 0 is there twice"),  # a queue without an end
        ({"queue": [2]}, "task 2 is there twice"),  # worker 1 runs it
        ({"workers": [{"task": 2}] * 2}, "task 2 is there twice"),
        ({"workers": [{"task": 3}]}, r"workers\[0\]: it runs no task .* 3 of 3"),
        ({"workers": [{"task": -2}]}, "runs no task"),
        ({"workers": [{"task": 2, "layer_end": 4}]}, "layers 0 to 4 of 3"),
        ({"workers": [{"task": 2, "layer_begin": 2, "layer_end": 1}]}, "layers 2 to 1"),
        ({"workers": [{"task": 2, "layer_begin": -1}]}, "layers -1 to 0"),
        ({"workers": [{"task": 2, "cores_held": 1}]}, "add up to 5 of total_cores = 4"),
        ({"workers": [{"cores_held": -1}]}, "a worker's cores are from 0"),
        ({"workers": [{"cores_wanted": -1}]}, "a worker's cores are from 0"),
        ({"free_cores": 5}, "add up to 5 of total_cores = 4"),
        ({"free_cores": -1}, "free_cores and level are from 0"),
        ({"total_cores": 0, "free_cores": 0}, "total_cores is from 1"),
        ({"level": -1}, "level are from 0"),
        ({"tasks": [{"model": 1}] * 3}, r"tasks\[0\]: a task of no model: model = 1 of 1"),
        ({"tasks": [{"model": -1}] * 3}, "a task of no model"),
        ({"tasks": [{"model": 0, "next_layer": 3}] * 3}, "layers to run: next_layer = 3 of 3"),
        ({"tasks": [{"model": 0, "next_layer": -1}] * 3}, "layers to run"),
        ({"tasks": [{"model": 0, "deadline_ns": -(2**63)}] * 3}, "times are from 0"),
    ],
)
def test_a_state_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    # Made here: objects of the extension that outlive the interpreter are reported as leaks.
    kinds = {"tasks": sched.Task, "workers": sched.Running}
    made = {
        key: [kinds[key](**each) for each in value] if key in kinds else value
        for key, value in changes.items()
    }
    with pytest.raises(ValueError, match=message):
        state([profile(100)], **made)


@pytest.mark.parametrize("name", sched.policy_names())
def test_a_state_of_another_machine_or_other_models_is_refused(name: str) -> None:
    models = [profile(100)]
    policy = sched.make_policy(name, 4, models)
    idle = sched.EventKind.WORKER_IDLE
    with pytest.raises(ValueError, match="2 models: the policy was made for 1"):
        policy.decide(state([profile(100)] * 2), idle, 0, 0)
    short = state([layered(100, [[1, 1, 1]])], tasks=[], queue=[], workers=[sched.Running()])
    with pytest.raises(ValueError, match=r"models\[0\] has 1 layers: the policy was made for 3"):
        policy.decide(short, idle, 0, 0)
    with pytest.raises(ValueError, match="total_cores = 8: the policy was made for 4"):
        policy.decide(state(models, total_cores=8), idle, 0, 0)
    for worker in (-1, 2):
        with pytest.raises(ValueError, match=f"no such worker in the state: {worker} of 2"):
            policy.decide(state(models), idle, worker, 0)
    with pytest.raises(ValueError, match="no block can end on an idle worker"):
        policy.decide(state(models), sched.EventKind.BLOCK_END, 0, 0)
    with pytest.raises(ValueError, match="now_ns is from 0"):
        policy.decide(state(models), idle, 0, -1)
    # A level that the profiles don't have is their highest.
    assert policy.decide(state(models, level=1_000_000), idle, 0, 0).level == 0


def test_a_simulation_with_another_policy_is_refused() -> None:
    policy = sched.make_policy("model", 4, [profile(100)])
    arguments = {
        "models": [profile(100)],
        "policy": policy,
        "arrival_ns": np.zeros(1, np.int64),
        "model": np.zeros(1, np.int32),
        "cores": 4,
        "workers": 1,
        "max_queue": 1,
        "conflict_ns": 0,
        "decision_ns": 0,
        "expand_if_shorter": False,
        "level": 0,
        "trace": False,
    }
    assert sim.simulate(**arguments)["outcome"].tolist() == [0]
    for changes, message in (
        ({"models": [profile(100)] * 2}, "2 models: the policy was made for 1"),
        ({"cores": 8}, "total_cores = 8: the policy was made for 4"),
        ({"level": -1}, "level is from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            sim.simulate(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": [0, 2, 4]}, "core counts from 1"),
        ({"qos_ns": -1}, "a target is from 0 ns"),
        ({"layer_flops": [1, -1, 1]}, "flops are from 0"),
        ({"parallel_extents": [1, 1]}, "parallel_extents is not"),
        ({"parallel_extents": [1, 0, 1]}, "extent is at least 1"),
        ({"slowdowns": [0.0, 0.1]}, "slowdowns ascend from 0"),
        ({"slowdowns": [0.1]}, "slowdowns ascend from 0"),
        ({"layer_ns": [2**62] * 9}, "from 0 to 1000 s"),
        ({"layer_ns": [1] * 8}, "layer_ns is not"),
    ],
)
def test_a_profile_that_can_not_be_is_refused(changes: dict[str, object], message: str) -> None:
    fields: dict[str, object] = {
        "qos_ns": 0,
        "cores": [1, 2, 4],
        "levels": 1,
        "model_ns": [1, 1, 1],
        "variants": [1, 1, 1],
        "layer_ns": [1] * 9,
    }
    with pytest.raises(ValueError, match=message):
        sched.ModelProfile(**(fields | changes))


def test_a_plan_is_asked_about_what_it_has() -> None:
    with pytest.raises(ValueError, match="total_cores is from 1"):
        sched.ModelPlan(profile(100), 0)
    with pytest.raises(ValueError, match="core counts from 1"):
        profile(100).resampled([0, 1])
    with pytest.raises(ValueError, match="no such layer"):
        profile(100).time_ns(3, 0, 1)
    with pytest.raises(ValueError, match="from 0"):
        profile(100).time_ns(0, 0, 1, float("nan"))
    with pytest.raises(ValueError, match="at least one core"):
        profile(100).time_ns(0, 0, 0)
    with pytest.raises(ValueError, match="total_cores is from 1"):
        sched.needed_cores(profile(100), 0)
    plan = sched.ModelPlan(profile(100), 4)
    for ask in (
        lambda: plan.share_ns(0, 4),
        lambda: plan.share_ns(2, 1),
        lambda: plan.time_ns(-1, 2, 1),
        lambda: plan.time_ns(0, 3, 0),
        lambda: plan.time_ns(0, 3, 5),
        lambda: plan.time_ns(0, 3, 1, -1),
        lambda: plan.demand(3),
        lambda: plan.variant(-1, 1),
        lambda: plan.variant(0, 5),
        lambda: plan.average_cores(-1),
        lambda: plan.cores_for(0, 4, 10),
        lambda: sched.form_blocks(plan, 2, -1),
    ):
        with pytest.raises(ValueError, match=r" of |from 0"):
            ask()
    assert plan.time_ns(0, 3, 1, 7) == plan.time_ns(0, 3, 1)


@pytest.mark.parametrize(
    ("extents", "chosen"), [([2, 16, 64], [1, 0]), ([64, 16, 2], [0, 0]), ([], [0, 0])]
)
def test_of_variants_as_fast_the_one_of_shorter_tasks_runs(
    extents: list[int], chosen: list[int]
) -> None:
    """On one core the second takes 2 % longer than the first, on two 10 %, and the third 20 %."""
    made = sched.ModelProfile(
        qos_ns=0,
        cores=[1, 2],
        levels=1,
        model_ns=[1_000_000, 500_000],
        variants=[3],
        layer_ns=[1_000_000, 500_000, 1_020_000, 550_000, 1_200_000, 600_000],
        parallel_extents=extents,
    )
    plan = sched.ModelPlan(made, 2)
    assert [plan.variant(0, cores) for cores in (1, 2)] == chosen
    assert plan.time_ns(0, 1, 1) == (1_020_000 if chosen[0] else 1_000_000)


def layered(qos_ns: int, times_ns: list[list[int]]) -> sched.ModelProfile:
    """Layers measured on 1, 2 and 4 cores, with equal shares of the target."""
    return sched.ModelProfile(
        qos_ns=qos_ns,
        cores=(1, 2, 4),
        levels=1,
        model_ns=[sum(column) for column in zip(*times_ns, strict=True)],
        variants=[1] * len(times_ns),
        layer_ns=[time_ns for layer in times_ns for time_ns in layer],
        layer_flops=[1] * len(times_ns),
    )


def test_the_threshold_divides_idle_cores_as_the_paper_does() -> None:
    assert [sched.threshold(64, 12 + 12 + 24, average) for average in (12, 12, 24)] == [4, 4, 8]


@pytest.mark.parametrize(
    ("name", "end", "cores", "reason"),
    [
        ("layer", 1, 1, "block's share"),
        ("block-2", 2, 2, "block's share"),
        ("veltair-as", 1, 1, "threshold and average"),
        ("veltair-ac", 3, 2, "all remaining layers"),
        ("partition", 3, 4, "instance of fixed size"),
        ("prema", 1, 4, "token is high enough"),
        ("deadline", 3, 4, "nobody else waits"),
    ],
)
def test_each_policy_says_its_block_and_its_reason(
    name: str, end: int, cores: int, reason: str
) -> None:
    models = [layered(300, [[100, 50, 25], [300, 150, 75], [100, 50, 25]])]
    policy = sched.make_policy(name, 4, models, partition_cores=4)
    seen = state(
        models,
        tasks=[sched.Task(model=0, deadline_ns=300), sched.Task(model=0, next_layer=1)],
        queue=[0],
        workers=[sched.Running(), sched.Running()],
    )
    decision = policy.decide(seen, sched.EventKind.WORKER_IDLE, 0, 0)
    assert (decision.layer_begin, decision.layer_end) == (0, end)
    assert decision.cores == cores
    assert decision.action == sched.Action.RUN
    assert reason in decision.reason


def test_deadline_waits_and_refuses() -> None:
    models = [layered(300, [[100, 50, 25]] * 3)]
    policy = sched.make_policy("deadline", 4, models, max_block_ns=10, refuse_late=True)
    hopeless = state(
        models, tasks=[sched.Task(model=0, deadline_ns=300)], queue=[0], workers=[sched.Running()]
    )
    decision = policy.decide(hopeless, sched.EventKind.WORKER_IDLE, 0, 226)
    assert decision.action == sched.Action.REFUSE
    assert "can't be met" in decision.reason
    assert policy.needs.waiting
    with pytest.raises(ValueError, match="idle worker"):
        policy.decide(hopeless, sched.EventKind.BLOCK_END, 0, 0)
