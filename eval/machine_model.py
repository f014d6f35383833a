"""Errors of the machine model: `python -m veltair.eval.machine_model ARTIFACT... [--fit]`.

Compares it with artifacts' profiles on the machine that they were measured on, and with the
paper's layers on its 64 cores, and writes `eval/results/machine_model.json` and `machine_model.md`.
What parts of a core's peak kernels reach (`proxy/kernel_shares.json`) is fitted on every second
layer and written with `--fit`; errors are those of the other layers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.machine_model_report import report
from veltair.eval.model_errors import (
    compared,
    error_of,
    errors_by,
    fitted_shares,
    is_disturbed,
    left_out,
    rows_of,
    whole_runs,
)
from veltair.eval.paper_layers import paper_errors, read_layers
from veltair.eval.record import write_result
from veltair.proxy.kernel_shares import SHARES_FILE, KernelShares, read_kernel_shares
from veltair.proxy.machine_file import Machine, find_machine, machine_measured_on
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.manifest import Manifest, read_manifest

PAPER_LAYERS = Path(__file__).resolve().parent / "data" / "veltair_3990x_resnet50.csv"
PAPER_MACHINE = "threadripper_3990x"
_LONG_NS = 100_000  # of layers whose time is not mostly what begins and ends them


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="ARTIFACT...", help="<model>/ or <model>/<version>/.")
    ],
    machine: Annotated[
        str,
        typer.Option(
            help="That they were measured on: a shipped name, or a file.  [default: the shipped "
            "one of their processor]"
        ),
    ] = "",
    fit: Annotated[
        bool, typer.Option("--fit", help="Write what kernels reach of the peak, too.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("eval/results"),
) -> None:
    """Compare the machine model with what was measured."""
    if not out.is_dir():
        raise InputError(f"--out {out}: no such folder; create it first")
    manifests = [read_manifest(resolve_folder(folder)) for folder in folders]
    here = machine_measured_on(machine, (each.profile for each in manifests), "--machine")
    found_from = origin("machine_model")
    if fit:
        shares, samples = fitted_shares(manifests, here)
        written = KernelShares(
            command=found_from["command"],
            revision=found_from["revision"],
            machine=here.processor.name,
            samples=samples,
            shares={name: round(share, 6) for name, share in shares.items()},
        )
        write_whole(SHARES_FILE, msgspec.json.format(msgspec.json.encode(written)) + b"\n")
    result = {**found_from, **here_errors(manifests, here)}
    paper = find_machine(PAPER_MACHINE, Path(), "machine")
    result["paper"] = paper_errors(read_layers(PAPER_LAYERS, paper.processor.vector_lanes), paper)
    write_result(out / "machine_model.json", result)
    text = report(result)
    write_whole(out / "machine_model.md", text.encode())
    print(text)


def here_errors(manifests: list[Manifest], machine: Machine) -> dict[str, Any]:
    """Errors on the machine of the profiles, over the layers that no share was fitted on."""
    known = read_kernel_shares()
    found = [each for manifest in manifests for each in compared(manifest, machine, known.shares)]
    disturbed = {manifest.name for manifest in manifests if is_disturbed(manifest)}
    judged = [each for each in found if each.held_out and each.model not in disturbed]
    if not judged:
        raise InputError(
            "each of these profiles is slower on more cores, so none can judge a model; measure "
            "them again with `veltair profile` on a quiet machine"
        )
    long = [each.ratio for each in judged if each.measured_ns >= _LONG_NS]
    return {
        "measured_on": machine.processor.name,
        "fitted_on": known.machine,
        "disturbed": sorted(disturbed),
        "all": error_of(each.ratio for each in judged),
        "long": error_of(long) if long else None,
        "long_ns": _LONG_NS,
        "by_cores_and_level": errors_by(judged, "cores", "nearest_level"),
        "by_algorithm": errors_by(judged, "algorithm", "cores"),
        "by_bound": errors_by(judged, "bound", "cores"),
        "by_left_out_model": left_out(manifests, machine),
        "whole_runs": whole_runs(found),
        "layers": rows_of(found),
    }


if __name__ == "__main__":
    run_benchmark("machine_model", command)
