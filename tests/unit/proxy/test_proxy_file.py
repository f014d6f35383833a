"""Models of interference, and the file that holds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proxy_models import linear_model, proxy_file, term

from veltair.proxy.features import Feature
from veltair.proxy.proxy_file import ProxyFile, own_level
from veltair.runtime.errors import InputError
from veltair.runtime.machine import machine_facts

Change = Callable[[dict[str, Any]], object]


def seen(confidence: float = 1.0, **values: float) -> dict[str, Feature]:
    return {name: Feature(value=value, confidence=confidence) for name, value in values.items()}


def written(tmp_path: Path, change: Change | None = None) -> Path:
    path = tmp_path / "proxy.json"
    proxy_file(linear_model(term("llc_miss_rate"))).write(path)
    if change is not None:
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))
    return path


def test_a_level_is_the_sum_of_standardised_terms() -> None:
    model = linear_model(
        term("llc_miss_rate"),
        term("llc_references_per_cycle", mean=0.0, scale=1.0, coefficient=-0.5),
        r2=0.9,
    )
    features = seen(0.8, llc_miss_rate=0.75, llc_references_per_cycle=0.5)
    found = model.estimate(features)
    assert found.level == pytest.approx(1.0 + 0.5 - 0.25)
    assert found.confidence == pytest.approx(0.8 * 0.9)


def test_levels_stay_within_what_was_trained() -> None:
    model = linear_model(term("llc_miss_rate", low=-100.0, high=100.0))
    assert model.estimate(seen(llc_miss_rate=50.0)).level == 2.0
    assert model.estimate(seen(llc_miss_rate=-50.0)).level < 0  # noise; what is believed isn't


@pytest.mark.parametrize("value", [-0.25, 1.25])
def test_beyond_what_was_seen_confidence_falls(value: float) -> None:
    model = linear_model(term("llc_miss_rate"))
    assert model.estimate(seen(llc_miss_rate=value)).confidence == pytest.approx(0.5)
    assert model.estimate(seen(llc_miss_rate=1.0)).confidence == 1.0


def test_a_lacking_feature_gives_no_level_and_is_named() -> None:
    model = linear_model(term("llc_miss_rate"), term("flops_per_cycle"))
    found = model.estimate(seen(llc_miss_rate=0.9))
    assert (found.level, found.confidence, found.lacking) == (0.0, 0.0, ("flops_per_cycle",))


def test_nothing_believed_is_no_level() -> None:
    model = linear_model(term("llc_miss_rate"))
    assert model.estimate(seen(0.0, llc_miss_rate=0.9)).level == 0.0
    worthless = linear_model(term("llc_miss_rate"), r2=-0.2)
    found = worthless.estimate(seen(llc_miss_rate=0.9))
    assert (found.level, found.confidence) == (0.0, 0.0)


def test_the_most_accurate_model_whose_features_are_there() -> None:
    both = linear_model(term("probe_step"), term("block_level"), sources=("probe", "self"), r2=0.9)
    probe = linear_model(term("probe_step"), sources=("probe",), r2=0.5)
    file = proxy_file(both, probe)
    assert file.sources == ("probe", "self")
    assert file.model_for("probe", "self") == both
    assert file.model_for("probe") == probe
    assert file.model_for("self") is None
    features = seen(probe_step=0.6, block_level=0.6)
    assert file.estimate(features, "probe", "self").confidence == pytest.approx(0.9)
    assert file.estimate(seen(probe_step=0.6), "probe", "self").confidence == pytest.approx(0.5)
    unknown = file.estimate({}, "probe", "self")
    assert (unknown.level, unknown.confidence) == (0.0, 0.0)
    assert unknown.lacking == ("probe_step", "block_level")


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert ProxyFile.read(path) == proxy_file(linear_model(term("llc_miss_rate")))
    assert ProxyFile.read(path).doubt() == ""


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.99])
def test_a_cut_file_is_refused(tmp_path: Path, part: float) -> None:
    path = written(tmp_path)
    data = path.read_bytes().rstrip()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(InputError, match=r"proxy\.json.*cut.*veltair calibrate"):
        ProxyFile.read(path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, lambda data: data.update(schema=2, more="of it"))
    with pytest.raises(InputError, match="schema 2, and this version reads schema 1"):
        ProxyFile.read(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: can't be read .*veltair calibrate"):
        ProxyFile.read(tmp_path / "none.json")


def test_another_machine_loads_with_a_warning(tmp_path: Path) -> None:
    path = written(tmp_path, lambda data: data["machine"].update(cpu="Another", kernel="6.0"))
    doubt = ProxyFile.read(path).doubt()
    assert f"cpu Another there, {machine_facts()['cpu']} here" in doubt
    assert "kernel" not in doubt


def test_sources_that_are_not_there_are_told(tmp_path: Path) -> None:
    file = ProxyFile.read(written(tmp_path))
    file.check_sources(tmp_path, {"perf-task", "self"})
    with pytest.raises(InputError, match="need perf-task; what works here is probe, self"):
        file.check_sources(tmp_path, {"self", "probe"})


def in_model(**fields: object) -> Change:
    return lambda data: data["models"][0].update(fields)


def in_term(**fields: object) -> Change:
    return lambda data: data["models"][0]["terms"][0].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(models=[]), "no model in it"),
        (lambda data: data.update(alone={"probe_step": 1e999}), "cut|finite"),
        (lambda data: data.pop("machine"), "machine"),
        (lambda data: data.update(extra=1), "extra"),
        (in_model(terms=[]), "a term at least"),
        (in_model(sources=[]), "a source and"),
        (in_model(highest=-1.0), "highest -1"),
        (in_model(intercept="1"), "intercept"),
        (in_term(feature="llc_miss_rat"), "unknown feature 'llc_miss_rat'"),
        (in_term(scale=0.0), "scale must be above 0"),
        (in_term(low=2.0), "low 2 is above high 1"),
        (lambda data: data["models"][0]["terms"].append(data["models"][0]["terms"][0]), "twice"),
        (
            lambda data: (
                data["models"].append(
                    data["models"][0] | {"accuracy": data["models"][0]["accuracy"] | {"r2": 1.0}}
                )
                or data["models"][0]["accuracy"].update(r2=0.5)
            ),
            "ordered by r2",
        ),
    ],
)
def test_a_broken_rule_is_told(tmp_path: Path, change: Change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ProxyFile.read(written(tmp_path, change))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be written"):
        proxy_file(linear_model(term("probe_step"))).write(tmp_path / "no" / "proxy.json")


def test_own_blocks_are_the_level_where_nothing_was_trained() -> None:
    found = own_level(seen(0.6, block_level=0.4))
    assert (found.level, found.confidence) == (0.4, 0.6)
    assert own_level(seen(block_level=-0.1)).level == -0.1
    assert own_level({}).confidence == 0.0
    assert own_level({}).lacking == ("block_level",)
