"""A headless Chromium that tests look at pages with, by its debugging protocol over pipes."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Figures whose drawing has an extent, and those that were drawn at all.
FIGURES = """(() => {
  const figures = Array.from(document.querySelectorAll("figure"));
  const drawn = figures.filter((figure) => {
    const marks = figure.querySelectorAll("svg :is(.line, circle, .shape, .bar, .dots, .note)");
    return Array.from(marks).some((mark) => {
      const box = mark.getBoundingClientRect();
      return box.width > 0 || box.height > 0;
    });
  });
  return [figures.length, drawn.length];
})()"""

# The worst contrast between a text and what is behind it.
CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = [r, g, b].map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  let worst = 100;
  const words = "p, h1, h2, h3, li, td, th, text, button, dt, dd, label, summary, output, a";
  for (const e of document.querySelectorAll(words)) {
    const style = getComputedStyle(e);
    const ink = light(parse(e instanceof SVGElement ? style.fill : style.color));
    const ground = light(behind(e));
    worst = Math.min(worst, (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05));
  }
  return worst;
})()"""

_HIGH = 10  # out of the way of the numbers that Chromium reads from and writes to


def find_browser() -> str | None:
    """Returns the path of an installed Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser, for the length of a `with`.

    Attributes:
        complaints: what the page wrote to the console as an error or a warning, and its exceptions.
        requests: addresses that it asked for.
    """

    def __init__(self, path: str) -> None:
        """Starts the browser at `path` with an empty page."""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._loaded = False
        self._profile = tempfile.TemporaryDirectory(prefix="veltair-browser-")
        self._process, self._to, self._from = _start(path, self._profile.name)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the browser and removes what it wrote."""
        self._to.close()  # Chromium ends when nobody can speak to it any more
        self._from.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def show(self, path: Path, *, width: int = 1280, dark: bool = False) -> None:
        """Opens a file in a window of that width, in the light or the dark scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._hear(self._receive())

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 # whatever the script returns
        """Runs a script in the page and returns its value."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Sends a command and returns its answer; hears what happens meanwhile."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while (answer := self._receive()).get("id") != number:
            self._hear(answer)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        parts = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser has ended"
            parts += byte
        message: dict[str, Any] = json.loads(parts)
        return message

    def _hear(self, event: dict[str, Any]) -> None:
        method, what = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(what["args"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(what["entry"]))


def _start(path: str, profile: str) -> tuple[subprocess.Popen[bytes], Any, Any]:
    """The browser, which reads commands from its descriptor 3 and answers on 4."""
    pipes = (*os.pipe(), *os.pipe())
    child_in, to, from_, child_out = (
        fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        for each in (pipes[0], pipes[1], pipes[2], pipes[3])
    )
    for each in pipes:
        os.close(each)

    def connect() -> None:
        os.dup2(child_in, 3)
        os.dup2(child_out, 4)

    process = subprocess.Popen(
        [
            path,
            "--headless",
            "--no-sandbox",  # tests also run as root, in containers
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=connect,  # noqa: PLW1509 # two system calls, nothing of Python's
    )
    os.close(child_in)
    os.close(child_out)
    return process, os.fdopen(to, "wb"), os.fdopen(from_, "rb")
