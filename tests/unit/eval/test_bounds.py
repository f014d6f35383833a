"""The table of bounds: each figure comes from its file, and a broken bound is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from veltair.eval.bounds import BEGIN, END, in_readme, report, saved_results, summary
from veltair.runtime._native import sched

ROOT = Path(__file__).parents[3]
SOLO = {
    "cases": [
        {
            "model": "resnet50",
            "isa": "x86-64-v4",
            "cores": cores,
            "engines": [
                {"engine": "veltair"},
                {"engine": "onnxruntime", "ratio": {"p50": ratio}, "difference": 1e-5},
                {"engine": "openvino", "ratio": {"p50": 0.5}, "difference": 3e-5},
            ],
        }
        for cores, ratio in ((1, 0.8), (2, 1.25))
    ]
}
COMPILE = {
    "networks": {
        "resnet50": {"wall_ns": 45_000_000_000, "peak_bytes": 1_500_000_000},
        "bert_base": {"wall_ns": 91_000_000_000, "peak_bytes": 5_100_000_000},
    }
}
SERVER = {
    "start_ns": {"p50": 1_500_000_000},
    "idle_share": 0.025,
    "workers_private_bytes": {"1": 60 << 20, "2": 80 << 20},
    "arena_bytes": 20 << 20,
    "queue_ns": {"p50": 45_000},
}
LAUNCH = {
    "results": {
        "empty_launch": {"p50_ns": 130, "bound_ns": 1_000},
        "all_cores_asleep": {"p50_ns": 60_000, "bound_ns": 50_000},
    }
}
IDLE = {
    "cases": [
        {
            "model": "mobilenet_v2",
            "cores": 2,
            "engines": [
                {
                    "engine": "veltair",
                    "after": [{"idle_ns": 50_000_000, "penalty": {"p50": 1.25}}],
                },
                {
                    "engine": "openvino",
                    "ratio": {"p50": 0.9},
                    "after": [
                        {"idle_ns": 50_000_000, "penalty": {"p50": 2.0}, "ratio": {"p50": 0.5}},
                        {"idle_ns": 200_000_000, "penalty": {"p50": 3.0}, "ratio": {"p50": 0.4}},
                    ],
                },
            ],
        }
    ]
}
HTTP = {
    "kernels_ns": 100_000,
    "bound_ns": 500_000,
    "ways": [
        {"way": "local client", "round_trip_ns": {"p50": 0}},
        {"way": "HTTP, bare socket", "round_trip_ns": {"p50": 450_000}},
    ],
}


def rows(**files: dict[str, object]) -> list[list[str]]:
    text = report({f"{name}.json": content for name, content in files.items()})
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_idleness_is_over_our_own_runs_and_over_each_peer() -> None:
    first = "mobilenet_v2 on 2 cores, first query after 50 ms, time over"
    assert rows(idle=IDLE) == [
        [f"{first} back to back", "", "1.25", "", "`idle.json`"],
        [f"{first} OpenVINO's", "", "0.5", "", "`idle.json`"],
    ]


def test_loadgens_verdict_may_be_to_either_side_of_ours() -> None:
    models = [{"model": name, "verdict_ratio": ratio} for name, ratio in (("a", 1.01), ("b", 0.97))]
    found = rows(loadgen_check={"agree": 0.02, "models": models})
    what = "highest rate by LoadGen's verdict against ours, the same runs,"
    assert [row[0] for row in found] == [f"{what} a", f"{what} b"]
    assert [row[1:4] for row in found] == [["2 %", "1 %", "yes"], ["2 %", "3 %", "**no**"]]


def test_speed_is_held_to_the_best_peer_and_at_least() -> None:
    one, _, two, worst, difference = rows(solo=SOLO)
    assert one[0].startswith("x86-64-v4, 1 thread: best peer's time over ours, geometric mean")
    assert one[1:4] == ["at least 1", "1.25", "yes"]
    assert two[1:4] == ["at least 1", "0.8", "**no**"]
    assert worst[1:4] == ["at least 0.9", "0.8", "**no**"]
    assert difference[1:4] == ["0.001", "3e-05", "yes"]


def test_compiles_have_bounds_of_time_and_memory_where_there_are_some() -> None:
    resnet, resnet_memory, bert, bert_memory = rows(compile=COMPILE)
    assert resnet[1:4] == ["60 s", "45 s", "yes"]
    assert resnet_memory[1:4] == ["", "1.5 GB", ""]
    assert bert[1:4] == ["90 s", "91 s", "**no**"]
    assert bert_memory[1:4] == ["5 GB", "5.1 GB", "**no**"]


@pytest.mark.parametrize(
    ("last", "measured", "kept"), [(1.05, "4 min", "yes"), (1.06, "inf min", "**no**")]
)
def test_a_search_counts_only_when_it_is_close_on_every_count(
    last: float, measured: str, kept: str
) -> None:
    step = {
        "trials": 8,
        "search_ns": 240_000_000_000,
        "ratio": {"1": {"p50": 1.0}, "2": {"p50": last}},
    }
    speed = {"network": "resnet50", "close": 1.05, "steps": [{"trials": 4}, step]}
    cost = {"versions": 5, "wall": {"p50": 1.04}}
    search, versions = rows(search={"speed": speed, "versions": cost})
    assert search[1:4] == ["10 min", measured, kept]
    assert ("not with 8 trials" in search[0]) == (kept != "yes")
    assert versions[1:4] == ["1.05", "1.04", "yes"]


def test_shares_are_compared_at_the_highest_level_that_both_have() -> None:
    few = {"levels": [0.0, 0.2], "best_ns": [[100, 200]]}
    more = {"levels": [0.0, 0.2, 0.6], "best_ns": [[110, 190, 400]]}
    networks = {"net": {"shares": {"flops": few, "measured": more}}}
    ((what, _, measured, *_),) = rows(qos_share={"networks": networks})
    assert what.startswith("net on one core, interference")
    assert measured == "0.95"
    few = {"levels": [0.0], "best_ns": [[100]]}
    ((what, _, measured, *_),) = rows(
        qos_share={"networks": {"net": {"shares": {"flops": few, "measured": more}}}}
    )
    assert what.startswith("net on one core, alone")
    assert measured == "1.1"


def test_server_counts_the_worker_with_most_memory_beyond_the_arena() -> None:
    queue, start, idle, memory = rows(server=SERVER)
    assert queue[1:4] == ["60 us", "45 us", "yes"]
    assert start[1:4] == ["3 s", "1.5 s", "yes"]
    assert idle[1:4] == ["2 %", "2.5 %", "**no**"]
    assert memory[1:4] == ["50 MiB", "60 MiB", "**no**"]


def test_launches() -> None:
    awake, asleep = rows(launch=LAUNCH)
    assert awake[1:4] == ["1 us", "0.13 us", "yes"]
    assert asleep[1:4] == ["50 us", "60 us", "**no**"]


def test_decisions_count_their_slowest_event() -> None:
    events = {"worker_idle": {"p50": 100.0}, "block_end": {"p50": 2_100.0}}
    result = {"policies": {"model": events}, "layers": 200, "cores": 64, "bound_ns": 2_000}
    ((what, bound, measured, kept, _),) = rows(decision=result)
    assert what == "one decision of `model`, 200 layers, 64 cores"
    assert (bound, measured, kept) == ("2 us", "2.1 us", "**no**")


def test_batching_counts_its_slowest_load() -> None:
    loads = {"a": {"requests_per_s": {"p50": 4e6}}, "b": {"requests_per_s": {"p50": 8e5}}}
    result = {
        "policies": {"deferred": loads},
        "bound_requests_per_s": 1_000_000,
        "models": 64,
        "devices": 256,
    }
    ((_, bound, measured, kept, _),) = rows(batching=result)
    assert (bound, measured, kept) == ("1 us", "1.25 us", "**no**")


def test_the_simulators_rate_is_a_time_for_each_block() -> None:
    result = {
        "policies": {"layer": {"p50": 4e6}, "deadline": {"p50": 8e5}},
        "bound_per_s": 1_000_000,
    }
    layer, deadline = rows(simulator=result)
    assert layer[1:4] == ["1 us", "0.25 us", "yes"]
    assert deadline[0] == "one block event of the simulator under `deadline`"
    assert deadline[1:4] == ["1 us", "1.25 us", "**no**"]


@pytest.mark.parametrize("name", ["decision", "simulator"])
def test_every_policy_is_held_to_its_bounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The saved results are of all policies that there are, `deadline` and the like among them."""
    monkeypatch.chdir(ROOT)
    assert set(saved_results()[f"{name}.json"]["policies"]) == set(sched.policy_names())


