from __future__ import annotations

import pytest

from veltair.compiler.kernels.tasks import per_task
from veltair.compiler.kernels.tiling import (
    Span,
    choose_tile,
    chunks,
    divisor_at_most,
    divisors,
    pass_count,
    spans,
)

REGISTERS = {"x86-64-v4": 32, "x86-64-v3": 16}


def covered(pieces: tuple[Span, ...]) -> list[int]:
    return [p.start + i for p in pieces for i in range(p.size * p.count)]


@pytest.mark.parametrize("most", [1, 3, 14])
def test_pieces_cover_everything_once(most: int) -> None:
    for total in range(1, 60):
        for cut in (spans, chunks):
            pieces = cut(total, most)
            assert covered(pieces) == list(range(total))
            assert all(1 <= p.size <= most and p.count >= 1 for p in pieces)


def test_spans_are_even() -> None:
    sizes = {p.size for p in spans(49, 14)}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("isa", REGISTERS)
def test_tiles_leave_registers_for_weights_and_a_broadcast(isa: str) -> None:
    for rows, columns, blocks in ((56, 56, 4), (7, 7, 32), (14, 14, 13), (1, 1, 63), (1, 128, 48)):
        tile = choose_tile(rows, columns, blocks, 576, isa)
        assert tile.pixels * tile.blocks + min(tile.pixels, tile.blocks) + 1 <= REGISTERS[isa]
        assert tile.rows <= rows
        assert tile.columns <= columns
        assert tile.blocks <= blocks
        assert tile.rows == 1 or tile.columns == columns


def test_a_wide_layer_fills_the_registers() -> None:
    tile = choose_tile(14, 14, 16, 2304, "x86-64-v4")
    assert tile.pixels * tile.blocks >= 24


def test_tasks_are_enough_unless_they_would_be_tiny() -> None:
    assert per_task(56, 2, 1 << 20) == 2  # 56 tasks; 4 rows a task would leave 28
    assert per_task(56, 64, 1 << 20) == 56
    assert per_task(56, 1, 1) == 56
    assert 56 % per_task(56, 3, 1 << 12) == 0


def test_a_pass_keeps_its_weights_in_l1() -> None:
    passes = pass_count(32, 144, 32)
    assert 32 % passes == 0
    assert 4 * (32 // passes) * 144 * 32 <= 32 << 10
    assert pass_count(4, 16, 32) == 1


def test_divisors() -> None:
    assert divisors(28) == [1, 2, 4, 7, 14, 28]
    assert divisor_at_most(28, 6) == 4
    assert divisor_at_most(13, 4) == 1
