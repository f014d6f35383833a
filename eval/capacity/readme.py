"""Writes who is ahead into the README, from the evaluations that are saved; none is typed in.

`python -m veltair.eval.capacity.readme`, after an evaluation, real or simulated, has been saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.bounds import README, in_readme
from veltair.eval.capacity.report.findings import Findings
from veltair.eval.capacity.report.summary import processors, states
from veltair.eval.capacity.report.verdicts import verdict
from veltair.eval.capacity.result import read
from veltair.eval.capacity.workloads import WORKLOADS
from veltair.eval.docs.results import evaluations
from veltair.eval.page.text import number_text, revision_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from veltair.eval.capacity.report.findings import Spread
    from veltair.eval.capacity.report.verdicts import Side, Verdict

BEGIN, END = "<!-- capacity -->", "<!-- end of capacity -->"


def main() -> int:
    """Writes the section again."""
    text = section(README.parent.resolve())
    README.write_text(in_readme(README.read_text(), text, BEGIN, END))
    print(text)
    return 0


def section(root: Path) -> str:
    """Writes a table of what was measured and one of what was simulated, in Markdown.

    Args:
        root: of the repository.
    """
    found = [(folder.name, Findings(read(root / folder))) for folder in evaluations(root)]
    measured = [each for each in found if not each[1].result.simulated]
    simulated = [each for each in found if each[1].result.simulated]
    return "\n".join(
        [
            *_table("Measured, queries a second:", measured),
            *_table("Simulated, queries a second:", simulated),
        ]
    )


def _table(title: str, evaluations: Sequence[tuple[str, Findings]]) -> Iterator[str]:
    """A row for each workload of each evaluation, and what is to be said of some of them."""
    if not evaluations:
        return
    other = "baseline" if all(found.are_baselines for _, found in evaluations) else "peer"
    heads = (
        *("workload", "the best of ours", "queries/s", f"the best {other}", "queries/s"),
        *("ratio", "where"),
    )
    yield from (title, "", f"| {' | '.join(heads)} |", "|---|---|---:|---|---:|---:|---|")
    verdicts = [
        (name, found, verdict(found, workload))
        for name, found in evaluations
        for workload in found.workloads
    ]
    verdicts.sort(key=lambda each: _place(each[2].workload))
    for name, found, each in verdicts:
        yield _row(name, found, each)
    level = [
        f"{each.workload} in `{name}` {', '.join(f'`{policy}`' for policy in each.level)}"
        for name, _, each in verdicts
        if each.level
    ]
    if level:
        yield from ("", f"Of ours, within the spread of the best: {'; '.join(level)}.")
    unsure = [
        f"{each.workload} in `{name}`: {each.undecided}"
        for name, _, each in verdicts
        if each.undecided
    ]
    if unsure:
        yield from ("", f"No winner is named for {'; '.join(unsure)}.")
    yield ""


def _place(workload: str) -> int:
    """Where it stands among the rows: the paper's in its order, others after them."""
    named = WORKLOADS.split(",")
    return named.index(workload) if workload in named else len(named)


def _row(name: str, found: Findings, each: Verdict) -> str:
    cells = (
        each.workload,
        *_side(each.ours, found, each.workload, found.ours),
        *_side(each.rival, found, each.workload, found.rivals),
        _spread(each.ratio),
        _where(name, found),
    )
    return f"| {' | '.join(cells)} |"


def _where(name: str, found: Findings) -> str:
    """The evaluation, with the machine and the revision that it was measured with."""
    revision = revision_text(str(found.result.origin.get("revision") or ""))
    return ", ".join(part for part in (f"`{name}`", *processors(found), revision) if part)


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
