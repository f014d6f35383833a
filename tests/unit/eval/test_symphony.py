"""Symphony's tables: its profiles, its bounds, and a report whose figures come from its runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from veltair.eval.symphony import PAPER, Effort, PaperRow, analysis, figure_2, table2_row
from veltair.eval.symphony_profiles import read_profiles, symphony_profiles
from veltair.eval.symphony_report import table_2_text
from veltair.runtime.errors import InputError

TINY = Effort(queries=2_000, seeds=1, tolerance=0.1)


def test_profiles_are_the_papers() -> None:
    assert len(symphony_profiles("1080ti")) == 35
    a100 = {model.name: model for model in symphony_profiles("a100")}
    assert len(a100) == 37
    bert = a100["BERT"]
    assert (bert.alpha_ns, bert.beta_ns, bert.slo_ns) == (7_353_000, 222_000, 59_000_000)


@pytest.mark.parametrize("row", PAPER, ids=lambda row: row.model.name)
def test_the_analysis_gives_the_papers_numbers(row: PaperRow) -> None:
    for executors, (size, qps) in ((1, row.no_coordination), (8, row.staggered)):
        found = analysis(row.model, executors)
        assert found["batch_size"] == size
        assert found["qps"] == pytest.approx(qps, abs=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "columns"),
        ("model,alpha_ms,beta_ms,slo_ms\nx,1,2\n", "each row needs"),
        ("model,alpha_ms,beta_ms,slo_ms\nx,1,two,3\n", "each row needs"),
        ("model,alpha_ms,beta_ms,slo_ms\nx,1,nan,3\n", "x beta_ms = nan"),
        ("model,alpha_ms,beta_ms,slo_ms\nx,1,2,1e300\n", "x slo_ms"),
        ("model,alpha_ms,beta_ms,slo_ms\nx,1,2,2.5\n", "below the time of one query"),
    ],
)
def test_bad_profiles_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "profiles.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_profiles(path)


def test_a_missing_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        read_profiles(tmp_path / "none.csv")


def test_the_report_quotes_the_run() -> None:
    row = table2_row(PAPER[1], TINY)
    text = table_2_text(row)
    for found in row["policies"].values():
        assert f"{found['capacity_qps']:.0f}" in text
    assert "| paper: Symphony | 926 | 8 |" in text
    assert f"{row['at_papers_goodput']['satisfied_share']:.2%}" in text


def test_load_points_are_shares_of_the_capacity() -> None:
    figure = figure_2(TINY)
    for point in figure["points"]:
        assert point["offered_qps"] == pytest.approx(point["load"] * figure["capacity_qps"])
