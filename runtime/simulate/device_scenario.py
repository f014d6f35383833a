"""A scenario of emulated devices: `[machine] devices = 8`, models of a linear batch latency.

It has the sections of `scenario.py`; queries are gathered into batches, and a device runs one batch
at a time in `alpha_ms` a query and `beta_ms` a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from veltair.runtime.errors import ConfigError
from veltair.runtime.simulate.arrivals import make_arrivals
from veltair.runtime.simulate.device_simulation import (
    LONGEST_MS,
    MOST_DEVICES,
    DeviceModel,
    DevicePolicy,
    DeviceResult,
    milliseconds,
    simulate_devices,
)
from veltair.runtime.simulate.scenario import (
    ArrivalsSection,
    NamedSection,
    Section,
    parse_models,
    parse_section,
)


class DeviceMachineSection(Section, frozen=True, kw_only=True):
    """`[machine]`: what is simulated."""

    devices: Annotated[int, Meta(ge=1, le=MOST_DEVICES, description="emulated devices")]


class DevicePolicySection(Section, frozen=True, kw_only=True):
    """`[policy]`: how queries become batches, and which device runs one."""

    batching: Annotated[
        Literal["none", "timeout", "eager", "deferred"],
        Meta(description="none: one query a batch; deferred: Symphony's"),
    ] = "deferred"
    placement: Annotated[
        Literal["first-fit"], Meta(description="first-fit: the free device of the smallest number")
    ] = "first-fit"
    timeout_ms: Annotated[
        float,
        Meta(ge=0, le=LONGEST_MS, description="timeout: how long a first query waits for others"),
    ] = 5.0
    max_batch: Annotated[
        int, Meta(ge=0, le=1 << 20, description="queries of the largest batch; 0: any")
    ] = 0
    least_batch_percent: Annotated[
        int,
        Meta(
            ge=-1,
            le=100,
            description="under overload first queries are given up for batches of this share of "
            "what staggered devices reach; 0: never; -1: 70 for deferred, else never",
        ),
    ] = -1
    queue_limit: Annotated[
        int, Meta(ge=1, le=1 << 20, description="queries of a model that wait; more are refused")
    ] = 65_536


class DeviceModelSection(NamedSection, frozen=True, kw_only=True):
    """`[[model]]`: one model that queries ask for."""

    alpha_ms: Annotated[
        float, Meta(ge=0, le=LONGEST_MS, description="what a query adds to a batch's time")
    ]
    beta_ms: Annotated[
        float, Meta(ge=0, le=LONGEST_MS, description="what a batch takes beside its queries")
    ]
    qos_ms: Annotated[
        float, Meta(gt=0, le=LONGEST_MS, description="latency target from the arrival")
    ]


class DeviceScenario(Section, frozen=True, kw_only=True):
    """The whole scenario.

    Attributes:
        folder: where relative paths begin.
    """

    machine: DeviceMachineSection
    policy: DevicePolicySection
    model: tuple[DeviceModelSection, ...]
    arrivals: ArrivalsSection
    folder: Path


def has_devices(table: Mapping[str, Any]) -> bool:
    """Whether a scenario's table is of devices and not of cores.

    Raises:
        ConfigError: it names both.
    """
    machine = table.get("machine")
    if not isinstance(machine, Mapping) or "devices" not in machine:
        return False
    if "cores" in machine:
        raise ConfigError(
            f"machine.devices = {machine['devices']!r} and machine.cores = {machine['cores']!r}: "
            "a machine has cores or emulated devices; leave one out"
        )
    return True


def parse_device_scenario(
    table: Mapping[str, Any], folder: Path = Path(), source: str = "scenario"
) -> DeviceScenario:
    """Checks a table for which `has_devices` is true.

    Args:
        table: section name to a table of keys; `model` to a list of tables.
        folder: where relative paths begin.
        source: named at the front of an error message.

    Raises:
        ConfigError: a field breaks its rule.
    """
    return DeviceScenario(
        machine=parse_section(DeviceMachineSection, table["machine"], f"{source}: machine"),
        policy=parse_section(DevicePolicySection, table.get("policy", {}), f"{source}: policy"),
        model=parse_models(DeviceModelSection, table, source),
        arrivals=parse_section(ArrivalsSection, table.get("arrivals", {}), f"{source}: arrivals"),
        folder=folder,
    )


def run_devices(scenario: DeviceScenario, *, record: Path | None = None) -> DeviceResult:
    """Runs a scenario to the end of its last query.

    Args:
        scenario: what to run.
        record: where to write each event and decision, for `veltair replay`.

    Raises:
        ConfigError: a model can't meet its target even alone, or the arrivals don't fit.
        InputError: the record can't be written.
    """
    policy = scenario.policy
    percent = policy.least_batch_percent
    return simulate_devices(
        [_to_model(index, model, policy) for index, model in enumerate(scenario.model)],
        make_arrivals(scenario),
        devices=scenario.machine.devices,
        policy=DevicePolicy(
            batching=policy.batching,
            placement=policy.placement,
            least_batch_percent=None if percent < 0 else percent,
            queue_limit=policy.queue_limit,
        ),
        warmup_queries=scenario.arrivals.warmup_queries,
        record=record,
    )


def keeps_on_devices(
    scenario: DeviceScenario, rate_qps: float, seed: int, percentile: float
) -> bool:
    """Whether at least `percentile` % of each model's queries are in time at a rate."""
    arrivals = msgspec.structs.replace(scenario.arrivals, rate_qps=rate_qps, seed=seed)
    found = run_devices(msgspec.structs.replace(scenario, arrivals=arrivals))
    return float(found.satisfied_shares().min()) * 100 >= percentile


def _to_model(index: int, model: DeviceModelSection, policy: DevicePolicySection) -> DeviceModel:
    alpha_ns = milliseconds("alpha_ms", model.alpha_ms)
    beta_ns = milliseconds("beta_ms", model.beta_ms)
    qos_ns = milliseconds("qos_ms", model.qos_ms)
    field = f"model[{index}]"
    if alpha_ns + beta_ns == 0:
        raise ConfigError(
            f"{field}.alpha_ms = {model.alpha_ms:g} and beta_ms = {model.beta_ms:g}: a batch takes "
            "some time; set one of them"
        )
    if qos_ns < alpha_ns + beta_ns:
        raise ConfigError(
            f"{field}.qos_ms = {model.qos_ms:g}: below the time of one query alone, "
            f"{(alpha_ns + beta_ns) / 1e6:g} ms; no query could ever be in time"
        )
    return DeviceModel(
        name=model.name,
        alpha_ns=alpha_ns,
        beta_ns=beta_ns,
        slo_ns=qos_ns,
        weight=model.weight,
        max_batch=policy.max_batch or None,
        timeout_ns=milliseconds("timeout_ms", policy.timeout_ms),
    )
