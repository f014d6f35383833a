"""`--batch`: an artifact that runs several samples at once, over the same weights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from e2e.test_compile_command import tiny

from veltair.compiler.search.log import Record, read_log
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import WEIGHTS_FILE, Manifest, read_manifest
from veltair.runtime.model import Model

CLI = (sys.executable, "-m", "veltair.runtime.cli")


def veltair(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*CLI, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same network compiled for one sample as `one`, and for several as `several`."""
    folder = tmp_path_factory.mktemp("batches")
    model = tiny(folder / "net.onnx", channels=32)
    for name, more in (("one", ()), ("several", ("--batch", "4,1,2"))):
        shape = ("--shape", "x=1,3,8,8")
        done = veltair("compile", model, "-o", folder / "repo", "--name", name, *shape, *more)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("batch ")]
        assert [line.split(":")[0] for line in lines] == ["batch 2", "batch 4"][: 2 * len(more)]
    return folder / "repo"


def test_a_batch_is_its_samples(repository: Path) -> None:
    one = Model.load(repository / "several")
    assert one.manifest.inputs[0].shape == (1, 3, 8, 8)
    rng = np.random.default_rng(1)
    for size in (2, 4):
        batch = Model.load(repository / "several", batch=size)
        x = rng.standard_normal((size, 3, 8, 8)).astype(np.float32)
        together = batch.run({"x": x})["y"]
        alone = [one.run({"x": sample[np.newaxis]})["y"] for sample in x]
        np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-5, atol=1e-5)


def test_batches_share_the_weights(repository: Path) -> None:
    sizes = [(repository / n / "1" / WEIGHTS_FILE).stat().st_size for n in ("one", "several")]
    assert sizes[0] == sizes[1]


def test_manifest_tells_each_batch(repository: Path) -> None:
    manifest = read_manifest(repository / "several" / "1")
    assert manifest.sizes == (1, 2, 4)
    for size in manifest.sizes:
        part = manifest.at(size)
        assert part.outputs[0].shape == (size, 32, 8, 8)
        assert part.sizes == (1,)
        assert part.profile.model_ns != ((1,),)
        assert manifest.having(size, part) == manifest
    assert b'"batches"' not in (repository / "one" / "1" / "manifest.json").read_bytes()
    with pytest.raises(InputError, match=r"no batch of 3; it is compiled for batches of 1, 2, 4"):
        manifest.at(3)


def test_run_and_inspect_take_a_batch(repository: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((4, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    ends = ("-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    done = veltair("run", repository / "several", *ends, "--batch", "4")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["y"].shape == (4, 32, 8, 8)
    refused = veltair("run", repository / "one", *ends, "--batch", "4")
    assert refused.returncode == 2
    assert "compile it with --batch 4" in refused.stderr
    shown = veltair("inspect", repository / "several", "--batch", "2")
    assert "input x: float32[2, 3, 8, 8]" in shown.stdout
    assert "batch 4: a sample takes" in shown.stdout


def test_profile_measures_every_batch_again(repository: Path) -> None:
    folder = repository / "several" / "1"
    before = read_manifest(folder)
    done = veltair("profile", folder)
    assert done.returncode == 0, done.stderr
    after = read_manifest(folder)
    assert after.sizes == before.sizes
    for size in after.sizes:
        assert after.at(size).layers == before.at(size).layers
        assert after.at(size).profile != before.at(size).profile


def tune_and_compile(tmp_path: Path, *batch: str) -> tuple[list[Record], Manifest]:
    """The log of a search, and the manifest of a compile with a batch of two by that log."""
    model, log = tiny(tmp_path / "net.onnx", channels=64), tmp_path / "net.jsonl"
    given = ("--shape", "x=1,3,8,8", "--log", log, "--no-shipped-logs")
    done = veltair("tune", model, *given, "--layers", "*conv*", "--trials", 3, *batch)
    assert done.returncode == 0, done.stderr
    compiled = veltair("compile", model, "-o", tmp_path / "repo", *given, "--batch", "2")
    assert compiled.returncode == 0, compiled.stderr
    records = list(read_log(log, str(available_isa())))
    return records, read_manifest(tmp_path / "repo" / "net" / "1")


def conv_ids(manifest: Manifest, size: int) -> set[str]:
    layers = manifest.at(size).layers
    return {v.id for layer in layers if "conv" in layer.op for v in layer.variants}


def test_tuning_a_batch_searches_its_layers_too(tmp_path: Path) -> None:
    records, manifest = tune_and_compile(tmp_path, "--batch", "2")
    assert len({record.key for record in records}) == 2
    for size in (1, 2):
        assert conv_ids(manifest, size) <= {record.id for record in records}


def test_a_batch_without_samples_has_the_versions_of_one(tmp_path: Path) -> None:
    records, manifest = tune_and_compile(tmp_path)
    assert len({record.key for record in records}) == 1

    def tiles(size: int) -> set[str]:  # all but how many tasks there are
        return {re.sub(r"_p\d+", "", name) for name in conv_ids(manifest, size)}

    assert tiles(2)
    assert tiles(2) == tiles(1)


@pytest.mark.parametrize("text", ["0", "-2", "a", "1,,2", "4000", "", "2.5"])
def test_a_list_that_is_none(tmp_path: Path, text: str) -> None:
    done = veltair("compile", tmp_path / "net.onnx", "-o", tmp_path, "--batch", text)
    assert done.returncode == 2
    assert "numbers of samples from 1 to 1024" in done.stderr
