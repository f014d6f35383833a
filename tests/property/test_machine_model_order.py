"""The machine model never has more of a machine, or less beside it, make a layer slower."""

from __future__ import annotations

import numpy as np
from factories import machine_table
from hypothesis import given
from hypothesis import strategies as st

from veltair.proxy.machine_file import Machine, parse_machine
from veltair.proxy.machine_model import Work, times

SLACK = 1 + 1e-9


@st.composite
def works(draw: st.DrawFn) -> Work:
    size = st.floats(0, 1e9)
    return Work(
        operations=draw(st.floats(1, 1e12)),
        extent=draw(st.integers(1, 5000)),
        tile_bytes=draw(st.floats(1, 1e8)),
        weight_bytes=draw(size),
        other_bytes=draw(size),
        share=draw(st.floats(0.001, 4)),
        model_bytes=draw(size),
    )


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    table = machine_table()
    complexes = draw(st.integers(1, 16))
    table["processor"] |= {"complexes": complexes, "cores": complexes * draw(st.integers(1, 8))}
    core = draw(st.floats(1, 100))
    whole = core * draw(st.floats(1, 10))
    table["memory"] = {
        "core_gbps": core,
        "complex_gbps": whole,
        "total_gbps": whole * draw(st.floats(1, 20)),
    }
    table["caches"] = {
        "l2_kib": draw(st.sampled_from([256, 1024, 2048])),
        "l3_mib": draw(st.floats(0.5, 100)),
        "l3_core_gbps": core * draw(st.floats(1, 10)),
    }
    return parse_machine(table)


LEVELS = st.lists(st.floats(0, 20), min_size=2, max_size=6).map(sorted)


@given(works(), machines(), LEVELS)
def test_a_higher_level_is_never_faster(work: Work, machine: Machine, levels: list[float]) -> None:
    cores = range(1, machine.processor.cores + 1)
    found = times(work, machine, cores, levels).total
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert (found[:, :-1] <= found[:, 1:] * SLACK).all()


@given(works(), machines(), LEVELS)
def test_more_cores_are_never_slower_but_for_waking_them(
    work: Work, machine: Machine, levels: list[float]
) -> None:
    cores = range(1, machine.processor.cores + 1)
    found = times(work, machine, cores, levels)
    working = found.total - found.launch
    assert (working[1:] <= working[:-1] * SLACK).all()
    # Beyond the extent further cores only have to be woken.
    beyond = working[work.extent - 1 :]
    assert (beyond == beyond[:1]).all()


@given(works(), machines(), st.floats(1, 100), st.data())
def test_more_bandwidth_is_never_slower(
    work: Work, machine: Machine, factor: float, data: st.DataObject
) -> None:
    # A level is what it does to the reference kernel, so at one level a machine whose single core
    # reads faster has lost more of its cache: those two figures are compared alone.
    alone = ("memory.core_gbps", "caches.l3_core_gbps")
    at_any_level = ("memory.complex_gbps", "memory.total_gbps", "caches.l3_mib")
    field = data.draw(st.sampled_from(alone + at_any_level))
    levels = [0.0] if field in alone else data.draw(LEVELS)
    section, _, name = field.partition(".")
    faster = machine.changed(field, getattr(getattr(machine, section), name) * factor)
    cores = range(1, machine.processor.cores + 1)
    before = times(work, machine, cores, levels).total
    after = times(work, faster, cores, levels).total
    assert (after <= before * SLACK).all()


@given(works(), machines())
def test_no_time_is_below_the_roofline(work: Work, machine: Machine) -> None:
    cores = np.arange(1, machine.processor.cores + 1)
    found = times(work, machine, cores.tolist(), (0.0,)).total[:, 0]
    all_cores_ns = work.operations / (machine.peak_gflops * work.share) / cores
    assert (found >= all_cores_ns / SLACK).all()
    assert (found >= work.bytes / cores / machine.caches.l3_core_gbps / SLACK).all()
