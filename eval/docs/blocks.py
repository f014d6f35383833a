"""The code blocks of the pages, and how a test runs each.

A block runs as it stands, in the order of the page, in one folder for all: `sh` by bash, `python`
by Python, and what has a title is written to the file of that name instead.
Comments before a block change that, and don't get into the site:

    <!-- test: skip, REASON -->        it isn't run
    <!-- test: as in PAGE -->          it isn't run: that page has each of its lines and runs them
    <!-- test: background -->          it runs beside the next ones, up to the next such block
    <!-- test: alone -->               what runs in the background ends first
    <!-- test: dry run -->             each line, with --dry-run, in the repository
    <!-- test: A becomes B -->         it runs with B in place of A
    <!-- test: prints TEXT -->         what it prints has TEXT
"""

from __future__ import annotations

import re
from dataclasses import dataclass

RUN = ("sh", "python")
_DIRECTIVE = re.compile(r"^<!-- test: (.+?) -->\n", re.MULTILINE)
_BLOCK = re.compile(
    r"(?P<directives>(?:^<!-- test: [^\n]+ -->\n)*)"
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"\n]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code of a page.

    Attributes:
        language: `sh`, `python`, `toml`, ...
        source: what is in it.
        text: the same, each change made that the test is told to make.
        title: the file that it is of; empty: of none.
        skip: why it isn't run; empty: it is.
        same: the page that runs it instead; empty: this one does.
        background: whether it runs beside the next ones.
        alone: whether what runs in the background ends first.
        dry_run: whether its commands are only asked what they would do.
        prints: what its output must have.
    """

    language: str
    source: str
    text: str
    title: str = ""
    skip: str = ""
    same: str = ""
    background: bool = False
    alone: bool = False
    dry_run: bool = False
    prints: tuple[str, ...] = ()


def blocks(page: str) -> list[Block]:
    """Returns the blocks of a page.

    Raises:
        ValueError: a directive says nothing known, or would change what isn't there.
    """
    found = [_block(match) for match in _BLOCK.finditer(page)]
    known = sum(len(_DIRECTIVE.findall(match["directives"])) for match in _BLOCK.finditer(page))
    if len(_DIRECTIVE.findall(page)) != known:
        raise ValueError("a comment for the test stands before no block")
    return found


def without_directives(page: str) -> str:
    """Returns a page as readers get it."""
    return _DIRECTIVE.sub("", page)


def _block(match: re.Match[str]) -> Block:
    text = match["text"]
    skip, same, flags, prints = "", "", set(), []
    for directive in _DIRECTIVE.findall(match["directives"]):
        before, becomes, after = directive.partition(" becomes ")
        if directive in ("background", "alone", "dry run"):
            flags.add(directive)
        elif directive.startswith("skip, "):
            skip = directive.removeprefix("skip, ")
        elif directive.startswith("as in "):
            same = directive.removeprefix("as in ")
        elif directive.startswith("prints "):
            prints.append(directive.removeprefix("prints "))
        elif becomes and before in text:
            text = text.replace(before, after)
        else:
            raise ValueError(f"the comment for the test says {directive!r} before\n{text}")
    return Block(
        language=match["language"],
        source=match["text"],
        text=text,
        title=match["title"] or "",
        skip=skip,
        same=same,
        background="background" in flags,
        alone="alone" in flags,
        dry_run="dry run" in flags,
        prints=tuple(prints),
    )
