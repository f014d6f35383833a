"""A whole search of one small layer, with real kernels in real processes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import supported
from unit.compiler.search.layers import LAYERS, conv

from veltair.compiler.kernels.choices import DepthwiseChoice, DirectChoice
from veltair.compiler.search import search as searching
from veltair.compiler.search.candidates import Candidate, Space
from veltair.compiler.search.key import key_of
from veltair.compiler.search.log import LogWriter, Record, read_log
from veltair.compiler.search.search import Search, Task
from veltair.compiler.search.spaces import space_of

ISA = "x86-64-v3"

pytestmark = pytest.mark.skipif(not supported(ISA), reason=f"this CPU has no {ISA}")


class Heard:
    def __init__(self) -> None:
        self.trials: list[int] = []

    def trial(self, record: Record) -> None:
        self.trials.append(record.trial)


def task(space: Space | None = None) -> Task:
    spec = conv(8, ic=16, oc=16, hw=(6, 6), kernel=(1, 1), steps=("bias", "add", "relu"))
    found = space or space_of(spec, ISA, cores=2)
    assert found is not None
    offsets = (0, 0, 0)
    return Task(key=key_of(spec, ISA), spec=spec, isa=ISA, space=found, offsets=offsets)


def task_of(name: str, placed: int) -> Task:
    """A task of one of `LAYERS`, with so many tensors that are not packed."""
    spec = LAYERS[name](8)
    space = space_of(spec, ISA, cores=2)
    assert space is not None
    offsets = (0,) * placed
    return Task(key=key_of(spec, ISA), spec=spec, isa=ISA, space=space, offsets=offsets)


def run(
    folder: Path, known: Sequence[Record], trials: int, of: Task | None = None
) -> tuple[list[Record], list[int]]:
    heard = Heard()
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    with Search(LogWriter(folder / "net.jsonl"), (1,), 1, objects) as search:
        return search.run(of or task(), known, trials, heard), heard.trials


def test_every_sample_is_logged_and_a_search_goes_on_where_it_was(tmp_path: Path) -> None:
    records, trials = run(tmp_path, [], 3)
    assert trials == [0, 1, 2]
    assert [r.status for r in records] == ["ok"] * 3, [r.reason for r in records]
    assert all(r.ns[1] > 0 and r.block_bytes > 0 and r.parallelism > 0 for r in records)
    assert len(list((tmp_path / "objects").glob("*.o"))) == 3
    logged = read_log(tmp_path / "net.jsonl", ISA)
    assert {r.choice for r in logged} == {r.choice for r in records}
    again, trials = run(tmp_path, records, 5)
    assert trials == [3, 4]
    assert {r.choice for r in records} < {r.choice for r in again}
    assert run(tmp_path, again, 5) == (again, [])


@pytest.mark.parametrize(
    ("name", "placed"),
    [("two-outputs", 3), ("argmax", 2), ("float64", 2), ("masked", 2), ("plain-groups", 2)],
)
def test_layers_of_any_types_and_outputs_have_samples(
    tmp_path: Path, name: str, placed: int
) -> None:
    records, _ = run(tmp_path, [], 4, task_of(name, placed))
    assert [r.status for r in records] == ["ok"] * 4, [r.reason for r in records]
    assert len({r.id for r in records}) == 4


def test_hints_are_measured_right_after_the_default(tmp_path: Path) -> None:
    of = task()
    default, *others = (candidate.choice for candidate in of.space.candidates)
    hints = [others[-1], others[-2]]
    with Search(LogWriter(tmp_path / "net.jsonl"), (1,), 1, tmp_path) as search:
        records = search.run(of, [], 3, Heard(), hints)
    assert [r.choice for r in sorted(records, key=lambda r: r.trial)] == [default, *hints]


def test_choices_that_come_out_as_one_kernel_are_both_measured(tmp_path: Path) -> None:
    spec = conv(8, ic=16, oc=16, hw=(7, 7), groups=16)
    same = tuple(
        Candidate(choice=DepthwiseChoice(pixels=pixels, rows=1), cycles=1.0) for pixels in (4, 5, 6)
    )
    space = Space(candidates=same, dropped=0)
    key = key_of(spec, ISA)
    of = Task(key=key, spec=spec, isa=ISA, space=space, offsets=(0, 0))
    records, trials = run(tmp_path, [], 3, of)
    assert [r.status for r in records] == ["ok"] * 3, [r.reason for r in records]
    assert len({r.id for r in records}) == 1
    assert trials == [0, 1, 2]


class Ending:
    """Ctrl-C as soon as a sample comes, while the others of its round are still measured."""

    def trial(self, record: Record) -> None:
        raise KeyboardInterrupt


def test_an_ended_search_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Search(LogWriter(tmp_path / "net.jsonl"), (1,), 2, tmp_path) as search:
        for trials in (8, 9, 10):
            with pytest.raises(KeyboardInterrupt):
                search.run(task(), [], trials, Ending())
            assert not list(tmp_path.glob("veltair-search-*"))
    assert len(read_log(tmp_path / "net.jsonl", ISA)) == 3


def test_what_cannot_be_built_costs_only_itself(tmp_path: Path) -> None:
    real = task().space
    wrong = DirectChoice(merged=1, rows=1, columns=50, blocks=1, row_tiles=1, weights_outer=False)
    candidates = (Candidate(choice=wrong, cycles=1.0), *real.candidates[:2])
    of = task(Space(candidates=candidates, dropped=0))
    records, trials = run(tmp_path, [], 10, of)
    assert sorted(trials) == [0, 1, 2]
    bad = next(r for r in records if r.choice == wrong)
    assert bad.status == "failed"
    assert bad.reason.startswith("build: the choice doesn't fit the layer")
    assert sorted(r.status for r in records) == ["failed", "ok", "ok"]


@pytest.mark.parametrize("of", [task(), task_of("two-outputs", 3)], ids=["one", "last"])
def test_a_wrong_result_never_becomes_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Task
) -> None:
    real = searching.make_example

    def shifted(*arguments: object) -> object:
        example = real(*arguments)  # type: ignore[arg-type]
        expected = example.outputs[-1].expected
        expected[...] = ~expected if expected.dtype == np.bool_ else expected + np.float32(1)
        return example

    monkeypatch.setattr(searching, "make_example", shifted)
    records, _ = run(tmp_path, [], 2, of)
    assert [r.status for r in records] == ["failed", "failed"]
    assert all("wrong result: differs by" in r.reason for r in records)
    assert not list((tmp_path / "objects").glob("*.o"))
