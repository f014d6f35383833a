"""The built documentation: complete, without a link to nothing, and readable without a network."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from browser import Browser, find_browser
from evaluations import whole_result

from veltair.eval.capacity.report.page import render
from veltair.eval.capacity.result import write
from veltair.eval.capacity.workloads import MixSection, QosSection, RunSection
from veltair.eval.children import python
from veltair.eval.docs.formats import RECORDS
from veltair.eval.docs.site import compose
from veltair.runtime.cli import COMMANDS, load_command
from veltair.runtime.config import ServeConfig
from veltair.runtime.server.metrics import COUNTERS
from veltair.runtime.server.routes import ADDRESSES
from veltair.runtime.simulate.device_scenario import DeviceScenario
from veltair.runtime.simulate.scenario import Scenario

ROOT = Path(__file__).parents[2]
BROWSER = find_browser()
BUILD = python("mkdocs", "build", "--strict", "--config-file")
# What a browser fetches by itself; links are followed only when they are clicked.
FETCHED = re.compile(
    r'<(?:script|img|iframe|source|video)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"'
    r"|url\(([^)]+)\)|@import\s+([^;]+)"
)
NOT_BUILT = "the theme isn't installed: make docs"

pytest.importorskip("material", reason=NOT_BUILT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [*BUILD, str(compose(ROOT, folder / "docs"))], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


def said(site: Path, page: str) -> str:
    """The code of a page, as readers see it."""
    text = (site / page).read_text()
    return "\n".join(html.unescape(code) for code in re.findall(r"<code>(.*?)</code>", text))


def words(code: str) -> set[str]:
    return set(re.split(r"[\s,:=]+", code))


def test_every_option_of_every_command_is_there(site: Path) -> None:
    text = (site / "reference/commands.html").read_text()
    for name in COMMANDS:
        _, _, rest = text.partition(f'<h2 id="veltair-{name}">')
        section = rest.partition("<h2")[0]
        command: Any = load_command(name)
        context = typer.Context(command, info_name=name)
        for parameter in command.get_params(context):
            if parameter.name == "help":
                continue
            names = (*parameter.opts, *parameter.secondary_opts)
            if parameter.param_type_name == "argument":
                names = (parameter.metavar or parameter.name,)
            for option in names:
                assert re.search(rf"<code>[^<]*(?<![\w-]){option}(?![\w-])", section), (
                    f"{name} {option}"
                )


@pytest.mark.parametrize(
    ("page", "kind", "without"),
    [
        ("reference/serve.html", ServeConfig, {"weight"}),
        ("reference/scenario.html", Scenario, set()),
        ("reference/scenario.html", DeviceScenario, set()),
    ],
)
def test_every_field_of_a_configuration_is_there(
    site: Path, page: str, kind: type[msgspec.Struct], without: set[str]
) -> None:
    found = words(said(site, page))
    for section in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        inner = getattr(section.type, "item_type", section.type)
        names = {field.encode_name for field in getattr(inner, "fields", ())}
        assert names - without <= found, section.name


def test_every_field_of_a_workload_is_there(site: Path) -> None:
    found = words(said(site, "reference/workload.html"))
    for kind in (MixSection, RunSection, QosSection):
        assert set(kind.__struct_fields__) <= found, kind


def test_every_record_address_and_counter_is_there(site: Path) -> None:
    artifact = words(said(site, "reference/artifact.html"))
    for kind in RECORDS:
        assert set(kind.__struct_fields__) <= artifact, kind
    http = said(site, "reference/http.html")
    assert [address.path for address in ADDRESSES if address.path not in http] == []
    metrics = said(site, "reference/metrics.html")
    assert [name for name, *_ in COUNTERS if name not in metrics] == []


def test_every_result_has_a_line_and_every_page_is_in_the_menu(site: Path) -> None:
    index = (site / "results/index.html").read_text()
    for path in (ROOT / "eval/results").glob("*.*"):
        assert path.name in index
    for path in (ROOT / "eval/results").glob("*.md"):
        assert f'href="{path.stem}.html"' in index


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(pages) > 15
    for path in pages:
        for found in FETCHED.findall(path.read_text()):
            (address,) = filter(None, found)
            address = address.strip("\"' ")
            assert not re.match(r"\w+://|//", address), f"{path}: {address}"


def test_comments_for_the_test_are_not_published(site: Path) -> None:
    assert [path for path in site.rglob("*.html") if "<!-- test:" in path.read_text()] == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what the site is made of, with other results and a first page of one line."""
    root = tmp_path / "root"
    for folder in ("docs", "proxy", "tuning_logs", "eval/figures"):
        ignored = shutil.ignore_patterns("__pycache__", "*.py", "*.jsonl")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    shutil.copytree(ROOT / "eval/results", root / "eval/results")
    shutil.copy(ROOT / "CONTRIBUTING.md", root)
    (root / "docs/index.md").write_text("# Veltair\n")
    return root


def build(root: Path) -> subprocess.CompletedProcess[str]:
    config = compose(root, root / "build/docs")
    return subprocess.run([*BUILD, str(config)], check=False, capture_output=True, text=True)


def test_a_link_to_nothing_ends_the_build(root: Path) -> None:
    with (root / "docs/index.md").open("a") as page:
        page.write("[nowhere](tutorial.md#nowhere)\n")
    done = build(root)
    assert done.returncode != 0
    assert "nowhere" in done.stderr


def test_an_evaluation_is_shown_and_linked(root: Path) -> None:
    folder = root / "eval/results/small"
    folder.mkdir()
    write(folder, whole_result())
    done = build(root)
    assert done.returncode == 0, done.stderr
    site = root / "build/site/results"
    index = (site / "index.html").read_text()
    assert 'href="small/report.html"' in index
    assert "light, medium, heavy" in index
    assert html.escape(whole_result().origin["command"]) in index
    assert (site / "small/report.html").read_text() == render(whole_result())


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt install chromium")
@pytest.mark.parametrize("page", ["index.html", "reference/serve.html"])
def test_search_works_from_the_file_system(site: Path, page: str) -> None:
    assert BROWSER is not None
    with Browser(BROWSER) as browser:
        browser.show(site / page)
        browser.evaluate(
            """(() => {
              document.querySelector("label[for=__search]").click();
              const field = document.querySelector(".md-search__input");
              field.focus();
              field.value = "keepalive_timeout_ms";
              field.dispatchEvent(new KeyboardEvent("keyup"));
            })()"""
        )
        hits: list[str] = []
        end_s = time.monotonic() + 20
        while not hits and time.monotonic() < end_s:
            hits = browser.evaluate(
                'Array.from(document.querySelectorAll(".md-search-result__link"), (a) => a.href)'
            )
            time.sleep(0.1)
        assert any("reference/serve.html" in hit for hit in hits), browser.complaints
        assert browser.complaints == []
        assert [each for each in browser.requests if not each.startswith(("file:", "data:"))] == []


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt install chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_a_telephone(site: Path, dark: bool) -> None:
    assert BROWSER is not None
    with Browser(BROWSER) as browser:
        pages = set(site.rglob("*.html")) - {site / "404.html"}  # which only a server shows
        for path in sorted(pages):
            browser.show(path, width=420, dark=dark)
            width = browser.evaluate("document.documentElement.scrollWidth")
            assert width <= 420, path.name
        assert browser.complaints == []
