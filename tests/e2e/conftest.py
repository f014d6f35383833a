"""A repository, compiled once, for the tests that serve."""

from __future__ import annotations

from pathlib import Path

import pytest
import served_models


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of `served_models`."""
    return served_models.write_repository(tmp_path_factory.mktemp("served") / "repository")
