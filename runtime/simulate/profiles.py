"""Profiles from a CSV of layer times, or from an artifact's manifest.

For simulations, and for servers that only take the models' time.
"""

from __future__ import annotations

import csv
import io
import math
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from veltair.runtime._native import sched
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import ArtifactError, ConfigError, InputError
from veltair.runtime.files import read_whole
from veltair.runtime.manifest import LONGEST_NS, MOST_CORES, read_manifest
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.simulate.machine_profiles import (
    Modelled,
    beside_others,
    default_levels,
    modelled_machine,
    on_machine,
)
from veltair.runtime.simulate.scenario import NS_PER_MS, ModelSection, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.manifest import Manifest

_COLUMN = re.compile(r"us_(\d+)c")
_CONVOLUTION = re.compile(r"\w+:(\d+(?:-\d+){10})$")
_MOST_FLOPS = 1 << 62
_LONGEST_CLOCK_NS = 1 << 61  # of a whole simulation


def load_profiles(scenario: Scenario) -> list[sched.ModelProfile]:
    """Loads the profile of each model of a scenario, with its target and priority.

    Raises:
        ConfigError: a field of the scenario can't be met: no such profile, no target, or one below
            the fastest possible time; or its queries take longer than the clock counts.
        InputError: a profile is damaged, lacks core counts, or has a time that can't be.
    """
    profiles = []
    longest_ns = 0
    machine, cores = scenario.machine, scenario.machine.cores
    on = modelled_machine(machine, scenario.folder)
    for index, model in enumerate(scenario.model):
        profile = load_profile(
            model, scenario.folder, cores, f"model[{index}]", levels=machine.levels, on=on
        )
        longest_ns = max(longest_ns, _longest_ns(scenario, profile))
        profiles.append(profile)
    queries = scenario.arrivals.queries
    if longest_ns * queries > _LONGEST_CLOCK_NS:
        raise ConfigError(
            f"arrivals.queries = {queries}: of up to {longest_ns / 1e9:.3g} s each, they could "
            "take longer than the clock counts; simulate fewer"
        )
    return profiles


def load_profile(
    model: ModelSection,
    folder: Path,
    cores: int,
    field: str,
    *,
    levels: Sequence[float] = (),
    on: Modelled | None = None,
) -> sched.ModelProfile:
    """Loads the profile of one model, with its target and priority.

    Args:
        model: names the profile.
        folder: where a relative path begins.
        cores: of the machine.
        field: of the model, named at the front of an error message.
        levels: slow-downs that its levels are to be; empty: those that were measured.
        on: a described machine whose times an artifact has; None: those that were measured.

    Raises:
        ConfigError: there is no such profile, no target, or one below the fastest possible time, or
            it says too little for such levels or another machine.
        InputError: the profile is damaged, lacks core counts, or has a time that can't be.
    """
    step = model.core_step
    path = _find(folder, model.profile, f"{field}.profile")
    if step > cores:
        raise ConfigError(f"{field}.core_step = {step}: at most the machine's {cores} cores")
    multiples = list(range(step, cores + 1, step)) if step > 0 else []
    try:
        if on is not None:
            profile = _from_model(path, model, field, on, multiples or range(1, cores + 1), levels)
        else:
            profile = (
                _from_artifact(path, model) if path.is_dir() else _from_csv(path, model, field)
            )
            profile = _resampled(profile, multiples, levels, f"{field}.profile = {model.profile!r}")
    except ArtifactError as error:
        raise InputError(f"{field}.profile = {model.profile!r}: {error}") from error
    except ValueError as error:
        raise InputError(
            f"{field}.profile = {model.profile!r}: {error}; measure it again"
        ) from error
    _check_target(profile, cores, field)
    return profile


