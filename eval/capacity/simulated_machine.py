"""Workloads on a machine that is only described: their scenarios, profiles and runs."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from veltair.eval.capacity.ours import late_percent
from veltair.eval.capacity.result import Trial
from veltair.eval.latency_figures import Outcomes, by_model
from veltair.proxy.kernel_shares import read_shares
from veltair.proxy.machine_file import Machine
from veltair.runtime import _native
from veltair.runtime.manifest import Manifest
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.simulate.machine_profiles import Modelled, beside_others
from veltair.runtime.simulate.metrics import report
from veltair.runtime.simulate.run import Simulated, simulate
from veltair.runtime.simulate.scenario import NS_PER_MS, Scenario, parse_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from veltair.eval.capacity.result import ModelTarget, WorkloadFacts
    from veltair.eval.points import PointStore
    from veltair.runtime._native import sched

MOST_VERSIONS = 5
_WARMUP = 0.05  # part of the queries
_DETAILS = ("conflict_rate", "average_cores", "cores_per_block", "blocks", "expansions")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is simulated beside workload and rate.

    Attributes:
        policy: of scheduling.
        versions: that a layer has at most.
        machine: fields of the scenario's `[machine]` that differ.
        policy_options: of its `[policy]`.
        slower: what each core computes, as a part of what it does.
        planned: the part of a target that policies are told; a query is in time by the whole.
    """

    policy: str
    versions: int = MOST_VERSIONS
    machine: tuple[tuple[str, float | str], ...] = ()
    policy_options: tuple[tuple[str, float], ...] = ()
    slower: float = 1.0
    planned: float = 1.0

    @property
    def text(self) -> str:
        """What differs from the usual, as a result's `setting`; empty: nothing."""
        parts = [
            f"{key}={value:g}" if not isinstance(value, str) else f"{key}={value}"
            for key, value in (*self.machine, *self.policy_options)
        ]
        if self.versions != MOST_VERSIONS:
            parts.append(f"versions={self.versions}")
        if self.slower != 1:
            parts.append(f"computing={self.slower:g}")
        if self.planned != 1:
            parts.append(f"planned={self.planned:g}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One simulation.

    Attributes:
        trial: as a result has it.
        details: of the whole run: conflict rate, cores, blocks.
    """

    trial: Trial
    details: dict[str, float | None]


class SimulatedMachine:
    """Runs workloads on a described machine; keeps what it has run."""

    def __init__(
        self,
        manifests: Mapping[str, Manifest],
        machine: Machine,
        name: str,
        measured_on: Machine,
        store: PointStore,
        *,
        percentile: float,
    ) -> None:
        """Takes what is simulated.

        Args:
            manifests: of the artifacts, by model.
            machine: that is simulated.
            name: of its file.
            measured_on: where the artifacts' profiles were measured.
            store: of what has been run.
            percentile: of each model's queries that must be within its target.
        """
        self.machine = machine
        self._manifests = manifests
        self._name = name
        self._measured_on = measured_on
        self._store = store
        self.percentile = percentile
        self._shares = read_shares()
        # A profile of many versions, core counts and levels takes a second to make.
        self.profiles = lru_cache(maxsize=32)(self._profiles)
        self._modelled = lru_cache(maxsize=None)(self._beside_others)
        # A digest of them is asked for by every run, also by one that is kept.
        self._digest = lru_cache(maxsize=None)(self._digest_profiles)

    def run(
        self,
        facts: WorkloadFacts,
        setting: Setting,
        *,
        rate_qps: float,
        queries: int,
        seed: int,
    ) -> Run:
        """Runs one, unless it was run before.

        Args:
            facts: of the workload.
            setting: beside it.
            rate_qps: of all models.
            queries: of all models.
            seed: of the arrivals, from 1.
        """
        asked = self._scenario(facts, setting, rate_qps, queries, seed)
        key = self._key(facts, setting, asked)
        kept = self._store.get(key)
        if kept is None:
            kept = self._simulated(facts, setting, asked)
            self._store.put(key, kept)
        return msgspec.convert(kept, Run)

    def _simulated(self, facts: WorkloadFacts, setting: Setting, asked: Scenario) -> dict[str, Any]:
        begun_s = time.monotonic()
        profiles = self.profiles(_told(facts, setting), *_variant(setting))
        found = replace(
            simulate(asked, profiles=list(profiles)),
            qos_ns=np.array([model.qos_ns for model in facts.models]),
        )
        names = [model.name for model in facts.models]
        figures = by_model(_counted(asked, found), names)
        whole = report(asked, found)
        trial = Trial(
            workload=facts.name,
            system=setting.policy,
            setting=setting.text,
            purpose="search",
            repetition=asked.arrivals.seed - 1,
            rate_qps=asked.arrivals.rate_qps,
            met=all(figures[name].satisfied_share * 100 >= self.percentile for name in names),
            figures=figures,
            core_usage=whole["average_cores"] / asked.machine.cores,
            late_p99_ms=None,
            disturbance=None,
            seconds=time.monotonic() - begun_s,
        )
        run = Run(trial=trial, details={key: whole[key] for key in _DETAILS})
        built: dict[str, Any] = msgspec.to_builtins(run)
        return built

    def _scenario(
        self, facts: WorkloadFacts, setting: Setting, rate_qps: float, queries: int, seed: int
    ) -> Scenario:
        machine: dict[str, Any] = {
            "cores": self.machine.processor.cores,
            "model": self._name,
            "interference": "shared",
        }
        tables: dict[str, Any] = {
            "machine": machine | dict(setting.machine),
            "policy": {
                "scheduling": setting.policy,
                "late_percent": late_percent(self.percentile),
            }
            | dict(setting.policy_options),
            "model": [
                {
                    "name": model.name,
                    "profile": model.name,
                    "qos_ms": model.qos_ns / NS_PER_MS,
                    "weight": model.share,
                }
                for model in facts.models
            ],
            "arrivals": {
                "rate_qps": rate_qps,
                "queries": queries,
                "warmup_queries": round(queries * _WARMUP),
                "seed": seed,
            },
        }
        return parse_scenario(tables, source=facts.name)

    def _key(self, facts: WorkloadFacts, setting: Setting, asked: Scenario) -> dict[str, Any]:
        """All that a run depends on: the scenario, the profiles' tables, and the native code."""
        sections = {
            key: msgspec.to_builtins(getattr(asked, key))
            for key in ("machine", "policy", "model", "arrivals")
        }
        return sections | {
            "percentile": self.percentile,
            "native": _native_digest(),
            "planned": setting.planned,
            "profiles": self._digest(_told(facts, setting), *_variant(setting)),
            "memory": msgspec.to_builtins(self.machine.memory),
            "caches": msgspec.to_builtins(self.machine.caches),
        }

    def _profiles(
        self, models: tuple[ModelTarget, ...], versions: int, slower: float
    ) -> tuple[sched.ModelProfile, ...]:
        """Each model's profile, with so many versions at most of each layer."""
        found = []
        for model in models:
            manifest, read_bytes = self._modelled(model.name, slower)
            limited, rows = with_versions(manifest, versions)
            found.append(
                to_profile(
                    limited,
                    qos_ns=model.qos_ns,
                    layer_bytes=read_bytes[rows].ravel().tolist(),
                )
            )
        return tuple(found)

    def _beside_others(self, name: str, slower: float) -> tuple[Manifest, NDArray[np.int64]]:
        frequency = self.machine.processor.frequency_ghz * slower
        on = Modelled(
            machine=self.machine.changed("processor.frequency_ghz", frequency),
            shares=self._shares,
            measured_on=self._measured_on,
            shared=True,
        )
        cores = range(1, self.machine.processor.cores + 1)
        return beside_others(self._manifests[name], on, cores)

    def _digest_profiles(
        self, models: tuple[ModelTarget, ...], versions: int, slower: float
    ) -> str:
        digest = hashlib.sha256()
        for profile in self.profiles(models, versions, slower):
            for table in (profile.model_ns, profile.layer_ns, profile.layer_bytes):
                digest.update(np.array(table, dtype=np.int64).tobytes())
        return digest.hexdigest()


def with_versions(manifest: Manifest, count: int) -> tuple[Manifest, list[int]]:
    """Returns a manifest with at most so many versions of each layer, and which rows they are.

    The first stays; then each time the one without which most is lost, on average over core counts
    and levels, against having all.

    Args:
        manifest: with the profile that says so.
        count: from 1.
    """
    layers, tables, rows = [], [], []
    row = 0
    for layer, times in zip(manifest.layers, manifest.profile.layer_ns, strict=True):
        kept = _best_versions(np.array(times, dtype=np.float64), count)
        layers.append(
            msgspec.structs.replace(layer, variants=tuple(layer.variants[i] for i in kept))
        )
        tables.append(tuple(times[i] for i in kept))
        rows += [row + i for i in kept]
        row += len(times)
    profile = msgspec.structs.replace(manifest.profile, layer_ns=tuple(tables))
    return msgspec.structs.replace(manifest, layers=tuple(layers), profile=profile), rows


def _best_versions(table: NDArray[np.float64], count: int) -> list[int]:
    """Indices into float64[versions, cores, levels]."""
    kept = [0]
    fastest = table.min(axis=0)
    while len(kept) < min(count, len(table)):
        others = [index for index in range(len(table)) if index not in kept]
        losses = [(table[[*kept, each]].min(axis=0) / fastest).mean() for each in others]
        kept.append(others[int(np.argmin(losses))])
    return kept


def _told(facts: WorkloadFacts, setting: Setting) -> tuple[ModelTarget, ...]:
    """The models with the targets that policies plan on."""
    return tuple(
        replace(model, qos_ns=round(model.qos_ns * setting.planned)) for model in facts.models
    )


def _variant(setting: Setting) -> tuple[int, float]:
    return setting.versions, setting.slower


def _counted(asked: Scenario, found: Simulated) -> Outcomes:
    """The queries after the warm-up."""
    counted = slice(asked.arrivals.warmup_queries, None)
    return Outcomes(
        arrival_ns=found.arrivals.time_ns[counted],
        model=found.arrivals.model[counted],
        start_ns=found.start_ns[counted],
        end_ns=found.end_ns[counted],
        outcome=found.outcome[counted],
        qos_ns=found.qos_ns,
    )


@lru_cache(maxsize=1)
def _native_digest() -> str:
    assert _native.__file__ is not None
    return hashlib.sha256(Path(_native.__file__).read_bytes()).hexdigest()
