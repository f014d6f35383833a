"""Scenarios: what is read, what is overridden, and what is refused with the field's name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import write_tiny_artifact

from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import ArtifactError, InputError
from veltair.runtime.manifest import MANIFEST_FILE
from veltair.runtime.simulate.profiles import convolution_flops, load_profiles
from veltair.runtime.simulate.run import make_policy
from veltair.runtime.simulate.scenario import MachineSection, Scenario, read_scenario

PROFILE = "layer,us_1c,us_2c,us_4c\na,1000,500,250\nb,2000,1000,500\n"
SCENARIO = """
[machine]
cores = 4
[policy]
scheduling = "veltair-as"
[[model]]
name = "small"
profile = "small.csv"
qos_ms = 6.0
[arrivals]
rate_qps = 100.0
queries = 200
"""


def read(folder: Path, *overrides: str, text: str = SCENARIO, profile: str = PROFILE) -> Scenario:
    (folder / "small.csv").write_text(profile)
    (folder / "scenario.toml").write_text(text)
    return read_scenario(folder / "scenario.toml", overrides)


def test_defaults_and_overrides(tmp_path: Path) -> None:
    scenario = read(tmp_path)
    assert scenario.policy.scheduling == "veltair-as"
    assert scenario.machine.conflict_us == 220.0
    changed = read(
        tmp_path, "policy.scheduling=layer", "model.small.qos_ms=9", "arrivals.process=gamma"
    )
    assert changed.policy.scheduling == "layer"
    assert changed.model[0].qos_ms == 9.0
    assert changed.arrivals.process == "gamma"
    assert read(tmp_path, "model.weight=2").model[0].weight == 2.0


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("machine.cores=0", ["machine.cores = 0", ">= 1", "cores of the machine"]),
        ("machine.coers=4", ["machine.coers", "did you mean 'cores'"]),
        ("machnie.cores=4", ["machnie", "did you mean 'machine'"]),
        ("policy.scheduling=fifo", ["policy.scheduling = 'fifo'", "block-N"]),
        ("policy.scheduling=block-0", ["policy.scheduling = 'block-0'"]),
        ("policy.batching=soon", ["policy.batching = 'soon'", "one of 'none'"]),
        ("policy.max_block_us=0", ["policy.max_block_us = 0"]),
        ("policy.margin_percent=101", ["policy.margin_percent = 101"]),
        ("arrivals.rate_qps=-1", ["arrivals.rate_qps = -1", "> 0"]),
        ("arrivals.rate_qps=NaN", ["arrivals.rate_qps = nan", "finite"]),
        ("arrivals.queries=1.5", ["arrivals.queries = 1.5", "`int`"]),
        ("arrivals.warmup_queries=200", ["arrivals", "warmup_queries must be less"]),
        ("arrivals.process=file", ["`file`"]),
        ("model.small.weight=0", ["model[0].weight = 0"]),
        ("model.small.qos_ms=-1", ["model[0].qos_ms = -1"]),
        ("model.small.qos_ms=NaN", ["model[0].qos_ms = nan"]),
        ("model.large.qos_ms=1", ["0 models", "small"]),
        ("policy", ["--set policy", "section.key=value"]),
        ("model.small.name=3", ["model[0].name = 3", "`str`"]),
    ],
)
def test_a_bad_field_is_named(tmp_path: Path, override: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, override)
    assert refused.value.exit_code == 2
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[machine]\ncores = 4\n", "no [[model]]"),
        ("[machine\n", "not TOML"),
        (SCENARIO.replace("cores = 4", ""), "machine.cores is missing"),
        (SCENARIO.replace('profile = "small.csv"', ""), "model[0].profile is missing"),
        (SCENARIO + '[[model]]\nname = "small"\nprofile = "small.csv"\n', "'small' twice"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, text=text)
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("overrides", "profile", "part"),
    [
        (["model.profile=none.csv"], PROFILE, "model[0].profile = 'none.csv'"),
        (["model.qos_ms=0.7"], PROFILE, "model[0].qos_ms = 0.7: below 0.750 ms"),
        (["model.core_step=5"], PROFILE, "model[0].core_step = 5"),
        ([], "layer,us_1c,us_2c\na,1000\n", "has 1 times for 2 core counts"),
        ([], "layer,us_2c,us_1c\na,1,2\n", "must ascend"),
        ([], "layer,one,two\na,1,2\n", "us_8c"),
        ([], "layer,us_1c\n", "no layers"),
        ([], "", "heading"),
        ([], "layer,us_1c\na,NaN\n", "finite"),
        ([], "layer,us_1c\na,inf\n", "finite"),
        ([], "layer,us_1c\na,1e300\n", "at most"),
        ([], "layer,us_1c\na,1e6\nb,9.999999e8\n", "add up to 1000999900"),
        ([], "layer,us_1c,us_5000c\na,2,1\n", "to 4096 at most"),
        ([], "layer,us_1c\na,0\n", "above 0"),
        ([], "layer,us_1c\na,-0.0\n", "above 0"),
        ([], "layer,us_1c\na,-inf\n", "finite"),
        ([], "layer,us_1c\na," + "9" * 400 + "\n", "finite"),
        (["model.core_step=1"], "layer,us_4096c\na,9e8\n", "from 0 to 1000 s"),
        (["model.qos_ms=1e6"], "layer,us_1c\na,9e8\n", "longer than the clock counts"),
        (["model.profile=."], PROFILE, "model[0].profile = '.'"),
        ([], "layer,us_1c\na,-4\n", "above 0"),
        ([], "layer,us_1c\na,fast\n", "'fast' is no time"),
    ],
)
def test_a_bad_profile_is_refused(
    tmp_path: Path, overrides: list[str], profile: str, part: str
) -> None:
    many = "arrivals.queries=100000000"
    with pytest.raises(InputError) as refused:
        load_profiles(read(tmp_path, *overrides, many, profile=profile))
    assert refused.value.exit_code == 2
    assert part in str(refused.value)


def test_what_spreadsheets_add_is_no_damage(tmp_path: Path) -> None:
    """A byte-order mark, and empty lines at the end; layers may be named anything."""
    shape = "CONV:" + "-".join(["9999999999"] * 11)  # more operations than 64 bits count
    text = "\ufefflayer,us_1c,us_2c\n# a comment\nå ☃,1000,500\n" + f"{shape},1,1\n\n\n"
    (profile,) = load_profiles(read(tmp_path, profile=text, text="\ufeff" + SCENARIO))
    assert profile.layers == 2
    assert convolution_flops(shape) is None


def test_an_artifact_is_found_by_its_model_too(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "tiny" / "1", qos_ns=7_000_000)
    scenario = read(tmp_path, "model.profile=tiny")
    scenario = msgspec.structs.replace(
        scenario, model=(msgspec.structs.replace(scenario.model[0], qos_ms=None),)
    )
    (profile,) = load_profiles(scenario)
    assert (profile.qos_ns, profile.layers) == (7_000_000, 2)


def damage(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes an artifact's manifest."""
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    change(manifest)
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


