"""`veltair tune`, and `veltair compile` with what it logged."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from e2e.test_compile_command import tiny

from veltair.compiler.search.log import LogWriter, Record, read_log
from veltair.compiler.search.samples import read_search
from veltair.runtime.artifact import available_isa
from veltair.runtime.manifest import read_manifest
from veltair.runtime.model import Model

CLI = (sys.executable, "-m", "veltair.runtime.cli")
SHAPE = ("--shape", "x=1,3,8,8")
ONE_LAYER = ("--layers", "*conv*")


def veltair(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*CLI, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and its log of eight trials: the frontier of the first six drawn is one sample."""
    folder = tmp_path_factory.mktemp("tuned")
    model, log = tiny(folder / "net.onnx", channels=64), folder / "net.jsonl"
    done = veltair("tune", model, *SHAPE, *ONE_LAYER, "--trials", 8, "--log", log)
    assert done.returncode == 0, done.stderr
    assert f"8 samples in {log}" in " ".join(done.stdout.split())
    return model, log


def test_what_is_logged_is_not_searched_again(tuned: tuple[Path, Path]) -> None:
    model, log = tuned
    before = log.read_bytes()
    done = veltair("tune", model, *SHAPE, *ONE_LAYER, "--trials", 8, "--log", log)
    assert done.returncode == 0, done.stderr
    assert "nothing to search" in done.stdout
    assert log.read_bytes() == before


def elsewhere(log: Path, path: Path) -> list[Record]:
    """Writes a log as another machine would have it, with every time reversed in rank."""
    isa = available_isa()
    assert isa is not None
    found = [r for r in {r.choice: r for r in read_log(log, isa)}.values() if r.ns]
    slowest = max(r.solo_ns for r in found) + 1
    renamed = [
        msgspec.structs.replace(r, machine="another", ns={64: slowest - r.solo_ns}) for r in found
    ]
    for each in renamed:
        LogWriter(path).append(each)
    return renamed


def test_another_machines_best_are_tried_first(tuned: tuple[Path, Path], tmp_path: Path) -> None:
    model, log = tuned[0], tmp_path / "net.jsonl"
    theirs = elsewhere(tuned[1], log)
    before = log.read_text()
    done = veltair("compile", model, *SHAPE, "-o", tmp_path / "repo", "--log", log)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "1 of them chose by samples of another machine (another)" in said
    done = veltair("tune", model, *SHAPE, *ONE_LAYER, "--trials", 3, "--log", log)
    assert done.returncode == 0, done.stderr
    assert log.read_text().startswith(before)
    isa = available_isa()
    assert isa is not None
    own = {r.choice: r.trial for r in read_log(log, isa) if r.machine != "another"}
    default = next(r.choice for r in theirs if r.trial == 0)
    best = sorted((r for r in theirs if r.choice != default), key=lambda r: r.solo_ns)[:2]
    assert sorted(own, key=lambda choice: own[choice]) == [default, *(r.choice for r in best)]
    done = veltair("compile", model, *SHAPE, "-o", tmp_path / "repo", "--log", log, "--force")
    assert done.returncode == 0, done.stderr
    assert "another machine" not in " ".join(done.stdout.split())
    report = read_search(tmp_path / "repo" / "net" / "1")
    assert report is not None
    assert [len(layer.samples) for layer in report.layers if layer.samples] == [3]


def test_compile_keeps_several_versions_of_a_layer(
    tuned: tuple[Path, Path], tmp_path: Path
) -> None:
    model, log = tuned
    common = (*SHAPE, "-o", tmp_path, "--log", log, "--qos-ms", "1000")
    done = veltair("compile", model, *common, "--variants", "3")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "net" / "1"
    manifest, report = read_manifest(folder), read_search(folder)
    assert report is not None
    layer = next(i for i, each in enumerate(manifest.layers) if each.op.startswith("conv"))
    variants = manifest.layers[layer].variants
    samples = report.layers[layer].samples
    chosen = {s.id for s in samples if s.is_chosen}
    assert 1 < len(variants) <= 3
    assert {v.id for v in variants} == chosen
    # The fastest, which may be on the frontier or not, and as many of the frontier as may be.
    assert len(variants) == min(3, len(chosen | {s.id for s in samples if s.is_frontier}))
    assert len({v.symbol for v in variants}) == len(variants)
    assert len(samples) == 8
    assert report.layers[layer].name == manifest.layers[layer].name
    assert sum(entry.qos_share_ns for entry in report.layers) == pytest.approx(10**9, rel=1e-6)
    sizes = [len(times) for times in manifest.profile.layer_ns]
    assert sizes == [len(each.variants) for each in manifest.layers]
    single = veltair("compile", model, *common, "--variants", "1", "--force")
    assert single.returncode == 0, single.stderr
    assert all(len(each.variants) == 1 for each in read_manifest(folder).layers)


def test_levels_remove_versions_that_are_spare_here(
    tuned: tuple[Path, Path], tmp_path: Path
) -> None:
    """Whatever this machine shows: what is kept and what was removed are what was chosen.

    Without a target a noisy log could leave one version only: none is much slower than the best.
    """
    model, log = tuned
    common = (*SHAPE, "-o", tmp_path, "--log", log, "--qos-ms", "1000", "--variants", 4)
    done = veltair("compile", model, *common, "--levels", 2)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "net" / "1"
    check_kept(folder, 4)
    done = veltair("profile", folder, "--levels", 2)
    assert done.returncode == 0, done.stderr
    check_kept(folder, 4)
    model_of = Model.load(folder)
    (output,) = model_of.run({"x": np.ones((1, 3, 8, 8), np.float32)}).values()
    assert np.isfinite(output).all()


