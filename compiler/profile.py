"""Measures a compiled model's layers on this machine: every core count, alone and disturbed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from veltair.proxy.co_runners import BUBBLES
from veltair.proxy.levels import LEAST_STEP, Calibration, Curve, calibrate
from veltair.runtime._native import proxy
from veltair.runtime.machine import machine_facts
from veltair.runtime.manifest import (
    LONGEST_NS,
    WEIGHTS_FILE,
    Interference,
    Layer,
    Manifest,
    Profile,
)
from veltair.runtime.model import Model, sample_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.compiler.progress import Progress
    from veltair.proxy.co_runners import CoRunner, CoRunners
    from veltair.runtime.disturbance import Disturbance

MOST_LEVELS = 20
_ROUNDS = 15
_WARM_UP_ROUNDS = 3
_BUDGET_NS = 3_000_000_000  # a core count; large models, and those of many variants, run less
_FEWEST_ROUNDS = 5
_LEVEL_TURNS = 3
_LEAST_DOUBTFUL_S = 0.1  # processor time of others; the kernel counts it in steps of some ms


def unmeasured(layers: Sequence[Layer]) -> Profile:
    """A profile of 1 ns a layer, for the time between writing the kernels and measuring them."""
    return Profile(
        machine={},
        cores=(1,),
        levels=(0.0,),
        layer_ns=tuple(tuple(((1,),) for _ in layer.variants) for layer in layers),
        model_ns=((1,),),
    )


def measure_profile(
    model: Model,
    manifest: Manifest,
    progress: Progress,
    *,
    levels: int = 1,
    co_runner: CoRunner = BUBBLES,
    fastest_first: bool = False,
) -> Manifest:
    """Medians over some rounds of the whole model, so that the caches are as they will be.

    Args:
        model: the loaded artifact, of one sample; what its batches run with is loaded here.
        manifest: its manifest.
        progress: hears of each core count.
        levels: of interference, the one alone included; a machine that has fewer gets what it has.
        co_runner: what the levels are made with.
        fastest_first: put each layer's fastest variant first. A search measures a layer by itself;
            which of its best is best among the other layers' data is seen only here.

    Returns:
        The manifest with the profile, and perhaps its variants in another order.

    Raises:
        InputError: more levels than one, and no processor that a co-runner could have.
    """
    if levels == 1:
        conditions = _Conditions.alone(model.cpus)
        return _profiled_sizes(model, manifest, progress, conditions, fastest_first)
    progress.stage("calibrating interference", 1)
    calibration = calibrate(model.cpus, levels, co_runner)
    return measure_disturbed(model, manifest, progress, calibration, fastest_first=fastest_first)


def measure_disturbed(
    model: Model,
    manifest: Manifest,
    progress: Progress,
    calibration: Calibration,
    *,
    fastest_first: bool = False,
) -> Manifest:
    """The same, at the levels of a calibration.

    On core counts that leave the co-runners theirs everything is measured, the levels in turns. On
    more, only what runs alone is; beside co-runners on the same cores it would wait for them, which
    is no interference in the sense of a level. There each time is the one alone, slowed as on the
    most cores that were measured.
    """
    with calibration.co_runners(model.folder / WEIGHTS_FILE) as disturbing:
        conditions = _Conditions.beside(disturbing, calibration, model.cpus)
        return _profiled_sizes(model, manifest, progress, conditions, fastest_first)


def fewer_levels(profile: Profile, wanted: int) -> str:
    """Says why a profile has fewer levels than were asked for; empty where it has them all."""
    found, made = len(profile.levels), profile.interference
    if found >= wanted or made is None:
        return ""
    evictors = "" if made.evicted_share else ", and with --co-runner evictors"
    return (
        f"{wanted} levels of interference were asked for, {found} can be told apart here: the "
        f"fastest co-runners slow the reference kernel by {made.highest:.1%}, and what is closer "
        f"than {max(LEAST_STEP, made.noise):.1%} is one level; on a quieter machine there may be "
        f"more{evictors}"
    )


@dataclass(frozen=True, kw_only=True)
class _Conditions:
    """Under what a model is measured.

    Attributes:
        cpus: those of a run on N cores are the first N.
        measured_cores: the most cores beside which co-runners have theirs.
        curve: of the levels.
        set_rate: of the co-runners.
        interference: for the manifest.
    """

    cpus: tuple[int, ...]
    measured_cores: int
    curve: Curve
    set_rate: Callable[[int], None]
    interference: Interference | None

    @classmethod
    def alone(cls, cpus: Sequence[int]) -> _Conditions:
        """Nothing beside."""
        return cls(
            cpus=tuple(cpus),
            measured_cores=len(cpus),
            curve=Curve(rates=(0,), slowdowns=(0.0,), noise=0.0),
            set_rate=lambda _: None,
            interference=None,
        )

    @classmethod
    def beside(
        cls, disturbing: CoRunners, calibration: Calibration, cpus: Sequence[int]
    ) -> _Conditions:
        """Co-runners, as they were calibrated."""
        sides, curve = calibration.sides, calibration.curve
        by_bubbles = calibration.kind == BUBBLES
        divided = (*sides.quiet, *sides.bubbles)
        return cls(
            cpus=(*divided, *(cpu for cpu in cpus if cpu not in divided)),
            measured_cores=len(sides.quiet),
            curve=curve,
            set_rate=disturbing.set_rate,
            interference=Interference(
                bubbles=len(sides.bubbles),
                footprint_bytes=calibration.footprint_bytes,
                bytes_per_s=curve.rates if by_bubbles else (),
                evicted_share=()
                if by_bubbles
                else tuple(r / proxy.WHOLE_SHARE for r in curve.rates),
                reference_bytes=calibration.reference_bytes,
                highest=calibration.highest,
                noise=curve.noise,
                measured_cores=len(sides.quiet),
            ),
        )

    def rates(self, count: int) -> tuple[int, ...]:
        """The co-runners' rates that are measured on so many cores."""
        return self.curve.rates if count <= self.measured_cores else self.curve.rates[:1]


