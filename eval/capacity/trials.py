"""Trials: one run each of a system at a setting, kept so that a stopped evaluation goes on."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from veltair.eval.capacity.peers.log import LOG_FILE
from veltair.eval.capacity.result import Bar, Trial, to_trial
from veltair.eval.capacity.system import Recorded
from veltair.eval.latency_figures import Outcomes, by_model, to_json
from veltair.eval.points import circumstances
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from veltair.eval.capacity.result import Purpose, WorkloadFacts
    from veltair.eval.capacity.system import Candidate, Observed, Running, System
    from veltair.eval.capacity.workloads import RunSection
    from veltair.eval.latency_figures import Figures
    from veltair.eval.outcomes import Allowance
    from veltair.eval.patience import Patience
    from veltair.eval.points import PointStore
    from veltair.runtime.disturbance import Disturbance
    from veltair.runtime.simulate.arrivals import Arrivals

_STILL = 0.5  # of the shortest target
_NS_PER_MS = 1e6


@dataclass(frozen=True, kw_only=True)
class Case:
    """A workload as it is run.

    Attributes:
        facts: its models, shares and targets.
        run: how long a run is.
        candidates: the models, in the same order.
    """

    facts: WorkloadFacts
    run: RunSection
    candidates: tuple[Candidate, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the models."""
        return tuple(model.name for model in self.facts.models)


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What one trial is to be.

    Attributes:
        system: that serves.
        setting: of it.
        case: the workload.
        arrivals: what is sent.
        rate_qps: at which they were drawn.
        purpose: as of `Trial`.
        repetition: as of `Trial`.
        allowance: by which it may be cut; None: it runs to its end.
    """

    system: System
    setting: str
    case: Case
    arrivals: Arrivals
    rate_qps: float
    purpose: Purpose
    repetition: int
    allowance: Allowance | None = None


class Trials:
    """Measures trials; a system stays up from one to the next of the same setting and workload.

    Attributes:
        done: all trials that were asked for, in their order.
        told: hears of each of them, and whether it was kept from an earlier command.
    """

    def __init__(
        self,
        store: PointStore,
        *,
        cpus: Sequence[int],
        scratch: Path,
        percentile: float,
        patience: Patience,
    ) -> None:
        """Begins without a system that is up.

        Args:
            store: keeps the trials.
            cpus: processors that the systems may use.
            scratch: folder for what they write.
            percentile: of each model's queries that must be in time.
            patience: with other processes.
        """
        self.told: Callable[[Trial, bool], None] = lambda _trial, _kept: None
        self.done: list[Trial] = []
        self._store = store
        self._cpus = tuple(cpus)
        self._scratch = scratch
        self._percentile = percentile
        self._patience = patience
        self._circumstances = circumstances()
        self._up: tuple[tuple[object, ...], Running] | None = None
        self._stack = ExitStack()

    def __call__(self, ask: Ask) -> Trial:
        """Returns a trial, measured now or kept.

        Raises:
            VeltairError: the system does not start, or died.
        """
        key = self._key(ask)
        kept = self._store.get(key)
        if kept is None:
            measured = self._measure(ask)
            self._store.put(key, to_json(msgspec.to_builtins(measured)))
        else:
            measured = to_trial(kept)
        trial = replace(measured, met=self._met(measured.figures, measured.cut))
        self.done.append(trial)
        self.told(trial, kept is not None)
        return trial

    def second(self, ask: Ask) -> tuple[Bar, ...]:
        """Returns the blocks of a run's second second, recorded now or kept.

        Raises:
            VeltairError: as of a trial.
        """
        assert isinstance(ask.system, Recorded)
        key = self._key(ask) | {"kind": "capacity second"}
        kept = self._store.get(key)
        if kept is None:
            self.close()
            folder = self._emptied(ask.system, ask.case)
            bars = ask.system.second(ask.case.candidates, self._cpus, folder, ask.arrivals)
            kept = msgspec.to_builtins({"bars": bars})
            self._store.put(key, kept)
        return msgspec.convert(kept["bars"], tuple[Bar, ...])

    def close(self) -> None:
        """Stops the system that is up, if one is."""
        self._up = None
        stack, self._stack = self._stack, ExitStack()
        stack.close()

    def log(self, system: System, case: Case) -> Path:
        """Returns where a system's output lies until it is started again."""
        return self._folder(system, case) / LOG_FILE

    def _folder(self, system: System, case: Case) -> Path:
        return self._scratch / "running" / f"{case.facts.name}-{system.name}"

    def _emptied(self, system: System, case: Case) -> Path:
        folder = self._folder(system, case)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _running(self, ask: Ask) -> Running:
        models = ask.case.candidates
        wanted = (ask.system.name, ask.setting, ask.case.facts.name, models)
        if self._up is None or self._up[0] != wanted:
            self.close()
            folder = self._emptied(ask.system, ask.case)
            starting = ask.system.running(ask.setting, ask.case.candidates, self._cpus, folder)
            self._up = wanted, self._stack.enter_context(starting)
        return self._up[1]

    def _measure(self, ask: Ask) -> Trial:
        running = self._running(ask)
        begun_s = time.monotonic()
        observed, disturbance = self._patience.quietest(
            partial(running.replay, ask.arrivals, ask.allowance), partial(_stood_still, ask)
        )
        return self._trial(ask, observed, disturbance, time.monotonic() - begun_s)

    def _trial(
        self, ask: Ask, observed: Observed, disturbance: Disturbance, seconds: float
    ) -> Trial:
        sent = len(observed.end_ns)
        outcomes = Outcomes(
            arrival_ns=ask.arrivals.time_ns[:sent],
            model=ask.arrivals.model[:sent],
            start_ns=observed.start_ns,
            end_ns=observed.end_ns,
            outcome=observed.outcome,
            qos_ns=np.array([model.qos_ns for model in ask.case.facts.models], np.int64),
        )
        is_cut = sent < len(ask.arrivals.time_ns)
        figures = by_model(outcomes, ask.case.names)
        return Trial(
            workload=ask.case.facts.name,
            system=ask.system.name,
            setting=ask.setting,
            purpose=ask.purpose,
            repetition=ask.repetition,
            rate_qps=ask.rate_qps,
            met=self._met(figures, is_cut),
            figures=figures,
            core_usage=_core_usage(observed, len(self._cpus)),
            late_p99_ms=_late_p99_ns(ask, observed) / _NS_PER_MS,
            disturbance=disturbance,
            seconds=seconds,
            errors=observed.errors,
            cut=is_cut,
        )

    def _met(self, figures: Mapping[str, Figures], is_cut: bool) -> bool:
        """Whether each model that was asked for had its share in time; never where it was cut."""
        if is_cut:
            return False
        shares = [each.satisfied_share for name, each in figures.items() if name != "all"]
        return all(math.isnan(share) or share * 100 >= self._percentile for share in shares)

    def _key(self, ask: Ask) -> dict[str, Any]:
        arrivals = hashlib.sha256(ask.arrivals.time_ns.tobytes() + ask.arrivals.model.tobytes())
        most_late = None if ask.allowance is None else list(ask.allowance.most_late)
        return self._circumstances | {
            "kind": "capacity trial",
            "system": ask.system.name,
            "version": ask.system.version(),
            "setting": ask.setting,
            "purpose": ask.purpose,
            "repetition": ask.repetition,
            "models": [identity(model) for model in ask.case.candidates],
            "workload": ask.case.facts.name,
            "cpus": list(self._cpus),
            "arrivals": arrivals.hexdigest(),
            "most_late": most_late,
        }


