"""Weights: each constant lies where its argument says, in whatever pieces the file is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from veltair.compiler.weights import WeightStore
from veltair.runtime.manifest import ALIGNMENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

LENGTHS = (3, 0, 700_000, 1, 1_300_000, 17, 0)  # floats; the file is of several huge pages


def test_every_constant_lies_where_its_argument_says(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    arrays = [generator.random(length).astype(np.float32) for length in LENGTHS]
    store = WeightStore()
    places = [store.add(array) for array in arrays]
    store.write(tmp_path / "weights.bin")
    content = (tmp_path / "weights.bin").read_bytes()
    assert len(content) == store.size_bytes
    expected = bytearray(len(content))  # what belongs to no constant is zero
    for place, array in zip(places, arrays, strict=True):
        assert place.offset_bytes % ALIGNMENT_BYTES == 0
        expected[place.offset_bytes : place.offset_bytes + array.nbytes] = array.tobytes()
    assert content == expected


def test_a_model_without_constants_has_an_empty_file(tmp_path: Path) -> None:
    WeightStore().write(tmp_path / "weights.bin")
    assert (tmp_path / "weights.bin").read_bytes() == b""
