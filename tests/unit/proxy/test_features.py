"""What is made of the counts of sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from proxy_models import count, reading

from veltair.proxy.features import FEATURES, features
from veltair.proxy.sources.reading import Missing, Scope
from veltair.proxy.sources.recording import Replay

TRACES = Path(__file__).parents[2] / "data" / "traces"


def test_ratios_sum_over_places() -> None:
    seen = features(
        [
            reading(
                count("llc_misses", 10, where="process 1"),
                count("llc_references", 100, where="process 1"),
                count("llc_misses", 90, where="process 2"),
                count("llc_references", 300, where="process 2", confidence=0.8),
            )
        ]
    )
    assert set(seen) == {"llc_miss_rate"}
    assert (seen["llc_miss_rate"].value, seen["llc_miss_rate"].confidence) == (0.25, 0.8)


def test_a_place_without_one_of_both_counts_is_left_out_and_costs_confidence() -> None:
    seen = features(
        [
            reading(
                count("llc_misses", 10, where="process 1"),
                count("llc_references", 100, where="process 1"),
                count("llc_references", 900, where="process 2"),
            )
        ]
    )
    assert (seen["llc_miss_rate"].value, seen["llc_miss_rate"].confidence) == (0.1, 0.5)


def test_rates_are_a_second_and_a_place() -> None:
    complexes = [
        count("l3_accesses", value, scope=Scope.COMPLEX, where=where)
        for value, where in ((100, "cores 0-7"), (300, "cores 8-15"))
    ]
    lack = Missing(name="l3_accesses", where="cores 16-23", reason="gone")
    half_a_second = reading(*complexes, missing=(lack,), elapsed_ns=500_000_000)
    seen = features([half_a_second])["l3_access_rate"]
    assert (seen.value, seen.confidence) == (400.0, pytest.approx(2 / 3))
    one = features([half_a_second], where="cores 8-15")["l3_access_rate"]
    assert one.value == 600.0


def test_where_leaves_tasks_and_the_machine() -> None:
    seen = features(
        [
            reading(
                count("cycles", 10),
                count("instructions", 20),
                count("memory_read", 7, scope=Scope.MACHINE, where="all"),
                count("l3_occupancy", 7, scope=Scope.COMPLEX, where="cores 8-15"),
            )
        ],
        where="cores 0-7",
    )
    assert set(seen) == {"instructions_per_cycle", "memory_read_rate"}


def test_states_weigh_by_confidence() -> None:
    steps = [
        count("probe_step", 100, where="core 0", confidence=1.0),
        count("probe_step", 200, where="core 1", confidence=0.25),
    ]
    seen = features([reading(*steps)])["probe_step"]
    assert (seen.value, seen.confidence) == (120.0, 0.625)


def test_several_sources_together() -> None:
    seen = features([reading(count("probe_step", 90)), reading(count("block_level", 0.3))])
    assert {name: each.value for name, each in seen.items()} == {
        "probe_step": 90,
        "block_level": 0.3,
    }


@pytest.mark.parametrize(
    "empty",
    [
        reading(),
        reading(count("llc_misses", 0), count("llc_references", 0)),
        reading(count("l3_accesses", 5), elapsed_ns=0),
        reading(count("probe_step", 5, confidence=0.0)),
        reading(count("page_faults", 5)),
    ],
)
def test_what_cannot_be_told_is_not_there(empty: object) -> None:
    assert features([empty]) == {}


@pytest.mark.parametrize(
    ("trace", "names"),
    [
        (
            "intel_perf_task",
            {
                "llc_miss_rate",
                "llc_references_per_cycle",
                "llc_misses_per_cycle",
                "instructions_per_cycle",
                "flops_per_cycle",
            },
        ),
        ("amd_perf_uncore", {"l3_miss_rate", "l3_access_rate", "l3_miss_traffic"}),
    ],
)
def test_recorded_layouts_have_the_features_of_their_maker(trace: str, names: set[str]) -> None:
    source = Replay(TRACES / f"{trace}.jsonl")
    rows = [features([source.read()]) for _ in range(len(source))]
    assert set(rows[0]) == names
    assert names <= set(FEATURES)
    rate = next(name for name in sorted(names) if name.endswith("miss_rate"))
    values = [row[rate].value for row in rows]
    assert max(values[8:12]) > 2 * values[0]  # the level's first peak is at the tenth reading
