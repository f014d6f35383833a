"""The pages of measured results, and the table of how to make each again."""

from __future__ import annotations

import ast
import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from veltair.eval.capacity.report.command import PAGE_FILE
from veltair.eval.capacity.result import RESULT_FILE, read
from veltair.eval.docs.docstrings import headline
from veltair.eval.docs.markup import entry, prose
from veltair.runtime.cli import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path("eval/results")
_OF_SEVERAL = {"bounds": "make bench"}  # pages made of several results


def result_pages(root: Path) -> list[Path]:
    """The results that are pages, in the order of their names; paths within the repository."""
    folder = root / RESULTS
    found = sorted(folder.glob("*.md")) + sorted(folder.glob("*/*.md"))
    return [path.relative_to(root) for path in found]


def evaluations(root: Path) -> list[Path]:
    """The folders that `veltair eval` wrote, within the repository."""
    return sorted(
        path.parent.relative_to(root) for path in (root / RESULTS).glob(f"*/{RESULT_FILE}")
    )


def further_pages(root: Path) -> dict[Path, Path]:
    """The pages in folders that `veltair eval` did not write, each with what it was made from.

    They are results of further machines, by the names of the first one's.
    """
    others = (RESULTS, *evaluations(root))
    found = (page for page in result_pages(root) if page.parent not in others)
    return {page: page.with_suffix(".json") for page in found}


def figures_of(page: Path, root: Path) -> list[Path]:
    """The drawings that belong to a result's page."""
    return [file for file in _files(page.stem, root) if file.suffix == ".svg"]


def reproduce_reference(root: Path) -> str:
    """Writes the list of results: what each shows, its files, the command that makes them.

    A command is the one that the result was saved with.
    """
    return "\n".join(
        entry(
            prose(says),
            f"{', '.join(f'[`{file.name}`]({file})' for file in files)}\n\n`{command}`",
        )
        for says, files, command in _results(root)
    )


def _results(root: Path) -> Iterator[tuple[str, list[Path], str]]:
    alone = [page for page in result_pages(root) if page.parent == RESULTS]
    titles = {page.stem: title(root / page) for page in alone}
    for stem, command in _OF_SEVERAL.items():
        yield titles.pop(stem), _files(stem, root), command
    for saved in sorted((root / RESULTS).glob("*.json")):
        command = json.loads(saved.read_bytes())["command"]
        says = titles.get(saved.stem) or purpose(command)
        yield says, _files(saved.stem, root), command
    for page, saved in further_pages(root).items():
        command = json.loads((root / saved).read_bytes())["command"]
        yield further_title(root / page), [page, saved], command
    for folder in evaluations(root):
        result = read(root / folder)
        machine = "a simulated machine" if result.simulated else "a real machine"
        workloads = ", ".join(workload.name for workload in result.workloads)
        pages = [page for page in result_pages(root) if page.parent == folder]
        files = [folder / PAGE_FILE, *pages, folder / RESULT_FILE]
        yield f"Capacity on {machine}: {workloads}", files, result.origin["command"]


def _files(stem: str, root: Path) -> list[Path]:
    """A result's files; drawings have a shorter stem, and `_fig` after it."""
    found = []
    for path in sorted((root / RESULTS).iterdir()):
        begin, figure, _ = path.stem.partition("_fig")
        if stem.startswith(begin) if figure else path.stem == stem:
            found.append(path.relative_to(root))
    return found


def title(page: Path) -> str:
    """The heading of a page.

    Raises:
        ValueError: it has none.
    """
    first = page.read_text().partition("\n")[0]
    if not first.startswith("# "):
        raise ValueError(f"{page} begins with {first!r}; a page begins with its heading")
    return first.removeprefix("# ")


def further_title(page: Path) -> str:
    """The heading of a further machine's page, with the folder that tells it from the first one's.

    Raises:
        ValueError: it has no heading.
    """
    return f"{title(page)} ({page.parent.name})"


def purpose(command: str) -> str:
    """What a command is for, by its own documentation.

    Raises:
        ValueError: it is none of ours.
    """
    words = shlex.split(command)
    if words[0] == "veltair":
        return COMMANDS[words[1]].summary.rstrip(".")
    if words[:2] != ["python", "-m"]:
        raise ValueError(f"{command!r} is no command of `veltair` or `python -m`")
    return headline(_docstring(words[2]))


def _docstring(module: str) -> str:
    """A module's docstring, read from its source: to import it may need what isn't installed."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ValueError(f"there is no module {module}")
    file = Path(found.origin)
    main = file.with_name("__main__.py")
    source = main if file.name == "__init__.py" and main.exists() else file
    return ast.get_docstring(ast.parse(source.read_text())) or ""
