"""Commands that texts name between backticks exist, with the options that they are given."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from veltair.runtime.cli import COMMANDS, load_command

ROOT = Path(__file__).parents[3]
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(ROOT / name for name in ("proxy/README.md", "tuning_logs/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def named(text: Path) -> list[list[str]]:
    """The words of each command that a text names."""
    prose = re.sub(r"^```.*?^```$", "", text.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = [" ".join(code.split()) for code in CODE.findall(prose)]
    return [
        shlex.split(code) for code in found if code.startswith(("veltair ", "make ", "python -m"))
    ]


def options(command: str) -> set[str]:
    loaded: Any = load_command(command)
    parameters = loaded.get_params(typer.Context(loaded, info_name=command))
    return {option for each in parameters for option in (*each.opts, *each.secondary_opts)}


def check(words: list[str]) -> None:
    match words:
        case ["make", target, *_]:
            assert target in TARGETS, words
        case ["python", "-m", module, *_]:
            assert find_spec(module) is not None, words
        case ["veltair", name, *rest] if name.islower() and not name.startswith("-"):
            assert name in COMMANDS, words
            given = {word.partition("=")[0] for word in rest if word.startswith("-")}
            assert given <= options(name), words


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.relative_to(ROOT).as_posix())
def test_commands_in_texts_exist(text: Path) -> None:
    for words in named(text):
        check(words)


def test_commands_are_found() -> None:
    assert ["veltair", "profile", "DIR", "--levels", "N"] in named(ROOT / "proxy/README.md")
    assert len([words for text in TEXTS for words in named(text)]) > 60


@pytest.mark.parametrize(
    "command", ["make nothing", "python -m veltair.nothing", "veltair fly", "veltair run --fly"]
)
def test_a_command_that_is_not_there_is_found_out(command: str) -> None:
    with pytest.raises(AssertionError):
        check(command.split())
