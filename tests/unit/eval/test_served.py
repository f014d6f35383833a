"""A server that the evaluation starts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from veltair.eval import served
from veltair.runtime.errors import VeltairError


def test_a_server_that_has_ended_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a process that it started still has its output open."""
    monkeypatch.setattr(served, "python", lambda *_: ["sh", "-c", "echo gone; sleep 25 & exit 3"])
    begun_s = time.monotonic()
    with (
        pytest.raises(VeltairError, match=r"ended with code 3; its lines are in .*log\.txt"),
        served.served(tmp_path, workers=1, log=tmp_path / "log.txt"),
    ):
        pass
    assert time.monotonic() - begun_s < 20
