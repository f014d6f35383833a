"""Markdown from plain text."""

from __future__ import annotations

import re

_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([*_\[\]|#])")


def prose(text: str) -> str:
    """Escapes what Markdown would take for more than text, but for code between backticks."""
    parts = _CODE.split(text)
    return "".join(part if index % 2 else _escaped(part) for index, part in enumerate(parts))


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text)


def cell(text: str) -> str:
    """Escapes text for a table's cell, where a bar ends the cell even within code."""
    return prose(text).replace("\\|", "|").replace("|", "&#124;")


def entry(term: str, text: str) -> str:
    """One entry of a definition list.

    Args:
        term: Markdown of one line.
        text: Markdown, paragraphs separated by empty lines.
    """
    return f"{term}\n:   " + text.strip().replace("\n", "\n    ").replace("    \n", "\n") + "\n"
