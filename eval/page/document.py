"""Renders pages, each one HTML document that needs nothing else."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from veltair.eval.page.plot import colour
from veltair.eval.page.text import bytes_text, number_text, share_text, time_text
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

_COMMON = "veltair.eval.page"


def render(package: str, **values: object) -> str:
    """Returns the document: style, script and figures are in it, and it may fetch nothing.

    Args:
        package: the folder with `page.html.j2`, which extends `base`, and `page.css` and `page.js`,
            which come after what all pages have.
        values: of the template; a name that is missing is an error.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader(
            {
                "base": _text(_COMMON, "base.html.j2"),
                "macros": _text(_COMMON, "macros.html.j2"),
                "page": _text(package, "page.html.j2"),
            }
        ),
    )
    environment.filters |= {
        "time": time_text,
        "size": bytes_text,
        "number": number_text,
        "share": share_text,
    }
    given: dict[str, Any] = {
        "style": Markup(_text(_COMMON, "base.css") + _text(package, "page.css")),
        "script": Markup(_text(_COMMON, "tables.js") + _text(package, "page.js")),
        "colour": colour,
    }
    return environment.get_template("page").render(given | values)


def write(path: Path, text: str) -> None:
    """Writes a page, or a table of it, whole or not at all.

    Raises:
        InputError: it can't be written.
    """
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise InputError(
            f"{path}: can't be written ({error.strerror}); give another place by --output"
        ) from error


def _text(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")