@pytest.mark.parametrize("table", ["model_ns", "layer_ns"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 0, 1e300, 10**12 + 1, 2**63, 2**64, 0.5])
def test_a_time_that_can_not_be_is_refused_in_an_artifact(
    tmp_path: Path, table: str, value: float
) -> None:
    folder = tmp_path / "tiny" / "1"
    write_tiny_artifact(folder)

    def change(manifest: dict[str, Any]) -> None:
        row = manifest["profile"][table]
        while isinstance(row[0], list):
            row = row[0]
        row[0] = value

    damage(folder, change)
    with pytest.raises(ArtifactError, match="damaged"):
        open_artifact(folder)
    with pytest.raises(InputError, match=r"model\[0\]\.profile = 'tiny': .*damaged"):
        load_profiles(read(tmp_path, "model.profile=tiny"))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda m: m["profile"].update(cores=[1, 2, 4]), "2 entries for 3 core counts"),
        (lambda m: m["profile"].update(cores=[1]), "2 entries for 1 core counts"),
        (lambda m: m["profile"].update(cores=[]), "profile.cores"),
        (lambda m: m["profile"].update(cores=[2, 4]), "ascend from 1"),
        (lambda m: m["profile"].update(cores=[1, 1]), "ascend"),
        (lambda m: m["profile"].update(cores=[1, 5000]), "4096 at most"),
        (lambda m: m["profile"].update(levels=[0.0, 0.5]), "for 2 interference levels"),
        (lambda m: m["profile"].update(levels=[0.5]), "ascend from 0"),
        (lambda m: m["profile"]["layer_ns"].pop(), "1 entries for 2 layers"),
        (lambda m: m["profile"]["layer_ns"][0].pop(), "1 entries for 2 variants"),
        (lambda m: m["profile"]["layer_ns"][1][0].pop(), "profile.layer_ns[1][0] has 1 entries"),
        (lambda m: m.update(qos_ns=-1), "qos_ns = -1"),
        (lambda m: m.update(qos_ns=2**63), "qos_ns"),
    ],
)
def test_a_profile_that_lacks_something_is_refused_in_an_artifact(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], part: str
) -> None:
    folder = tmp_path / "tiny" / "1"
    write_tiny_artifact(folder)
    damage(folder, change)
    with pytest.raises(ArtifactError) as refused:
        open_artifact(folder)
    assert part in str(refused.value)
    with pytest.raises(InputError, match=r"model\[0\]\.profile"):
        load_profiles(read(tmp_path, "model.profile=tiny"))


