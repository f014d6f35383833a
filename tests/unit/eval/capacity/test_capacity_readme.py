"""The README's section of who is ahead: from the saved evaluations, and no other figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evaluations import simulated_result, whole_result

from veltair.eval.bounds import in_readme
from veltair.eval.capacity.readme import BEGIN, END, section
from veltair.eval.capacity.result import write

if TYPE_CHECKING:
    from veltair.eval.capacity.result import Result

ROOT = Path(__file__).parents[4]


def saved(root: Path, **results: Result) -> str:
    """What is written of some evaluations."""
    for name, result in results.items():
        folder = root / "eval/results" / name
        folder.mkdir(parents=True)
        write(folder, result)
    return section(root)


def test_the_best_of_each_side_are_named_with_their_rates(tmp_path: Path) -> None:
    text = saved(tmp_path, here=whole_result())
    assert "| light | `veltair` | 241 (236 to 243) | `openvino` | 101" in text
    assert "| `here`, A processor of tests with 32 MiB of L3, 4 cores, 0123456789 |" in text


def test_a_revision_with_changes_of_its_own_is_marked(tmp_path: Path) -> None:
    result = whole_result()
    changed = replace(result, origin=result.origin | {"revision": "0123456789abcdef+changes"})
    assert ", 0123456789+ |" in saved(tmp_path, here=changed)
    assert ", 0123456789 |" in saved(tmp_path / "other", here=result)


def test_workloads_are_in_the_order_of_the_paper_whichever_evaluation_has_them(
    tmp_path: Path,
) -> None:
    result = whole_result()
    light, medium = (
        replace(result, workloads=tuple(each for each in result.workloads if each.name == name))
        for name in ("light", "medium")
    )
    text = saved(tmp_path, a=medium, b=light)
    assert text.index("| light |") < text.index("| medium |")


def test_what_was_measured_comes_before_what_was_simulated(tmp_path: Path) -> None:
    text = saved(tmp_path, a=simulated_result(), b=whole_result())
    assert 0 <= text.index("Measured") < text.index("Simulated")
    assert "the best baseline" in text.partition("Simulated")[2]


def test_why_no_winner_is_named_is_said(tmp_path: Path) -> None:
    result = whole_result()
    disturbed = [
        replace(each, state="disturbed") if each.workload == "light" else each
        for each in result.capacities
    ]
    text = saved(tmp_path, here=replace(result, capacities=tuple(disturbed)))
    assert "No winner is named for light in `here`: others used the processors during" in text
    assert "in `here`: others" not in saved(tmp_path / "other", here=result)


def test_those_of_ours_within_the_spread_of_the_best_are_named(tmp_path: Path) -> None:
    result = whole_result()
    behind = [
        replace(each, qps=(100.0, 101.0, 102.0)) if each.system == "deadline" else each
        for each in result.capacities
    ]
    told = "Of ours, within the spread of the best: light in `a` `deadline`"
    assert told in saved(tmp_path, a=result)
    text = saved(tmp_path / "other", a=replace(result, capacities=tuple(behind)))
    assert "within the spread of the best: light" not in text


def test_peers_without_a_rate_are_said_to_have_none(tmp_path: Path) -> None:
    result = whole_result()
    peers = [each.name for each in result.systems if each.kind == "peer"]
    unmet = [
        replace(each, state="unmeetable", qps=())
        if each.workload == "light" and each.system in peers
        else each
        for each in result.capacities
    ]
    text = saved(tmp_path, here=replace(result, capacities=tuple(unmet)))
    told = "; ".join(f"{name} unmeetable" for name in peers)
    assert f"| light | `veltair` | 241 (236 to 243) | none | {told} | - |" in text


def test_the_readme_has_what_the_saved_files_say() -> None:
    readme = (ROOT / "README.md").read_text()
    assert in_readme(readme, section(ROOT), BEGIN, END) == readme
