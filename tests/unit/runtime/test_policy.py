"""The policies as Python sees them: a state in, a decision and its reason out."""

from __future__ import annotations

import pytest

from veltair.runtime._native import sched


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


def test_wrong_states_are_refused() -> None:
    models = [profile(100)]
    with pytest.raises(ValueError, match="queue names no task"):
        state(models, queue=[3])
    with pytest.raises(ValueError, match="a task of no model"):
        state(models, tasks=[sched.Task(model=1)], queue=[], workers=[])
    with pytest.raises(ValueError, match="runs no task"):
        state(models, workers=[sched.Running(task=3)])
    policy = sched.make_policy("model", 4, models)
    with pytest.raises(IndexError, match="no such worker"):
        policy.decide(state(models), sched.EventKind.WORKER_IDLE, 2, 0)
    with pytest.raises(ValueError, match="task without layers"):
        state(models, tasks=[sched.Task(model=0, next_layer=3)], queue=[], workers=[])
    with pytest.raises(ValueError, match="core counts from 1"):
        sched.ModelProfile(qos_ns=0, cores=[0], levels=1, model_ns=[1], variants=[], layer_ns=[])


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
    policy = sched.make_policy("deadline", 4, models, max_block_ns=10)
    hopeless = state(
        models, tasks=[sched.Task(model=0, deadline_ns=300)], queue=[0], workers=[sched.Running()]
    )
    decision = policy.decide(hopeless, sched.EventKind.WORKER_IDLE, 0, 226)
    assert decision.action == sched.Action.REFUSE
    assert "can't be met" in decision.reason
    assert policy.needs.waiting
    with pytest.raises(ValueError, match="idle worker"):
        policy.decide(hopeless, sched.EventKind.BLOCK_END, 0, 0)
