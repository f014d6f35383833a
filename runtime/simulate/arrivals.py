"""When queries arrive and which models they ask for: drawn beforehand, or recorded."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from veltair.runtime.errors import ConfigError
from veltair.runtime.files import read_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from veltair.runtime.simulate.scenario import ArrivalsSection, NamedSection

NS_PER_S = 1_000_000_000
_GRID = 100_000  # points on which a diurnal rate's integral is inverted
_CHUNK = 4096  # gaps that are drawn at once
_LONGEST_NS = float(1 << 61)  # leaves the simulators room for latencies


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Queries in the order of their arrival.

    Attributes:
        time_ns: int64[Q], ascending, from 0.
        model: int32[Q], index of the model that each asks for.
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
    """Draws a scenario's arrivals, or reads them; the same scenario gives the same ones.

    Raises:
        ConfigError: a recorded file can't be used, or the times don't fit.
    """
    if scenario.arrivals.process == "file":
        return _recorded(scenario)
    return generate_arrivals(scenario.arrivals, [model.weight for model in scenario.model])


def generate_arrivals(arrivals: ArrivalsSection, weights: Sequence[float]) -> Arrivals:
    """Draws each model's queries from a seed of its own and merges them.

    A model has the part of the rate that its weight is of all weights. With `gamma`, bursts are a
    model's own: those of one don't fall together with another's.

    Args:
        arrivals: what arrives; any process but `file`.
        weights: by model; only their ratios matter.

    Raises:
        ConfigError: no weight is above 0, one is negative or not finite, or the times don't fit.
    """
    share = np.asarray(weights, dtype=np.float64)
    if share.size == 0 or not np.isfinite(share).all() or (share < 0).any() or share.sum() == 0:
        raise ConfigError(f"weights {list(weights)}: must be finite, none negative, one above 0")
    share = share / share.sum()
    *seeds, counts_seed = np.random.SeedSequence(arrivals.seed).spawn(share.size + 1)
    randoms = [np.random.default_rng(seed) for seed in seeds]
    _check_span(arrivals, arrivals.queries / arrivals.rate_qps * NS_PER_S)
    if arrivals.process == "uniform":
        counts = np.random.default_rng(counts_seed).multinomial(arrivals.queries, share)
        merged = _merge([_scattered(arrivals, *each) for each in zip(counts, randoms, strict=True)])
    else:
        merged = _merge(_renewals(arrivals, share, randoms))
    first = Arrivals(
        time_ns=merged.time_ns[: arrivals.queries], model=merged.model[: arrivals.queries]
    )
    if arrivals.process == "diurnal":
        return Arrivals(time_ns=_warped_ns(arrivals, first.time_ns), model=first.model)
    return first


def _check_span(arrivals: ArrivalsSection, span_ns: float) -> None:
    if not 0 < span_ns < _LONGEST_NS:
        raise ConfigError(
            f"arrivals.rate_qps = {arrivals.rate_qps}: {arrivals.queries} queries would take "
            f"{span_ns / NS_PER_S:.3g} s; raise the rate"
        )


def _merge(times_ns: Sequence[NDArray[np.int64]]) -> Arrivals:
    model = np.repeat(np.arange(len(times_ns), dtype=np.int32), [len(each) for each in times_ns])
    joined = np.concatenate(times_ns)
    order = np.argsort(joined, kind="stable")
    return Arrivals(time_ns=joined[order], model=model[order])


def _scattered(
    arrivals: ArrivalsSection, count: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Times drawn evenly over the whole run, int64[count]."""
    times_s = np.sort(random.uniform(0, arrivals.queries / arrivals.rate_qps, count))
    return np.rint(times_s * NS_PER_S).astype(np.int64)


def _renewals(
    arrivals: ArrivalsSection, share: NDArray[np.float64], randoms: Sequence[np.random.Generator]
) -> list[NDArray[np.int64]]:
    """Each model's arrivals up to one time, at least as many in all as are asked for."""
    streams = [
        _Stream(arrivals, NS_PER_S / (arrivals.rate_qps * part), random)
        for part, random in zip(share, randoms, strict=True)
        if part > 0
    ]
    horizon_ns = arrivals.queries / arrivals.rate_qps * NS_PER_S
    while True:
        _check_span(arrivals, horizon_ns)
        times_ns = [stream.until(horizon_ns) for stream in streams]
        if sum(len(each) for each in times_ns) >= arrivals.queries:
            break
        horizon_ns *= 1.1
    asked = iter(times_ns)
    return [next(asked) if part > 0 else np.empty(0, dtype=np.int64) for part in share]


class _Stream:
    """One model's arrivals, made as far as they are asked for."""

    def __init__(
        self, arrivals: ArrivalsSection, gap_ns: float, random: np.random.Generator
    ) -> None:
        self._shape = arrivals.shape if arrivals.process == "gamma" else 1.0
        self._gap_ns = gap_ns
        self._random = random
        self._chunks: list[NDArray[np.float64]] = []
        self._last_ns = 0.0

    def until(self, horizon_ns: float) -> NDArray[np.int64]:
        """Returns the arrivals before a time, int64[arrivals]."""
        while self._last_ns < horizon_ns or not self._chunks:
            gaps_ns = self._random.gamma(self._shape, self._gap_ns / self._shape, _CHUNK)
            self._chunks.append(self._last_ns + np.cumsum(gaps_ns))
            self._last_ns = float(self._chunks[-1][-1])
        times_ns = np.concatenate(self._chunks)
        self._chunks = [times_ns]
        return times_ns[: np.searchsorted(times_ns, horizon_ns, side="left")].astype(np.int64)


def _warped_ns(arrivals: ArrivalsSection, even_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Moves arrivals of a constant rate to where a diurnal one, rate x (1 + a sin), has them.

    A query keeps the number of queries that are expected before it.
    """
    turn = 2 * np.pi / arrivals.period_s
    # A whole period has the mean rate; within one the integral of the rate is inverted on a grid.
    phase_s = np.linspace(0, arrivals.period_s, _GRID)
    even_s = phase_s + arrivals.amplitude / turn * (1 - np.cos(turn * phase_s))
    periods, rest_s = np.divmod(even_ns / NS_PER_S, arrivals.period_s)
    times_s = periods * arrivals.period_s + np.interp(rest_s, even_s, phase_s)
    return np.rint(times_s * NS_PER_S).astype(np.int64)


def _recorded(scenario: Arriving) -> Arrivals:
    path = scenario.folder / scenario.arrivals.file
    index = {model.name: i for i, model in enumerate(scenario.model)}
    try:
        lines = io.StringIO(read_whole(path).decode("utf-8-sig"), newline="")
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
    if time_ns[-1] >= _LONGEST_NS:
        raise ConfigError(
            f"arrivals.file = {_name(path)}: a query at {time_ns[-1]} ns; times begin near 0"
        )
    return Arrivals(
        time_ns=time_ns[:count], model=np.array([pair[1] for pair in pairs[:count]], dtype=np.int32)
    )


def _name(path: Path) -> str:
    return repr(path.name)
