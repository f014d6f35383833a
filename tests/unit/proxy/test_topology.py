"""Where bubbles run: beside whom they disturb, on as few processors as that takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from veltair.proxy.topology import (
    Sides,
    core_complexes,
    cpu_list,
    cpu_ranges,
    divided,
    shared_cache,
)
from veltair.runtime.errors import InputError


def machine(root: Path, caches: dict[str, list[int]]) -> Path:
    """Linux's description of processors: who shares a last cache, by the list that names them."""
    for shared, cpus in caches.items():
        for cpu in cpus:
            for index, (level, names) in enumerate([("1", str(cpu)), ("3", shared)]):
                folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
                folder.mkdir(parents=True)
                (folder / "level").write_text(f"{level}\n")
                (folder / "shared_cpu_list").write_text(f"{names}\n")
    return root


def test_the_last_quarter_of_each_cache(tmp_path: Path) -> None:
    root = machine(tmp_path, {"0-7": list(range(8)), "8-15": list(range(8, 16))})
    assert divided(range(16), root) == Sides(
        quiet=(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13), bubbles=(6, 7, 14, 15), per_cache=2
    )


def test_one_of_two(tmp_path: Path) -> None:
    root = machine(tmp_path, {"0-1": [0, 1]})
    assert divided([1, 0], root) == Sides(quiet=(0,), bubbles=(1,), per_cache=1)


def test_only_processors_that_may_be_used_count(tmp_path: Path) -> None:
    root = machine(tmp_path, {"0-3": [0, 1, 2, 3], "4-7": [4, 5, 6, 7]})
    assert divided([1, 2, 4], root) == Sides(quiet=(1,), bubbles=(2,), per_cache=1)


def test_a_machine_that_does_not_say(tmp_path: Path) -> None:
    assert divided([3, 5], tmp_path) == Sides(quiet=(3,), bubbles=(5,), per_cache=1)


@pytest.mark.parametrize("cpus", [[0], [0, 4]])
def test_nobody_shares(tmp_path: Path, cpus: list[int]) -> None:
    root = machine(tmp_path, {"0-3": [0, 1, 2, 3], "4-7": [4, 5, 6, 7]})
    with pytest.raises(InputError, match="two processors that share a cache"):
        divided(cpus, root)


def test_a_share_of_the_last_cache(tmp_path: Path) -> None:
    root = machine(tmp_path, {"0-2,8": [0, 1, 2, 8]})
    (root / "cpu2/cache/index1/size").write_text("32768K\n")
    cache = shared_cache(2, root)
    assert cache is not None
    assert cache.cpus == (0, 1, 2, 8)
    assert (cache.size_bytes, cache.share_bytes) == (32 << 20, 8 << 20)
    assert shared_cache(5, root) is None


@pytest.mark.parametrize(
    ("text", "cpus"), [("", ()), ("3", (3,)), ("0-2,8", (0, 1, 2, 8)), ("4,0-1", (0, 1, 4))]
)
def test_lists_of_processors(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus
    assert cpu_list(cpu_ranges(cpus)) == cpus


def test_ranges_are_written_as_linux_does() -> None:
    assert cpu_ranges([8, 0, 1, 2]) == "0-2,8"


def test_core_complexes(tmp_path: Path) -> None:
    root = machine(tmp_path, {"0-3": [0, 1, 2, 3], "4-7": [4, 5, 6, 7]})
    assert core_complexes([0, 1, 4, 2, 7], root) == (0, 0, 1, 0, 1)
    assert core_complexes([5], root) == (0,)
    assert core_complexes([0, 40], tmp_path / "nowhere") == (0, 0)
