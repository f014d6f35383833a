"""What counts as the reference's outputs: near ties in either order, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np
import pytest
from factories import write_tiny_artifact

from veltair.compiler.reference import Reference, answered, check
from veltair.runtime.errors import MismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.compiler.binding import Array
    from veltair.runtime.manifest import Manifest
    from veltair.runtime.model import Model

# The second and the third are as near to each other as rounding brings them.
SCORES = np.array([0.9, 0.5, 0.5 + 1e-8, 0.1, 0.0], dtype=np.float64)
ORDER = [0, 2, 1, 3, 4]


@dataclass
class Sorting:
    """A compiled model that gives one output."""

    manifest: Manifest
    output: Array

    def run(self, feed: Mapping[str, Array], variants: Sequence[int]) -> dict[str, Array]:
        del feed, variants
        return {"order": self.output}


def order_of(feed: Mapping[str, Array]) -> list[Array]:
    return [np.argsort(-feed["scores"]).astype(np.float32)]


def checked(tmp_path: Path, order: list[int], reference: Reference) -> float:
    manifest = write_tiny_artifact(tmp_path / "tiny" / "1")
    output = msgspec.structs.replace(manifest.outputs[0], name="order")
    manifest = msgspec.structs.replace(manifest, outputs=(output,))
    model = Sorting(manifest=manifest, output=np.array(order, dtype=np.float32))
    return check(cast("Model", model), reference)


def reference_of(scores: Array) -> Reference:
    feed = {"scores": scores}
    return Reference(feed=feed, expected=order_of(feed), run=order_of)


@pytest.mark.parametrize("order", [ORDER, [0, 1, 2, 3, 4]])
def test_near_ties_may_come_in_either_order(tmp_path: Path, order: list[int]) -> None:
    assert checked(tmp_path, order, reference_of(SCORES)) == 0


@pytest.mark.parametrize("order", [[2, 0, 1, 3, 4], [0, 2, 1, 4, 3], [0, 2, 2.4, 3, 4]])
def test_another_order_is_a_defect(tmp_path: Path, order: list[int]) -> None:
    with pytest.raises(MismatchError, match="output 'order' differs"):
        checked(tmp_path, order, reference_of(SCORES))


def test_outputs_that_were_put_together_have_no_neighbours(tmp_path: Path) -> None:
    feed = {"scores": SCORES}
    with pytest.raises(MismatchError):
        checked(tmp_path, [0, 1, 2, 3, 4], Reference(feed=feed, expected=order_of(feed)))


def test_an_answer_knows_what_gave_it() -> None:
    specs = ()
    found = answered(lambda feed: [np.array(len(feed))], specs)
    assert found is not None
    assert [run[0] for run in found.neighbours()] == [0] * 16
