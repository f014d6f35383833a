"""The site's source: pages of `docs/` with what is generated in its place, for MkDocs."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from veltair.eval.capacity.report.command import PAGE_FILE
from veltair.eval.capacity.report.page import render
from veltair.eval.capacity.result import RESULT_FILE, read
from veltair.eval.docs.blocks import without_directives
from veltair.eval.docs.commands import commands_reference
from veltair.eval.docs.formats import (
    artifact_reference,
    scenario_reference,
    serve_reference,
    workload_reference,
)
from veltair.eval.docs.gantt import gantt_figure
from veltair.eval.docs.interfaces import addresses_reference, metrics_reference
from veltair.eval.docs.links import linked
from veltair.eval.docs.results import (
    RESULTS,
    evaluations,
    figures_of,
    further_pages,
    further_title,
    reproduce_reference,
    result_pages,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOURCES = "docs"
CONFIG = "mkdocs.yml"
PAGES = "pages"
RESULTS_IN_NAV = "      # the pages of eval/results\n"
COPIED = {"eval/figures/life_of_a_query.svg": "assets/life_of_a_query.svg"}
_PLACEHOLDER = re.compile(r"^<!-- (file|generated): (\S+) -->$", re.MULTILINE)
_GENERATED = {
    "commands": lambda _: commands_reference(),
    "serve": lambda _: serve_reference(),
    "scenario": lambda _: scenario_reference(),
    "workload": lambda _: workload_reference(),
    "artifact": lambda _: artifact_reference(),
    "addresses": lambda _: addresses_reference(),
    "metrics": lambda _: metrics_reference(),
    "gantt": lambda _: gantt_figure(),
    "reproduce": reproduce_reference,
}


def compose(root: Path, target: Path) -> Path:
    """Writes the whole source and returns MkDocs's configuration in it.

    Args:
        root: of the repository.
        target: folder that is replaced.

    Raises:
        ValueError: a page asks for what there isn't, or has a link to a file outside of the site.
    """
    sources = root / SOURCES
    pages = {
        path.relative_to(sources).as_posix(): path.read_text() for path in sources.rglob("*.md")
    }
    places = _places(root, pages)
    shutil.rmtree(target, ignore_errors=True)
    for name, text in pages.items():
        _write(target, name, _filled(text, name, root, places))
    for page in result_pages(root):
        _write(target, places[str(page)], _result(page, root, places))
    _copy(root, target)
    config = (sources / CONFIG).read_text()
    if RESULTS_IN_NAV not in config:
        raise ValueError(f"{SOURCES}/{CONFIG} has no line {RESULTS_IN_NAV!r}; put it into the nav")
    titles = {page: f"{json.dumps(further_title(root / page))}: " for page in further_pages(root)}
    names = "".join(
        f"      - {titles.get(page, '')}{places[str(page)]}\n" for page in result_pages(root)
    )
    (target / CONFIG).write_text(config.replace(RESULTS_IN_NAV, names))
    return target / CONFIG


def _places(root: Path, pages: Mapping[str, str]) -> dict[str, str]:
    """Where the site has the repository's files."""
    found = {"README.md": "index.md"}
    for name, text in pages.items():
        for kind, what in _PLACEHOLDER.findall(text):
            if kind == "file":
                found[what] = name
    for path in sorted((root / RESULTS).iterdir()):
        if path.is_file():
            found[str(path.relative_to(root))] = f"results/{path.name}"
    for page in result_pages(root):
        found[str(page)] = f"results/{page.relative_to(RESULTS)}"
    for saved in further_pages(root).values():
        found[str(saved)] = f"results/{saved.relative_to(RESULTS)}"
    for folder in evaluations(root):
        for name in (PAGE_FILE, RESULT_FILE):
            found[str(folder / name)] = f"results/{folder.name}/{name}"
    return found


def _filled(text: str, page: str, root: Path, places: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        kind, what = match.groups()
        if kind == "generated":
            if what not in _GENERATED:
                raise ValueError(f"{page} asks for {what!r}; there are {', '.join(_GENERATED)}")
            return linked(_GENERATED[what](root), page=page, base="", places=places)
        _, _, included = (root / what).read_text().partition("\n")  # the page has its own heading
        folder = what.rpartition("/")[0]
        return linked(included, page=page, base=folder, places=places)

    return _PLACEHOLDER.sub(fill, without_directives(text))


def _result(page: Path, root: Path, places: Mapping[str, str]) -> str:
    text = (root / page).read_text()
    figures = "".join(f"\n![{file.stem}]({file.name})\n" for file in figures_of(page, root))
    if figures:
        text += f"\n## Figures\n{figures}"
    return linked(text, page=places[str(page)], base=str(page.parent), places=places)


def _copy(root: Path, target: Path) -> None:
    """Copies what pages show and link to."""
    pages = target / PAGES
    for path in (root / SOURCES / "assets").iterdir():
        _copy_file(path, pages / "assets" / path.name)
    for source, place in COPIED.items():
        _copy_file(root / source, pages / place)
    for path in (root / RESULTS).iterdir():
        if path.is_file() and path.suffix != ".md":
            _copy_file(path, pages / "results" / path.name)
    for saved in further_pages(root).values():
        _copy_file(root / saved, pages / "results" / saved.relative_to(RESULTS))
    for folder in evaluations(root):
        to = pages / "results" / folder.name
        _copy_file(root / folder / RESULT_FILE, to / RESULT_FILE)
        (to / PAGE_FILE).write_text(render(read(root / folder)))


def _copy_file(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _write(target: Path, name: str, text: str) -> None:
    path = target / PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
