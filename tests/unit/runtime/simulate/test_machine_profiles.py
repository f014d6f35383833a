"""Artifacts on machines that are only described: their profiles, and what scenarios may ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import disturbed_profile, machine_table, write_tiny_artifact
from typer.testing import CliRunner

from veltair.proxy.machine_file import parse_machine, to_toml
from veltair.runtime.cli import app
from veltair.runtime.errors import ConfigError
from veltair.runtime.manifest import Manifest
from veltair.runtime.simulate.machine_profiles import (
    Modelled,
    default_levels,
    on_machine,
    works_of,
)
from veltair.runtime.simulate.profiles import load_profiles
from veltair.runtime.simulate.run import simulate
from veltair.runtime.simulate.scenario import Scenario, read_scenario

MACHINE = parse_machine(machine_table())
ON = Modelled(machine=MACHINE, shares={"matmul": 0.5, "default": 0.25})
SCENARIO = """
[machine]
cores = 4
model = "mine.toml"
[policy]
scheduling = "veltair"
[[model]]
name = "tiny"
profile = "tiny"
qos_ms = 5.0
[arrivals]
rate_qps = 1000.0
queries = 300
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_artifact(tmp_path / "tiny" / "1", profile=disturbed_profile())
    (tmp_path / "mine.toml").write_text(to_toml(MACHINE, "Made up."))
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    return tmp_path


def read(folder: Path, *overrides: str) -> Scenario:
    return read_scenario(folder / "scenario.toml", overrides)


def tiny(folder: Path) -> Manifest:
    return write_tiny_artifact(folder / "other" / "1", profile=disturbed_profile())


def test_a_profile_has_the_models_times(tmp_path: Path) -> None:
    found = on_machine(tiny(tmp_path), ON, (1, 2, 4), (0.0, 3.0)).profile
    # The product: 524,288 operations by half of 16 a ns, in 8 tasks. A launch: 100 ns, 50 a core.
    assert [row[0] for row in found.layer_ns[0][0]] == [65_636, 32_918, 16_634]
    # The rest: 8,192 operations by a quarter of 16.
    assert found.layer_ns[1][0][0][0] == 2_048 + 100
    assert [row[0] for row in found.model_ns] == [
        65_636 + 2_148,
        32_918 + 1_024 + 150,
        16_634 + 512 + 250,
    ]
    assert found.levels == (0.0, 3.0)


def test_the_first_version_is_the_one_for_all_core_counts(tmp_path: Path) -> None:
    product, scores = (manifest := tiny(tmp_path)).layers
    whole, divided = product.variants  # of 8 tasks, and of 512
    variants = (msgspec.structs.replace(whole, parallel_extent=1, algorithm="fast"), divided)
    layers = (msgspec.structs.replace(product, variants=variants), scores)
    manifest = msgspec.structs.replace(manifest, layers=layers)
    on = Modelled(machine=MACHINE, shares={**ON.shares, "fast": 0.6})
    found = on_machine(manifest, on, (1, 2, 4), (0.0,))
    # The one that can't be divided is the faster on one core, and loses on 2 and 4.
    assert [each.algorithm for each in found.layers[0].variants] == ["matmul", "fast"]
    first, second = (rows[0][0] for rows in found.profile.layer_ns[0])
    assert first > second
    assert found.profile.model_ns[0][0] == first + found.profile.layer_ns[1][0][0][0]
    few = on_machine(manifest, on, (1,), (0.0,))
    assert [each.algorithm for each in few.layers[0].variants] == ["fast", "matmul"]


def test_a_variant_keeps_its_own_share_of_the_peak(tmp_path: Path) -> None:
    known = Modelled(machine=MACHINE, shares=ON.shares, measured_on=MACHINE)
    (rows, columns), (scores,) = works_of(tiny(tmp_path), known)
    # Measured 50 and 60 us on one core; 9 us of the rest.
    assert rows.share == pytest.approx(524_288 / 16 / (50_000 - 100))
    assert columns.share == pytest.approx(524_288 / 16 / (60_000 - 100))
    assert scores.share == pytest.approx(8_192 / 16 / (9_000 - 100))
    found = on_machine(tiny(tmp_path / "b"), known, (1,), (0.0,)).profile
    assert found.layer_ns[0][0][0][0] == 50_000  # the same machine: what was measured


def test_a_time_that_reading_decided_says_nothing_of_the_share(tmp_path: Path) -> None:
    slow = MACHINE.changed("caches.l3_core_gbps", 1.0)
    known = Modelled(machine=MACHINE, shares=ON.shares, measured_on=slow)
    (rows, _), _ = works_of(tiny(tmp_path), known)
    assert rows.share == 0.5


def test_levels_are_five_unless_a_scenario_names_them(folder: Path) -> None:
    assert default_levels(MACHINE) == (0.0, 0.75, 1.5, 2.25, 3.0)
    (five,) = load_profiles(read(folder))
    assert five.slowdowns == [0.0, 0.75, 1.5, 2.25, 3.0]
    assert five.cores == [1, 2, 3, 4]
    (two,) = load_profiles(read(folder, "machine.levels=[0, 1]", "model.core_step=2"))
    assert two.slowdowns == [0.0, 1.0]
    assert two.cores == [2, 4]
    assert default_levels(MACHINE.changed("caches.l3_core_gbps", 10.0)) == (0.0,)


