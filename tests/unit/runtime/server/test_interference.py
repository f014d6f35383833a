"""What the level is to be measured by is checked before a server starts; what it is, is told."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from proxy_models import linear_model, proxy_file, term

from veltair.proxy.sources.computer import Computer
from veltair.runtime._native import ipc
from veltair.runtime.client import LocalClient
from veltair.runtime.config import ServeConfig, parse_config
from veltair.runtime.errors import InputError
from veltair.runtime.server.interference import read_sampling
from veltair.runtime.server.metrics import Metrics
from veltair.runtime.server.repository import to_policies

if TYPE_CHECKING:
    from pathlib import Path


def config(executor: str = "kernels", **interference: str) -> ServeConfig:
    return parse_config({"engine": {"executor": executor}, "interference": interference})


def written(folder: Path, source: str = "probe", **changes: object) -> str:
    file = proxy_file(linear_model(term("probe_step"), sources=(source,)))
    path = folder / "proxy.json"
    msgspec.structs.replace(file, **changes).write(path)
    return str(path)


@pytest.fixture
def bare(tmp_path: Path) -> Computer:
    """A machine that tells nothing of itself: only what needs no files works."""
    return Computer(root=tmp_path)


def test_measured_unless_nothing_runs() -> None:
    assert read_sampling(config("null")) is None
    assert read_sampling(config("null", source="self")) is not None
    assert read_sampling(config(source="none")) is None
    sampling = read_sampling(config())
    assert sampling is not None
    assert (sampling.source, sampling.file) == ("auto", None)
    assert len(sampling.complexes) == len(sampling.cpus)


def test_a_file_of_models(tmp_path: Path, bare: Computer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        sampling = read_sampling(config(proxy=written(tmp_path)), bare)
        assert sampling is not None
        assert sampling.file is not None
        assert sampling.file.sources == ("probe",)
        assert not caplog.records
        foreign = written(tmp_path, machine={"cpu": "another", "cores": 64})
        assert read_sampling(config(proxy=foreign), bare) is not None
    (record,) = caplog.records
    assert "trained on another machine (cpu another there" in record.getMessage()


def test_files_that_are_none(tmp_path: Path, bare: Computer) -> None:
    with pytest.raises(InputError, match=r"can't be read .*veltair calibrate"):
        read_sampling(config(proxy=str(tmp_path / "absent")), bare)
    whole = written(tmp_path)
    cut = tmp_path / "cut.json"
    cut.write_bytes((tmp_path / "proxy.json").read_bytes()[:100])
    with pytest.raises(InputError, match="cut"):
        read_sampling(config(proxy=str(cut)), bare)
    with pytest.raises(InputError, match="schema 7"):
        read_sampling(config(proxy=written(tmp_path, schema=7)), bare)
    assert whole == written(tmp_path, source="resctrl")
    with pytest.raises(InputError, match=r"need resctrl; what works here is self .*leave the file"):
        read_sampling(config(proxy=whole), bare)


def test_a_source_that_was_asked_for(tmp_path: Path, bare: Computer) -> None:
    path = written(tmp_path)
    sampling = read_sampling(config(source="probe", proxy=path), bare)
    assert sampling is not None
    assert sampling.source == "probe"
    with pytest.raises(InputError, match=r"becomes a level by a model.*veltair calibrate"):
        read_sampling(config(source="probe"), bare)
    with pytest.raises(InputError, match="'resctrl': the models of `proxy` are of probe"):
        read_sampling(config(source="resctrl", proxy=path), bare)
    both = proxy_file(
        linear_model(term("probe_step"), sources=("probe",)),
        linear_model(term("l3_occupancy"), sources=("resctrl",), r2=0.5),
    )
    both.write(tmp_path / "both.json")
    with pytest.raises(InputError, match="'resctrl': it doesn't work here"):
        read_sampling(config(source="resctrl", proxy=str(tmp_path / "both.json")), bare)


def page(*, measured: bool, levels: list[ipc.Measured]) -> list[str]:
    """What `/metrics` tells of the level."""
    segment = ipc.Segment.create(
        cpus=[0, 1],
        complexes=[0, 1],
        workers=1,
        policies=ipc.Policies(measured=measured),
        models=[],
    )
    ipc.Board(segment).tell_levels(levels[0], levels[1:], "probe")
    with LocalClient(segment) as client:
        text = Metrics(client).page().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [line for line in lines if "interference" in line or "decisions" in line]


def measured(slowdown: int, confidence: int, age_ns: int = 0) -> ipc.Measured:
    time_ns = time.monotonic_ns() - age_ns
    return ipc.Measured(slowdown=slowdown, confidence=confidence, time_ns=time_ns)


def test_metrics() -> None:
    levels = [measured(250_000, 800_000), measured(300_000, 40_000), measured(7, 900_000, 10**9)]
    assert page(measured=True, levels=levels) == [
        'veltair_interference_level{complex="node"} 0.25',
        'veltair_interference_confidence{complex="node"} 0.8',
        'veltair_interference_confidence{complex="0"} 0.04',  # too little to tell a level
        'veltair_interference_confidence{complex="1"} 0.0',  # too old
        'veltair_interference_source_info{source="probe"} 1.0',
        "veltair_decisions 0.0",
        "veltair_decisions_level_unknown 0.0",
    ]
    assert page(measured=False, levels=levels) == []


def test_policies_say_whether_it_is_measured() -> None:
    segment = ipc.Segment.create(cpus=[0], workers=1, policies=to_policies(config()), models=[])
    assert ipc.Board(segment).level_report().measured
    ipc.Board(segment).set_policies(to_policies(config(source="none")))
    assert not ipc.Board(segment).level_report().measured