def _profiled_sizes(
    model: Model,
    manifest: Manifest,
    progress: Progress,
    conditions: _Conditions,
    fastest_first: bool,
) -> Manifest:
    """Of one sample, and of each batch."""
    for size in manifest.sizes:
        loaded = model
        if size > 1:
            loaded = Model.load(model.folder, batch=size, verify=False, cpus=model.cpus)
        measured = _profiled(loaded, manifest.at(size), progress, conditions, fastest_first)
        manifest = manifest.having(size, measured)
    return manifest


def _profiled(
    model: Model,
    manifest: Manifest,
    progress: Progress,
    conditions: _Conditions,
    fastest_first: bool,
) -> Manifest:
    counts = tuple(range(1, len(model.cpus) + 1))
    progress.stage("profiling", len(counts))
    measured = []
    for count in counts:
        measured.append(_layer_times(model, conditions, count))
        progress.step(f"{count} core{'s' if count > 1 else ''}")
    orders = [_order(times, measured[-1][i]) for i, times in enumerate(measured[0])]
    if not fastest_first:
        orders = [list(range(len(order))) for order in orders]
    runs = [
        _run_times(model, conditions, count, _chosen(model.manifest, orders, count))
        for count in counts
    ]
    profile = Profile(
        machine=machine_facts(),
        cores=counts,
        levels=conditions.curve.slowdowns,
        layer_ns=tuple(
            tuple(_completed([times[i][v] for times in measured], conditions) for v in order)
            for i, order in enumerate(orders)
        ),
        model_ns=_completed(runs, conditions),
        interference=conditions.interference,
    )
    layers = tuple(
        msgspec.structs.replace(layer, variants=tuple(layer.variants[v] for v in order))
        for layer, order in zip(manifest.layers, orders, strict=True)
    )
    return msgspec.structs.replace(manifest, layers=layers, profile=profile)


def _chosen(manifest: Manifest, orders: Sequence[Sequence[int]], cores: int) -> list[int]:
    """Of each layer the variant that shall stand first, or as many threads as there are cores."""
    return [
        order[0] if layer.fallback is None else layer.usual_variant(cores)
        for layer, order in zip(manifest.layers, orders, strict=True)
    ]


_Times = tuple[int, ...]  # ns, at each level that was measured


def _order(few: Sequence[_Times], most: Sequence[_Times]) -> list[int]:
    """A layer's variants as they shall stand: the fastest alone first, the others as they do.

    Args:
        few: of each variant, on one core.
        most: on all.
    """
    best = min(range(len(few)), key=lambda v: (math.prod((few[v][0], most[v][0])), v))
    return [best, *(v for v in range(len(few)) if v != best)]


def _completed(rows: Sequence[_Times], conditions: _Conditions) -> tuple[_Times, ...]:
    """The times on each core count, with the levels that could not be measured on so many cores."""
    most = rows[conditions.measured_cores - 1]
    return tuple(row if len(row) == len(most) else slowed(row[0], most) for row in rows)


def slowed(alone_ns: int, like_ns: Sequence[int]) -> tuple[int, ...]:
    """Returns a time at each level if it slows down as `like_ns` does, whose first is alone."""
    return tuple(
        max(1, min(round(alone_ns * time_ns / like_ns[0]), LONGEST_NS)) for time_ns in like_ns
    )


