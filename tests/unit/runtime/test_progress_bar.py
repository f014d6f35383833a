"""What a command shows while it works, on consoles with room for all of it and with less."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from veltair.runtime.progress_bar import Bar

WHAT = "[1/2] gather_w1024_r1_p1: 0.000 ms on 1, 0.000 ms on 2, 0.000 ms on 3"


def drawn(width: int) -> str:
    """The last line of a stage of which one of 590 steps is done."""
    out = io.StringIO()
    with Bar(Console(file=out, width=width)) as bar:
        bar.stage("searching", 590)
        bar.step(WHAT)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines[-1].rstrip()


@pytest.mark.parametrize("width", [60, 80])
def test_what_is_done_gives_way_to_the_time_and_the_count(width: int) -> None:
    line = drawn(width)
    assert line.startswith("searching")
    assert "1/590 0:00:0" in line
    assert "[1/2] gath" in line
    assert line.endswith("…")


def test_what_is_done_is_shown_whole_where_there_is_room() -> None:
    assert drawn(200).endswith(WHAT)
