"""Scenarios: what is read, what is overridden, and what is refused with the field's name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from veltair.runtime.errors import InputError
from veltair.runtime.simulate.arrivals import make_arrivals
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
        ([], "layer,us_1c\na,0\n", "above 0"),
        ([], "layer,us_1c\na,-4\n", "above 0"),
        ([], "layer,us_1c\na,fast\n", "'fast' is no time"),
    ],
)
def test_a_bad_profile_is_refused(
    tmp_path: Path, overrides: list[str], profile: str, part: str
) -> None:
    with pytest.raises(InputError) as refused:
        load_profiles(read(tmp_path, *overrides, profile=profile))
    assert refused.value.exit_code == 2
    assert part in str(refused.value)


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


@pytest.mark.parametrize("process", ["poisson", "gamma", "uniform", "diurnal"])
def test_arrivals_have_their_rate_and_their_seed(tmp_path: Path, process: str) -> None:
    overrides = [f"arrivals.process={process}", "arrivals.queries=20000", "arrivals.period_s=20"]
    scenario = read(tmp_path, *overrides)
    first = make_arrivals(scenario)
    assert (np.diff(first.time_ns) >= 0).all()
    assert first.time_ns[0] >= 0
    assert len(first.time_ns) / (first.time_ns[-1] / 1e9) == pytest.approx(100, rel=0.05)
    assert (first.time_ns == make_arrivals(scenario).time_ns).all()
    other = make_arrivals(read(tmp_path, *overrides, "arrivals.seed=2"))
    assert (first.time_ns != other.time_ns).any()


def test_diurnal_rate_rises_and_falls(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        "arrivals.process=diurnal",
        "arrivals.queries=20000",
        "arrivals.period_s=20",
        "arrivals.amplitude=1",
    )
    phase = make_arrivals(scenario).time_ns / 1e9 % 20
    rising = (phase < 10).mean()
    assert rising == pytest.approx(0.5 + 1 / np.pi, abs=0.02)


def test_gamma_shape_sets_the_spread(tmp_path: Path) -> None:
    def spread(shape: float) -> float:
        scenario = read(
            tmp_path,
            "arrivals.process=gamma",
            "arrivals.queries=20000",
            f"arrivals.shape={shape}",
        )
        gaps = np.diff(make_arrivals(scenario).time_ns)
        return float(gaps.std() / gaps.mean())

    assert spread(0.25) == pytest.approx(2, rel=0.1)
    assert spread(4) == pytest.approx(0.5, rel=0.1)


def test_models_are_drawn_by_weight_from_a_seed_of_their_own(tmp_path: Path) -> None:
    second = '[[model]]\nname = "other"\nprofile = "small.csv"\nqos_ms = 6\nweight = 3\n'
    one, two = read(tmp_path), read(tmp_path, text=SCENARIO + second)
    assert (make_arrivals(one).time_ns == make_arrivals(two).time_ns).all()
    assert make_arrivals(two).model.mean() == pytest.approx(0.75, abs=0.1)


def test_recorded_arrivals(tmp_path: Path) -> None:
    (tmp_path / "recorded.csv").write_text("arrival_ns,model\n5,small\n3,small\n9,small\n")
    scenario = read(tmp_path, "arrivals.process=file", "arrivals.file=recorded.csv")
    assert make_arrivals(scenario).time_ns.tolist() == [3, 5, 9]
    for content, part in [
        ("arrival_ns,model\n5,large\n", "large"),
        ("time,model\n5,small\n", "arrival_ns"),
        ("arrival_ns,model\nsoon,small\n", "soon"),
        ("arrival_ns,model\n-1,small\n", "from 0 ns"),
        ("arrival_ns,model\n", "0 queries"),
        ("arrival_ns,model\n99999999999999999999,small\n", "arrivals.file"),
    ]:
        (tmp_path / "recorded.csv").write_text(content)
        with pytest.raises(InputError, match=r"arrivals\.file") as refused:
            make_arrivals(scenario)
        assert part in str(refused.value)


def test_the_example_names_every_field_with_its_default() -> None:
    example = Path(__file__).parents[4] / "eval" / "scenarios" / "resnet50_3990x.toml"
    scenario = read_scenario(example)
    text = example.read_text()
    for section in (scenario.machine, scenario.policy, scenario.model[0], scenario.arrivals):
        for field in msgspec.structs.fields(section):
            assert f"\n{field.name} = " in text
    assert scenario.machine == MachineSection(cores=64)
    assert load_profiles(scenario)[0].layers == 53
