"""`veltair export`: writes a recipe's network as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veltair.models.catalog import RECIPES, build, recipe
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole


def command(
    name: Annotated[str, typer.Argument(help=f"The network: {', '.join(RECIPES)}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    batch: Annotated[int, typer.Option(help="Samples a run.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the drawn weights.")] = 0,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an existing file.")] = False,
) -> None:
    """Write a network as ONNX, with drawn weights or, where a package brings them, trained ones."""
    if output.exists() and not output.is_file():
        raise InputError(f"{output}: not a file, so it is not replaced; give a file's name")
    if output.exists() and not force:
        raise InputError(f"{output}: exists; give another name, or --force to replace it")
    if not output.parent.is_dir():
        raise InputError(f"{output}: there is no folder {output.parent}; create it first")
    data = build(name, batch=batch, seed=seed).SerializeToString(deterministic=True)
    try:
        write_whole(output, data)
    except OSError as error:
        raise InputError(
            f"{output}: can't be written: {error.strerror}; nothing was changed"
        ) from error
    package = recipe(name).package
    weights = f"trained weights of {package}" if package else f"weights drawn from seed {seed}"
    print(f"{output}: {name}, {len(data) / 1e6:.1f} MB, {weights}")
