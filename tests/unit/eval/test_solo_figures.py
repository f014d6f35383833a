"""What the cases of `bench_solo` come to, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veltair.eval.bench_solo import Results
from veltair.eval.interleave import Plan
from veltair.eval.networks import choose_networks
from veltair.eval.solo_case import peak_share
from veltair.eval.solo_figures import Figure, Goal, best_peer, figures, geometric_mean, is_slow
from veltair.eval.solo_report import markdown
from veltair.runtime.errors import InputError

NETWORKS = ("resnet50", "vgg19")
MADE = {"machine": {"cores": 2, "cpu": "Some CPU"}}


def engine(name: str, ms: float, ratio: float | None = None) -> dict[str, Any]:
    row: dict[str, Any] = {"engine": name, "run_ns": {"p50": ms * 1e6}}
    if ratio is not None:
        row["ratio"] = {"p10": ratio * 0.9, "p50": ratio, "p90": ratio * 1.1}
    return row


def case(
    model: str = "resnet50",
    *,
    isa: str = "x86-64-v4",
    cores: int = 1,
    ratios: tuple[float, float] = (0.5, 0.8),
    share: float | None = None,
) -> dict[str, Any]:
    """Ours takes 10 ms, and `ratios` of ONNX Runtime's and OpenVINO's time."""
    made: dict[str, Any] = {
        "model": model,
        "isa": isa,
        "cores": cores,
        "engines": [
            engine("veltair", 10),
            engine("onnxruntime", 10 / ratios[0], ratios[0]),
            engine("openvino", 10 / ratios[1], ratios[1]),
        ],
        "compiled": {"layers": 54, "layers_from_logs": 50, "flops_from_logs": 0.99},
        "disturbance": {"driver": 0.0, "others": 0.01, "steal": 0.002},
        "revision": "0123456789abcdef",
        "inputs": "x",
        "layers": [
            {
                "name": "conv1",
                "op": "conv7x7+bias+relu",
                "variant": "conv7x7_plain_oc2x16",
                "us": 2000.0,
                "share": 0.2,
                "gflops": 50.0,
                "touched_bytes": 4_000_000,
                "gbytes_per_s": 2.0,
            }
        ],
    }
    if share is not None:
        made["peak"] = {"gflops": {"p50": 200.0}, "share": {"p50": share}}
    return made


def test_the_best_peer_is_the_one_that_leaves_us_least() -> None:
    assert best_peer(case(ratios=(0.5, 0.8))) == ("openvino", pytest.approx(1.25))
    assert best_peer(case(ratios=(1.6, 0.8))) == ("onnxruntime", pytest.approx(0.625))


def test_means_are_geometric() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 1.0, 8.0]) == pytest.approx(2.0)


def test_figures_are_of_each_isa_and_thread_count() -> None:
    cases = [
        case("resnet50", isa="x86-64-v3", ratios=(1.25, 1.0)),
        case("resnet50", cores=2),
        case("vgg19", cores=2, ratios=(1.25, 0.9)),
        case("resnet50", share=0.85),
    ]
    found = {figure.what: figure for figure in figures(cases, NETWORKS)}
    some = " (of 1 of 2 networks)"
    one, two, old = ("x86-64-v4, 1 thread", "x86-64-v4, 2 threads", "x86-64-v3, 1 thread")
    mean = "best peer's time over ours, geometric mean"
    assert list(found) == [
        f"{one}: {mean}{some}",
        f"{one}: the worst network, resnet50{some}",
        f"{one}: share of the measured FMA peak, resnet50",
        f"{two}: {mean}",
        f"{two}: the worst network, vgg19",
        f"{old}: {mean}{some}",
        f"{old}: the worst network, resnet50{some}",
    ]
    assert found[f"{two}: {mean}"].measured == pytest.approx(1.0)
    assert found[f"{two}: the worst network, vgg19"].measured == pytest.approx(0.8)
    assert found[f"{two}: the worst network, vgg19"].kept == "**no**"
    assert found[f"{one}: share of the measured FMA peak, resnet50"].measured == pytest.approx(85)
    assert found[f"{old}: {mean}{some}"].measured == pytest.approx(0.8)
    assert found[f"{old}: {mean}{some}"].goal == Goal(bound=0.9, aim=1.0)


@pytest.mark.parametrize(
    ("measured", "kept"),
    [(0.89, "**no**"), (0.9, "yes"), (0.99, "yes"), (1.0, "yes, and the aim")],
)
def test_a_figure_is_held_to_its_bound_and_its_aim(measured: float, kept: str) -> None:
    assert Figure(what="", measured=measured, goal=Goal(bound=0.9, aim=1.0)).kept == kept


def test_avx2_is_held_to_less() -> None:
    ratios = (1.05, 1.0)
    assert is_slow(case(ratios=ratios))
    assert not is_slow(case(isa="x86-64-v3", ratios=ratios))


def test_the_share_of_the_peak_is_paired_by_rounds() -> None:
    """The machine is half as fast in the second round: the share stays."""
    ours = np.array([[10, 10, 90], [20, 20, 20]], np.int64)
    loop = np.array([[5, 5, 5], [10, 10, 70]], np.int64)
    share = peak_share(ours, 800, loop, 500)
    np.testing.assert_allclose(share, [0.8, 0.8])


def test_the_page_says_what_limits_slow_networks_only() -> None:
    cases = [case("resnet50", ratios=(1.25, 1.0), share=0.6), case("vgg19")]
    page = markdown(MADE | {"cases": cases, "not_measured": {}}, NETWORKS)
    assert "### resnet50, x86-64-v4, 1 thread: 0.80 of ONNX Runtime's speed, one core's" in page
    assert "### vgg19" not in page
    assert (
        "| conv1 | conv7x7+bias+relu | conv7x7_plain_oc2x16 | 2000 | 20.0% | 50 | 25% | 4.00 | 2.0"
        in page
    )
    row = next(line for line in page.splitlines() if line.startswith("| vgg19 |"))
    assert row == (
        "| vgg19 | x86-64-v4 | 1 | 10.00 | 20.00 | 12.50 | 1.25 | 1.14..1.39 |  "
        "| 50/54, 99% | 1.2% | 0123456789 |"
    )


def test_the_page_says_why_an_instruction_set_is_missing() -> None:
    page = markdown(
        MADE | {"cases": [case()], "not_measured": {"x86-64-v3": "no cpuid_fault"}}, NETWORKS
    )
    assert "- x86-64-v3 is not measured: no cpuid_fault" in page


def test_a_case_replaces_the_one_before_and_leaves_the_others(tmp_path: Path) -> None:
    first = Results(tmp_path, MADE, Plan(budget_ns=1))
    first.put(case("vgg19"))
    first.put(case("resnet50", isa="x86-64-v3"))
    first.put(case("resnet50"))
    second = Results(tmp_path, MADE, Plan(budget_ns=1))
    second.put(case("vgg19", ratios=(0.7, 0.7)))
    saved = json.loads((tmp_path / "solo.json").read_text())["cases"]
    assert [(c["isa"], c["model"]) for c in saved] == [
        ("x86-64-v4", "resnet50"),
        ("x86-64-v4", "vgg19"),
        ("x86-64-v3", "resnet50"),
    ]
    assert saved[1]["engines"][1]["ratio"]["p50"] == pytest.approx(0.7)
    assert second.find("vgg19", "x86-64-v4", 1) == saved[1]
    assert second.find("vgg19", "x86-64-v4", 2) is None
    assert "vgg19" in (tmp_path / "solo.md").read_text()


def test_what_cant_be_measured_any_more_is_not_left(tmp_path: Path) -> None:
    results = Results(tmp_path, MADE, Plan(budget_ns=1))
    results.put(case(isa="x86-64-v3"))
    results.leave_out("x86-64-v3", "no cpuid_fault")
    saved = json.loads((tmp_path / "solo.json").read_text())
    assert saved["cases"] == []
    assert saved["not_measured"] == {"x86-64-v3": "no cpuid_fault"}


def test_unknown_networks_are_refused() -> None:
    assert choose_networks("vgg19,resnet50") == ("vgg19", "resnet50")
    with pytest.raises(InputError, match="no network 'alexnet'; there are resnet50"):
        choose_networks("alexnet")
