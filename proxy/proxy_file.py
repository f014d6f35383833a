"""`proxy.json`: linear models from features to the interference level, trained on one machine.

Reference: VELTAIR, section 4.3: a linear model of the L3 miss rate and the L3 accesses.
Differs: each source that a machine has gets a model of its own features, since few machines have
the paper's two; and each estimate says how far it can be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from veltair.proxy.features import FEATURES, Features
from veltair.runtime._native import ipc
from veltair.runtime.errors import InputError
from veltair.runtime.files import read_whole, write_whole
from veltair.runtime.machine import machine_facts

SCHEMA = 1
AGAIN = "calibrate again on this machine (`veltair calibrate`)"
_HARDWARE = ("cpu", "cores", "l1_bytes", "l2_bytes", "l3_bytes")  # a new kernel changes no level


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A level of interference.

    Attributes:
        level: slow-down of the reference kernel; of one moment it is below 0 where noise is all
            there is.
        confidence: from 0, nothing is known, to 1. The level is 0 where it is 0.
        lacking: features that the model needs and that weren't there.
    """

    level: float
    confidence: float
    lacking: tuple[str, ...] = ()


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the file's records: immutable, unknown fields refused."""


class Term(_Record, frozen=True, kw_only=True):
    """One feature of a model: coefficient * (value - mean) / scale is added to the intercept.

    Attributes:
        feature: a name of `features.FEATURES`.
        mean: in training.
        scale: standard deviation in training, above 0.
        coefficient: in levels a standard deviation.
        low: least value in training.
        high: largest value in training.
    """

    feature: str
    mean: float
    scale: float
    coefficient: float
    low: float
    high: float


class Accuracy(_Record, frozen=True, kw_only=True):
    """How well a model did on layers that it hadn't seen.

    Attributes:
        r2: share of the level's variance that it explains, over all held-out rows.
        r2_folds: in each fold.
        mae: mean absolute error in levels, over all held-out rows.
        mae_folds: in each fold.
    """

    r2: float
    r2_folds: tuple[float, ...]
    mae: float
    mae_folds: tuple[float, ...]


class LinearModel(_Record, frozen=True, kw_only=True):
    """A model from the features of some sources to the level.

    Attributes:
        sources: that all must be read for it.
        terms: one at least.
        intercept: level where each feature is at its mean.
        highest: level in training: it estimates none above.
        accuracy: cross-validated by layer.
        rows: that it was trained on.
        layers: that these were of.
    """

    sources: tuple[str, ...]
    terms: tuple[Term, ...]
    intercept: float
    highest: float
    accuracy: Accuracy
    rows: int
    layers: int

    def estimate(self, features: Features) -> Estimate:
        """Estimates the level of one moment: below 0 where noise is all there is.

        The confidence is that of the least of its features, times the share of the variance that
        the model explains, and less where a feature is beyond what was seen in training: there it
        falls by half at one standard deviation.
        """
        lacking = tuple(term.feature for term in self.terms if term.feature not in features)
        if lacking:
            return Estimate(level=0.0, confidence=0.0, lacking=lacking)
        seen = (features[term.feature] for term in self.terms)
        found = ipc.estimate_level(
            self.native_line,
            self.native_terms,
            [ipc.LevelFeature(value=each.value, confidence=each.confidence) for each in seen],
        )
        return Estimate(level=found.level, confidence=found.confidence)

    @property
    def native_line(self) -> ipc.LevelLine:
        """What native code, which has the formula, needs beside the terms."""
        return ipc.LevelLine(
            intercept=self.intercept,
            highest=self.highest,
            trust=min(max(self.accuracy.r2, 0.0), 1.0),
        )

    @property
    def native_terms(self) -> list[ipc.LevelTerm]:
        """The terms for native code."""
        return [
            ipc.LevelTerm(
                mean=term.mean,
                scale=term.scale,
                coefficient=term.coefficient,
                low=term.low,
                high=term.high,
            )
            for term in self.terms
        ]