def _resampled(
    profile: sched.ModelProfile, cores: Sequence[int], levels: Sequence[float], where: str
) -> sched.ModelProfile:
    """The profile at other core counts, and at other levels, where there are any."""
    if levels and len(profile.slowdowns) < 2:
        raise ConfigError(
            f"{where}: it was measured alone, so nothing tells its times at machine.levels; "
            "measure an artifact with `veltair profile DIR --levels N`, or leave machine.levels out"
        )
    if not (cores or levels):
        return profile
    return profile.resampled(cores or profile.cores, levels)


def _from_model(
    path: Path,
    model: ModelSection,
    field: str,
    on: Modelled,
    cores: Sequence[int],
    levels: Sequence[float],
) -> sched.ModelProfile:
    """The profile that an artifact would have on a described machine."""
    if not path.is_dir():
        raise ConfigError(
            f"{field}.profile = {model.profile!r}: a CSV says nothing of a layer's versions, so "
            "the machine model can't tell their times; name an artifact's folder, or leave "
            "machine.model out"
        )
    manifest = read_manifest(resolve_folder(path))
    if on.shared:
        there, read_bytes = beside_others(manifest, on, cores)
        return _of_manifest(there, model, read_bytes.ravel().tolist())
    return _of_manifest(
        on_machine(manifest, on, cores, levels or default_levels(on.machine)), model
    )


def _longest_ns(scenario: Scenario, profile: sched.ModelProfile) -> int:
    """More than a query can occupy the machine: all layers on one core, each a block."""
    machine = scenario.machine
    plan = sched.ModelPlan(profile, machine.cores)
    slowest_ns = max(plan.time_ns(0, plan.layers, 1, level) for level in range(profile.levels))
    overhead_ns = round((machine.decision_us + machine.conflict_us) * 1000)
    return slowest_ns + plan.layers * overhead_ns


class ConvolutionShape(NamedTuple):
    """A convolution, as the name of a layer says it: sizes of its input, kernel, pads, strides."""

    h: int
    w: int
    c_in: int
    c_out: int
    kh: int
    kw: int
    pad_h: int
    pad_w: int
    stride_h: int
    stride_w: int
    groups: int

    @property
    def out_h(self) -> int:
        """Rows of the output."""
        return (self.h + 2 * self.pad_h - self.kh) // self.stride_h + 1

    @property
    def out_w(self) -> int:
        """Columns of the output."""
        return (self.w + 2 * self.pad_w - self.kw) // self.stride_w + 1


def convolution_shape(layer: str) -> ConvolutionShape | None:
    """Parses a layer named `op:Hin-Win-Cin-Cout-KH-KW-padH-padW-sH-sW-groups`.

    None where the name says no shape, or one that can't be.
    """
    found = _CONVOLUTION.match(layer)
    if not found:
        return None
    shape = ConvolutionShape(*map(int, found[1].split("-")))
    return None if 0 in (shape.stride_h, shape.stride_w, shape.groups) else shape


