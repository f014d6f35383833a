"""Writes who is ahead into the README, from the evaluations that are saved; none is typed in.

`python -m veltair.eval.capacity.readme`, after an evaluation, real or simulated, has been saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.bounds import README, in_readme
from veltair.eval.capacity.report.findings import Findings
from veltair.eval.capacity.report.summary import measured_on, states
from veltair.eval.capacity.report.verdicts import verdict
from veltair.eval.capacity.result import read
from veltair.eval.docs.results import evaluations
from veltair.eval.page.text import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from veltair.eval.capacity.report.findings import Spread
    from veltair.eval.capacity.report.verdicts import Side
    from veltair.eval.capacity.result import Result

BEGIN, END = "<!-- capacity -->", "<!-- end of capacity -->"


def main() -> int:
    """Writes the section again."""
    text = section(README.parent.resolve())
    README.write_text(in_readme(README.read_text(), text, BEGIN, END))
    print(text)
    return 0


def section(root: Path) -> str:
    """Writes a table of each saved evaluation in Markdown, measured ones first.

    Args:
        root: of the repository.
    """
    found = [(folder, read(root / folder)) for folder in evaluations(root)]
    found.sort(key=lambda each: each[1].simulated)
    return "\n".join(_evaluation(folder, result) for folder, result in found)


def _evaluation(folder: Path, result: Result) -> str:
    found = Findings(result)
    other = "baseline" if found.are_baselines else "peer"
    lines = [
        f"{_where(found)}, queries a second (`{folder}`):",
        "",
        f"| workload | the best of ours | queries/s | the best {other} | queries/s | ratio |",
        "|---|---|---:|---|---:|---:|",
    ]
    unsure, level = [], []
    for workload in found.workloads:
        each = verdict(found, workload)
        sides = (
            *_side(each.ours, found, workload, found.ours),
            *_side(each.rival, found, workload, found.rivals),
        )
        lines.append(f"| {' | '.join((workload, *sides, _spread(each.ratio)))} |")
        if each.undecided:
            unsure.append(f"{workload}: {each.undecided}.")
        if each.level:
            level.append(f"{workload} {', '.join(f'`{name}`' for name in each.level)}")
    if level:
        lines += ["", f"Of ours, within the spread of the best: {'; '.join(level)}."]
    if unsure:
        lines += ["", f"No winner is named for {' '.join(unsure)}"]
    return "\n".join(lines) + "\n"


def _where(found: Findings) -> str:
    if found.result.simulated:
        return "Simulated"
    return f"Measured on {measured_on(found)}"


def _side(
    side: Side | None, found: Findings, workload: str, systems: Sequence[str]
) -> tuple[str, str]:
    """A side's best and its rate; where none has one, what the searches ended in."""
    if side is None:
        return "none", states(found, workload, systems) or "-"
    return f"`{side.system}`", _spread(side.qps)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    text = number_text(spread.median)
    if spread.least == spread.most:
        return text
    return f"{text} ({number_text(spread.least)} to {number_text(spread.most)})"


if __name__ == "__main__":
    raise SystemExit(main())