def test_measured_levels_are_read_in_between(folder: Path) -> None:
    (found,) = load_profiles(read(folder, "machine.model=", "machine.levels=[0, 0.2, 2]"))
    # Levels 0, 0.4 and 0.9 were measured; above them is as at the highest.
    assert found.layer_ns[:3] == [50_000, 55_000, 110_000]
    assert found.model_ns[:3] == [60_000, 65_000, 122_000]


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["machine.model=mine"], ["machine.model = 'mine'", "threadripper_3990x"]),
        (["machine.cores=8"], ["machine.cores = 8", "has 4"]),
        (["machine.measured_on=none"], ["machine.measured_on = 'none'"]),
        (["machine.model=", "machine.measured_on=mine.toml"], ["measured_on", "`model`"]),
        (["machine.levels=[1, 2]"], ["machine", "levels = [1.0, 2.0]", "ascend from 0"]),
        (["machine.levels=[0, 0]"], ["levels = [0.0, 0.0]"]),
        (["machine.levels=1"], ["machine.levels = 1", "array"]),
        (
            ["model.profile=veltair_3990x_resnet50.csv", "model.qos_ms=500"],
            ["model[0].profile", "machine.model"],
        ),
        (
            ["model.profile=alone", "machine.model=", "machine.levels=[0, 1]"],
            ["model[0].profile = 'alone'", "machine.levels"],
        ),
        (["model.core_step=5"], ["model[0].core_step = 5", "4 cores"]),
        (
            ["machine.interference=shared", "machine.levels=[0, 1]"],
            ["machine", "needs `model`"],
        ),
        (["machine.interference=shared", "machine.model="], ["machine", "needs `model`"]),
        (["machine.proxy=none"], ["machine", "only for interference"]),
        (["machine.proxy_error=0.1"], ["machine", "only for interference"]),
    ],
)
def test_what_can_not_be_simulated_is_named(
    folder: Path, overrides: list[str], parts: list[str]
) -> None:
    write_tiny_artifact(folder / "alone" / "1")
    with pytest.raises(ConfigError) as refused:
        load_profiles(read(folder, *overrides))
    assert refused.value.exit_code == 2
    for part in parts:
        assert part in str(refused.value)


def test_a_kernel_that_nobody_measured_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"product: no share of the peak .* 'matmul'"):
        on_machine(tiny(tmp_path), Modelled(machine=MACHINE, shares={}), (1,), (0.0,))


def simulated(folder: Path, *arguments: str) -> Any:  # noqa: ANN401 # JSON
    out = folder / "out.json"
    path = folder / "scenario.toml"
    result = CliRunner().invoke(app, ["simulate", str(path), "--json", str(out), *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text())


def test_a_scenario_runs_on_64_cores_that_are_not_there(folder: Path) -> None:
    sets = ["--set", "machine.model=threadripper_3990x", "--set", "machine.cores=64"]
    alone = simulated(folder, *sets)
    beside = simulated(folder, *sets, "--set", "machine.level=4")
    assert alone["queries"] == beside["queries"] == 300
    assert beside["mean_ms"] >= alone["mean_ms"] > 0


def test_bad_fields_exit_2(folder: Path) -> None:
    path = folder / "scenario.toml"
    result = CliRunner().invoke(app, ["simulate", str(path), "--set", "machine.cores=5"])
    assert result.exit_code == 2
    assert "machine.cores = 5" in result.stderr
    (folder / "mine.toml").write_text(to_toml(MACHINE, "").replace("cores = 4", "cores = four"))
    result = CliRunner().invoke(app, ["simulate", str(path)])
    assert result.exit_code == 2
    assert "mine.toml: not TOML" in result.stderr


def test_shares_that_were_damaged_are_named(tmp_path: Path) -> None:
    from veltair.proxy.kernel_shares import SHARES_FILE, read_shares
    from veltair.runtime.errors import InputError

    shipped = msgspec.json.decode(SHARES_FILE.read_bytes())
    assert set(read_shares()) == set(shipped["shares"]) == set(shipped["samples"])
    path = tmp_path / "shares.json"
    path.write_text('{"shares": ')
    with pytest.raises(InputError, match="--fit"):
        read_shares(path)
    path.write_text(json.dumps({**shipped, "shares": {"direct": -1.0}}))
    with pytest.raises(InputError, match="shares of direct"):
        read_shares(path)


def test_blocks_slow_each_other_where_they_share_the_machine(folder: Path) -> None:
    shared = read(folder, "machine.interference=shared", "arrivals.rate_qps=40000")
    (profile,) = load_profiles(shared)
    assert len(profile.layer_bytes) == len(profile.layer_ns)
    assert profile.slowdowns[:3] == [0, 0.75, 1.5]
    alone = read(folder, "arrivals.rate_qps=40000")
    # So many that all cores are busy. The weights, 128 KiB, stay in the L3s, so little is lost.
    ends = [simulate(each).end_ns[-1] for each in (alone, shared)]
    assert ends[0] <= ends[1] < 2 * ends[0]
    slow = MACHINE.changed("caches.l3_mib", 0.01).changed("memory.core_gbps", 1.0)
    slow = slow.changed("memory.complex_gbps", 1.5).changed("memory.total_gbps", 2.0)
    (folder / "mine.toml").write_text(to_toml(slow, "Little memory."))
    # Now each core reads them from memory, which gives half of what four want.
    assert simulate(shared).end_ns[-1] > 1.5 * simulate(alone).end_ns[-1]