def convolution_flops(layer: str) -> int | None:
    """Returns the operations of a layer whose name says its shape; a multiply-add counts as two.

    None where it says none, or one that can't be.
    """
    shape = convolution_shape(layer)
    if shape is None:
        return None
    weights = shape.c_out * (shape.c_in // shape.groups) * shape.kh * shape.kw
    flops = 2 * shape.out_h * shape.out_w * weights
    return flops if 0 < flops < _MOST_FLOPS else None


def _find(folder: Path, name: str, field: str) -> Path:
    data = find_spec("veltair.eval")
    shipped = (
        [Path(place) / "data" for place in (data.submodule_search_locations or [])] if data else []
    )
    for place in (folder, *shipped):
        if (place / name).exists():
            return place / name
    raise ConfigError(
        f"{field} = {name!r}: no such file or folder beside the file that names it or in "
        "eval/data; name a CSV of layer times or an artifact's folder"
    )


def _from_artifact(path: Path, model: ModelSection) -> sched.ModelProfile:
    return _of_manifest(read_manifest(resolve_folder(path)), model)


def _of_manifest(
    manifest: Manifest, model: ModelSection, layer_bytes: Sequence[int] = ()
) -> sched.ModelProfile:
    qos_ns = manifest.qos_ns if model.qos_ms is None else round(model.qos_ms * NS_PER_MS)
    return to_profile(manifest, qos_ns=qos_ns, priority=model.priority, layer_bytes=layer_bytes)


def _from_csv(path: Path, model: ModelSection, field: str) -> sched.ModelProfile:
    if model.qos_ms is None:
        raise ConfigError(f"{field}.qos_ms is missing: a CSV has no latency target; set it")
    try:
        lines = io.StringIO(read_whole(path).decode("utf-8-sig"), newline="")
        read = csv.reader(line for line in lines if not line.startswith("#"))
        rows = [row for row in read if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{field}.profile: {path}: can't be read: {error}") from error
    where = f"{field}.profile: {path}"
    cores = _core_counts(rows[0] if rows else [], where)
    names, times_ns = [], []
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(cores) + 1:
            raise InputError(
                f"{where}: layer {number} ({row[0]}) has {len(row) - 1} times for "
                f"{len(cores)} core counts; measure every count of the heading"
            )
        names.append(row[0])
        times_ns.append([_time_ns(text, f"{where}: layer {number} ({row[0]})") for text in row[1:]])
    if not names:
        raise InputError(f"{where}: no layers; add a line a layer")
    model_ns = [sum(column) for column in zip(*times_ns, strict=True)]
    if max(model_ns) > LONGEST_NS:
        raise InputError(
            f"{where}: the layers add up to {max(model_ns) / 1000:.0f} us; a whole run takes at "
            f"most {LONGEST_NS // 1000} us; measure it again"
        )
    flops = [convolution_flops(name) for name in names]
    return sched.ModelProfile(
        qos_ns=round(model.qos_ms * NS_PER_MS),
        cores=cores,
        levels=1,
        model_ns=model_ns,
        variants=[1] * len(names),
        layer_ns=[time_ns for row in times_ns for time_ns in row],
        layer_flops=[f for f in flops if f is not None] if all(flops) else [],
        priority=model.priority,
    )


def _core_counts(heading: list[str], where: str) -> list[int]:
    found = [_COLUMN.fullmatch(name.strip()) for name in heading[1:]]
    counts = [int(column[1]) for column in found if column]
    if not counts or len(counts) != len(found) or heading[0] != "layer":
        raise InputError(
            f"{where}: the heading is {','.join(heading)!r}; it must be "
            "layer,us_8c,us_16c,... with the measured core counts"
        )
    if counts != sorted(set(counts)) or not 1 <= counts[0] <= counts[-1] <= MOST_CORES:
        raise InputError(
            f"{where}: core counts {counts}: they must ascend, from 1 to {MOST_CORES} at most"
        )
    return counts


def _time_ns(text: str, where: str) -> int:
    try:
        time_us = float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is no time; write microseconds") from None
    if not (math.isfinite(time_us) and 0 < time_us * 1000 <= LONGEST_NS):
        raise InputError(
            f"{where}: {text} us: a time is finite, above 0 and at most {LONGEST_NS // 1000} us; "
            "measure it again"
        )
    return max(round(time_us * 1000), 1)


def _check_target(profile: sched.ModelProfile, cores: int, field: str) -> None:
    if profile.qos_ns == 0:
        return
    plan = sched.ModelPlan(profile, cores)
    fastest_ns = min(plan.time_ns(0, plan.layers, count) for count in range(1, cores + 1))
    if profile.qos_ns < fastest_ns:
        raise ConfigError(
            f"{field}.qos_ms = {profile.qos_ns / NS_PER_MS:g}: below {fastest_ns / NS_PER_MS:.3f} "
            f"ms, the fastest possible time on up to {cores} cores; no query could ever be in time"
        )