def test_a_policy_parameter_beyond_the_machine_is_refused(tmp_path: Path) -> None:
    scenario = read(tmp_path, "policy.scheduling=partition", "policy.partition_cores=5")
    with pytest.raises(InputError, match="partition_cores = 5"):
        make_policy(scenario, load_profiles(scenario))


def test_the_shipped_profile_is_found_by_name(tmp_path: Path) -> None:
    scenario = read(
        tmp_path, "machine.cores=64", "model.profile=veltair_3990x_resnet50.csv", "model.qos_ms=15"
    )
    (profile,) = load_profiles(scenario)
    assert profile.layers == 53
    assert profile.cores == list(range(8, 65, 8))
    (stepped,) = load_profiles(
        read(
            tmp_path,
            "machine.cores=64",
            "model.profile=veltair_3990x_resnet50.csv",
            "model.qos_ms=15",
            "model.core_step=4",
        )
    )
    assert stepped.cores == list(range(4, 65, 4))


def test_flops_of_a_layer_name() -> None:
    # 112 x 112 outputs, 64 channels, 3 x 7 x 7 inputs each.
    assert convolution_flops("CONV:224-224-3-64-7-7-3-3-2-2-1") == 2 * 112 * 112 * 64 * 3 * 49
    # Depthwise: one input channel a group.
    assert convolution_flops("CONV:8-8-16-16-3-3-1-1-1-1-16") == 2 * 8 * 8 * 16 * 9
    assert convolution_flops("pool") is None
    assert convolution_flops("CONV:8-8-16-16-3-3-1-1-0-1-16") is None


def test_the_example_names_every_field_with_its_default() -> None:
    example = Path(__file__).parents[4] / "eval" / "scenarios" / "resnet50_3990x.toml"
    scenario = read_scenario(example)
    text = example.read_text()
    for section in (scenario.machine, scenario.policy, scenario.model[0], scenario.arrivals):
        for field in msgspec.structs.fields(section):
            assert f"\n{field.name} = " in text
    assert scenario.machine == MachineSection(cores=64)
    assert load_profiles(scenario)[0].layers == 53
