"""What every test runs under."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# What is asked for by hand: `--hypothesis-profile many`.
settings.register_profile(
    "many", max_examples=500, deadline=None, suppress_health_check=list(HealthCheck)
)


def pytest_configure(config: pytest.Config) -> None:
    """Takes interrupts again where whoever started pytest in the background had them ignored.

    Children inherit an ignored signal, and tests interrupt the commands that they start. They also
    inherit the environment: the user's own tuning logs are neither read nor written.
    """
    data = tempfile.TemporaryDirectory(prefix="veltair-tests-data-")
    config.add_cleanup(data.cleanup)
    os.environ["XDG_DATA_HOME"] = data.name
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
