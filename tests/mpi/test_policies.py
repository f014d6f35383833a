"""Servers under each scheduling policy: blocks, cores, answers; refusals."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from factories import tiny_input

from mpi.serving import RunningServer, ask_and_check
from veltair.runtime._native import sched

QUERIES = 30
PLENTY_NS = 60_000_000_000


@pytest.mark.parametrize("policy", [*sched.policy_names(), "block-2"])
def test_every_query_is_answered_right(
    scheduled: Callable[[int, str], RunningServer], policy: str
) -> None:
    with scheduled(4, f'policy = "{policy}"') as running, running.wait_ready().client() as client:
        ask_and_check(client, QUERIES, PLENTY_NS)
        assert any(f"scheduling: {policy}" in line for line in running.lines)


@pytest.mark.parametrize("policy", ["deadline", "veltair-deadline"])
def test_what_would_be_late_is_served(
    scheduled: Callable[[int, str], RunningServer], policy: str
) -> None:
    with scheduled(3, f'policy = "{policy}"') as running, running.wait_ready().client() as client:
        ask_and_check(client, QUERIES, -1)


def test_what_would_be_late_is_refused(scheduled: Callable[[int, str], RunningServer]) -> None:
    with (
        scheduled(2, 'policy = "deadline"\nrefuse_late = true') as running,
        running.wait_ready().client() as client,
    ):
        slot = client.allocate("tiny", 1)
        slot.inputs["data"][...] = tiny_input(0)
        client.submit(slot, deadline_ns=time.monotonic_ns() - 1)
        (completion,) = client.wait(timeout_s=60)
        assert not completion.ok
        assert completion.reason == "deadline"
        assert "deadline can't be met" in completion.error
        completion.slot.release()