def _late_p99_ns(ask: Ask, observed: Observed) -> float:
    """By how much the driver was late with one query in a hundred."""
    sent = len(observed.submitted_ns)
    return float(np.percentile(observed.submitted_ns - ask.arrivals.time_ns[:sent], 99))


def _stood_still(ask: Ask, observed: Observed) -> bool:
    """Whether one query in a hundred was sent later than half of the shortest target.

    The driver's thread goes before all others where it may: then only a machine that stands still
    makes it so late, and what it measured says little of the system.
    """
    shortest_ns = min(model.qos_ns for model in ask.case.facts.models)
    return _late_p99_ns(ask, observed) > _STILL * shortest_ns


def _core_usage(observed: Observed, cores: int) -> float | None:
    if observed.busy_ns < 0 or not observed.end_ns.size:
        return None
    return observed.busy_ns / max(int(observed.end_ns.max()) * cores, 1)


def identity(model: Candidate) -> dict[str, Any]:
    """What a model's trials depend on: its files, by content or, where long, by size and time."""
    found: dict[str, Any] = {"name": model.name, "qos_ns": model.qos_ns}
    if model.artifact is not None:
        manifest = (resolve_folder(model.artifact) / MANIFEST_FILE).read_bytes()
        found["artifact"] = hashlib.sha256(manifest).hexdigest()
    if model.onnx is not None:
        status = model.onnx.stat()
        found["onnx"] = [status.st_size, status.st_mtime_ns]
    return found