def check_kept(folder: Path, chosen: int) -> None:
    manifest, report = read_manifest(folder), read_search(folder)
    assert report is not None
    tables = manifest.profile.layer_ns
    for layer, searched, table in zip(manifest.layers, report.layers, tables, strict=True):
        kept = [variant.id for variant in layer.variants]
        assert len(table) == len(kept)
        if searched.samples:
            assert set(kept) == {s.id for s in searched.samples if s.is_chosen}
            were = {*kept, *(version.id for version in searched.removed)}
            frontier = {s.id for s in searched.samples if s.is_frontier}
            assert 1 < len(were) <= chosen
            assert len(were) == min(chosen, len(were | frontier))


def test_compile_searches_what_the_log_lacks(tmp_path: Path) -> None:
    model, log = tiny(tmp_path / "net.onnx"), tmp_path / "net.jsonl"
    done = veltair(
        "compile", model, *SHAPE, "-o", tmp_path, "--log", log, "--trials", 2, "--qos-ms", 1000
    )
    assert done.returncode == 0, done.stderr
    assert "samples in" in " ".join(done.stdout.split())
    isa = available_isa()
    assert isa is not None
    records = read_log(log, isa)
    assert len({r.choice for r in records if r.key.startswith("conv")}) == 2
    assert {r.key.split()[0] for r in records} == {"conv3x3", "relayout"}


def test_a_qos_that_no_sample_meets_is_said(tuned: tuple[Path, Path], tmp_path: Path) -> None:
    model, log = tuned
    done = veltair("compile", model, *SHAPE, "-o", tmp_path, "--log", log, "--qos-ms", "0.000001")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "is out of reach of 1 layers even alone on all cores" in said
    report = read_search(tmp_path / "net" / "1")
    assert report is not None
    missed = next(layer for layer in report.layers if layer.samples)
    fastest = min(sample.solo_ns for sample in missed.samples)
    assert missed.missed_ns == fastest - missed.qos_share_ns > 0


def test_a_damaged_log_is_warned_of_and_kept(tuned: tuple[Path, Path], tmp_path: Path) -> None:
    model, log = tuned
    broken = tmp_path / "net.jsonl"
    lines = log.read_text().splitlines()
    misfit = json.loads(lines[1])
    misfit["choice"]["columns"] = 999
    text = "\n".join([lines[0], "{half a li", json.dumps(misfit), *lines[3:], ""])
    broken.write_text(text)
    done = veltair("compile", model, *SHAPE, "-o", tmp_path / "repo", "--log", broken)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert f"veltair: warning: {broken}:2: skipped: not a tuning record" in said
    assert "trial 1 skipped: the choice doesn't fit the layer" in said
    assert broken.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("tune", "--trials", "0"), "Invalid value for '--trials'"),
        (("compile", "-o", "repo", "--variants", "0"), "Invalid value for '--variants'"),
        (("compile", "-o", "repo", "--qos-share", "luck"), "--qos-share luck: unknown; choose"),
        (("tune", "--isa", "sparc"), "--isa sparc: unknown; choose auto"),
        (("tune", "--layers", "nothing*"), "--layers nothing*: no layer's node or operator"),
    ],
)
def test_bad_options(tuned: tuple[Path, Path], arguments: tuple[str, ...], expected: str) -> None:
    command, *options = arguments
    done = veltair(command, tuned[0], *SHAPE, *options)
    assert done.returncode == 2
    assert expected in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("command", [("tune",), ("compile", "-o", "repo")])
def test_a_model_over_memory_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    model = tiny(tmp_path / "net.onnx", channels=64)
    done = veltair(*command, model, "--shape", "x=10000000000,3,8,8")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "net.onnx: input or weight 'x' has the shape [10000000000, 3, 8, 8]: it takes" in said
    assert "give inputs a smaller --shape" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_search_keeps_what_it_measured(
    tmp_path: Path, sent: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    model, log = tiny(tmp_path / "net.onnx", channels=64), tmp_path / "net.jsonl"
    command = [*CLI, "tune", str(model), *SHAPE, *ONE_LAYER, "--trials", "1000", "--log", str(log)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for _ in itertools.count():  # until a few are logged; pytest's timeout ends it
            if log.exists() and log.read_bytes().count(b"\n") >= 3:
                break
            time.sleep(0.05)
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    isa = available_isa()
    assert isa is not None
    kept = read_log(log, isa)
    assert len(kept) >= 3
    assert log.read_bytes().count(b"\n") == len(kept)
    if sent == signal.SIGINT:
        assert process.returncode == 130, err
        assert "run again to go on" in out
        assert "Traceback" not in err
    assert bool(list(temporary.glob("veltair-*"))) is (sent == signal.SIGKILL)
    choices = len({r.choice for r in kept})
    again = veltair("tune", model, *SHAPE, *ONE_LAYER, "--trials", choices + 1, "--log", log)
    assert again.returncode == 0, again.stderr
    assert len({r.choice for r in read_log(log, isa)}) == choices + 1
    assert list(temporary.glob("veltair-*")) == []


def test_nothing_is_left_running(tmp_path: Path) -> None:
    """A killed search takes its builders and its measuring child with it."""
    model, log = tiny(tmp_path / "net.onnx", channels=64), tmp_path / "net.jsonl"
    command = [*CLI, "tune", str(model), *SHAPE, *ONE_LAYER, "--trials", "1000", "--log", str(log)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while not log.exists():
        time.sleep(0.05)
    process.kill()
    process.wait()
    for _ in range(200):
        left = [p for p in Path("/proc").glob("[0-9]*") if _session_of(p) == process.pid]
        if not left:
            return
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    pytest.fail(f"still running: {left}")


def _session_of(process: Path) -> int:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[3])
