"""Which layers gain from a second version: `python -m veltair.eval.versions_gain ARTIFACT...`.

A layer gains on some cores at some level of interference where the version that is fastest there
is faster than the one that is fastest alone on as many cores. First as profiles measured it, where
they have levels; then as the machine model has it, on each machine of `proxy/machines`, with all of
its memory's bandwidth and with parts of it, on rising core counts: the fewest cores, and the most
bandwidth, on which a layer gains. Writes `eval/results/versions_gain.json` and `versions_gain.md`.

Reference: VELTAIR, section 3.3 and Figures 6 and 7: versions of more parallelism and less locality
win where others take the shared cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from veltair.compiler.search.samples import read_search
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.disturbed_layers import disturbed
from veltair.eval.model_errors import is_disturbed
from veltair.eval.record import write_result
from veltair.eval.versions_gain_report import report
from veltair.proxy.kernel_shares import read_shares
from veltair.proxy.machine_file import (
    Machine,
    find_machine,
    machine_measured_on,
    shipped_machines,
)
from veltair.proxy.machine_model import times
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.manifest import Manifest, read_manifest
from veltair.runtime.simulate.machine_profiles import Modelled, default_levels, works_of

LEAST_GAIN = 0.10  # what the compiler keeps a further version for
BANDWIDTHS = (1.0, 0.5, 0.25, 0.125)  # parts of a machine's memory bandwidth


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The most that a layer gains.

    Attributes:
        gain: time of the version that is fastest alone, over that of the fastest, less 1.
        cores: where.
        level: where.
        alone: index of the version that is fastest alone there.
        beside: index of the one that is fastest at the level.
    """

    gain: float
    cores: int
    level: float
    alone: int
    beside: int


