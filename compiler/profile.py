"""Measures a compiled model's layers on this machine: every core count, alone and disturbed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from veltair.proxy.bubbles import Bubbles
from veltair.proxy.levels import LEAST_STEP, Calibration, Curve, calibrate
from veltair.runtime.machine import machine_facts
from veltair.runtime.manifest import LONGEST_NS, Interference, Layer, Manifest, Profile
from veltair.runtime.model import Model, sample_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.compiler.progress import Progress
    from veltair.runtime.disturbance import Disturbance

MOST_LEVELS = 20
_ROUNDS = 15
_WARM_UP_ROUNDS = 3
_BUDGET_NS = 2_000_000_000  # a core count; large models run fewer rounds
_FEWEST_ROUNDS = 3
_ORDER_ROUNDS = 7
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
    model: Model, manifest: Manifest, progress: Progress, *, levels: int = 1
) -> Profile:
    """Medians over some rounds of the whole model, so that the caches are as they will be.

    Args:
        model: the loaded artifact.
        manifest: its manifest.
        progress: hears of each core count.
        levels: of interference, the one alone included; a machine that has fewer gets what it has.

    Raises:
        InputError: more levels than one, and no processor that a bubble could have.
    """
    if levels == 1:
        return _profile(model, manifest, progress, _Conditions.alone(model.cpus))
    progress.stage("calibrating interference", 1)
    calibration = calibrate(model.cpus, levels)
    return measure_disturbed(model, manifest, progress, calibration)


def measure_disturbed(
    model: Model, manifest: Manifest, progress: Progress, calibration: Calibration
) -> Profile:
    """The same, at the levels of a calibration.

    On core counts that leave the bubbles theirs everything is measured, the levels in turns. On
    more, only what runs alone is; beside bubbles on the same cores it would wait for them, which is
    no interference in the sense of a level. There each time is the one alone, slowed as on the most
    cores that were measured.
    """
    with Bubbles(calibration.sides.bubbles, calibration.footprint_bytes) as bubbles:
        conditions = _Conditions.beside(bubbles, calibration, model.cpus)
        return _profile(model, manifest, progress, conditions)


def fewer_levels(profile: Profile, wanted: int) -> str:
    """Says why a profile has fewer levels than were asked for; empty where it has them all."""
    found, made = len(profile.levels), profile.interference
    if found >= wanted or made is None:
        return ""
    return (
        f"{wanted} levels of interference were asked for, {found} can be told apart here: the "
        f"fastest bubbles slow the reference kernel by {made.highest:.1%}, and what is closer than "
        f"{max(LEAST_STEP, made.noise):.1%} is one level; on a quieter machine there may be more"
    )


@dataclass(frozen=True, kw_only=True)
class _Conditions:
    """Under what a model is measured.

    Attributes:
        cpus: those of a run on N cores are the first N.
        measured_cores: the most cores beside which bubbles have theirs.
        curve: of the levels.
        set_rate: of the bubbles.
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
    def beside(cls, bubbles: Bubbles, calibration: Calibration, cpus: Sequence[int]) -> _Conditions:
        """Bubbles, as they were calibrated."""
        sides, curve = calibration.sides, calibration.curve
        divided = (*sides.quiet, *sides.bubbles)
        return cls(
            cpus=(*divided, *(cpu for cpu in cpus if cpu not in divided)),
            measured_cores=len(sides.quiet),
            curve=curve,
            set_rate=bubbles.set_rate,
            interference=Interference(
                bubbles=len(sides.bubbles),
                footprint_bytes=calibration.footprint_bytes,
                bytes_per_s=curve.rates,
                reference_bytes=calibration.reference_bytes,
                highest=calibration.highest,
                noise=curve.noise,
                measured_cores=len(sides.quiet),
            ),
        )

    def rates(self, count: int) -> tuple[int, ...]:
        """The bubbles' rates that are measured on so many cores."""
        return self.curve.rates if count <= self.measured_cores else self.curve.rates[:1]


