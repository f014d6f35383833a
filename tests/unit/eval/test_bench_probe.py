"""What the probe's benchmark makes of its measurements, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from veltair.eval.bench_probe import sizes_of, summary
from veltair.runtime.errors import InputError


def test_each_round_is_compared_with_itself() -> None:
    # The second round's machine is twice as slow, which falls out.
    step_ns = np.array([[10.0, 12.0, 20.0], [20.0, 18.0, 40.0]])
    pass_ns = np.array([[100.0, 110.0, 150.0], [200.0, 220.0, 300.0]])
    found = summary([0, 10**9, 8 * 10**9], step_ns, pass_ns)
    assert [each["gbps"] for each in found["rates"]] == [0, 1, 8]
    assert [each["above_alone"] for each in found["rates"]] == [0, 0.5, 1]
    assert found["rates"][2]["slowdown"]["p50"] == 1.0
    assert found["rates"][2]["reference_slowdown"]["p50"] == pytest.approx(0.5)
    assert found["rates"][1]["step_ns"]["p50"] == 15.0
    assert found["correlation"] == pytest.approx(np.corrcoef([0.2, 1, -0.1, 1], [1, 5, 1, 5])[0, 1])


def test_what_does_not_vary_has_no_correlation() -> None:
    assert summary([0, 1], np.ones((2, 2)), np.ones((2, 2)))["correlation"] is None


def test_sizes() -> None:
    assert sizes_of("4,2048") == [4, 2048]
    for text in ("", "3", "4,x", "1048577", "-4", "4,"):
        with pytest.raises(InputError, match="--buffers-kb"):
            sizes_of(text)
