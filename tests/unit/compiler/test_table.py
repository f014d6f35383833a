"""The table of an artifact's layers: what gives way where a line is too long for the console."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from factories import write_tiny_artifact
from rich.console import Console

from veltair.compiler.table import layer_table


@pytest.mark.parametrize("width", [70, 160])
def test_a_long_operator_takes_no_room_of_names_and_times(tmp_path: Path, width: int) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    first, *others = manifest.layers
    long = msgspec.structs.replace(first, op="_".join(["fused_multiply_add"] * 12))
    changed = msgspec.structs.replace(manifest, layers=(long, *others))

    out = io.StringIO()
    Console(file=out, width=width).print(layer_table(changed))
    lines = out.getvalue().splitlines()

    assert max(map(len, lines)) <= width
    (row,) = (line.split() for line in lines if "fused" in line)
    assert row[0] == first.name
    assert row[1].startswith("fused_")
    assert row[1].endswith("…")
    one, two = (levels[0] / 1e6 for levels in manifest.profile.layer_ns[0][0])
    assert row[-3:-1] == [f"{one:.3f}", f"{two:.3f}"]
    assert row[-1].endswith("%")
