"""Trains linear models from features to the level, and says how good they are on unseen layers.

Every figure is of layers that the model hasn't seen: layers are dealt into folds, and each fold is
predicted by what was trained on the others. What a kind of model chooses, its features or its
penalty, it chooses within the others too. Rows weigh by the confidence of their features.

Reference: VELTAIR, section 4.3 and Fig. 11b.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GroupKFold

from veltair.proxy.observations import OWN
from veltair.proxy.proxy_file import SCHEMA, Accuracy, LinearModel, ProxyFile, Term
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.proxy.observations import Table

    Floats = NDArray[np.float64]

# The L3 miss rate and the L3 accesses, as a core, or a unit that cores share, counts them.
PAPERS_TWO = (("llc_miss_rate", "llc_references_per_cycle"), ("l3_miss_rate", "l3_access_rate"))
OWN_LEVEL = "block_level"
FEWEST_LAYERS = 4
_FOLDS = 5
_INNER_FOLDS = 4
_MOST_FEATURES = 3  # of a chosen subset
_NEARLY = 0.01  # of R2: fewer features are preferred within it
_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
_ROW_SHARE = 0.5  # of the rows in which a feature must be told
_SEED = 0
_LEAST_R2 = 0.1  # below, a model is about as good as none


@dataclass(frozen=True, kw_only=True)
class Data:
    """What one set of sources gives.

    Attributes:
        sources: names.
        features: names of the columns.
        values: float64[rows, columns], all told.
        weight: float64[rows], the least confidence in each row.
        level: float64[rows].
        layer: int64[rows].
        alone: bool[rows], whether there was nothing beside.
    """

    sources: tuple[str, ...]
    features: tuple[str, ...]
    values: Floats
    weight: Floats
    level: Floats
    layer: NDArray[np.int64]
    alone: NDArray[np.bool_]

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(np.unique(self.layer))

    def at(self, rows: NDArray[np.int64]) -> Data:
        """Only some rows."""
        return self._with(rows, np.arange(len(self.features)))

    def only(self, columns: Sequence[int]) -> Data:
        """Only some features."""
        return self._with(np.arange(len(self.level)), np.array(columns))

    def _with(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Data:
        return Data(
            sources=self.sources,
            features=tuple(self.features[column] for column in columns),
            values=self.values[np.ix_(rows, columns)],
            weight=self.weight[rows],
            level=self.level[rows],
            layer=self.layer[rows],
            alone=self.alone[rows],
        )


Predict = Callable[["Floats"], "Floats"]
Fit = Callable[[Data], Predict]


def source_sets(table: Table) -> list[tuple[str, ...]]:
    """Returns the sets of sources that get a model: each, and each with our own blocks."""
    names = sorted(set(table.sources))
    sets: list[tuple[str, ...]] = [(name,) for name in names]
    if OWN in names:
        sets += [(name, OWN) for name in names if name != OWN]
    return sets


def data_of(table: Table, sources: Sequence[str], features: Sequence[str] = ()) -> Data:
    """Returns the rows in which all features of some sources are told.

    Args:
        table: of all.
        sources: whose features are used, where they are told in at least half of the rows.
        features: that are used of these; all if empty.
    """
    told = np.isfinite(table.values).mean(axis=0) >= _ROW_SHARE
    columns = [
        column
        for column, (name, source) in enumerate(zip(table.features, table.sources, strict=True))
        if source in sources and told[column] and (not features or name in features)
    ]
    weight = table.confidence[:, columns].min(axis=1, initial=1.0)
    rows = np.flatnonzero(np.isfinite(table.values[:, columns]).all(axis=1) & (weight > 0))
    return Data(
        sources=tuple(sources),
        features=tuple(table.features[column] for column in columns),
        values=table.values[np.ix_(rows, np.array(columns, np.int64))],
        weight=weight[rows],
        level=table.level[rows],
        layer=table.layer[rows],
        alone=table.alone[rows],
    )


@dataclass(frozen=True, kw_only=True)
class Line:
    """A linear model, which is 0 at a point.

    Attributes:
        columns: that it takes of what it is given.
        zero: float64[columns], where it is 0.
        slopes: float64[columns], levels a unit.
        highest: level in training: it tells none above, and none below 0.
    """

    columns: Sequence[int]
    zero: Floats
    slopes: Floats
    highest: float

    def __call__(self, values: Floats) -> Floats:
        """Returns the level of each row."""
        levels = (values[:, self.columns] - self.zero) @ self.slopes
        return np.asarray(levels.clip(0.0, self.highest))


def linear(data: Data) -> Line:
    """Fits a linear model of all features by weighted least squares.

    It is 0 where the features are at their mean with nothing beside. With a free intercept it is
    more there, the more the noisier features are, and tells a server that runs alone of a level
    that isn't there.
    """
    return _fitted(data, LinearRegression(fit_intercept=False), data)


def ridge(data: Data) -> Line:
    """The same with a penalty on the coefficients, chosen within the data."""

    def with_penalty(penalty: float) -> Fit:
        return lambda part: _fitted(part, Ridge(alpha=penalty, fit_intercept=False), data)

    scores = [cross_validated(with_penalty(each), data, _INNER_FOLDS).r2 for each in _PENALTIES]
    penalty = _PENALTIES[int(np.argmax(scores))]
    return _fitted(data, Ridge(alpha=penalty, fit_intercept=False), data)


def as_told(data: Data) -> Line:
    """Takes the level that fits our own blocks as it is, as a server does without a model.

    What is trained must do better: where blocks are noisy least squares believe them too little.
    """
    return Line(
        columns=[data.features.index(OWN_LEVEL)],
        zero=np.zeros(1),
        slopes=np.ones(1),
        highest=float(data.level.max()),
    )


def boosted(data: Data) -> Predict:
    """Fits boosted trees: about the most that the data holds, whatever its form."""
    trees = GradientBoostingRegressor(
        n_estimators=200, max_depth=3, learning_rate=0.05, subsample=0.7, random_state=_SEED
    )
    fitted = trees.fit(data.values, data.level, data.weight)
    highest = float(data.level.max())
    return lambda values: np.asarray(fitted.predict(values).clip(0.0, highest))


def best_subset(data: Data) -> Line:
    """Fits the linear model of the few features that do best within the data.

    Every subset of at most three is tried, cross-validated by layer; fewer are taken where they do
    nearly as well, and the level that our own blocks tell as it is where that does.
    """
    most = min(_MOST_FEATURES, len(data.features))
    scored = [
        (cross_validated(linear, data.only(columns), _INNER_FOLDS).r2, columns)
        for count in range(1, most + 1)
        for columns in itertools.combinations(range(len(data.features)), count)
    ]
    best = max(r2 for r2, _ in scored)
    if OWN_LEVEL in data.features:
        told = cross_validated(as_told, data, _INNER_FOLDS).r2
        if told >= best - _NEARLY:
            return as_told(data)
    good = [(r2, columns) for r2, columns in scored if r2 >= best - _NEARLY]
    columns = min(good, key=lambda each: (len(each[1]), -each[0]))[1]
    return replace(linear(data.only(columns)), columns=columns)


KINDS: Mapping[str, Fit] = {
    "chosen": best_subset,
    "all": linear,
    "ridge": ridge,
    "boosted": boosted,
}


def cross_validated(fit: Fit, data: Data, folds: int = _FOLDS) -> Accuracy:
    """Returns how well a kind of model does on layers that it hasn't seen.

    Args:
        fit: trains it.
        data: of at least two layers.
        folds: as many as there are layers where these are fewer.
    """
    predicted, tests = held_out(fit, data, folds)
    parts = [_scores(data.at(test), predicted[test]) for test in tests]
    r2, mae = _scores(data, predicted)
    return Accuracy(
        r2=r2,
        r2_folds=tuple(part[0] for part in parts),
        mae=mae,
        mae_folds=tuple(part[1] for part in parts),
    )


def held_out(fit: Fit, data: Data, folds: int = _FOLDS) -> tuple[Floats, list[NDArray[np.int64]]]:
    """Returns the level of each row by what was trained on other layers, and the rows by fold."""
    splitter = GroupKFold(min(folds, data.layers))
    predicted = np.empty_like(data.level)
    tests = []
    for train, test in splitter.split(data.values, groups=data.layer):
        predicted[test] = fit(data.at(train))(data.values[test])
        tests.append(test)
    return predicted, tests


def model_of(data: Data) -> LinearModel:
    """Trains the model of the chosen features on all rows; its accuracy is cross-validated.

    Raises:
        InputError: they are of too few layers to hold any out.
    """
    check_layers(data.layers)
    accuracy = cross_validated(best_subset, data)
    line = best_subset(data)
    used = data.only(line.columns)
    means, scales = used.values.mean(axis=0), _scales(used)
    terms = tuple(
        Term(
            feature=name,
            mean=float(means[column]),
            scale=float(scales[column]),
            coefficient=float(line.slopes[column] * scales[column]),
            low=float(used.values[:, column].min()),
            high=float(used.values[:, column].max()),
        )
        for column, name in enumerate(used.features)
    )
    return LinearModel(
        sources=data.sources,
        terms=terms,
        intercept=float((means - line.zero) @ line.slopes),
        highest=line.highest,
        accuracy=accuracy,
        rows=len(used.level),
        layers=used.layers,
    )


def check_layers(count: int) -> None:
    """Refuses too few layers.

    Raises:
        InputError: a model of them could be tested on nothing.
    """
    if count < FEWEST_LAYERS:
        raise InputError(
            f"{count} layers can be measured here (none that takes some microseconds, falls back, "
            "or reads indices that another wrote), and a model is tested on layers that it hasn't "
            f"seen: {FEWEST_LAYERS} are needed at least; give more --artifacts"
        )


def train(table: Table, machine: Mapping[str, str | int]) -> ProxyFile:
    """Trains a model for each set of sources.

    Those that explain hardly anything are left out, and those that make no use of a source that
    they would need: there is one without it.

    Raises:
        InputError: there are too few layers, or no model explains anything.
    """
    sets = [data_of(table, sources) for sources in source_sets(table)]
    models = [model_of(data) for data in sets if data.features]
    useful = [
        model for model in models if model.accuracy.r2 >= _LEAST_R2 and uses_all(model, table)
    ]
    if not useful:
        named = ", ".join(sorted(set(table.sources))) or "no source"
        raise InputError(
            f"nothing that {named} counts here explains a tenth of the level, on layers that the "
            "model hasn't seen; measure longer (--minutes) on a quieter machine, or see `veltair "
            "counters` for a better source"
        )
    useful.sort(key=lambda model: -model.accuracy.r2)
    alone = table.values[table.alone]
    seen = np.flatnonzero(np.isfinite(alone).any(axis=0))
    return ProxyFile(
        schema=SCHEMA,
        machine=dict(machine),
        models=tuple(useful),
        alone={table.features[column]: float(np.nanmedian(alone[:, column])) for column in seen},
    )


def uses_all(model: LinearModel, table: Table) -> bool:
    """Whether a model has a feature of each of its sources."""
    source_of = dict(zip(table.features, table.sources, strict=True))
    return {source_of[term.feature] for term in model.terms} == set(model.sources)


def _fitted(data: Data, estimator: LinearRegression | Ridge, standard: Data) -> Line:
    """Fits features that are standardised by those of `standard`."""
    zero = np.average(data.values[data.alone], axis=0, weights=data.weight[data.alone])
    scales = _scales(standard)
    # A penalty is on a weight of one a row, whatever the confidences are.
    weight = data.weight / data.weight.mean()
    estimator.fit((data.values - zero) / scales, data.level, weight)
    return Line(
        columns=range(len(data.features)),
        zero=zero,
        slopes=estimator.coef_ / scales,
        highest=float(data.level.max()),
    )


def _scales(data: Data) -> Floats:
    """The standard deviation of each feature, above 0."""
    scales = data.values.std(axis=0)
    return np.where(scales > 0, scales, 1.0)


def _scores(data: Data, predicted: Floats) -> tuple[float, float]:
    weight = data.weight / data.weight.sum()
    mean = float(weight @ data.level)
    spread = float(weight @ (data.level - mean) ** 2)
    error = float(weight @ (data.level - predicted) ** 2)
    r2 = 1 - error / spread if spread > 0 else 0.0
    return r2, float(weight @ np.abs(data.level - predicted))
