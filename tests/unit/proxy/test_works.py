"""Layers that are measured, and what is put beside them: the real ones, small."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from calibrations import work
from factories import write_tiny_artifact

from veltair.proxy.disturber import Disturber
from veltair.proxy.evictors import Victim
from veltair.proxy.grid import (
    ALONE,
    Setting,
    evicting_settings,
    footprints,
    neighbours,
    settings,
)
from veltair.proxy.works import Runner, Work, key_of, repeatable, sampled
from veltair.runtime.errors import ArtifactError, VeltairError
from veltair.runtime.manifest import Layer, Manifest

CPU = max(os.sched_getaffinity(0))
MB = 1 << 20


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Path, Manifest]:
    folder = tmp_path / "tiny" / "1"
    return folder, write_tiny_artifact(folder)


def first(manifest: Manifest, version: int = 0) -> Work:
    return msgspec.structs.replace(
        work(0, version=version), model="tiny/1", name=manifest.layers[0].name
    )


def test_a_work_runs_as_often_and_as_long_as_it_should(tiny: tuple[Path, Manifest]) -> None:
    folder, manifest = tiny
    runner = Runner([folder], [CPU])
    assert runner.models == ("tiny/1",)
    for version in range(len(manifest.layers[0].variants)):
        times = runner.run(first(manifest, version), count=7)
        assert len(times) == 7
        assert min(times) > 0
    long = runner.run(first(manifest), seconds=0.02)
    assert sum(long) >= 0.02e9


def test_layers_that_are_mostly_the_call_are_left_out(
    tiny: tuple[Path, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner([tiny[0]], [CPU])
    monkeypatch.setattr("veltair.proxy.works._LEAST_NS", 0)
    found = [(each.layer, each.version) for each in runner.works()]
    layers = tiny[1].layers
    assert found == [(i, v) for i in range(len(layers)) for v in range(len(layers[i].variants))]
    monkeypatch.setattr("veltair.proxy.works._LEAST_NS", 10**12)
    assert runner.works() == []


def test_layers_with_indices_in_the_arena_are_left_out(tiny: tuple[Path, Manifest]) -> None:
    layer = tiny[1].layers[1]
    assert repeatable(layer)
    variant = layer.variants[0]
    arena = next(each for each in variant.arguments if each.storage == "arena")
    for storage, dtype, expected in (
        ("arena", "int64", False),
        ("input", "int64", True),
        ("arena", "bfloat16", True),
    ):
        index = msgspec.structs.replace(arena, dtype=dtype, storage=storage)
        arguments = tuple(index if each == arena else each for each in variant.arguments)
        changed = msgspec.structs.replace(variant, arguments=arguments)
        several = msgspec.structs.replace(layer, variants=(variant, changed))
        assert repeatable(several) == expected


def test_layers_are_alike_by_operator_and_shapes(tiny: tuple[Path, Manifest]) -> None:
    layer = tiny[1].layers[0]
    renamed = msgspec.structs.replace(layer, name="another", nodes=("n",))
    assert key_of(renamed) == key_of(layer)

    def shaped(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Layer:
        return msgspec.structs.replace(layer, input_shapes=(inputs,), output_shapes=(outputs,))

    keys = {key_of(shaped((1, 2), (3, 4))), key_of(shaped((1, 2, 3), (4,)))}
    keys |= {key_of(shaped((1, 23), (4,))), key_of(layer)}
    assert len(keys) == 4


def test_a_sample_has_the_smallest_and_the_largest() -> None:
    works = [work(index, size=size) for index, size in enumerate((5, 900, 30, 1, 70, 600))]
    chosen = sampled(works, 3)
    assert [each.bytes for each in chosen] == [900, 30, 1]
    assert sampled(works, 6) == works


def test_neighbours_are_the_large_ones() -> None:
    works = [work(index, size=size) for index, size in enumerate((5, 900, 30, 1, 70, 600, 7))]
    assert [each.bytes for each in neighbours(works)] == [7, 70, 900]
    assert [each.bytes for each in neighbours(works[:1])] == [5]


def test_footprints_are_parts_of_a_share() -> None:
    assert footprints(32 * MB, 1) == (4 * MB, 16 * MB, 64 * MB)
    assert footprints(32 * MB, 4) == (1 * MB, 4 * MB, 16 * MB)
    assert footprints(300 * MB, 1)[-1] == 128 * MB
    assert footprints(4 * MB, 4) == (1 * MB, 2 * MB)


def test_a_disturber_does_what_it_is_told(tiny: tuple[Path, Manifest]) -> None:
    folder, manifest = tiny
    with Disturber([CPU], [MB, 2 * MB], [folder]) as disturber:
        grid = settings(disturber, [MB, 2 * MB], [first(manifest)])
        assert grid[0] == ALONE
        assert len(grid) == 10
        assert grid[9].neighbour == first(manifest)
        rates = [each.bytes_per_s for each in grid if each.footprint_bytes == MB]
        assert rates == sorted(rates)
        assert rates[0] > 1e6
        for each in (grid[4], grid[9], grid[0]):
            each.begin(disturber)
        with pytest.raises(VeltairError, match="the process that disturbs is gone"):
            Setting(footprint_bytes=5, bytes_per_s=1).begin(disturber)


def test_a_disturber_evicts_what_a_layer_reads(tiny: tuple[Path, Manifest]) -> None:
    folder, manifest = tiny
    measured = first(manifest)
    weights = Runner([folder], [CPU]).weights(measured)
    assert weights
    for each in weights:
        assert each.path == folder / "weights.bin"
        assert 0 <= each.begin_bytes < each.end_bytes <= each.path.stat().st_size
    grid = evicting_settings([measured])
    assert grid[0] == ALONE
    assert [each.evicted_millionths for each in grid[1:9]] == [125_000 * i for i in range(1, 9)]
    assert grid[9].neighbour == measured
    with Disturber([CPU], [], [folder], [Victim.whole(folder / "weights.bin")]) as disturber:
        for work in (None, measured):
            grid[8].begin(disturber, work)
        disturber.rest()
        missing = msgspec.structs.replace(measured, model="another/1")
        with pytest.raises(VeltairError, match="the process that disturbs is gone"):
            grid[8].begin(disturber, missing)


def test_a_disturber_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        Disturber([CPU], [MB], [tmp_path])


def test_settings_name_themselves() -> None:
    assert str(ALONE) == "alone"
    bubbles = Setting(footprint_bytes=4_000_000, bytes_per_s=12_500_000_000)
    assert str(bubbles) == "bubbles of 4 MB at 12.5 GB/s"
    assert str(Setting(neighbour=work(3))) == "beside m/1 layer3 (v0)"
    assert not bubbles.is_alone
    evictors = Setting(evicted_millionths=250_000)
    assert str(evictors) == "evictors of 0.25 of its weights"
    assert not evictors.is_alone
