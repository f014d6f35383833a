"""`make demo` as a user runs it, and as a user interrupts it."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import demos
import pytest

if TYPE_CHECKING:
    from pathlib import Path

DEMO = ("veltair.eval.demo", "--model", "mobilenet_v2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demos run: what the first compiles is the second's."""
    return tmp_path_factory.mktemp("demo")


def test_both_engines_agree_and_everything_is_stopped(folder: Path) -> None:
    output = demos.finished(folder, *DEMO)
    rows = re.findall(r"class +(\d+) +(-?[\d.]+) +class +(\d+) +(-?[\d.]+)", output)
    assert len(rows) == 5, output
    for ours, our_score, theirs, their_score in rows:
        assert ours == theirs
        assert float(our_score) == pytest.approx(float(their_score), abs=0.01)
    assert "seeded, not trained" in output
    assert re.search(r"verdict\W+(VALID|INVALID)\b", output), output
    assert re.search(r"QoS satisfied\W+\d+\.\d+%", output), output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_every_rank(folder: Path, number: signal.Signals) -> None:
    demos.check_interrupt_at(4, number, folder, *DEMO)
