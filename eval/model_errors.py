"""How far the machine model is from profiles, on the machine that they were measured on."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veltair.proxy.kernel_shares import read_shares
from veltair.proxy.machine_model import model_bytes_of, times, work_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from veltair.proxy.machine_file import Machine
    from veltair.runtime.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One variant's time on some cores at some level, predicted and measured.

    Attributes:
        model: its name.
        layer: index.
        variant: index.
        algorithm: of the variant.
        cores: how many.
        level: slow-down of the reference kernel.
        measured_ns: by the profile.
        predicted_ns: by the machine model.
        bound: what decides in the model.
        held_out: whether the layer is of the half that no share was fitted on.
    """

    model: str
    layer: int
    variant: int
    algorithm: str
    cores: int
    level: float
    measured_ns: int
    predicted_ns: float
    bound: str
    held_out: bool

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_ns / self.measured_ns

    @property
    def nearest_level(self) -> float:
        """Level in steps of a half, since each profile has levels of its own."""
        return round(2 * self.level) / 2


def held_out(layer: int) -> bool:
    """Whether a layer is of the half that isn't fitted on: every second one."""
    return layer % 2 == 1


def fitted_shares(
    manifests: Sequence[Manifest], machine: Machine, *, every: bool = False
) -> tuple[dict[str, float], dict[str, int]]:
    """Returns the share of a core's peak of each algorithm, and how many variants say so.

    The median over the variants of the layers that aren't held out, on one core, alone, of what
    computing would take at the peak over what was measured. An algorithm that is only in layers
    that are held out is fitted on those.

    Args:
        manifests: with profiles that were measured on the machine.
        machine: where.
        every: whether no layer is held out.
    """
    found: dict[tuple[str, bool], list[float]] = {}
    for manifest in manifests:
        for index, layer in enumerate(manifest.layers):
            for variant, rows in zip(layer.variants, manifest.profile.layer_ns[index], strict=True):
                work = work_of(layer, variant, {variant.algorithm: 1.0})
                computing_ns = max(rows[0][0] - machine.launch.base_ns, 1.0)
                share = work.operations / machine.peak_gflops / computing_ns
                out = held_out(index) and not every
                found.setdefault((variant.algorithm, out), []).append(share)
    used = {
        name: found.get((name, False), found.get((name, True), []))
        for name in sorted({name for name, _ in found})
    }
    return (
        {name: float(np.median(shares)) for name, shares in used.items()},
        {name: len(shares) for name, shares in used.items()},
    )


def compared(manifest: Manifest, machine: Machine, shares: Mapping[str, float]) -> list[Compared]:
    """Compares each variant of each layer at each core count and level of a profile."""
    profile = manifest.profile
    model_bytes = model_bytes_of(manifest)
    found = []
    for index, layer in enumerate(manifest.layers):
        for number, variant in enumerate(layer.variants):
            work = work_of(layer, variant, shares, model_bytes)
            predicted = times(work, machine, profile.cores, profile.levels)
            for c, cores in enumerate(profile.cores):
                found += [
                    Compared(
                        model=manifest.name,
                        layer=index,
                        variant=number,
                        algorithm=variant.algorithm,
                        cores=cores,
                        level=level,
                        measured_ns=profile.layer_ns[index][number][c][at],
                        predicted_ns=float(predicted.total[c, at]),
                        bound=predicted.bound_by(c, at),
                        held_out=held_out(index),
                    )
                    for at, level in enumerate(profile.levels)
                ]
    return found


def left_out(manifests: Sequence[Manifest], machine: Machine) -> list[dict[str, Any]]:
    """The errors on each model whose profile isn't disturbed, by shares fitted on the others alone.

    Models repeat their layers, so a layer of the other half may be one that was fitted; another
    model's are its own. Algorithms that only one model has can't be judged so.
    """
    rows = []
    for manifest in manifests:
        others = [each for each in manifests if each is not manifest]
        shares, _ = fitted_shares(others, machine, every=True)
        known = {**read_shares(), **shares}
        found = [each for each in compared(manifest, machine, known) if each.algorithm in shares]
        if found and not is_disturbed(manifest):
            rows += [{"model": manifest.name} | row for row in errors_by(found, "cores")]
    return rows


def is_disturbed(manifest: Manifest) -> bool:
    """Whether a whole run is slower on more cores, which says that others disturbed the profile.

    The model can't be judged by such times.
    """
    alone = [row[0] for row in manifest.profile.model_ns]
    return any(more > fewer for fewer, more in itertools.pairwise(alone))


def error_of(ratios: Iterable[float]) -> dict[str, float | int]:
    """Median and 90th percentile of |predicted / measured - 1|, median ratio, and how many."""
    values = np.asarray(list(ratios), dtype=np.float64)
    errors = np.abs(values - 1)
    return {
        "count": len(values),
        "error_p50": float(np.median(errors)),
        "error_p90": float(np.percentile(errors, 90)),
        "ratio_p50": float(np.median(values)),
    }


def errors_by(found: Sequence[Compared], *names: str) -> list[dict[str, Any]]:
    """The errors of each group that has the same values of some attributes, sorted by them."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for each in found:
        groups.setdefault(tuple(getattr(each, name) for name in names), []).append(each.ratio)
    return [
        dict(zip(names, key, strict=True)) | error_of(ratios)
        for key, ratios in sorted(groups.items())
    ]


def whole_runs(found: Sequence[Compared]) -> list[dict[str, Any]]:
    """Sums over the layers of each model, each by its first variant."""
    sums: dict[tuple[str, int, float], list[float]] = {}
    for each in found:
        if each.variant == 0:
            of = sums.setdefault((each.model, each.cores, each.level), [0.0, 0.0])
            of[0] += each.measured_ns
            of[1] += each.predicted_ns
    return [
        {
            "model": model,
            "cores": cores,
            "level": level,
            "measured_ns": round(measured),
            "predicted_ns": round(predicted),
            "ratio": predicted / measured,
        }
        for (model, cores, level), (measured, predicted) in sums.items()
    ]


def rows_of(found: Sequence[Compared]) -> list[dict[str, Any]]:
    """The layers by their first variants, for the saved result."""
    return [
        {name: getattr(each, name) for name in ("model", "layer", "algorithm", "cores", "level")}
        | {
            "measured_ns": each.measured_ns,
            "predicted_ns": round(each.predicted_ns),
            "bound": each.bound,
        }
        for each in found
        if each.variant == 0
    ]
