"""A profile that was measured beside others is doubted; one of a quiet machine isn't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e.test_compile_command import tiny
from typer.testing import CliRunner

from veltair.compiler import pipeline
from veltair.compiler.profile import doubt
from veltair.runtime.cli import app
from veltair.runtime.disturbance import Disturbance


@pytest.mark.parametrize(
    ("others", "steal", "processor_s", "part"),
    [
        (0.0, 0.0, 10.0, ""),
        (0.02, 0.005, 10.0, ""),  # what a quiet system does
        (0.5, 0.0, 0.1, ""),  # one tick of the kernel's clock, perhaps
        (0.5, 0.0, 10.0, "other processes had 50% of its processors"),
        (0.04, 0.0, 10.0, "other processes had 4%"),
        (0.01, 0.3, 10.0, "the host of this virtual machine had 31%"),
    ],
)
def test_what_is_doubted(others: float, steal: float, processor_s: float, part: str) -> None:
    said = doubt(Disturbance(driver=0.5, others=others, steal=steal), processor_s)
    assert part in said
    assert bool(said) is bool(part)


@pytest.mark.parametrize("others", [0.0, 0.9])
def test_compile_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: float) -> None:
    class Watch:
        def seen(self) -> Disturbance:
            return Disturbance(driver=0.1, others=others, steal=0.0)

    monkeypatch.setattr(pipeline, "Watch", Watch)
    monkeypatch.setattr(pipeline, "doubt", lambda seen, _: doubt(seen, 10.0))
    model = tiny(tmp_path / "net.onnx")
    arguments = ["compile", model, "-o", tmp_path / "repo", "--shape", "x=1,3,8,8"]
    result: Any = CliRunner().invoke(app, [str(word) for word in arguments])
    assert result.exit_code == 0, result.output
    warned = "veltair: warning: the profile was measured on a busy machine" in result.stderr
    assert warned is (others > 0)
