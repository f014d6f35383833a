"""The machine model's times beside figures worked out by hand.

The machine has 4 cores in 2 complexes. A core computes 2 GHz x 4 lanes x 1 x 2 = 16 operations a ns
and has 1 MiB of its own; an L3 has 4 MiB and gives each core 40 bytes a ns; memory gives a core 10,
a complex 16 and all 20. A launch takes 100 ns and 50 for each core beyond the first.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from factories import dense, machine_table, tiny_layers, write_tiny_artifact

from veltair.proxy.machine_file import parse_machine
from veltair.proxy.machine_model import (
    Times,
    Work,
    beside_equals,
    highest_level,
    model_bytes_of,
    squeezed,
    times,
    times_under,
    work_of,
)
from veltair.runtime.errors import ConfigError
from veltair.runtime.manifest import Variant

MACHINE = parse_machine(machine_table())
MIB = 1 << 20
SMALL = Work(  # fits everything, and hardly moves anything
    operations=160_000, extent=8, tile_bytes=100, weight_bytes=400, other_bytes=400, share=0.5
)


def on(work: Work, *cores: int, levels: tuple[float, ...] = (0.0,)) -> Times:
    return times(work, MACHINE, cores, levels)


def column(values: np.ndarray) -> list[float]:
    return [round(float(value), 3) for value in values[:, 0]]


def test_computing_is_divided_into_whole_tasks() -> None:
    # 160,000 operations at 8 a ns take 20,000 ns; 8 tasks on 3 cores are 3 rounds of 2,500.
    found = on(SMALL, 1, 2, 3, 4)
    assert column(found.compute) == [20_000, 10_000, 7_500, 5_000]
    assert column(found.launch) == [100, 150, 200, 250]
    assert column(found.total) == [20_100, 10_150, 7_700, 5_250]
    assert found.bound_by(0, 0) == "compute"


def test_no_more_cores_are_used_than_there_are_tasks() -> None:
    found = on(replace(SMALL, extent=2), 2, 4)
    assert column(found.compute) == [10_000, 10_000]
    assert column(found.total) == [10_150, 10_250]  # waking two more costs, and gains nothing


def test_a_layer_that_fits_its_caches_reads_each_byte_from_the_l3_once() -> None:
    # 2 MiB, tiles of 256 KiB: 8 tasks of which each brings its own. 2 MiB at 40 bytes a ns.
    work = replace(SMALL, operations=1, tile_bytes=MIB / 4, weight_bytes=MIB, other_bytes=MIB)
    found = on(work, 1, 2, 4)
    assert column(found.cache) == [round(2 * MIB / 40 / n, 3) for n in (1, 2, 4)]
    assert column(found.memory) == [0, 0, 0]
    assert found.bound_by(2, 0) == "cache"


def test_tiles_beyond_the_second_cache_are_streamed_by_each_task() -> None:
    # 8 tasks with 1.5 MiB each, of 2 MiB that they share: 12 MiB pass through one core.
    work = replace(SMALL, operations=1, tile_bytes=1.5 * MIB, weight_bytes=MIB, other_bytes=MIB)
    assert column(on(work, 1, 2).cache) == [round(12 * MIB / 40, 3), round(6 * MIB / 40, 3)]
    small = replace(work, tile_bytes=0.5 * MIB)  # fits: what tasks share stays in the core's own
    assert column(on(small, 1).cache) == [round(2 * MIB / 40, 3)]


def test_what_exceeds_the_l3_is_read_from_memory() -> None:
    # 8 MiB in an L3 of 4: half is gone. One core reads 10 bytes a ns; a complex 16.
    work = replace(
        SMALL, operations=1, extent=64, tile_bytes=MIB / 8, weight_bytes=0, other_bytes=8 * MIB
    )
    found = on(work, 1, 2, 4)
    # On 4 cores both L3s hold 4 MiB each, which is all that their tasks touch.
    assert column(found.memory) == [round(4 * MIB / 10, 3), round(4 * MIB / 16, 3), 0]
    assert found.bound_by(0, 0) == "memory"
    streamed = replace(work, extent=8, tile_bytes=2 * MIB)  # 16 MiB, 8 of them again
    assert column(on(streamed, 1).memory) == [round((4 + 8 / 2) * MIB / 10, 3)]


def test_weights_that_another_layer_pushed_out_come_from_memory() -> None:
    work = replace(SMALL, operations=1, tile_bytes=MIB / 8, weight_bytes=MIB, other_bytes=0)
    assert column(on(work, 1).memory) == [0]
    # Of a model of 16 MiB an L3 of 4 keeps a quarter, two of them half.
    of_a_model = replace(work, model_bytes=16 * MIB)
    found = on(of_a_model, 1, 4)
    assert column(found.memory) == [round(0.75 * MIB / 10, 3), round(0.5 * MIB / 20, 3)]


def test_a_layer_of_no_bytes_takes_no_memory() -> None:
    assert column(on(replace(SMALL, weight_bytes=0, other_bytes=0), 4).memory) == [0]


def test_interference_takes_the_cache_and_then_the_bandwidth() -> None:
    # The reference kernel reads 40 bytes a ns from the L3 and 10 from memory: level 3 is all gone.
    assert highest_level(MACHINE) == 3.0
    left, speed = squeezed(MACHINE, np.array([0.0, 1.5, 3.0, 7.0]))
    assert left.tolist() == [1.0, 0.5, 0.0, 0.0]
    assert speed.tolist() == [1.0, 1.0, 1.0, 0.5]
    # 4 MiB fit alone; in half of the L3 half of them are gone, in none all, at half of the speed.
    work = replace(
        SMALL, operations=1, extent=64, tile_bytes=MIB / 16, weight_bytes=0, other_bytes=4 * MIB
    )
    found = on(work, 1, levels=(0.0, 1.5, 3.0, 7.0))
    expected = [0, 2 * MIB / 10, 4 * MIB / 10, 4 * MIB / 5]
    assert found.memory[0].tolist() == pytest.approx(expected)
    assert found.compute[0].tolist() == pytest.approx([1 / 8] * 4)


def test_a_machine_whose_memory_is_as_fast_as_its_l3_loses_bandwidth_alone() -> None:
    even = MACHINE.changed("caches.l3_core_gbps", 10.0)
    left, speed = squeezed(even, np.array([0.0, 1.0]))
    assert left.tolist() == [1.0, 0.0]
    assert speed.tolist() == [1.0, 0.5]


def test_what_a_manifest_says_of_a_variant() -> None:
    product, _ = tiny_layers()
    shares = {"matmul": 0.5, "default": 0.1}
    work = work_of(product, product.variants[0], shares, model_bytes=9e6)
    # 8 x 64 in, 64 x 512 weights, 8 x 512 out, 4 bytes each.
    assert work == Work(
        operations=2 * 8 * 64 * 512,
        extent=8,
        tile_bytes=4096,
        weight_bytes=4 * 64 * 512,
        other_bytes=4 * (8 * 64 + 8 * 512),
        share=0.5,
        model_bytes=9e6,
    )
    with pytest.raises(ConfigError, match="'matmul', only for default"):
        work_of(product, product.variants[0], {"default": 0.1})


def variant(algorithm: str, extent: int, tile_bytes: int, *shapes: tuple[int, ...]) -> Variant:
    arguments = [dense("weights", "float32", shapes[0]), dense("arena", "float32", shapes[1])]
    return Variant(
        id=algorithm,
        symbol=algorithm,
        algorithm=algorithm,
        parallel_extent=extent,
        tile_bytes=tile_bytes,
        arguments=tuple(arguments),
    )


def test_kernels_whose_tiles_say_something_else() -> None:
    layer, _ = tiny_layers()
    shares = {"gather": 1.0, "winograd": 1.0, "relayout": 1.0}
    # Rows of a table of 4 MB: 4 tasks of 512 bytes touch no more.
    rows = work_of(layer, variant("gather", 4, 512, (1000, 1000), (4, 64)), shares)
    assert (rows.weight_bytes, rows.other_bytes) == (0, 2048)
    # One tile for all 100 tasks: not 100 times all weights.
    shared = work_of(layer, variant("winograd", 100, 400_000, (100, 1000), (100, 250)), shares)
    assert shared.extent * shared.tile_bytes == shared.bytes == 500_000
    # Nothing to compute: a move each 4 bytes.
    moves = work_of(
        msgspec.structs.replace(layer, flops=0), variant("relayout", 4, 64, (8, 8), (8, 8)), shares
    )
    assert moves.operations == 128


def test_all_that_a_model_touches(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    assert model_bytes_of(manifest) == 4 * 64 * 512 + manifest.arena_bytes
    bordered = msgspec.structs.replace(manifest, bordered_bytes=manifest.bordered_bytes + 640)
    assert model_bytes_of(bordered) == model_bytes_of(manifest) + 640


def test_blocks_take_from_each_other_what_their_cores_share() -> None:
    found = beside_equals(MACHINE, (1, 2, 3, 4))
    # The reference kernel takes 4 times as long from memory; a full machine pushes half of it out.
    assert found.slowdowns[:3] == (0, 0.75, 1.5)
    assert found.slowdowns[3] == pytest.approx(0.5 * (4 / 0.9 - 1))
    assert list(found.slowdowns) == sorted(set(found.slowdowns))
    # One core shares its complex's L3 with one other; two have one to themselves.
    assert found.left[0, :4].tolist() == [1, 0.75, 0.5, 0.5]
    assert found.left[1].tolist() == found.left[3].tolist() == [1] * len(found.slowdowns)
    assert found.left[2, 2] == 0.75  # two complexes, of which one core is another's
    assert found.speed[:, 2].tolist() == [1] * 4
    assert found.speed[:, 3].tolist() == [0.9] * 4


def test_blocks_that_share_memory_read_more_and_slower() -> None:
    work = replace(
        SMALL, operations=1, extent=64, tile_bytes=MIB / 8, weight_bytes=0, other_bytes=4 * MIB
    )
    found = times_under(work, MACHINE, (1, 2), beside_equals(MACHINE, (1, 2)))
    # 4 MiB in an L3 of 4: alone nothing is read; of one core half is gone beside others.
    assert found.read_bytes[0, :4].tolist() == [0, MIB, 2 * MIB, 2 * MIB]
    assert found.read_bytes[1].tolist() == [0] * found.read_bytes.shape[1]
    full, less = found.memory[0, 2:4]
    assert full == pytest.approx(2 * MIB / 10)
    assert less == pytest.approx(full / 0.9)


def test_cores_that_share_nothing_have_no_level() -> None:
    own = MACHINE.changed("processor.complexes", 4)
    with pytest.raises(ConfigError, match="L3 to itself"):
        beside_equals(own, (1,))
