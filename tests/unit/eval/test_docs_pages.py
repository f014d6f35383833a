"""What the documentation is made of: blocks and their directives, links, references, the figure."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from veltair.eval.docs.blocks import blocks, without_directives
from veltair.eval.docs.docstrings import attributes, headline, lead
from veltair.eval.docs.fields import record, toml, toml_section
from veltair.eval.docs.gantt import CORES, POLICIES, bars, gantt_figure, scenario
from veltair.eval.docs.links import linked
from veltair.eval.docs.markup import cell, prose
from veltair.eval.docs.results import (
    further_pages,
    further_title,
    purpose,
    reproduce_reference,
    result_pages,
    title,
)
from veltair.runtime._native import sched
from veltair.runtime.simulate.run import simulate

ROOT = Path(__file__).parents[3]

PAGE = """# Page

<!-- test: 30 becomes 2 -->
<!-- test: prints ready -->
```sh
sleep 30
```

<!-- test: background -->
```sh
serve
```

<!-- test: skip, it needs root -->
```sh
mount
```

```toml title="serve.toml"
a = 1
```
"""


class Inner(msgspec.Struct):
    """What lies within.

    Attributes:
        size: of it,
            in bytes.
    """

    size: int


class Outer(msgspec.Struct):
    """`[outer]`: what has parts.

    More of it.

    Attributes:
        parts: of it.
        note: of a person; see [1].
    """

    parts: tuple[Inner, ...]
    note: str | None = None


class Section(msgspec.Struct, kw_only=True):
    """`[section]`: keys."""

    must: Annotated[str, Meta(description="has no default")]
    ms: Annotated[dict[str, float], Meta(description="of each")]
    kind: Annotated[Literal["a", "b"], Meta(description="which")] = "a"
    size: Annotated[int, Meta(ge=1, le=65_536, description="a <b> | c")] = 64
    share: Annotated[float, Meta(gt=0, le=1, description="part")] = 0.5
    cores: Annotated[tuple[int, ...], Meta(description="which cores")] = ()
    rate: Annotated[float | None, Meta(description="may lack")] = None

    def __post_init__(self) -> None:
        """Refuses nothing."""


def test_a_block_has_what_its_comments_say() -> None:
    slept, served, mounted, written = blocks(PAGE)
    assert (slept.text, slept.prints) == ("sleep 2\n", ("ready",))
    assert served.background
    assert mounted.skip == "it needs root"
    assert (written.language, written.title, written.text) == ("toml", "serve.toml", "a = 1\n")


def test_readers_do_not_get_the_comments() -> None:
    text = without_directives(PAGE)
    assert "test:" not in text
    assert "sleep 30" in text


@pytest.mark.parametrize(
    "page",
    [
        "<!-- test: 31 becomes 2 -->\n```sh\nsleep 30\n```\n",  # changes nothing
        "<!-- test: skipped -->\n```sh\nsleep 30\n```\n",  # no such directive
        "<!-- test: background -->\n\n```sh\nserve\n```\n",  # not right before the block
    ],
)
def test_a_comment_without_effect_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="the test"):
        blocks(page)


def test_links_lead_to_the_sites_pages() -> None:
    places = {"proxy/README.md": "interference.md", "eval/results/solo.md": "results/solo.md"}
    text = "[a](README.md#sources), `eval/results/solo.md` and `eval/solo.py`\n"
    assert linked(text, page="reference/x.md", base="proxy", places=places) == (
        "[a](../interference.md#sources), "
        "[`eval/results/solo.md`](../results/solo.md) and `eval/solo.py`\n"
    )
    code = "```sh\ncat `eval/results/solo.md`\n```\n"
    assert linked(code, page="x.md", base="", places=places) == code
    with pytest.raises(ValueError, match=r"to\.py, which the site hasn't"):
        linked("[a](to.py)", page="x.md", base="proxy", places=places)


def test_a_section_has_each_key_with_default_and_rule() -> None:
    text = toml_section(Section, "[section]", without=("rate",))
    assert "## `[section]` { #section }\n\nKeys.\n\nRefuses nothing." in text
    assert "`must`, required\n:   has no default\n\n    *text*" in text
    assert "`ms`, required\n:   of each\n\n    *table of numbers by name*" in text
    assert '`kind = "a"`\n:   which\n\n    *one of `"a"`, `"b"`*' in text
    assert "`size = 64`\n:   a &lt;b&gt; \\| c\n\n    *integer from 1 to 65\\_536*" in text
    assert "*number above 0 to 1*" in text
    assert "`cores = []`\n:   which cores\n\n    *list of integers*" in text
    assert "rate" not in text
    assert "`rate`, may be left out" in toml_section(Section, "[section]")


def test_a_record_has_each_field_with_its_type() -> None:
    text = record(Outer)
    assert "More of it." in text
    assert "`parts`: list of [Inner](#inner)\n:   of it.\n" in text
    assert "`note`: text, may be left out\n:   of a person; see \\[1\\].\n" in text
    assert attributes(Inner) == {"size": "of it, in bytes."}
    with pytest.raises(KeyError, match="must"):
        record(Section)  # its docstring says nothing of its fields


def test_a_default_is_written_as_toml() -> None:
    assert [toml(each) for each in (True, 8000, 65_536, 0.5, 1e9, "x", ())] == [
        *("true", "8000", "65_536", "0.5", "1_000_000_000", '"x"', "[]")
    ]


def test_text_stays_text() -> None:
    assert prose("a*b_c <d> `e*f`") == r"a\*b\_c &lt;d&gt; `e*f`"
    assert cell("`a|b` c|d") == "`a&#124;b` c&#124;d"


def test_what_a_docstring_says_first() -> None:
    assert lead(Outer) == "`[outer]`: what has parts.\n\nMore of it."
    assert headline("What it costs: `python -m x Y...`.\n\nMore.") == "What it costs"
    assert headline("`python -m x`: counts and writes.") == "Counts and writes"


def test_each_result_says_what_it_is_and_how_it_is_made() -> None:
    text = reproduce_reference(ROOT)
    for path in (ROOT / "eval/results").glob("*.*"):
        assert f"[`{path.name}`](eval/results/{path.name})" in text
    for says, command in re.findall(r"^(\S.*)\n:   .*\n\n    `(.*)`$", text, re.MULTILINE):
        assert not says.startswith("`")
        assert command.startswith(("make ", "veltair ", "python -m veltair."))
    saved = [
        *(ROOT / "eval/results").glob("*.json"),
        *(ROOT / "eval/results").glob("*/result.json"),
        *further_pages(ROOT).values(),
    ]
    assert text.count("\n:   ") == len(saved) + 1
    assert all(title(ROOT / page) for page in result_pages(ROOT))


def test_a_further_machines_page_is_told_from_the_first_ones(tmp_path: Path) -> None:
    results = tmp_path / "eval/results"
    (results / "other").mkdir(parents=True)
    for folder in (results, results / "other"):
        (folder / "solo.md").write_text("# Alone\n")
        (folder / "solo.json").write_text('{"command": "python -m veltair.eval.bench_solo"}')
    first, further = result_pages(tmp_path)
    assert further_pages(tmp_path) == {further: results.relative_to(tmp_path) / "other/solo.json"}
    assert title(tmp_path / first) == "Alone"
    assert further_title(tmp_path / further) == "Alone (other)"


@pytest.mark.parametrize("command", ["python x.py", "python -m veltair.nothing", "rm -r x"])
def test_a_command_of_nobody_is_refused(command: str) -> None:
    with pytest.raises((ValueError, ModuleNotFoundError)):
        purpose(command)


def test_the_page_on_scheduling_names_every_policy() -> None:
    text = (ROOT / "docs/scheduling.md").read_text()
    _, _, table = text.partition("## All policies")
    named = set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)) - {"[scheduling] policy"}
    assert named == {re.sub(r"\d+$", "N", name) for name in sched.policy_names()}


@pytest.mark.parametrize("policy", POLICIES)
def test_no_core_is_drawn_twice_at_a_time(policy: str) -> None:
    found = simulate(scenario(policy), trace=True)
    laid = bars(found)
    for one, other in itertools.combinations(laid, 2):
        apart = (
            one.end_ns <= other.begin_ns
            or other.end_ns <= one.begin_ns
            or one.first_core + one.cores <= other.first_core
            or other.first_core + other.cores <= one.first_core
        )
        assert apart, (one, other)
    assert all(bar.first_core >= 0 for bar in laid)
    assert all(bar.first_core + bar.cores <= CORES for bar in laid)
    drawn = sum(bar.cores * (bar.end_ns - bar.begin_ns) for bar in laid)
    simulated = sum(cores * (end - begin) for *_, cores, begin, end in found.segments.tolist())
    assert drawn == simulated


def test_the_figure_has_a_panel_for_each_policy() -> None:
    figure = gantt_figure()
    for policy, says in POLICIES.items():
        assert f"{policy}: {says}" in figure
