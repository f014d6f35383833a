"""What the page about an evaluation says in words: who is ahead, or why nobody is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evaluations import OURS, PEERS, simulated_result, whole_result

from veltair.eval.capacity.report import summary
from veltair.eval.capacity.report.findings import Findings
from veltair.eval.capacity.report.page import render
from veltair.eval.capacity.report.tables import all_tables
from veltair.eval.capacity.report.verdicts import best_of_ours, ratios, verdict
from veltair.eval.capacity.result import Capacity, Result


def with_qps(result: Result, system: str, *qps: float, state: str = "found") -> Result:
    """The same with another capacity of a system in the light workload."""

    def changed(each: Capacity) -> Capacity:
        if (each.workload, each.system) != ("light", system):
            return each
        return replace(each, qps=qps, state=state)  # type: ignore[arg-type] # as tests say it

    return replace(result, capacities=tuple(changed(each) for each in result.capacities))


def of_light(result: Result) -> tuple[str, str]:
    """What the summary says of the light workload: who is ahead, and the words."""
    found = {name: (ahead, text) for name, ahead, text in summary.by_workload(Findings(result))}
    return found["light"]


def test_the_best_of_each_are_compared() -> None:
    result = whole_result()
    each = verdict(Findings(result), "light")
    assert each.ours is not None
    assert each.rival is not None
    assert (each.ours.system, each.rival.system) == ("veltair", "openvino")
    assert each.ratio is not None
    assert each.ratio.median == pytest.approx(240.8 / 101, rel=0.01)
    assert each.ratio.least == pytest.approx(240.8 * 0.98 / (101 * 1.01))
    assert each.ratio.most == pytest.approx(240.8 * 1.01 / (101 * 0.98))
    assert each.level == ("deadline",)
    ahead, text = of_light(result)
    assert ahead == "ours ahead"
    assert "veltair, the best of ours, keeps 241 queries/s (236 to 243 in 3 repetitions)" in text
    assert "2.38 times as many (2.31 to 2.46) as openvino (2 sessions x 2 threads)" in text
    assert "Of ours, deadline is within the spread of the best." in text
    assert of_light(with_qps(result, "openvino", 990, 1000, 1010))[0] == "ours behind"


@pytest.mark.parametrize(
    ("system", "qps", "state", "why"),
    [
        ("openvino", (200.0, 210.0, 238.0), "found", "the spreads of veltair and openvino overlap"),
        # Not the best by its median, but it may be.
        ("onnxruntime", (50.0, 60.0, 240.0), "found", "veltair and onnxruntime overlap"),
        ("openvino", (190.0, 215.0, 230.0), "noisy", "repetitions of openvino differ too much"),
        ("openvino", (100.0, 101.0), "disturbed", "others used the processors during the runs of"),
        ("openvino", (101.0,), "found", "how far openvino may vary"),
    ],
)
def test_no_winner_is_named_where_it_is_not_sure(
    system: str, qps: tuple[float, ...], state: str, why: str
) -> None:
    ahead, text = of_light(with_qps(whole_result(), system, *qps, state=state))
    assert ahead == "no winner"
    assert "No winner is named, since" in text
    assert why in text
    assert ("--min-queries" in text) == (state != "disturbed")  # longer runs are disturbed too


def test_a_ratio_that_leaves_repetitions_out_says_so() -> None:
    said = "The ratio leaves out the repetitions in which openvino keeps no rate."
    result = whole_result()
    text = of_light(with_qps(result, "openvino", 0.0, 120.0, 120.0))[1]
    assert "2.01 times as many (1.97 to" in text
    assert said in text
    assert said not in of_light(with_qps(result, "openvino", 100.0, 120.0, 120.0))[1]


def test_a_wide_spread_that_is_far_away_decides() -> None:
    """The best of ours keeps 236 to 243."""
    for least, ahead in ((102.0, "ours ahead"), (98.0, "no winner")):
        result = with_qps(whole_result(), "openvino", least, 130.0, 168.0, state="noisy")
        assert of_light(result)[0] == ahead


def test_ratios_are_on_one_side_exactly_if_spreads_are_apart() -> None:
    apart, touching = ratios([3.0, 4.0], [1.0, 2.9]), ratios([3.0, 4.0], [1.0, 3.1])
    assert apart is not None
    assert touching is not None
    assert apart.least > 1 > touching.least
    assert ratios([1.0], []) is None
    assert ratios([1.0], [0.0]) is None


def test_each_of_ours_is_set_against_each_of_the_others() -> None:
    rows = {row[:3]: row[3:] for row in all_tables(Findings(whole_result()))["ratios"].rows}
    median, least, most = rows["light", "veltair-as", "rayserve"]
    assert median == pytest.approx(190 / 55, rel=0.01)
    assert (least, most) == (
        pytest.approx(190 * 0.98 / (55 * 1.01)),
        pytest.approx(190 * 1.01 / (55 * 0.98)),
    )
    assert ("heavy", "prema", "openvino") not in rows, "it has no capacity there"
    assert len(rows) == 2 * len(OURS) * 3 + (len(OURS) - 1) * 2


def test_without_a_capacity_on_one_side_nothing_is_divided() -> None:
    result = whole_result()
    for name in PEERS[:3]:
        result = with_qps(result, name, state="unmeetable")
    ahead, text = of_light(result)
    assert ahead == "no comparison"
    assert "No peer has one: onnxruntime unmeetable; openvino unmeetable" in text
    assert "veltair, the best of ours, keeps 241 queries/s" in text
    for name in OURS:
        result = with_qps(result, name, state="unmeetable")
    assert "None of ours has a capacity" in of_light(result)[1]
    assert " 0 queries" not in of_light(result)[1]


def test_a_simulation_is_compared_with_the_baselines_and_called_one() -> None:
    result = simulated_result()
    found = Findings(result)
    assert found.rivals == ("layer", "prema")
    each = verdict(found, "light")
    assert each.rival is not None
    assert each.rival.system == "layer"
    once = with_qps(with_qps(result, "veltair", 240.8), "layer", 150.0)
    assert of_light(once)[0] == "ours ahead", "a simulation has no noise that one run could hide"
    ahead, text = of_light(with_qps(result, "layer", 150.0, 990.0))
    assert ahead == "no winner"
    assert "--min-queries" not in text, "the command that simulates has no such option"
    assert "the best baseline" in of_light(result)[1]
    assert "It keeps 2.68 times as many as prema." in of_light(result)[1]
    page = render(result)
    assert "All figures are of the machine model <strong>Made-up 64-core model</strong>" in page
    assert page.count("simulated on Made-up 64-core model") > 12
    assert "simulated on" not in render(whole_result())


def test_what_failed_or_was_skipped_is_said_and_why() -> None:
    result = whole_result()
    sentences = " ".join(summary.in_all(Findings(result)))
    assert "mlserver failed and is in no comparison" in sentences
    assert "litserve was skipped and is in no comparison" in sentences
    assert "a median latency of 0.125 ms at 241 queries/s (light), 0.125 ms at 48.2" in sentences
    assert "took 0.5 % of the processors" in sentences
    rows = {row[0]: row for row in all_tables(Findings(result))["systems"].rows}
    assert rows["mlserver"][3:] == (
        "failed",
        "it ended with status 1 before it served: no such module <mlserver.cli>",
        "logs/mlserver.txt",
    )
    assert rows["litserve"][3] == "skipped"
    assert rows["veltair"][3] == "ran"
    assert not any("litserve" in note for note in summary.notes(Findings(result)))
    page = render(result)
    assert "single queries failed" not in page
    first, *rest = result.trials
    refused = replace(first, errors=("connection <reset>", "a timeout"))
    told = render(replace(result, trials=(refused, refused, *rest)))
    assert "Why single queries failed: 2 reasons" in told
    assert told.count("model: connection &lt;reset&gt;") == 1
    assert "no such module &lt;mlserver.cli&gt;" in page
    assert "the package litserve is not installed: make peers" in page


def test_the_best_of_ours_has_a_capacity_everywhere() -> None:
    found = Findings(whole_result())
    best = best_of_ours(found)
    assert best is not None
    assert best[0] == "veltair"
    assert "prema" not in best[1], "it has none in heavy"
