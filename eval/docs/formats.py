"""The references of files: `serve.toml`, scenarios, workloads, an artifact's manifest."""

from __future__ import annotations

from typing import get_args, get_origin, get_type_hints

import msgspec

from veltair.eval.capacity.workloads import MixSection, QosSection, RunSection
from veltair.eval.docs.fields import record, toml_section
from veltair.runtime.config import ServeConfig
from veltair.runtime.manifest import (
    Argument,
    Batch,
    Border,
    Fallback,
    FileDigest,
    Interference,
    Layer,
    Manifest,
    Profile,
    TensorSpec,
    Variant,
)
from veltair.runtime.simulate.device_scenario import DeviceScenario
from veltair.runtime.simulate.scenario import Scenario

# In the order in which one leads to the next.
RECORDS = (
    Manifest,
    TensorSpec,
    Layer,
    Variant,
    Argument,
    Border,
    Fallback,
    Profile,
    Interference,
    Batch,
    FileDigest,
)
WORKLOAD: dict[str, type[msgspec.Struct]] = {
    "[workload]": MixSection,
    "[run]": RunSection,
    "[qos.NAME]": QosSection,
}
# What a server refuses in a section that scenarios have too.
NOT_SERVED = ("weight",)


def serve_reference() -> str:
    """Writes each section of `serve.toml`."""
    return "\n\n".join(
        toml_section(kind, heading, without=NOT_SERVED)
        for heading, kind in _sections(ServeConfig).items()
    )


def scenario_reference() -> str:
    """Writes each section of a scenario of cores, then those that one of devices has instead."""
    cores, devices = _sections(Scenario), _sections(DeviceScenario)
    parts = [toml_section(kind, heading) for heading, kind in cores.items()]
    parts += [
        toml_section(kind, heading, of="devices")
        for heading, kind in devices.items()
        if cores[heading] is not kind
    ]
    return "\n\n".join(parts)


def workload_reference() -> str:
    """Writes each section of a workload's file."""
    return "\n\n".join(toml_section(kind, heading) for heading, kind in WORKLOAD.items())


def artifact_reference() -> str:
    """Writes each record of an artifact's manifest."""
    return "\n\n".join(record(kind, like=Manifest if kind is Batch else None) for kind in RECORDS)


def _sections(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The sections of a TOML file by their headings: `[server]`, or `[[model]]` of a list."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is tuple:
            found[f"[[{name}]]"] = get_args(hint)[0]
        elif issubclass(hint, msgspec.Struct):
            found[f"[{name}]"] = hint
    return found
