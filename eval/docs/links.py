"""Links between what the repository has and the site's pages."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINK = re.compile(r"(!?\[[^\]\n]*\])\(([^)\s:#]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(?<![`\[])`([\w./-]+)`(?![`\]])")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def linked(text: str, *, page: str, base: str, places: Mapping[str, str]) -> str:
    """Makes links to files of the repository links of a page of the site.

    Files that are named as code and have a page become links too.

    Args:
        text: Markdown; its links are relative to `base`.
        page: where it will be in the site.
        base: folder that it comes from.
        places: the pages and files of the site, by their paths in the repository.

    Raises:
        ValueError: a link leads to a file that the site hasn't.
    """

    def link(match: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(base, match[2]))
        if target not in places:
            raise ValueError(
                f"{page} has a link to {match[2]}, which the site hasn't; name the file as `code`"
            )
        return f"{match[1]}({_relative(places[target], page)}{match[3] or ''})"

    def code(match: re.Match[str]) -> str:
        place = places.get(match[1])
        if place is None or place == page:
            return match[0]
        return f"[{match[0]}]({_relative(place, page)})"

    parts = _FENCE.split(text)
    return "".join(
        part if index % 2 else _CODE.sub(code, _LINK.sub(link, part))
        for index, part in enumerate(parts)
    )


def _relative(place: str, page: str) -> str:
    return os.path.relpath(place, PurePosixPath(page).parent)
