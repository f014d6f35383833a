"""Parts of docstrings in Google style, as Markdown."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"^(Args|Attributes|Differs|Raises|Reference|Returns|Yields):", re.MULTILINE)
_COMMAND = re.compile(r"^`[^`]+`: |: `[^`]+`$")
_ENTRY = re.compile(r"^ {4}(\w+): (.*)$")


def lead(documented: object) -> str:
    """What a docstring says before its first section, lines of a paragraph joined."""
    text = _SECTION.split(inspect.cleandoc(documented.__doc__ or ""), maxsplit=1)[0]
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def headline(docstring: str) -> str:
    """The first line of a command's docstring, without the command itself that it names."""
    line = inspect.cleandoc(docstring).partition("\n")[0].rstrip(".")
    says = _COMMAND.sub("", line)
    return says[:1].upper() + says[1:]


def attributes(kind: type) -> dict[str, str]:
    """What the section `Attributes` of a class says of each, by name."""
    found: dict[str, str] = {}
    name = ""
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
    for line in section.splitlines():
        entry = _ENTRY.match(line)
        if entry:
            name = entry[1]
            found[name] = entry[2]
        elif not line.startswith("     "):  # the next section, or an empty line before it
            break
        else:
            found[name] += f" {line.strip()}"
    return found
