"""The pinned versions: every direct dependency has one that its own bound allows."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def pins(python: str) -> dict[str, str]:
    """Returns the version of each package that `constraints.txt` gives to a Python."""
    found: dict[str, str] = {}
    for line in CONSTRAINTS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate({"python_version": python}):
            (version,) = pin.specifier
            assert version.operator == "==", line
            assert canonicalize_name(pin.name) not in found, f"{pin.name} pinned twice"
            found[canonicalize_name(pin.name)] = version.version
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_each_dependency_is_pinned_within_its_bound(python: str) -> None:
    pinned = pins(python)
    wanted = [Requirement(text) for text in requires("veltair") or ()]
    assert len(wanted) > 20
    for requirement in wanted:
        marker = requirement.marker
        extras = re.findall(r'extra == "(\w+)"', str(marker)) or [""]
        if marker and not marker.evaluate({"python_version": python, "extra": extras[0]}):
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} has no pin for Python {python}"
        assert requirement.specifier.contains(version), f"{requirement} against {version}"


@pytest.mark.parametrize("python", PYTHONS)
def test_what_make_installs_without_dependencies_is_pinned(python: str) -> None:
    makefile = (CONSTRAINTS.parent / "Makefile").read_text()
    (packages,) = re.findall(r"^TEXT_PACKAGES := (.+)$", makefile, re.MULTILINE)
    assert set(packages.split()) <= set(pins(python))


def test_no_download_addresses() -> None:
    assert not re.search(r"://|--|@|\bhash", CONSTRAINTS.read_text())
