"""The revision that a result is saved with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from veltair.eval import record
from veltair.eval.record import SIMULATING, revision

_WHO = ("-c", "user.name=test", "-c", "user.email=test@example.org")


def git(root: Path, *arguments: str) -> str:
    command = ["git", *_WHO, *arguments]
    return subprocess.run(
        command, cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def write(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{path.read_text() if path.exists() else ''}.\n")


def commit(root: Path, name: str) -> str:
    write(root, name)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", name)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree of one commit, of which the results' revision is told."""
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, "eval/code.py")
    monkeypatch.setattr(record, "_SOURCE", tmp_path / "eval")
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *("eval/results/a.json", "README.md", "docs/a.md", "tests/a.py"),
        *("eval/page/text.py", "eval/docs/site.py"),
        *("eval/capacity/report/page.py", "eval/capacity/readme.py"),
        *("eval/capacity/simulated.py", "eval/capacity/simulated_study.py"),
    ],
)
def test_what_is_not_measured_makes_no_other_revision(source: Path, name: str) -> None:
    before = revision()
    write(source, name)
    assert revision() == before
    assert commit(source, name) != before
    assert revision() == before
    write(source, name)
    assert revision() == before


@pytest.mark.parametrize(
    "name", ["eval/code.py", "runtime/new.py", "eval/workloads/a.toml", "eval/capacity/search.py"]
)
def test_what_is_measured_makes_another_revision(source: Path, name: str) -> None:
    before = revision()
    write(source, name)
    assert revision() == f"{before}+changes"
    assert revision() != (after := commit(source, name))
    assert revision() == after


def test_the_simulated_evaluation_counts_for_its_own_results(source: Path) -> None:
    before = revision()
    write(source, "eval/capacity/simulated_study.py")
    assert revision(uses=SIMULATING) == f"{before}+changes"
    after = commit(source, "eval/capacity/simulated.py")
    assert (revision(), revision(uses=SIMULATING)) == (before, after)
    commit(source, "eval/results/a.json")
    assert revision(uses=SIMULATING) == after


def test_without_a_repository_it_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_SOURCE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert revision() == "unknown"
