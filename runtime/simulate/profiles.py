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

from veltair.runtime._native import sched
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import ArtifactError, ConfigError, InputError
from veltair.runtime.files import read_whole
from veltair.runtime.manifest import LONGEST_NS, MOST_CORES, read_manifest
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.simulate.scenario import NS_PER_MS, ModelSection, Scenario

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
    cores = scenario.machine.cores
    for index, model in enumerate(scenario.model):
        profile = load_profile(model, scenario.folder, cores, f"model[{index}]")
        longest_ns = max(longest_ns, _longest_ns(scenario, profile))
        profiles.append(profile)
    queries = scenario.arrivals.queries
    if longest_ns * queries > _LONGEST_CLOCK_NS:
        raise ConfigError(
            f"arrivals.queries = {queries}: of up to {longest_ns / 1e9:.3g} s each, they could "
            "take longer than the clock counts; simulate fewer"
        )
    return profiles


def load_profile(model: ModelSection, folder: Path, cores: int, field: str) -> sched.ModelProfile:
    """Loads the profile of one model, with its target and priority.

    Args:
        model: names the profile.
        folder: where a relative path begins.
        cores: of the machine.
        field: of the model, named at the front of an error message.

    Raises:
        ConfigError: there is no such profile, no target, or one below the fastest possible time.
        InputError: the profile is damaged, lacks core counts, or has a time that can't be.
    """
    profile = _load(model, folder, cores, field)
    _check_target(profile, cores, field)
    return profile


def _load(model: ModelSection, folder: Path, cores: int, field: str) -> sched.ModelProfile:
    step = model.core_step
    path = _find(folder, model.profile, f"{field}.profile")
    try:
        profile = _from_artifact(path, model) if path.is_dir() else _from_csv(path, model, field)
        if step == 0:
            return profile
        if step > cores:
            raise ConfigError(f"{field}.core_step = {step}: at most the machine's {cores} cores")
        return profile.resampled(list(range(step, cores + 1, step)))
    except ArtifactError as error:
        raise InputError(f"{field}.profile = {model.profile!r}: {error}") from error
    except ValueError as error:
        raise InputError(
            f"{field}.profile = {model.profile!r}: {error}; measure it again"
        ) from error


def _longest_ns(scenario: Scenario, profile: sched.ModelProfile) -> int:
    """More than a query can occupy the machine: all layers on one core, each a block."""
    machine = scenario.machine
    plan = sched.ModelPlan(profile, machine.cores)
    slowest_ns = max(plan.time_ns(0, plan.layers, 1, level) for level in range(profile.levels))
    overhead_ns = round((machine.decision_us + machine.conflict_us) * 1000)
    return slowest_ns + plan.layers * overhead_ns


def convolution_flops(layer: str) -> int | None:
    """Returns the operations of a layer named `op:Hin-Win-Cin-Cout-KH-KW-padH-padW-sH-sW-groups`.

    A multiply-add counts as two. None where the name says no shape, or one that can't be.
    """
    found = _CONVOLUTION.match(layer)
    if not found:
        return None
    h, w, c_in, c_out, kh, kw, pad_h, pad_w, stride_h, stride_w, groups = map(
        int, found[1].split("-")
    )
    if 0 in (stride_h, stride_w, groups):
        return None
    out_h = (h + 2 * pad_h - kh) // stride_h + 1
    out_w = (w + 2 * pad_w - kw) // stride_w + 1
    flops = 2 * out_h * out_w * c_out * (c_in // groups) * kh * kw
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
    manifest = read_manifest(resolve_folder(path))
    qos_ns = manifest.qos_ns if model.qos_ms is None else round(model.qos_ms * NS_PER_MS)
    return to_profile(manifest, qos_ns=qos_ns, priority=model.priority)


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
