"""Arrival times and the models that they ask for, drawn beforehand from seeds of their own."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from veltair.runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from veltair.runtime.simulate.scenario import ArrivalsSection, NamedSection

NS_PER_S = 1_000_000_000
_GRID = 100_000  # points on which a diurnal rate's integral is inverted


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Queries in the order of their arrival.

    Attributes:
        time_ns: int64[Q], ascending, from 0.
        model: int32[Q], index into the scenario's models.
    """

    time_ns: NDArray[np.int64]
    model: NDArray[np.int32]


class Arriving(Protocol):
    """The parts of any scenario that say what arrives."""

    @property
    def arrivals(self) -> ArrivalsSection:
        """When queries arrive."""

    @property
    def model(self) -> Sequence[NamedSection]:
        """The models that they ask for."""

    @property
    def folder(self) -> Path:
        """Where relative paths begin."""


def make_arrivals(scenario: Arriving) -> Arrivals:
    """Draws a scenario's arrivals; the same scenario gives the same ones.

    Raises:
        ConfigError: a recorded file can't be used, or the times don't fit.
    """
    arrivals = scenario.arrivals
    if arrivals.process == "file":
        return _recorded(scenario)
    times_seed, models_seed = np.random.SeedSequence(arrivals.seed).spawn(2)
    times_s = _times_s(arrivals, np.random.default_rng(times_seed))
    if not times_s[-1] < np.iinfo(np.int64).max / NS_PER_S / 2:
        raise ConfigError(
            f"arrivals.rate_qps = {arrivals.rate_qps}: {arrivals.queries} queries would take "
            f"{times_s[-1]:.3g} s; raise the rate"
        )
    weights = np.array([model.weight for model in scenario.model])
    model = np.random.default_rng(models_seed).choice(
        len(weights), size=arrivals.queries, p=weights / weights.sum()
    )
    return Arrivals(
        time_ns=np.rint(times_s * NS_PER_S).astype(np.int64), model=model.astype(np.int32)
    )


def _times_s(arrivals: ArrivalsSection, random: np.random.Generator) -> NDArray[np.float64]:
    count, rate = arrivals.queries, arrivals.rate_qps
    if arrivals.process == "uniform":
        return np.sort(random.uniform(0, count / rate, count))
    if arrivals.process == "gamma":
        shape = arrivals.shape
        return np.cumsum(random.gamma(shape, 1 / (rate * shape), count))
    expected = np.cumsum(random.exponential(1, count))  # in queries
    if arrivals.process == "poisson":
        return expected / rate
    return _diurnal(arrivals, expected)


def _diurnal(arrivals: ArrivalsSection, expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Times at which the integral of rate x (1 + a sin(2 pi t / period)) reaches `expected`."""
    turn = 2 * np.pi / arrivals.period_s
    # Whole periods carry the mean rate; within one the integral is inverted on a grid.
    phase_s = np.linspace(0, arrivals.period_s, _GRID)
    swing = arrivals.amplitude / turn * (1 - np.cos(turn * phase_s))
    queries = arrivals.rate_qps * (phase_s + swing)
    periods, rest = np.divmod(expected, queries[-1])
    return periods * arrivals.period_s + np.interp(rest, queries, phase_s)


def _recorded(scenario: Arriving) -> Arrivals:
    path = scenario.folder / scenario.arrivals.file
    index = {model.name: i for i, model in enumerate(scenario.model)}
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        pairs = sorted(
            ((int(row["arrival_ns"]), index[row["model"]]) for row in rows), key=lambda p: p[0]
        )
        time_ns = np.array([pair[0] for pair in pairs], dtype=np.int64)
    except OSError as error:
        raise ConfigError(
            f"arrivals.file = {scenario.arrivals.file!r}: can't be read ({error.strerror}); "
            "name a file that exists"
        ) from error
    except KeyError as error:
        raise ConfigError(
            f"arrivals.file = {scenario.arrivals.file!r}: {error} is neither a column nor a model; "
            f"the heading is arrival_ns,model and the models are {', '.join(index)}"
        ) from error
    except (ValueError, TypeError, OverflowError, csv.Error) as error:
        raise ConfigError(
            f"arrivals.file = {scenario.arrivals.file!r}: {error}; each line is arrival_ns,model"
        ) from error
    count = min(scenario.arrivals.queries, len(pairs))
    if count <= scenario.arrivals.warmup_queries or time_ns[0] < 0:
        raise ConfigError(
            f"arrivals.file = {_name(path)}: {len(pairs)} queries from "
            f"{time_ns[0] if count else 0} ns; it needs more than warmup_queries, from 0 ns"
        )
    return Arrivals(
        time_ns=time_ns[:count], model=np.array([pair[1] for pair in pairs[:count]], dtype=np.int32)
    )


def _name(path: Path) -> str:
    return repr(path.name)
