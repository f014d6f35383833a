"""`veltair inspect`: an artifact's layers and profile, as a table or as its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veltair.compiler.fallback_summary import fallback_summary
from veltair.compiler.table import batches_text, layer_table, levels_text, table_console
from veltair.runtime.artifact import open_artifact


def command(
    folder: Annotated[Path, typer.Argument(help="An artifact: MODEL/VERSION, or MODEL.")],
    json: Annotated[bool, typer.Option("--json", help="Print the manifest instead.")] = False,
    batch: Annotated[int, typer.Option(help="Layers of a run of so many samples.", min=1)] = 1,
    verify: Annotated[bool, typer.Option(help="Check the files' hashes first.")] = True,
) -> None:
    """Print the table that `veltair compile` ends with."""
    artifact = open_artifact(folder, verify=verify)
    if json:
        print(artifact.manifest.to_json().decode())
        return
    manifest = artifact.manifest.at(batch)
    table_console().print(layer_table(manifest))
    for kind, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        for tensor in tensors:
            print(f"{kind} {tensor.name}: {tensor.dtype}{list(tensor.shape)}")
    told = (*levels_text(manifest), *fallback_summary(manifest))
    for line in (*told, *batches_text(artifact.manifest)):
        print(line)
    weights = sum(d.size_bytes for d in manifest.files.values())
    print(
        f"{manifest.isa}, QoS {manifest.qos_ns / 1e6:g} ms, files {weights / 1e6:.1f} MB, "
        f"activations {manifest.arena_bytes / 1e6:.1f} MB that models share, "
        f"{manifest.bordered_bytes / 1e6:.1f} MB of its own, {manifest.producer}"
    )
