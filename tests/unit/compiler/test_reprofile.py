"""Profiles at levels of interference: measured, estimated, written, read and decided by."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from factories import disturbed_profile, write_tiny_artifact
from typer.testing import CliRunner

from veltair.compiler import reprofile as reprofiling
from veltair.compiler.profile import fewer_levels, measure_disturbed, measure_profile, slowed
from veltair.compiler.progress import Silent
from veltair.compiler.reprofile import profiled, reprofile
from veltair.compiler.table import levels_text
from veltair.proxy.co_runners import BUBBLES, CoRunner
from veltair.proxy.levels import Calibration, Curve
from veltair.proxy.topology import divided
from veltair.runtime._native import sched
from veltair.runtime.cli import app
from veltair.runtime.errors import ArtifactError, VeltairError
from veltair.runtime.manifest import (
    LONGEST_NS,
    MANIFEST_FILE,
    Manifest,
    read_manifest,
)
from veltair.runtime.model import Model
from veltair.runtime.policy_profile import to_profile

CPUS = sorted(os.sched_getaffinity(0))
MB = 1 << 20

two_processors = pytest.mark.skipif(len(CPUS) < 2, reason="a bubble needs a processor of its own")


def calibration(
    kind: CoRunner = BUBBLES, rates: tuple[int, ...] = (0, 100 * MB, 300 * MB)
) -> Calibration:
    """Three levels as a calibration might have found them."""
    curve = Curve(rates=rates, slowdowns=(0.0, 0.25, 1.5), noise=0.01)
    return Calibration(
        kind=kind,
        footprint_bytes=4 * MB if kind == BUBBLES else 0,
        reference_bytes=8 * MB,
        curve=curve,
        highest=1.5,
        sides=divided(CPUS),
    )


@two_processors
def test_every_variant_has_every_level_on_every_core_count(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    model = Model.load(tmp_path / "1")
    found = measure_disturbed(model, manifest, Silent(), calibration()).profile
    assert found.levels == (0.0, 0.25, 1.5)
    assert found.cores == tuple(range(1, len(CPUS) + 1))
    made = found.interference
    assert made is not None
    assert made.bytes_per_s == (0, 100 * MB, 300 * MB)
    assert made.measured_cores == len(divided(CPUS).quiet) < len(CPUS)
    assert (made.footprint_bytes, made.reference_bytes) == (4 * MB, 8 * MB)
    tables = [table for layer in found.layer_ns for table in layer]
    assert len(tables) == 3  # two variants and one
    for table in (*tables, found.model_ns):
        assert [len(row) for row in table] == [3] * len(CPUS)
        most = table[made.measured_cores - 1]
        for row in table[made.measured_cores :]:
            assert row == slowed(row[0], most)
    # What was measured is a profile that can be written and read.
    changed = msgspec.structs.replace(manifest, profile=found)
    (tmp_path / "1" / MANIFEST_FILE).write_bytes(changed.to_json())
    assert read_manifest(tmp_path / "1") == changed


@two_processors
def test_evictors_have_shares_instead_of_rates(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    model = Model.load(tmp_path / "1")
    made = calibration("evictors", (0, 250_000, 1_000_000))
    found = measure_disturbed(model, manifest, Silent(), made).profile
    interference = found.interference
    assert interference is not None
    assert interference.evicted_share == (0.0, 0.25, 1.0)
    assert interference.bytes_per_s == ()
    changed = msgspec.structs.replace(manifest, profile=found)
    (tmp_path / "1" / MANIFEST_FILE).write_bytes(changed.to_json())
    assert read_manifest(tmp_path / "1") == changed
    assert "evictors of 25% of the weights" in levels_text(changed)[1]


@two_processors
def test_bubbles_run_at_the_rate_of_the_level_that_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    model = Model.load(tmp_path / "1")
    now = {"rate": 0}
    seen: list[tuple[int, int]] = []

    class Watched:
        def __init__(self, _cpus: object, _bytes: int) -> None:
            pass

        def __enter__(self) -> Watched:
            return self

        def __exit__(self, *_: object) -> None:
            assert now["rate"] == 0

        def set_rate(self, rate: int) -> None:
            now["rate"] = rate

    def time_layers(self: Model, inputs: Any, cores: Any, *rest: Any) -> Any:  # noqa: ANN401
        seen.append((len(cores), now["rate"]))
        return original(self, inputs, cores, *rest)

    original = Model.time_layers
    monkeypatch.setattr(Model, "time_layers", time_layers)
    monkeypatch.setattr("veltair.proxy.levels.Bubbles", Watched)
    measure_disturbed(model, manifest, Silent(), calibration())
    quiet = len(divided(CPUS).quiet)
    for count in range(1, len(CPUS) + 1):
        rates = [rate for cores, rate in seen if cores == count]
        assert set(rates) == ({0, 100 * MB, 300 * MB} if count <= quiet else {0})
    # In turns: not one level after the other.
    first = [rate for cores, rate in seen if cores == 1]
    assert first != sorted(first)


@pytest.mark.parametrize("fastest_first", [False, True])
def test_the_fastest_variant_comes_first_where_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fastest_first: bool
) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    runs: list[list[int]] = []

    def time_layers(
        self: Model, _inputs: object, _cores: object, rounds: int, variants: list[int]
    ) -> np.ndarray:  # the product's second variant is the faster one
        return np.tile([100 - 10 * variants[0], 50], (rounds, 1))

    def time_run(
        self: Model, _cores: object, rounds: int, variants: list[int] | None = None
    ) -> np.ndarray:
        runs.append(list(variants or ()))
        return np.full(rounds, 160)

    monkeypatch.setattr(Model, "time_layers", time_layers)
    monkeypatch.setattr(Model, "time_run", time_run)
    model = Model.load(tmp_path / "1")
    found = measure_profile(model, manifest, Silent(), fastest_first=fastest_first)
    first, second = manifest.layers[0].variants
    assert found.layers[0].variants == ((second, first) if fastest_first else (first, second))
    assert found.layers[1] == manifest.layers[1]
    times = [table[0][0] for table in found.profile.layer_ns[0]]
    assert times == ([90, 100] if fastest_first else [100, 90])
    assert runs[-1] == [int(fastest_first), 0]  # what a whole run was of


def test_what_slows_down_as_something_else_does() -> None:
    assert slowed(100, (10, 12, 30)) == (100, 120, 300)
    assert slowed(1, (1000, 1, 2)) == (1, 1, 1)
    assert slowed(LONGEST_NS, (1, 2)) == (LONGEST_NS, LONGEST_NS)


def test_a_profile_alone_is_written_as_before(tmp_path: Path) -> None:
    """So that what was compiled before, and what has one level, load everywhere."""
    written = write_tiny_artifact(tmp_path / "1")
    fields = json.loads((tmp_path / "1" / MANIFEST_FILE).read_text())["profile"]
    assert set(fields) == {"machine", "cores", "levels", "layer_ns", "model_ns"}
    assert read_manifest(tmp_path / "1") == written
    assert written.profile.interference is None


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"bytes_per_s": (0,)}, "bytes_per_s has 1 entries for 3 levels"),
        ({"bytes_per_s": (0, 5, 5)}, "they ascend from 0"),
        ({"bytes_per_s": (1, 5, 6)}, "they ascend from 0"),
        ({"bytes_per_s": (), "evicted_share": (0.0, 0.5)}, "evicted_share has 2 entries"),
        ({"bytes_per_s": (), "evicted_share": (0.0, 0.5, 1.5)}, "to 1 at most"),
        ({"evicted_share": (0.0, 0.5, 1.0)}, "has bytes_per_s of bubbles, and evicted_share"),
        ({"bytes_per_s": ()}, "bytes_per_s has 0 entries for 3 levels"),
        ({"measured_cores": 7}, "measured_cores = 7: one of [1, 2]"),
    ],
)
def test_damaged_interference_is_refused(tmp_path: Path, change: dict[str, Any], part: str) -> None:
    profile = disturbed_profile()
    assert profile.interference is not None
    made = msgspec.structs.replace(profile.interference, **change)
    damaged = msgspec.structs.replace(profile, interference=made)
    write_tiny_artifact(tmp_path / "1", profile=damaged)
    with pytest.raises(ArtifactError) as caught:
        read_manifest(tmp_path / "1")
    assert part in str(caught.value)


def test_policies_see_the_levels(tmp_path: Path) -> None:
    """The product's first variant is fastest alone, its second one under interference."""
    manifest = write_tiny_artifact(tmp_path / "1", profile=disturbed_profile())
    profile = to_profile(manifest)
    assert profile.levels == 3
    plan = sched.ModelPlan(profile, 2)
    assert [plan.variant(0, cores, level) for cores in (1, 2) for level in range(3)] == [
        *(0, 0, 1),
        *(0, 0, 1),
    ]
    assert plan.time_ns(0, 2, 1, 0) < plan.time_ns(0, 2, 1, 1) < plan.time_ns(0, 2, 1, 2)
    expected = []
    for level in range(3):
        models = [profile]
        state = sched.State(
            models=models,
            tasks=[sched.Task(model=0)],
            queue=[0],
            workers=[sched.Running()],
            total_cores=2,
            free_cores=2,
            level=level,
        )
        policy = sched.make_policy("veltair", 2, models)
        decision = policy.decide(state, sched.EventKind.WORKER_IDLE, 0, 0)
        assert decision.level == level
        expected.append(decision.expected_ns)
    assert expected == sorted(expected)
    assert expected[0] < expected[2]


