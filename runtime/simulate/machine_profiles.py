"""Profiles of artifacts on a machine that is only described, by the machine model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from veltair.proxy.kernel_shares import read_shares
from veltair.proxy.machine_file import find_machine
from veltair.proxy.machine_model import (
    beside_bubbles,
    beside_equals,
    highest_level,
    model_bytes_of,
    pushed_by_equals,
    times,
    times_under,
    work_of,
)
from veltair.runtime._native import sim
from veltair.runtime.errors import ConfigError
from veltair.runtime.manifest import LONGEST_NS, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from veltair.proxy.machine_file import Machine
    from veltair.proxy.machine_model import Conditions, Work
    from veltair.runtime.manifest import Manifest
    from veltair.runtime.simulate.scenario import MachineSection

_LEVELS = 5


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """Where artifacts are said to run.

    Attributes:
        machine: the one that is simulated.
        shares: of a core's peak, by algorithm.
        measured_on: the one that artifacts' profiles were measured on; None: it isn't known.
        shared: whether blocks share its memory, so that levels are what they make themselves.
    """

    machine: Machine
    shares: Mapping[str, float]
    measured_on: Machine | None = None
    shared: bool = False


def modelled_machine(section: MachineSection, folder: Path) -> Modelled | None:
    """Reads what a scenario says of its machine; None where it names no model.

    Raises:
        ConfigError: a file can't be used, or the machine has fewer cores than the scenario.
    """
    if not section.model:
        return None
    machine = find_machine(section.model, folder, "machine.model")
    if section.cores > machine.processor.cores:
        raise ConfigError(
            f"machine.cores = {section.cores}: machine.model = {section.model!r} has "
            f"{machine.processor.cores}; simulate that many at most"
        )
    measured_on = None
    if section.measured_on:
        measured_on = find_machine(section.measured_on, folder, "machine.measured_on")
    return Modelled(
        machine=machine,
        shares=read_shares(),
        measured_on=measured_on,
        shared=section.interference == "shared",
    )


def default_levels(machine: Machine) -> tuple[float, ...]:
    """Five levels, up to where the reference kernel reads from memory alone; else the one alone."""
    highest = highest_level(machine)
    if highest == 0:
        return (0.0,)
    return tuple(highest * part / (_LEVELS - 1) for part in range(_LEVELS))


def works_of(manifest: Manifest, on: Modelled) -> list[list[Work]]:
    """What each variant of each layer asks for.

    Where it is known what the profile was measured on, a variant's share of the peak is its own,
    from its time on one core, unless something else than computing held it up there, as the model
    has it.
    """
    model_bytes = model_bytes_of(manifest)
    found = []
    for layer, layer_ns in zip(manifest.layers, manifest.profile.layer_ns, strict=True):
        works = [work_of(layer, v, on.shares, model_bytes) for v in layer.variants]
        if on.measured_on is not None:
            works = [
                _with_own_share(work, on.measured_on, rows[0][0])
                for work, rows in zip(works, layer_ns, strict=True)
            ]
        found.append(works)
    return found


def _with_own_share(work: Work, machine: Machine, alone_ns: int) -> Work:
    """The work by a variant whose time alone on one core of a machine is known."""
    predicted = times(work, machine, (1,), (0.0,))
    held_up_ns = float(np.maximum(predicted.cache, predicted.memory)[0, 0])
    computing_ns = alone_ns - float(predicted.launch[0, 0])
    if computing_ns <= held_up_ns or predicted.bound_by() != "compute":
        return work
    return replace(work, share=work.operations / machine.peak_gflops / computing_ns)


def on_machine(
    manifest: Manifest, on: Modelled, cores: Sequence[int], levels: Sequence[float]
) -> Manifest:
    """Returns the manifest as it would be on another machine: its profile, and its first versions.

    A layer's first version is what whole runs are of. The one that is fastest on the few cores that
    it was compiled on may not be divisible among many, so on the other machine the first is the one
    that loses least, on average over the core counts alone, against the fastest on each.

    Args:
        manifest: of the artifact.
        on: where.
        cores: ascending, of the machine.
        levels: slow-downs of the reference kernel beside bubbles, ascending from 0.
    """
    found, _ = under(manifest, on, cores, beside_bubbles(on.machine, levels))
    return found


def beside_others(
    manifest: Manifest, on: Modelled, cores: Sequence[int]
) -> tuple[Manifest, NDArray[np.int64]]:
    """The same beside blocks like its own, with what its layers read from memory.

    Returns:
        The manifest, and int64[all versions of all layers, C, L] bytes.
    """
    return under(manifest, on, cores, beside_equals(on.machine, cores))


def under(
    manifest: Manifest, on: Modelled, cores: Sequence[int], conditions: Conditions
) -> tuple[Manifest, NDArray[np.int64]]:
    """The same under any conditions."""
    layers, tables, reads = [], [], []
    for layer, works in zip(manifest.layers, works_of(manifest, on), strict=True):
        found = [times_under(work, on.machine, cores, conditions) for work in works]
        table = np.stack([_rounded(each.total) for each in found])
        order = _first_in_front(table)
        tables.append(table[order])
        reads += [np.rint(found[index].read_bytes).astype(np.int64) for index in order]
        variants = tuple(layer.variants[index] for index in order)
        layers.append(msgspec.structs.replace(layer, variants=variants))
    profile = Profile(
        machine={"cpu": on.machine.processor.name, "cores": on.machine.processor.cores},
        cores=tuple(cores),
        levels=conditions.slowdowns,
        layer_ns=tuple(tuple(map(_rows, table)) for table in tables),
        model_ns=_rows(np.sum([table[0] for table in tables], axis=0)),
    )
    changed = msgspec.structs.replace(manifest, layers=tuple(layers), profile=profile, batches=())
    return changed, np.stack(reads)


def shared_memory(machine: Machine, *, told: bool, error: float) -> sim.SharedMemory:
    """What a simulated machine's blocks do to each other.

    Args:
        machine: whose.
        told: whether policies are told the level.
        error: standard deviation of what they are told.
    """
    return sim.SharedMemory(
        gbps=machine.memory.total_gbps,
        pushed=pushed_by_equals(machine),
        highest=highest_level(machine),
        told=told,
        error=error,
    )


def _first_in_front(table: NDArray[np.int64]) -> list[int]:
    """Indices into int64[versions, cores, levels], the version for all core counts in front."""
    alone = table[:, :, 0]
    first = int((alone / alone.min(axis=0)).mean(axis=1).argmin())
    return [first, *(index for index in range(len(table)) if index != first)]


def _rounded(times_ns: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.asarray(np.clip(np.rint(times_ns), 1, LONGEST_NS), dtype=np.int64)


def _rows(table: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())
