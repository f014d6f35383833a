"""Temporary folders: there while their owner lives, removed by the next one where it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from veltair.runtime.scratch import remove_stale, scratch

OWNER = """
import sys
from veltair.runtime.scratch import scratch

with scratch("objects") as folder:
    (folder / "sub").mkdir()
    (folder / "sub" / "0.o").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def owner() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_lasts_as_long_as_its_block(place: Path) -> None:
    with scratch("clean") as folder, scratch("search") as other:
        assert folder != other
        assert folder.parent == other.parent == place
        assert folder.name.startswith("veltair-clean-")
        remove_stale()
        assert folder.is_dir()
        assert other.is_dir()
    assert list(place.iterdir()) == []


def test_a_killed_owners_folder_goes_and_a_live_ones_stays() -> None:
    killed, gone = owner()
    alive, kept = owner()
    with killed, alive:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (gone / "sub" / "0.o").exists()
        with scratch("search"):
            assert not gone.exists()
            assert (kept / "sub" / "0.o").exists()
        alive.communicate("")
    assert alive.returncode == 0
    assert not kept.exists()


def test_what_is_no_folder_of_ours_stays(place: Path) -> None:
    begun = place / "veltair-search-begun"  # its owner is about to lock it
    begun.mkdir()
    (begun / "lock.new").touch()
    others = place / "elsewhere"
    others.mkdir()
    (others / "lock").touch()
    (place / "veltair-search-link").symlink_to(others)
    remove_stale()
    assert (begun / "lock.new").exists()
    assert (others / "lock").exists()


def test_many_at_once_never_take_each_others_folder(place: Path) -> None:
    failures: list[str] = []

    def work() -> None:
        for i in range(40):
            try:
                with scratch("objects") as folder:
                    (folder / "file").write_text(str(i))
                    os.sched_yield()
                    if (folder / "file").read_text() != str(i):
                        failures.append("another's file")
            except OSError as error:
                failures.append(str(error))

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert list(place.iterdir()) == []
