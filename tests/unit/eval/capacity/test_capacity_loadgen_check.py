"""The check against LoadGen: the same arrivals on both sides, and what counts as agreement."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

pytest.importorskip("mlperf_loadgen")

from veltair.eval.capacity.loadgen_check import Compared, due_ns, table
from veltair.eval.loadgen_schedule import loadgen_seeds, server_schedule


def test_arrivals_are_those_that_loadgen_draws() -> None:
    found = due_ns(7, rate_qps=50, seconds=20)
    drawn = server_schedule(loadgen_seeds(7)[0], 50, 2000)
    np.testing.assert_array_equal(found, drawn[: len(found)])
    assert drawn[len(found)] >= 20e9 > found[-1]
    assert len(found) == pytest.approx(1000, rel=0.1)
    assert loadgen_seeds(7) != loadgen_seeds(8)


def test_what_is_within_two_percent_agrees() -> None:
    alike = Compared(
        model="alike",
        qos_ns=1,
        loadgen_qps=(101.5, 101.5, 101.5),
        judged_qps=(101.5, 70.0, 101.5),
        sent_qps=(99, 100, 300),
        others=0.0,
    )
    apart = Compared(
        model="apart",
        qos_ns=1,
        loadgen_qps=(97.0,),
        judged_qps=(100.0,),
        sent_qps=(100.0,),
        others=0.0,
    )
    assert (alike.verdict_ratio, alike.ratio) == (1.0, 1.015)
    assert (apart.verdict_ratio, apart.ratio) == (0.97, 0.97)
    console = Console(file=io.StringIO(), width=120)
    console.print(table([alike, apart]))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert next(line for line in lines if "alike" in line).count("yes") == 2
    assert next(line for line in lines if "apart" in line).count("no") == 2
