"""Builders of calibration records for tests: a machine that is what a test says it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from veltair.proxy.calibration_record import SCHEMA, CalibrationRecord, Header, Slot, Turn
from veltair.proxy.grid import ALONE, Setting
from veltair.proxy.sources.reading import Reading
from veltair.proxy.works import Work
from veltair.runtime.machine import machine_facts

REFERENCE_NS, RUN_NS, RUNS = 1000.0, 50_000, 20
LEVELS = (0.0, 0.5, 1.0)


def work(layer: int, *, size: int = 100, version: int = 0) -> Work:
    return Work(
        model="m/1",
        layer=layer,
        name=f"layer{layer}",
        version=version,
        variant=f"v{version}",
        key=f"conv {layer}",
        bytes=size,
    )


def header(works: int = 4) -> Header:
    bubbles = [Setting(footprint_bytes=1 << 20, bytes_per_s=each * 10**9) for each in (1, 2)]
    return Header(
        veltair_calibration=SCHEMA,
        machine=machine_facts(),
        artifacts={"m/1": "abc"},
        settings=(ALONE, *bubbles),
        works=tuple(work(index) for index in range(works)),
        sources=("probe",),
    )


def slot(
    setting: int,
    *,
    reference_ns: float,
    run_ns: int = RUN_NS,
    readings: dict[str, Reading] | None = None,
) -> Slot:
    return Slot(
        setting=setting,
        reference_ns=reference_ns,
        run_ns=run_ns,
        total_ns=run_ns * RUNS,
        runs=RUNS,
        readings=readings or {},
    )


def turn(
    number: int,
    of: int,
    *,
    drift: float = 1.0,
    levels: Sequence[float] = LEVELS,
    sensitivity: float = 0.5,
    reading: Callable[[float], Reading] | None = None,
) -> Turn:
    """A layer that slows by `sensitivity` a level, on a machine that `drift` slows."""
    slots = tuple(
        slot(
            setting,
            reference_ns=REFERENCE_NS * drift * (1 + levels[setting]),
            run_ns=round(RUN_NS * drift * (1 + sensitivity * levels[setting])),
            readings={"probe": reading(levels[setting])} if reading else None,
        )
        for setting in (0, *range(len(levels)))
    )
    return Turn(round=number, work=of, elapsed_ns=10**9, slots=slots)


def record(path: Path, turns: Sequence[Turn], works: int = 4) -> CalibrationRecord:
    made = CalibrationRecord.begin(path, header(works))
    for each in turns:
        made.add(each)
    return made
