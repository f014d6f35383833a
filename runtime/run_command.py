"""`veltair run`: runs an artifact once, from and to NumPy's archive files."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from veltair.runtime.errors import InputError
from veltair.runtime.files import replacing
from veltair.runtime.model import Model

_HOW_TO_WRITE = "write one with numpy.savez(file, name=array), arrays of numbers"


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="<model>/ or <model>/<version>/.")],
    input_file: Annotated[
        Path, typer.Option("--input", "-i", help="An .npz file with every input by name.")
    ],
    output_file: Annotated[
        Path, typer.Option("--output", "-o", help="The .npz file to write every output to.")
    ],
    cores: Annotated[int | None, typer.Option(help="How many cores; all if not given.")] = None,
    batch: Annotated[int, typer.Option(help="Samples in the inputs' first dimension.", min=1)] = 1,
) -> None:
    """Run an artifact once on the inputs of a file."""
    if not output_file.parent.is_dir():
        raise InputError(
            f"--output {output_file}: there is no folder {output_file.parent}; create it first"
        )
    inputs = read_arrays(input_file)
    model = Model.load(folder, batch=batch)
    chosen = first_cpus(model.cpus, cores)
    begin_ns = time.monotonic_ns()
    outputs = model.run(inputs, chosen)
    run_ns = time.monotonic_ns() - begin_ns
    write_arrays(output_file, outputs)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
    print(
        f"{output_file}: {shapes}; {model.manifest.name} version {model.manifest.version}, "
        f"{run_ns / 1e6:.2f} ms on {len(chosen)} core{'s' if len(chosen) > 1 else ''} "
        "(a first run, caches cold)"
    )


def first_cpus(usable: Sequence[int], cores: int | None) -> tuple[int, ...]:
    """Returns the first `cores` of the usable processors; all if None.

    Raises:
        InputError: there are not that many.
    """
    if cores is None:
        return tuple(usable)
    if not 1 <= cores <= len(usable):
        raise InputError(
            f"--cores {cores}: this process may use {len(usable)}; "
            f"give a number from 1 to {len(usable)}"
        )
    return tuple(usable[:cores])


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Reads an .npz file.

    Raises:
        InputError: it is missing or no such file, or an array in it is of Python objects.
    """
    try:
        if path.is_file() and not zipfile.is_zipfile(path):
            raise InputError(f"--input {path}: not an .npz file; {_HOW_TO_WRITE}")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise InputError(f"--input {path}: can't be read ({error.strerror or error})") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"--input {path}: damaged, or holds Python objects; {_HOW_TO_WRITE}"
        ) from error


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Writes an .npz file beside `path` and renames it, so that no half of one is ever seen.

    Raises:
        InputError: it can't be written; nothing is left.
    """
    try:
        # By hand, since numpy.savez has parameters that an output might be called.
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"--output {path}: can't be written ({error.strerror}); nothing was changed"
        ) from error
