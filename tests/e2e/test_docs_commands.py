"""The commands and programs of the README and the documentation's pages, run as they stand."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from veltair.eval.children import child
from veltair.eval.docs.blocks import RUN, Block, blocks
from veltair.eval.ports import HOST, free_port

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
AFTER = {"docs/tuning.md": "docs/tutorial.md"}  # pages that go on where another one ended
PORT = "8000"  # that the pages name
MOST_S = 300


class Runner:
    """Runs the blocks of pages, in one folder, each server at a port of its own.

    Attributes:
        folder: where.
        ran: pages that have begun, and whether they have run to their end.
    """

    def __init__(self, folder: Path) -> None:
        self._port = str(free_port())  # before any server, nobody answers
        self.folder = folder
        self.ran: dict[Path, bool] = {}
        self._stack = ExitStack()
        tools = Path(sys.executable).parent
        self._environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def run_page(self, page: Path) -> None:
        """Runs a page once, after the one that it goes on from; a server on it ends with it."""
        if page in self.ran:
            assert self.ran[page], f"{page.name} has failed before, where another page asked for it"
            return
        self.ran[page] = False
        before = AFTER.get(page.relative_to(ROOT).as_posix())
        if before:
            self.run_page(ROOT / before)
        with self._stack:
            for block in blocks(page.read_text()):
                self.run(block)
        self.ran[page] = True

    def run(self, block: Block) -> None:
        text = block.text.replace(PORT, self._port)
        if block.skip:
            return
        if block.alone:
            self._stack.close()
        if block.same:
            check_same(block)
        elif block.title:
            (self.folder / block.title).write_text(text)
        elif block.dry_run:
            for line in text.splitlines():
                self._done([*shlex.split(line), "--dry-run"], block, ROOT)
        elif block.background:
            self._serve(block)
        elif block.language == "python":
            self._done([sys.executable, "-c", text], block, self.folder)
        elif block.language == "sh":
            self._done(["bash", "-euo", "pipefail", "-c", text], block, self.folder)

    def _done(self, command: list[str], block: Block, folder: Path) -> None:
        done = subprocess.run(
            command,
            cwd=folder,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=MOST_S,
        )
        said = f"{block.text}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        for text in block.prints:
            assert text in done.stdout, said

    def _serve(self, block: Block) -> None:
        self._stack.close()  # the one before
        self._port = str(free_port())
        text = block.text.replace(PORT, self._port)
        command = ["env", f"--chdir={self.folder}", f"PATH={self._environment['PATH']}"]
        server = self._stack.enter_context(child([*command, *shlex.split(text)]))
        with InferenceServerClient(f"{HOST}:{self._port}") as client:
            while True:
                assert server.poll() is None, f"the server has ended: {text}"
                with suppress(OSError, InferenceServerException):  # it doesn't listen yet
                    if client.is_server_ready():
                        return
                time.sleep(0.05)


def check_same(block: Block) -> None:
    """A block that another page runs: each line is there, in a block that runs."""
    run = [other for other in blocks((ROOT / block.same).read_text()) if not other.skip]
    lines = {line for other in run for line in other.source.splitlines()}
    missing = [line for line in block.source.splitlines() if line not in lines]
    assert missing == [], f"{block.same} doesn't run these lines"


def has_commands(page: Path) -> bool:
    return any(block.language in RUN for block in blocks(page.read_text()))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("docs"))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here: apt install curl")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if has_commands(page)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_the_commands_of_a_page_run(page: Path, runner: Runner) -> None:
    runner.run_page(page)


def test_pages_with_commands_are_found() -> None:
    found = {page.name for page in PAGES if has_commands(page)}
    assert {"README.md", "index.md", "tutorial.md", "tuning.md", "simulating.md"} <= found