def gains(times_ns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns float64[cores, levels]: what the fastest version gains over the fastest alone.

    Args:
        times_ns: float64[versions, cores, levels]; the first level is the one alone.
    """
    alone = times_ns[:, :, 0].argmin(axis=0)
    of_alone = np.take_along_axis(times_ns, alone[None, :, None], axis=0)[0]
    return np.asarray(of_alone / times_ns.min(axis=0) - 1)


def largest(
    times_ns: NDArray[np.float64], cores: tuple[int, ...], levels: tuple[float, ...]
) -> Gain:
    """Returns the largest gain of a layer, and where it is; arguments as `gains` has them."""
    found = gains(times_ns)
    c, at = np.unravel_index(int(found.argmax()), found.shape)
    return Gain(
        gain=float(found[c, at]),
        cores=cores[c],
        level=levels[at],
        alone=int(times_ns[:, c, 0].argmin()),
        beside=int(times_ns[:, c, at].argmin()),
    )


def measured_gains(manifest: Manifest) -> list[dict[str, Any]] | None:
    """Layers that gained where the profile was measured; None where it has one level."""
    profile = manifest.profile
    if len(profile.levels) < 2:
        return None
    counts = profile.cores
    if profile.interference is not None:  # times of more are estimated
        counts = tuple(c for c in counts if c <= profile.interference.measured_cores)
    found = []
    for index, layer in enumerate(manifest.layers):
        table = np.array(profile.layer_ns[index], dtype=np.float64)[:, : len(counts)]
        best = largest(table, counts, profile.levels)
        if best.gain >= LEAST_GAIN:
            found.append(_row(manifest, index, best) | {"flops": layer.flops})
    return found


def modelled_gains(manifest: Manifest, machine: Machine, on: Modelled) -> list[dict[str, Any]]:
    """Layers that would gain on a machine, with the fewest cores and most bandwidth that do it."""
    cores = _counts(machine)
    works = works_of(manifest, on)
    found = []
    for index, layer_works in enumerate(works):
        if len(layer_works) < 2:
            continue
        for part in BANDWIDTHS:
            slower = _with_bandwidth(machine, part)
            levels = default_levels(slower)
            table = np.stack([times(w, slower, cores, levels).total for w in layer_works])
            enough = np.flatnonzero((gains(table) >= LEAST_GAIN).any(axis=1))
            if len(enough) > 0:
                best = largest(table, cores, levels)
                found.append(
                    _row(manifest, index, best)
                    | {
                        "bandwidth": part,
                        "total_gbps": slower.memory.total_gbps,
                        "fewest_cores": cores[enough[0]],
                    }
                )
                break
    return found


def _row(manifest: Manifest, index: int, best: Gain) -> dict[str, Any]:
    layer = manifest.layers[index]
    return {
        "layer": index,
        "name": layer.name,
        "op": layer.op,
        "gain": best.gain,
        "cores": best.cores,
        "level": best.level,
        "alone": layer.variants[best.alone].id,
        "beside": layer.variants[best.beside].id,
    }


def _manifest(folder: Path) -> Manifest:
    return read_manifest(resolve_folder(folder))


def _counts(machine: Machine) -> tuple[int, ...]:
    """Powers of two, and all cores."""
    total = machine.processor.cores
    powers = [1 << shift for shift in range(total.bit_length()) if 1 << shift < total]
    return (*powers, total)


def _with_bandwidth(machine: Machine, part: float) -> Machine:
    for name in ("core_gbps", "complex_gbps", "total_gbps"):
        machine = machine.changed(f"memory.{name}", getattr(machine.memory, name) * part)
    return machine


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="ARTIFACT...", help="<model>/ or <model>/<version>/.")
    ],
    levels: Annotated[
        list[Path] | None,
        typer.Option(
            "--levels",
            metavar="ARTIFACT",
            help="The same model, profiled at several levels, which removes versions that don't "
            "gain; for what was measured. Repeatable.",
        ),
    ] = None,
    measured_on: Annotated[
        str,
        typer.Option(
            help="What they were measured on: a shipped name, or a file.  [default: the shipped "
            "one of their processor]"
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("eval/results"),
) -> None:
    """Say which layers gain from a second version, here and on the machines of the model."""
    if not out.is_dir():
        raise InputError(f"--out {out}: no such folder; create it first")
    manifests = [_manifest(folder) for folder in folders]
    profiles = [manifest.profile for manifest in manifests]
    here = machine_measured_on(measured_on, profiles, "--measured-on")
    machines = {name: find_machine(name, Path(), "machine") for name in shipped_machines()}
    shares = read_shares()
    models = []
    profiled = {_manifest(each).name: each for each in levels or []}
    for folder, manifest in zip(folders, manifests, strict=True):
        measured_in = resolve_folder(profiled.get(manifest.name, folder))
        at_levels = read_manifest(measured_in)
        made = at_levels.profile.interference
        models.append(
            {
                "model": manifest.name,
                "layers": len(manifest.layers),
                "several_versions": sum(len(layer.variants) > 1 for layer in manifest.layers),
                "disturbed": is_disturbed(manifest),
                "measured_levels": list(at_levels.profile.levels),
                "co_runner": "evictors" if made and made.evicted_share else "bubbles",
                "measured": measured_gains(at_levels),
                "disturbed_layers": disturbed(at_levels, read_search(measured_in)),
                "modelled": {
                    name: modelled_gains(
                        manifest,
                        machine,
                        Modelled(machine=machine, shares=shares, measured_on=here),
                    )
                    for name, machine in machines.items()
                },
            }
        )
    result = {
        **origin("versions_gain"),
        "measured_on": here.processor.name,
        "least_gain": LEAST_GAIN,
        "bandwidths": list(BANDWIDTHS),
        "machines": {
            name: {
                "cores": machine.processor.cores,
                "total_gbps": machine.memory.total_gbps,
                "levels": list(default_levels(machine)),
            }
            for name, machine in machines.items()
        },
        "models": models,
    }
    write_result(out / "versions_gain.json", result)
    text = report(result)
    write_whole(out / "versions_gain.md", text.encode())
    print(text)


if __name__ == "__main__":
    run_benchmark("versions_gain", command)
