"""The servers' virtual environments, which `make peers` makes."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "build" / "peers"
STAMP = ".installed"  # made last
_REMEDY = "make peers"
_START_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One of them.

    Attributes:
        name: of its folder.
        package: that it is made for.
    """

    name: str
    package: str

    @property
    def folder(self) -> Path:
        """Where it is."""
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def missing(self) -> str | None:
        """Why it can't be used, and what would help; None if it can."""
        what = f"{self.name}: its environment build/peers/{self.name}"
        if not self.folder.exists():
            return f"{what} is not there; {_REMEDY}"
        if not (self.folder / STAMP).exists():
            return f"{what} was not installed to the end; {_REMEDY} goes on"
        try:
            subprocess.run([self.python, "-c", ""], check=True, timeout=_START_S)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{what} has no interpreter that runs ({error}); remove it, then {_REMEDY}"
        try:
            self.version()
        except PackageNotFoundError:
            return f"{what} lacks the package {self.package}; remove it, then {_REMEDY}"
        return None

    def version(self) -> str:
        """Returns that of the package.

        Raises:
            PackageNotFoundError: it isn't in the environment.
        """
        places = [str(place) for place in self.folder.glob("lib/python*/site-packages")]
        for found in distributions(name=self.package, path=places):
            return found.version
        raise PackageNotFoundError(self.package)