def _profile(
    model: Model, manifest: Manifest, progress: Progress, conditions: _Conditions
) -> Profile:
    counts = tuple(range(1, len(model.cpus) + 1))
    progress.stage("profiling", len(counts))
    measured = []
    for count in counts:
        measured.append(_measure(model, conditions, count))
        progress.step(f"{count} core{'s' if count > 1 else ''}")
    most = measured[conditions.measured_cores - 1]
    columns = [_completed(each, most) for each in measured]
    layer_ns = tuple(
        tuple(
            tuple(column.layer_ns[i][v] for column in columns) for v in range(len(layer.variants))
        )
        for i, layer in enumerate(manifest.layers)
    )
    return Profile(
        machine=machine_facts(),
        cores=counts,
        levels=conditions.curve.slowdowns,
        layer_ns=layer_ns,
        model_ns=tuple(column.model_ns for column in columns),
        interference=conditions.interference,
    )


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Times on one core count: of each layer and variant, and of a whole run, at each level."""

    layer_ns: list[list[tuple[int, ...]]]
    model_ns: tuple[int, ...]


def _completed(column: _Column, most: _Column) -> _Column:
    """The column with the levels that could not be measured on so many cores."""
    if len(column.model_ns) == len(most.model_ns):
        return column
    return _Column(
        layer_ns=[
            [slowed(row[0], like) for row, like in zip(layer, like_layer, strict=True)]
            for layer, like_layer in zip(column.layer_ns, most.layer_ns, strict=True)
        ],
        model_ns=slowed(column.model_ns[0], most.model_ns),
    )


def slowed(alone_ns: int, like_ns: Sequence[int]) -> tuple[int, ...]:
    """Returns a time at each level if it slows down as `like_ns` does, whose first is alone."""
    return tuple(
        max(1, min(round(alone_ns * time_ns / like_ns[0]), LONGEST_NS)) for time_ns in like_ns
    )


def order_variants(model: Model, manifest: Manifest) -> Manifest:
    """Puts each layer's fastest variant first, as the whole model runs it.

    A search measures a layer by itself; which of its best is best among the other layers' data is
    seen only here.

    Args:
        model: the loaded artifact.
        manifest: its manifest.

    Returns:
        The manifest with its variants in another order; the profile must be measured anew.
    """
    if all(len(layer.variants) == 1 for layer in manifest.layers):
        return manifest
    inputs = sample_inputs(model.manifest.inputs)
    choices = _choices(manifest)
    tables = [
        [
            np.median(model.time_layers(inputs, model.cpus[:count], _ORDER_ROUNDS, chosen), axis=0)
            for chosen in choices
        ]
        for count in sorted({1, len(model.cpus)})
    ]
    layers = []
    for i, layer in enumerate(manifest.layers):
        numbers = range(len(layer.variants))
        mean = [math.prod(float(table[v][i]) for table in tables) for v in numbers]
        best = min(numbers, key=lambda v: (mean[v], v))
        variants = (layer.variants[best], *layer.variants[:best], *layer.variants[best + 1 :])
        layers.append(msgspec.structs.replace(layer, variants=variants))
    ordered = tuple(layers)
    return msgspec.structs.replace(manifest, layers=ordered, profile=unmeasured(ordered))


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


def _measure(model: Model, conditions: _Conditions, count: int) -> _Column:
    """Medians of each layer by each of its variants, and of a whole run, at each level."""
    cores, rates = conditions.cpus[:count], conditions.rates(count)
    conditions.set_rate(0)
    fastest_ns = max(int(model.time_run(cores, _WARM_UP_ROUNDS).min()), 1)
    rounds = max(_FEWEST_ROUNDS, min(_ROUNDS, _BUDGET_NS // fastest_ns))
    # In turns, so that what the machine does meanwhile is in every level alike.
    turns = 1 if len(rates) == 1 else _FEWEST_ROUNDS
    inputs = sample_inputs(model.manifest.inputs)
    counts = [len(layer.variants) for layer in model.manifest.layers]
    choices = _choices(model.manifest)
    layer_ns: list[list[list[NDArray[np.int64]]]] = [[[] for _ in choices] for _ in rates]
    run_ns: list[list[NDArray[np.int64]]] = [[] for _ in rates]
    for _ in range(turns):
        for level, rate in enumerate(rates):
            if turns > 1:
                conditions.set_rate(rate)
                model.time_run(cores, 1)
            for chosen, times in zip(choices, layer_ns[level], strict=True):
                times.append(model.time_layers(inputs, cores, -(-rounds // turns), chosen))
            run_ns[level].append(model.time_run(cores, -(-rounds // turns)))
    conditions.set_rate(0)
    medians = [
        [np.median(np.concatenate(times), axis=0) for times in by_choice] for by_choice in layer_ns
    ]
    return _Column(
        layer_ns=[
            [tuple(max(1, int(level[v][i])) for level in medians) for v in range(n)]
            for i, n in enumerate(counts)
        ],
        model_ns=tuple(max(1, int(np.median(np.concatenate(times)))) for times in run_ns),
    )
