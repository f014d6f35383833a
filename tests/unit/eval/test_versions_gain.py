"""Which layers gain from a second version: by hand, as measured, and as the model has it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from factories import disturbed_profile, machine_table, write_tiny_artifact
from typer import Typer
from typer.testing import CliRunner

from veltair.eval.disturbed_layers import disturbed, disturbed_report
from veltair.eval.versions_gain import command, gains, largest, measured_gains, modelled_gains
from veltair.proxy.machine_file import parse_machine
from veltair.runtime.manifest import Manifest, Variant
from veltair.runtime.simulate.machine_profiles import Modelled

# Two versions on 1 and 2 cores at 3 levels.
TIMES = np.array([[[10, 20, 30], [8, 9, 12]], [[12, 12, 15], [6, 9, 12]]], dtype=np.float64)


def test_a_gain_is_over_the_version_that_is_fastest_alone_on_as_many_cores() -> None:
    # On one core the first is, and takes 20 and 30 where the second takes 12 and 15.
    assert gains(TIMES) == pytest.approx(np.array([[0, 20 / 12 - 1, 1], [0, 0, 0]]))
    best = largest(TIMES, (1, 2), (0.0, 0.5, 1.0))
    assert (best.gain, best.cores, best.level) == (1.0, 1, 1.0)
    assert (best.alone, best.beside) == (0, 1)


def test_one_version_gains_nothing() -> None:
    assert gains(TIMES[:1]).max() == 0


def test_gains_that_were_measured(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "1", profile=disturbed_profile())
    (found,) = measured_gains(manifest) or []
    # On one core: 110 us of the first at the highest level, 70 of the second.
    assert found["gain"] == pytest.approx(110 / 70 - 1)
    assert (found["layer"], found["cores"], found["level"]) == (0, 1, 0.9)
    assert (found["alone"], found["beside"]) == ("matmul_rows", "matmul_columns")
    assert measured_gains(write_tiny_artifact(tmp_path / "2")) is None  # one level


def two_tilings(manifest: Manifest) -> Manifest:
    """The product by large tiles that compute fast, or by small ones that don't."""
    product, scores = manifest.layers
    large, small = (
        msgspec.structs.replace(variant, tile_bytes=size, algorithm=algorithm)
        for variant, size, algorithm in zip(
            product.variants, (3 << 20, 1 << 18), ("large", "small"), strict=True
        )
    )
    big = tuple(_enlarged(variant) for variant in (large, small))
    return msgspec.structs.replace(
        manifest, layers=(msgspec.structs.replace(product, variants=big), scores)
    )


def _enlarged(variant: Variant) -> Variant:
    """The same, reading weights of 3 MiB."""
    shape = (3 << 18,)
    weights = msgspec.structs.replace(variant.arguments[1], shape=shape, strides=(1,))
    return msgspec.structs.replace(
        variant, arguments=(variant.arguments[0], weights, variant.arguments[2])
    )


def test_a_version_of_small_tiles_gains_where_the_cache_is_taken(tmp_path: Path) -> None:
    manifest = two_tilings(write_tiny_artifact(tmp_path / "1"))
    shares = {"large": 0.05, "small": 0.04, "default": 0.5}
    machine = parse_machine(machine_table())
    (found,) = modelled_gains(manifest, machine, Modelled(machine=machine, shares=shares))
    assert found["alone"] == "matmul_rows"
    assert found["beside"] == "matmul_columns"
    assert found["level"] == 3.0
    assert found["bandwidth"] == 1.0
    # A cache that holds all of it, whatever is taken, has no such layer but at low bandwidth.
    roomy = machine.changed("memory.core_gbps", 39.9).changed("memory.complex_gbps", 1e5)
    roomy = roomy.changed("memory.total_gbps", 1e5).changed("caches.l3_mib", 1000.0)
    rows = modelled_gains(manifest, roomy, Modelled(machine=roomy, shares=shares))
    assert all(row["bandwidth"] < 1 for row in rows)


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "tiny" / "1")
    write_tiny_artifact(tmp_path / "levels" / "1", profile=disturbed_profile())
    app = Typer()
    app.command()(command)
    out = tmp_path / "out"
    arguments = [str(tmp_path / "tiny"), "--levels", str(tmp_path / "levels"), "--out", str(out)]
    arguments += ["--measured-on", "amd_epyc_vm"]
    refused = CliRunner().invoke(app, arguments)
    assert "no such folder" in str(refused.exception)
    out.mkdir()
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    saved = json.loads((out / "versions_gain.json").read_text())
    (tiny,) = saved["models"]
    assert tiny["several_versions"] == 1
    assert len(tiny["measured"]) == 1
    assert set(tiny["modelled"]) == set(saved["machines"]) >= {"threadripper_3990x"}
    page = (out / "versions_gain.md").read_text()
    assert "| tiny | 2 | 1 | bubbles | 0.00, 0.40, 0.90 | 1 | 57% |" in page
    # A whole run takes 122 us instead of 60; the layers with one version 121 instead of 81.
    assert "Evictors stand in" not in page
    assert "| tiny | 1 | 103.3% | 0.00% | 49.38% | 0.00% |" in page
    assert "120% | `matmul_rows` 50, 60, 110<br>`matmul_columns` 60, 65, 70 |" in page
    (first, second) = tiny["disturbed_layers"]["layers"]
    assert (first["number"], second["number"]) == (1, 2)


def test_a_profile_alone_tells_nothing_of_levels(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    assert disturbed(manifest, None) is None
    assert disturbed_report([{"model": "tiny", "disturbed_layers": None}]) == []
