"""Arrivals of queries at models: generated beforehand, each model with a seed of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from veltair.runtime.errors import ConfigError

Process = Literal["poisson", "gamma", "uniform"]

_CHUNK = 4096
_SECOND_NS = 1e9
_MOST_QUERIES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Queries in the order in which they come.

    Attributes:
        arrival_ns: int64[queries], ascending from 0.
        model: int32[queries], index of the model that each asks.
    """

    arrival_ns: NDArray[np.int64]
    model: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class ArrivalPlan:
    """What arrives.

    Attributes:
        rate_qps: of all models together; each has the part that its weight is of all weights.
        queries: how many come, of all models.
        process: `poisson`; `gamma`, burstier the smaller its shape; `uniform`, one gap throughout,
            with a phase that the seed chooses.
        shape: of the gamma distribution of gaps; 1 is Poisson.
        seed: of the random numbers; each model's are independent of the others'.
    """

    rate_qps: float
    queries: int
    process: Process = "poisson"
    shape: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what can't be generated."""
        if not (math.isfinite(self.rate_qps) and self.rate_qps > 0):
            raise ConfigError(f"rate_qps = {self.rate_qps}: must be finite and above 0")
        if not 1 <= self.queries <= _MOST_QUERIES:
            raise ConfigError(f"queries = {self.queries}: must be from 1 to {_MOST_QUERIES}")
        if self.process not in ("poisson", "gamma", "uniform"):
            raise ConfigError(f"process = {self.process!r}: must be poisson, gamma or uniform")
        if not (math.isfinite(self.shape) and self.shape > 0):
            raise ConfigError(f"shape = {self.shape}: must be finite and above 0")
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed}: must not be negative")


def generate_arrivals(plan: ArrivalPlan, weights: Sequence[float]) -> Arrivals:
    """Generates the arrivals of a plan; the same plan and weights give the same arrivals.

    Args:
        plan: what arrives.
        weights: by model; only their ratios matter.

    Raises:
        ConfigError: no weight is above 0, or one is negative or not finite.
    """
    share = np.asarray(weights, dtype=np.float64)
    if share.size == 0 or not np.isfinite(share).all() or (share < 0).any() or share.sum() == 0:
        raise ConfigError(f"weights {list(weights)}: must be finite, none negative, one above 0")
    seeds = np.random.SeedSequence(plan.seed).spawn(share.size)
    streams = [
        _Stream(plan, plan.rate_qps * part, np.random.default_rng(seed))
        for part, seed in zip(share / share.sum(), seeds, strict=True)
    ]
    horizon_ns = plan.queries / plan.rate_qps * _SECOND_NS
    while True:
        times = [stream.until(horizon_ns) for stream in streams]
        if sum(len(each) for each in times) >= plan.queries:
            break
        horizon_ns *= 1.1
    arrival_ns = np.concatenate(times)
    model = np.repeat(np.arange(len(times), dtype=np.int32), [len(each) for each in times])
    order = np.argsort(arrival_ns, kind="stable")[: plan.queries]
    return Arrivals(arrival_ns=arrival_ns[order], model=model[order])


class _Stream:
    """One model's arrivals, made as far as they are asked for."""

    def __init__(self, plan: ArrivalPlan, rate_qps: float, random: np.random.Generator) -> None:
        self._plan = plan
        self._gap_ns = _SECOND_NS / rate_qps if rate_qps > 0 else math.inf
        self._random = random
        self._times = np.empty(0)
        if plan.process == "uniform" and rate_qps > 0:
            self._times = np.array([random.random() * self._gap_ns])

    def until(self, horizon_ns: float) -> NDArray[np.int64]:
        """Returns the arrivals before a time, int64[arrivals]."""
        if math.isinf(self._gap_ns):
            return np.empty(0, dtype=np.int64)
        while self._times.size == 0 or self._times[-1] < horizon_ns:
            last_ns = self._times[-1] if self._times.size else 0.0
            self._times = np.append(self._times, last_ns + np.cumsum(self._gaps()))
        count = np.searchsorted(self._times, horizon_ns, side="left")
        return self._times[:count].astype(np.int64)

    def _gaps(self) -> NDArray[np.float64]:
        if self._plan.process == "uniform":
            return np.full(_CHUNK, self._gap_ns)
        shape = self._plan.shape if self._plan.process == "gamma" else 1.0
        return self._random.gamma(shape, self._gap_ns / shape, _CHUNK)
