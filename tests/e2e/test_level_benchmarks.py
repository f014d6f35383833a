"""The benchmarks of the interference level run, on small things, and save what they found."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from factories import write_slow_artifact
from proxy_models import linear_model, proxy_file, term

from veltair.eval.children import python
from veltair.proxy.topology import divided, usable
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import MANIFEST_FILE, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

REPEATS = 20


def two_processors() -> bool:
    try:
        divided(usable())
    except InputError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    not two_processors(), reason="a co-runner needs a processor of its own"
)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Some 1 ms, made up to take half as long again at a level of 0.5."""
    folder = tmp_path / "slow" / "1"
    profile = write_slow_artifact(folder, repeats=REPEATS).profile
    profile = msgspec.structs.replace(
        profile,
        levels=(0.0, 0.5),
        layer_ns=tuple(
            tuple(tuple((row[0], row[0] * 3 // 2) for row in variant) for variant in layer)
            for layer in profile.layer_ns
        ),
        model_ns=tuple((row[0], row[0] * 3 // 2) for row in profile.model_ns),
    )
    manifest = msgspec.structs.replace(read_manifest(folder), profile=profile)
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
    return folder


def run(module: str, *options: str, file: Path) -> dict[str, Any]:
    command = python(f"veltair.eval.{module}", *options, "--json", str(file))
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found: dict[str, Any] = json.loads(file.read_text())
    assert module in found["command"]
    return found


def test_level(artifact: Path, tmp_path: Path) -> None:
    short = ["--rounds", "2", "--window-s", "0.2", "--changes", "4", "--period-s", "0.3"]
    options = [str(artifact), "--wide", "0", "--levels", "0", *short]
    found = run("bench_level", *options, file=tmp_path / "l.json")
    block = found["block"]
    assert 0 < block["without_ns"]["p50"] < block["bound_ns"]
    assert block["more_ns"]["p50"] < block["bound_ns"]
    assert block["look_ns"]["p50"] > 0
    assert 0 <= found["idle_share"] < 1
    (throughput,) = found["throughput"]
    assert throughput["model"] == "slow"
    assert throughput["levels"] == [0.0, 0.5]
    assert throughput["servers"] == 1
    assert 0.5 < throughput["ratio"]["p50"] < 2
    (follow,) = found["follow"]
    assert follow["source"] == "self"
    assert follow["known"] > 0.5
    assert 0 < follow["confidence"]["p90"] <= 1
    assert follow["beside"]["p50"] >= 0


def test_level_by_another_source(artifact: Path, tmp_path: Path) -> None:
    step = term("probe_step", mean=100, scale=100, low=0, high=1000)
    proxy_file(linear_model(step, sources=("probe",))).write(tmp_path / "proxy.json")
    short = ["--rounds", "2", "--window-s", "0.2", "--changes", "4", "--period-s", "0.3"]
    options = [str(artifact), "--wide", "0", "--levels", "0", *short]
    proxy = ("--proxy", str(tmp_path / "proxy.json"))
    found = run("bench_level", *options, *proxy, file=tmp_path / "l.json")
    (throughput,) = found["throughput"]
    assert throughput["servers"] == 2  # its thread can't be paused
    assert 0.5 < throughput["ratio"]["p50"] < 2
    assert found["follow"][0]["source"] == "probe"


def test_versions(artifact: Path, tmp_path: Path) -> None:
    short = ["--rounds", "2", "--run-s", "1", "--period-s", "0.3", "--levels", "0"]
    options = [str(artifact), "--wide", "0", "--load", "0.2", "--co-runner", "evictors", *short]
    found = run("bench_versions", *options, file=tmp_path / "v.json")
    row = found["models"]["slow"]
    assert set(row["satisfied"]) == {"one version", "by the level"}
    assert all(0 <= share <= 1 for share in row["satisfied"].values())
    assert all(times["p50"] > 0 for times in row["mean_ms"].values())
    assert found["source"] == "self"
    assert found["co_runner"] == "evictors"
    assert 0 <= found["level_unknown"] <= 1
    assert found["target_ms"]["slow"] > 0
