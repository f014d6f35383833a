"""The transforms of Winograd's minimal filtering, and their emission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veltair.compiler.kernels.loops import Expr, Loops, lanes_of, splat

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Transform:
    """F(size, 3): the transforms of data (B^T), weight (G) and output (A^T) in one dimension."""

    size: int
    data: Matrix
    weight: Matrix
    output: Matrix

    @property
    def points(self) -> int:
        """Points in one dimension: rows and columns of an input tile."""
        return self.size + 2


TRANSFORMS = {
    2: Transform(
        size=2,
        data=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
        weight=((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
        output=((1, 1, 1, 0), (0, 1, -1, 1)),
    ),
    4: Transform(
        size=4,
        data=(
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        weight=(
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        output=(
            (1, 1, 1, 1, 1, 0),
            (0, 1, -1, 2, -2, 0),
            (0, 1, 1, 4, 4, 0),
            (0, 1, -1, 8, -8, 1),
        ),
    ),
}


def combine(b: Loops, matrix: Matrix, values: Sequence[Expr]) -> list[Expr]:
    """A matrix times a vector of values.

    Two rows that agree in even columns and are opposite in odd ones share both halves.
    """
    results: list[Expr] = []
    while len(results) < len(matrix):
        row = matrix[len(results)]
        rest = matrix[len(results) + 1 :]
        mirrored = tuple(-c if i % 2 else c for i, c in enumerate(row))
        if rest and rest[0] == mirrored and any(row[1::2]) and any(row[0::2]):
            even = b.let("even", _sum(row[0::2], values[0::2]))
            odd = b.let("odd", _sum(row[1::2], values[1::2]))
            results += [b.let("t", even + odd), b.let("t", even - odd)]
        else:
            results.append(b.let("t", _sum(row, values)))
    return results


def _sum(coefficients: Sequence[float], values: Sequence[Expr]) -> Expr:
    """The weighted sum, without the terms of weight zero."""
    total = None
    for coefficient, value in zip(coefficients, values, strict=True):
        if coefficient == 0:
            continue
        unit = coefficient in {1, -1} and (total is not None or coefficient == 1)
        term = value if unit else value * splat(float(coefficient), lanes_of(value))
        if total is None:
            total = term
        else:
            total = total - term if unit and coefficient == -1 else total + term
    return total
