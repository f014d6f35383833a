"""Rows of several layers."""

from __future__ import annotations

from proxy_models import count, reading

from veltair.proxy.features import together
from veltair.proxy.observations import Observation, table_of
from veltair.proxy.sources.own import Blocks
from veltair.proxy.windows import windows_of


def observed(layer: int, number: int, setting: int, value: float) -> Observation:
    return Observation(
        layer=f"layer {layer}",
        round=number,
        setting=setting,
        level=setting / 10,
        slowdown=float(layer),
        readings={"probe": reading(count("probe_step", value))},
        own=Blocks(blocks=1, took_ns=120, alone_ns=100, excess=20.0 * layer, weight=100.0),
    )


def test_no_layer_is_in_two_sets() -> None:
    rows = [
        observed(layer, number, setting, 1.0)
        for layer in range(30)
        for number in range(2)
        for setting in range(3)
    ]
    windows = windows_of(rows)
    sets = {each.layer for each in windows}
    members = [name for each in sets for name in each.split(" & ")]
    assert sorted(members) == sorted({each.layer for each in rows})
    assert {each.count(" & ") for each in sets} <= {3, 4}  # 4 or 5 layers
    assert len(windows) == len(sets) * 2 * 3
    assert {each.level for each in windows} == {0.0, 0.1, 0.2}


def test_few_layers_stay_single() -> None:
    rows = [observed(layer, 0, 0, 1.0) for layer in range(7)]
    assert {each.layer for each in windows_of(rows)} == {each.layer for each in rows}


def test_a_window_has_what_its_layers_say_together() -> None:
    rows = [observed(layer, 0, 1, 100.0 * layer) for layer in range(12)]  # two a window
    window = windows_of(rows)[0]
    first, second = (int(name.removeprefix("layer ")) for name in window.layer.split(" & "))
    assert window.slowdown == (first + second) / 2
    assert window.own == Blocks(
        blocks=2, took_ns=240, alone_ns=200, excess=20.0 * (first + second), weight=200.0
    )
    table = table_of([window])
    told = dict(zip(table.features, table.values[0], strict=True))
    assert told["probe_step"] == 50.0 * (first + second)
    assert told["block_level"] == (first + second) / 10


def test_versions_of_a_layer_are_in_rows_of_their_own() -> None:
    rows = [observed(layer, 0, 1, 1.0) for layer in range(12)]
    rows += [observed(0, 0, 1, 3.0), observed(0, 0, 1, 5.0)]
    windows = windows_of(rows)
    values = [
        each.readings["probe"].counts[0].value
        for each in windows
        if "layer 0" in each.layer.split(" & ")
    ]
    assert values == [1.0, 2.0, 3.0]
    assert len(windows) == 5 + 3


def test_a_round_that_was_stopped_has_no_window() -> None:
    rows = [observed(layer, 0, 1, 1.0) for layer in range(12)] + [observed(0, 1, 1, 1.0)]
    assert {each.round for each in windows_of(rows)} == {0}


def test_readings_add_up_and_states_are_averaged() -> None:
    joined = together(
        [
            reading(
                count("llc_misses", 10, confidence=0.5),
                count("llc_references", 100),
                count("probe_step", 100, confidence=0.25),
                count("probe_cost", 9),
            ),
            reading(
                count("llc_misses", 30),
                count("probe_step", 200, confidence=0.75),
                elapsed_ns=30_000_000,
            ),
        ]
    )
    found = {each.name: (each.value, each.confidence) for each in joined.counts}
    assert found == {"llc_misses": (40, 0.5), "probe_step": (175, 1.0)}
    assert [each.name for each in joined.missing] == ["llc_references"]
    assert joined.elapsed_ns == 40_000_000
