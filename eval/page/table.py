"""A table that is shown on a page and written as CSV from the same rows."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.eval.page.text import number_text, share_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Value = str | int | float | bool | None

UNKNOWN = "\u2013"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        key: in the CSV, its unit included.
        title: on the page.
        text: of a number, on the page; None: words.
    """

    key: str
    title: str
    text: Callable[[float], str] | None = None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What a page shows of a value.

    Attributes:
        text: for people.
        value: the whole number for the sorting script; None: words.
    """

    text: str
    value: str | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of values; None and nan: unknown, which is nothing in a CSV.

    Attributes:
        name: of the CSV, and of the element on the page.
        title: above it.
        columns: in order.
        rows: as many values each as there are columns.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def cells(self) -> list[list[Cell]]:
        """The rows as the page shows them."""
        return [
            [_cell(column, value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def csv(self) -> str:
        """The whole table with every digit that is known."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.key for column in self.columns)
        for row in self.rows:
            writer.writerow(map(_plain, row))
        return file.getvalue()


def words(key: str, title: str = "") -> Column:
    """A column of words."""
    return Column(key=key, title=title or key)


def numbers(key: str, title: str = "", text: Callable[[float], str] = number_text) -> Column:
    """A column of numbers."""
    return Column(key=key, title=title or key, text=text)


def counts(key: str, title: str = "") -> Column:
    """A column of whole numbers."""
    return numbers(key, title, "{:,.0f}".format)


def shares(key: str, title: str = "") -> Column:
    """A column of shares: 0 to 1 in the CSV, percent on the page."""
    return numbers(key, title, share_text)


def _cell(column: Column, value: Value) -> Cell:
    if column.text is None:
        return Cell(text=_plain(value), value=None)
    if _is_unknown(value):
        return Cell(text=UNKNOWN, value="")
    assert isinstance(value, int | float)
    return Cell(text=column.text(value), value=_plain(value))


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if _is_unknown(value) else str(value)


def _is_unknown(value: Value) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))