class ProxyFile(_Record, frozen=True, kw_only=True):
    """All that was trained on one machine.

    Attributes:
        schema: of this file.
        machine: as `machine_facts` tells it.
        models: the most accurate first.
        alone: values of features with nothing beside, by name: a probe's step, for example.
    """

    schema: int
    machine: Mapping[str, str | int]
    models: tuple[LinearModel, ...]
    alone: Mapping[str, float]

    @classmethod
    def read(cls, path: Path) -> ProxyFile:
        """Reads a file; `doubt` says whether it is another machine's.

        Raises:
            InputError: it can't be read, was cut, is of another schema, or breaks a rule.
        """
        try:
            data = read_whole(path)
        except OSError as error:
            raise InputError(f"{path}: can't be read ({error.strerror}); {AGAIN}") from error
        return decoded(data, str(path))

    def write(self, path: Path) -> None:
        """Writes it whole or not at all.

        Raises:
            InputError: it can't be written.
        """
        data = msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"
        try:
            write_whole(path, data)
        except OSError as error:
            raise InputError(f"{path}: can't be written ({error.strerror})") from error

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of all sources that a model needs, ascending."""
        return tuple(sorted(self.ranked))

    @property
    def ranked(self) -> tuple[str, ...]:
        """The same, those of the most accurate model first."""
        return tuple(dict.fromkeys(name for model in self.models for name in model.sources))

    def model_for(self, *sources: str) -> LinearModel | None:
        """Returns the most accurate model that needs none but these sources; None if none does."""
        return next((each for each in self.models if set(each.sources) <= set(sources)), None)

    def estimate(self, features: Features, *sources: str) -> Estimate:
        """Estimates by the most accurate model of these sources whose features are all there.

        Without one the level is 0 and the confidence too.
        """
        lacking: tuple[str, ...] = ()
        for model in self.models:
            if set(model.sources) <= set(sources):
                estimate = model.estimate(features)
                if not estimate.lacking:
                    return estimate
                lacking = lacking or estimate.lacking
        return Estimate(level=0.0, confidence=0.0, lacking=lacking)

    def check_sources(self, path: Path, working: Collection[str]) -> None:
        """Refuses the file where all of its models need a source that isn't there.

        Args:
            path: for the message.
            working: names of the sources that work here.

        Raises:
            InputError: none of its models can be used.
        """
        if self.model_for(*working) is None:
            have = ", ".join(sorted(working)) or "none"
            needed = "; ".join(" with ".join(model.sources) for model in self.models)
            raise InputError(
                f"{path}: its models need {needed}; what works here is {have} (`veltair counters` "
                f"says why): {AGAIN}, or leave the file out"
            )

    def doubt(self, machine: Mapping[str, str | int] | None = None) -> str:
        """Says in what another machine than the one that it was trained on differs.

        Args:
            machine: as `machine_facts` tells it; this one if not given.

        Returns:
            A warning; empty where it is the same.
        """
        here = machine_facts() if machine is None else machine
        differing = [
            f"{key} {self.machine.get(key, 'unknown')} there, {here.get(key, 'unknown')} here"
            for key in _HARDWARE
            if self.machine.get(key) != here.get(key)
        ]
        if not differing:
            return ""
        return (
            f"the interference model was trained on another machine ({'; '.join(differing)}), so "
            f"its levels may be wrong; {AGAIN}"
        )


def own_level(features: Features) -> Estimate:
    """Estimates the level from our own blocks alone, where nothing was trained."""
    seen = features.get("block_level")
    if seen is None or seen.confidence <= 0:
        return Estimate(level=0.0, confidence=0.0, lacking=("block_level",))
    return Estimate(level=seen.value, confidence=seen.confidence)


class _Head(msgspec.Struct):
    """What every schema has."""

    schema: int


def decoded(data: bytes, where: str) -> ProxyFile:
    """Decodes and checks the content of a file.

    Raises:
        InputError: see `ProxyFile.read`.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.schema != SCHEMA:
            raise InputError(
                f"{where}: schema {head.schema}, and this version reads schema {SCHEMA}; {AGAIN}"
            )
        found = msgspec.json.decode(data, type=ProxyFile)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}; {AGAIN}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: no JSON, or a file that was cut ({error}); {AGAIN}") from error
    broken = _broken_rule(found)
    if broken:
        raise InputError(f"{where}: {broken}; {AGAIN}")
    return found


def _broken_rule(file: ProxyFile) -> str:
    if not file.models:
        return "there is no model in it"
    if not all(math.isfinite(value) for value in file.alone.values()):
        return "a value alone isn't finite"
    for index, model in enumerate(file.models):
        broken = _broken_rule_of(model)
        if broken:
            return f"models[{index}]: {broken}"
    ranks = [model.accuracy.r2 for model in file.models]
    if ranks != sorted(ranks, reverse=True):
        return "the models must be ordered by r2, the most accurate first"
    return ""


def _broken_rule_of(model: LinearModel) -> str:
    if not model.sources or not model.terms:
        return "it needs a source and a term at least"
    names = [term.feature for term in model.terms]
    if len(set(names)) != len(names):
        return "a feature is there twice"
    accuracy = model.accuracy
    numbers = (model.intercept, model.highest, accuracy.r2, accuracy.mae)
    if not all(map(math.isfinite, (*numbers, *accuracy.r2_folds, *accuracy.mae_folds))):
        return "a number isn't finite"
    if model.highest < 0 or accuracy.r2 > 1 or accuracy.mae < 0:
        return (
            f"highest {model.highest:g} and mae {accuracy.mae:g} are 0 at least, r2 "
            f"{accuracy.r2:g} is 1 at most"
        )
    return next(filter(None, map(_broken_rule_of_term, model.terms)), "")


def _broken_rule_of_term(term: Term) -> str:
    if term.feature not in FEATURES:
        return f"unknown feature {term.feature!r}"
    numbers = (term.mean, term.scale, term.coefficient, term.low, term.high)
    if not all(map(math.isfinite, numbers)):
        return f"{term.feature}: a number isn't finite"
    if not term.scale > 0:
        return f"{term.feature}: the scale must be above 0, not {term.scale:g}"
    if not term.low <= term.high:
        return f"{term.feature}: low {term.low:g} is above high {term.high:g}"
    return ""