def _choices(manifest: Manifest) -> list[list[int]]:
    """Runs that together have every variant: all first ones, all second ones, and so on."""
    counts = [len(layer.variants) for layer in manifest.layers]
    return [[min(v, n - 1) for n in counts] for v in range(max(counts, default=1))]


def doubt(seen: Disturbance, processor_s: float) -> str:
    """Says why a profile shouldn't be trusted; empty where it can be.

    A profile is what every policy plans with. Measured beside others it is too slow, and policies
    take more cores than they need, or refuse what they could serve.

    Args:
        seen: what else ran while it was measured.
        processor_s: the time of all processors meanwhile.
    """
    taken = seen.others + seen.steal
    if not seen.is_notable or taken * processor_s < _LEAST_DOUBTFUL_S:
        return ""
    who = "the host of this virtual machine" if seen.steal > seen.others else "other processes"
    return (
        f"the profile was measured on a busy machine: {who} had {taken:.0%} of its processors, so "
        "the times are too long and policies will misjudge the model; stop what else runs and "
        "compile again with --force, or measure again with veltair profile"
    )


def _layer_times(model: Model, conditions: _Conditions, count: int) -> list[list[_Times]]:
    """Medians of each layer by each of its variants, at each level: [layer][variant][level]."""
    cores, rates = conditions.cpus[:count], conditions.rates(count)
    inputs = sample_inputs(model.manifest.inputs)
    choices = _choices(model.manifest)
    found: list[list[list[NDArray[np.int64]]]] = [[[] for _ in choices] for _ in rates]
    rounds = _rounds(model, conditions, count, len(choices))
    for level, turn_rounds in _turns(model, conditions, count, rounds):
        for chosen, times in zip(choices, found[level], strict=True):
            times.append(model.time_layers(inputs, cores, turn_rounds, chosen))
    alike = copies(model.manifest.layers)
    found_ns = [
        [medians(np.concatenate(times), alike) for times in by_choice] for by_choice in found
    ]
    return [
        [tuple(max(1, int(level[v][i])) for level in found_ns) for v in range(len(layer.variants))]
        for i, layer in enumerate(model.manifest.layers)
    ]


def copies(layers: Sequence[Layer]) -> list[list[int]]:
    """Returns the layers, each with those that do its work for other samples of a batch."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index, layer in enumerate(layers):
        symbols = tuple(variant.symbol for variant in layer.variants)
        key = (layer.op, layer.nodes, symbols) if layer.nodes else (index,)
        found.setdefault(key, []).append(index)
    return list(found.values())


def medians(times: NDArray[np.int64], alike: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Returns float64[layers]: of its rounds and those of its copies, which take as long.

    Args:
        times: int64[rounds, layers].
        alike: as of `copies`.
    """
    found = np.empty(times.shape[1])
    for indices in alike:
        found[indices] = np.median(times[:, indices])
    return found


def _run_times(
    model: Model, conditions: _Conditions, count: int, variants: Sequence[int]
) -> _Times:
    """Medians of a whole run, at each level."""
    found: list[list[NDArray[np.int64]]] = [[] for _ in conditions.rates(count)]
    rounds = _rounds(model, conditions, count, 1)
    for level, turn_rounds in _turns(model, conditions, count, rounds):
        cores = conditions.cpus[:count]
        found[level].append(model.time_run(cores, turn_rounds, variants=variants))
    return tuple(max(1, int(np.median(np.concatenate(times)))) for times in found)


def _rounds(model: Model, conditions: _Conditions, count: int, runs: int) -> int:
    """How many rounds of so many runs are worth their time; the caches are warm then."""
    conditions.set_rate(0)
    fastest_ns = max(int(model.time_run(conditions.cpus[:count], _WARM_UP_ROUNDS).min()), 1)
    return max(_FEWEST_ROUNDS, min(_ROUNDS, _BUDGET_NS // (fastest_ns * runs)))


def _turns(
    model: Model, conditions: _Conditions, count: int, rounds: int
) -> Iterator[tuple[int, int]]:
    """The levels to measure and for how many rounds, while the co-runners are at their rates.

    In turns, so that what the machine does meanwhile is in every level alike.
    """
    rates = conditions.rates(count)
    turns = 1 if len(rates) == 1 else _LEVEL_TURNS
    for _ in range(turns):
        for level, rate in enumerate(rates):
            if turns > 1:
                conditions.set_rate(rate)
                model.time_run(conditions.cpus[:count], 1)
            yield level, -(-rounds // turns)
    conditions.set_rate(0)