def test_http_counts_what_is_not_the_kernels() -> None:
    ((_, bound, measured, kept, _),) = rows(http=HTTP)
    assert (bound, measured, kept) == ("0.5 ms", "0.35 ms", "yes")


def test_load_has_its_share_and_no_bound() -> None:
    plan = {"model": "resnet50", "qps": 20.0, "latency_ns": 50_000_000}
    ((what, bound, measured, kept, _),) = rows(loadgen={"plan": plan, "ours": {"satisfied": 0.987}})
    assert what.endswith("resnet50, 20 queries a second: within 50 ms")
    assert (bound, measured, kept) == ("", "98.7 %", "")


def test_each_row_names_its_file_and_missing_files_have_no_row() -> None:
    found = rows(compile=COMPILE, http=HTTP)
    sources = {row[4] for row in found}
    assert sources == {"`compile.json`", "`http.json`"}
    assert found[0][1:4] == ["60 s", "45 s", "yes"]


def test_the_readme_has_the_worst_of_each_kind_and_nothing_without_a_bound() -> None:
    policies = {
        name: {"block_end": {"p50": time_ns}}
        for name, time_ns in (("model", 100.0), ("prema", 900.0), ("layer", 200.0))
    }
    decision = {"policies": policies, "layers": 200, "cores": 64, "bound_ns": 2_000}
    text = summary({"decision.json": decision, "compile.json": COMPILE})
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(lines) == 4, lines
    assert "a policy, 200 layers, 64 cores: the worst of 3 | 2 us | 0.9 us | yes" in lines[-1]
    assert "resnet50 | 60 s" in lines[0]


def test_table_takes_its_place_in_the_readme_again_and_again() -> None:
    readme = (ROOT / "README.md").read_text()
    changed = in_readme(in_readme(readme, "| old |\n", BEGIN, END), "| new |\n", BEGIN, END)
    assert changed.count("| new |") == 1
    assert "| old |" not in changed
    assert changed.partition(END)[2] == readme.partition(END)[2]


def test_readme_shows_the_saved_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    readme = (ROOT / "README.md").read_text()
    assert saved_results()
    assert in_readme(readme, summary(saved_results()), BEGIN, END) == readme
    assert (ROOT / "eval/results/bounds.md").read_text().endswith(report(saved_results()))