def test_the_profile_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    before = write_tiny_artifact(tmp_path / "tiny" / "1")
    result = reprofile(tmp_path / "tiny", Silent())
    after = read_manifest(tmp_path / "tiny" / "1")
    assert after == result.manifest
    assert after.profile.machine["cores"] == len(CPUS)
    assert msgspec.structs.replace(after, profile=before.profile) == before
    assert {path.name for path in (tmp_path / "tiny" / "1").iterdir()} == {
        "manifest.json",
        "weights.bin",
        "kernels.so",
    }


def test_one_that_only_looks_changes_nothing(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "1")
    before = (tmp_path / "1" / MANIFEST_FILE).read_bytes()
    assert profiled(tmp_path / "1", Silent()).machine["cores"] == len(CPUS)
    assert (tmp_path / "1" / MANIFEST_FILE).read_bytes() == before


def test_an_interrupt_leaves_the_old_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_artifact(tmp_path / "1")
    before = (tmp_path / "1" / MANIFEST_FILE).read_bytes()

    def interrupted(*_: object, **__: object) -> Manifest:
        raise KeyboardInterrupt

    monkeypatch.setattr(reprofiling, "measure_profile", interrupted)
    result = CliRunner().invoke(app, ["profile", str(tmp_path / "1")])
    assert result.exit_code == 130
    assert (tmp_path / "1" / MANIFEST_FILE).read_bytes() == before
    assert len(list((tmp_path / "1").iterdir())) == 3


def test_an_artifact_that_was_replaced_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_artifact(tmp_path / "1")
    path = tmp_path / "1" / MANIFEST_FILE

    def measured(_model: Model, manifest: Manifest, *_: object, **__: object) -> Manifest:
        path.write_bytes(msgspec.structs.replace(manifest, qos_ns=7).to_json())
        return manifest

    monkeypatch.setattr(reprofiling, "measure_profile", measured)
    with pytest.raises(VeltairError, match="meanwhile"):
        reprofile(tmp_path / "1", Silent())
    assert read_manifest(tmp_path / "1").qos_ns == 7


def test_fewer_levels_than_asked_for_are_told() -> None:
    profile = disturbed_profile()
    assert fewer_levels(profile, 3) == ""
    said = fewer_levels(profile, 5)
    assert "5 levels of interference were asked for, 3 can be told apart here" in said
    assert "slow the reference kernel by 90.0%" in said
