"""Fixtures of the kernel tests: each runs on every instruction set of this CPU."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import Bench, supported


@pytest.fixture(params=["x86-64-v4", "x86-64-v3"])
def isa(request: pytest.FixtureRequest) -> str:
    if not supported(request.param):
        pytest.skip(f"this CPU has no {request.param}")
    return str(request.param)


@pytest.fixture
def bench(isa: str) -> Bench:
    return Bench(isa)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
