"""How the machine model is judged: what is fitted, what is held out, and what is left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from factories import disturbed_profile, machine_table, write_tiny_artifact

from veltair.eval.machine_model import PAPER_LAYERS, here_errors
from veltair.eval.machine_model_report import report
from veltair.eval.model_errors import (
    compared,
    error_of,
    errors_by,
    fitted_shares,
    is_disturbed,
    left_out,
    whole_runs,
)
from veltair.eval.paper_layers import fitted, paper_errors, predicted_ns, read_layers
from veltair.proxy.kernel_shares import read_kernel_shares
from veltair.proxy.machine_file import find_machine, parse_machine
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import Manifest

MACHINE = parse_machine(machine_table())  # 16 operations a ns
PAPER = find_machine("threadripper_3990x", Path(), "machine")


@pytest.fixture
def tiny(tmp_path: Path) -> Manifest:
    return write_tiny_artifact(tmp_path / "1", profile=disturbed_profile())


def test_shares_are_of_the_layers_that_are_not_held_out(tiny: Manifest) -> None:
    shares, samples = fitted_shares([tiny], MACHINE)
    # The product's versions took 50 and 60 us, 100 ns of it the launch; the median of two.
    of = [524_288 / 16 / (us * 1000 - 100) for us in (50, 60)]
    assert shares["matmul"] == pytest.approx(np.mean(of))
    assert samples == {"matmul": 2, "default": 1}
    # The other algorithm is in a layer that is held out alone.
    assert shares["default"] == pytest.approx(8_192 / 16 / (9_000 - 100))


def test_each_version_is_compared_at_each_count_and_level(tiny: Manifest) -> None:
    found = compared(tiny, MACHINE, {"matmul": 0.5, "default": 0.25})
    assert len(found) == 3 * 2 * 3
    first = found[0]
    assert (first.cores, first.level, first.measured_ns, first.held_out) == (1, 0.0, 50_000, False)
    assert first.ratio == pytest.approx(65_636 / 50_000)
    assert {each.held_out for each in found if each.layer == 1} == {True}
    runs = whole_runs(found)
    assert runs[0]["measured_ns"] == 59_000  # the first versions alone
    assert runs[0]["predicted_ns"] == 65_636 + 2_148


def test_an_error_is_the_distance_of_the_ratio_from_one() -> None:
    found = error_of([0.5, 0.9, 1.0, 1.1, 3.0])
    assert found["count"] == 5
    assert found["error_p50"] == pytest.approx(0.1)
    assert found["ratio_p50"] == 1.0


def test_errors_are_grouped(tiny: Manifest) -> None:
    found = compared(tiny, MACHINE, {"matmul": 0.5, "default": 0.25})
    rows = errors_by(found, "algorithm", "cores")
    assert [(row["algorithm"], row["cores"], row["count"]) for row in rows] == [
        ("default", 1, 3),
        ("default", 2, 3),
        ("matmul", 1, 6),
        ("matmul", 2, 6),
    ]
    near = [replace(found[0], level=level) for level in (0.2, 0.3, 0.7, 0.8)]
    assert [row["nearest_level"] for row in errors_by(near, "nearest_level")] == [0.0, 0.5, 1.0]


def test_a_model_that_is_left_out_is_judged_by_the_others_alone(tiny: Manifest) -> None:
    assert left_out([tiny], MACHINE) == []  # there are no others
    profile = tiny.profile
    half = [[[[ns // 2 for ns in row] for row in v] for v in layer] for layer in profile.layer_ns]
    faster = msgspec.structs.replace(
        tiny, name="faster", profile=msgspec.structs.replace(profile, layer_ns=half)
    )
    rows = left_out([tiny, faster], MACHINE)
    assert [(row["model"], row["cores"]) for row in rows] == [
        ("tiny", 1),
        ("tiny", 2),
        ("faster", 1),
        ("faster", 2),
    ]
    # What the faster one reaches is too much for the other by two, and the other way round.
    assert rows[0]["ratio_p50"] == pytest.approx(rows[2]["ratio_p50"] / 4, rel=0.2)


def slower_on_more(manifest: Manifest) -> Manifest:
    rows = manifest.profile.model_ns
    profile = msgspec.structs.replace(manifest.profile, model_ns=rows[::-1])
    return msgspec.structs.replace(manifest, profile=profile)


def test_a_disturbed_profile_judges_nothing(tiny: Manifest) -> None:
    assert not is_disturbed(tiny)
    bad = slower_on_more(tiny)
    assert is_disturbed(bad)
    with pytest.raises(InputError, match="slower on more cores"):
        here_errors([bad], MACHINE)
    named = msgspec.structs.replace(bad, name="bad")
    result = here_errors([tiny, named], MACHINE)
    assert result["disturbed"] == ["bad"]
    assert result["all"]["count"] == 6  # of the one layer of the good one that is held out


def test_the_papers_layers_are_fitted_on_one_half_and_judged_by_the_other() -> None:
    layers = read_layers(PAPER_LAYERS, 8)
    assert len(layers.names) == 53
    assert layers.cores == (8, 16, 24, 32, 40, 48, 56, 64)
    # The stem: 2 x 112 x 112 x 64 x 3 x 49 operations, 112 rows of 8 vectors.
    stem = layers.works[0]
    assert stem.operations == 236_027_904
    assert stem.extent == 112 * 8
    assert stem.weight_bytes == 4 * 64 * 3 * 49
    found = paper_errors(layers, PAPER)
    assert (found["fitted_layers"], found["held_out_layers"]) == (27, 26)
    assert found["held_out"]["count"] == 26 * 7
    # What the held-out half says doesn't change what is fitted.
    changed = layers.measured_ns.copy()
    changed[1::2] *= 3
    again = paper_errors(
        type(layers)(
            names=layers.names, cores=layers.cores, measured_ns=changed, works=layers.works
        ),
        PAPER,
    )
    assert again["share"] == found["share"]
    assert again["held_out"]["ratio_p50"] < found["held_out"]["ratio_p50"] / 2


def test_a_fit_finds_what_times_were_made_with() -> None:
    layers = read_layers(PAPER_LAYERS, 8)
    machine = PAPER.changed("launch.core_ns", 120.0)
    made = type(layers)(
        names=layers.names,
        cores=layers.cores,
        measured_ns=predicted_ns(layers, machine, 0.4),
        works=layers.works,
    )
    share, fit = fitted(made, PAPER)
    assert share == pytest.approx(0.4, rel=0.02)
    assert fit.launch.core_ns == pytest.approx(120, abs=10)


def test_the_page_has_the_figures(tiny: Manifest) -> None:
    result = {
        "command": "python -m veltair.eval.machine_model",
        **here_errors([tiny], MACHINE),
        "paper": paper_errors(read_layers(PAPER_LAYERS, 8), PAPER),
    }
    text = report(json.loads(json.dumps(result)))
    assert "## Here: made up" in text
    assert f"on {read_kernel_shares().machine};" in text
    assert "Ryzen Threadripper 3990X" in text
    assert "The profiles have one level" not in text  # these have three
    assert f"| 64 | {result['paper']['by_cores'][-1]['sum_ratio']:.2f} |" in text
