"""What the README names exists; its commands are run with those of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_figures_and_folders_exist() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"`(\w+)/`", text)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
