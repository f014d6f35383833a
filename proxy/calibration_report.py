"""What a calibration found, in lines to print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from veltair.proxy.observations import levels_of
from veltair.proxy.principal_components import carried, components_of
from veltair.proxy.training import (
    KINDS,
    OWN_LEVEL,
    PAPERS_TWO,
    as_told,
    cross_validated,
    data_of,
    linear,
    source_sets,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from veltair.proxy.calibration_record import CalibrationRecord
    from veltair.proxy.observations import Table
    from veltair.proxy.proxy_file import Accuracy, LinearModel, ProxyFile
    from veltair.proxy.training import Data

_SHOWN_COMPONENTS = 3


def lines_of(
    trained: ProxyFile, table: Table, record: CalibrationRecord, rounds: Collection[int]
) -> Iterator[str]:
    """Returns the levels, the components, the models, and what they are compared with.

    Args:
        trained: the models.
        table: that they were trained on.
        record: that it was made from.
        rounds: of the record that were used.
    """
    turns = [turn for turn in record.turns if turn.round in rounds]
    levels = levels_of(turns, len(record.header.settings))
    yield "levels, usually:"
    for setting, level in zip(record.header.settings, levels, strict=True):
        yield f"  {level:6.3f}  {setting}"
    yield from _component_lines(data_of(table, sorted(set(table.sources))))
    yield "on layers that the model hasn't seen (R2, mean error in levels; spread over folds):"
    for sources in source_sets(table):
        for kind, accuracy in compared(table, sources).items():
            yield f"  {' + '.join(sources):<20}{kind:<9}{accuracy_text(accuracy)}"
    yield "models, the most accurate first:"
    for model in trained.models:
        yield f"  {model_text(model)}"


def compared(table: Table, sources: Sequence[str]) -> dict[str, Accuracy]:
    """Returns how well each kind of model does with some sources, by its name.

    `two` is the paper's, of two counters, and `told` what fits our own blocks, as it is, where
    these sources have them.
    """
    data = data_of(table, sources)
    if not data.features:
        return {}
    found = {}
    for names in PAPERS_TWO:
        if set(names) <= set(data.features):
            found["two"] = cross_validated(linear, data_of(table, sources, names))
            break
    if OWN_LEVEL in data.features:
        found["told"] = cross_validated(as_told, data)
    return found | {kind: cross_validated(fit, data) for kind, fit in KINDS.items()}


def accuracy_text(accuracy: Accuracy) -> str:
    """Returns R2 and error, each with its spread over the folds."""
    return (
        f"R2 {accuracy.r2:6.3f} ({min(accuracy.r2_folds):.2f} to {max(accuracy.r2_folds):.2f}), "
        f"error {accuracy.mae:.3f} ({min(accuracy.mae_folds):.3f} to "
        f"{max(accuracy.mae_folds):.3f})"
    )


def model_text(model: LinearModel) -> str:
    """Returns a model as a formula."""
    terms = " ".join(
        f"{term.coefficient:+.3g} * ({term.feature} - {term.mean:.4g}) / {term.scale:.3g}"
        for term in model.terms
    )
    return f"{' + '.join(model.sources)}: level = {model.intercept:.3g} {terms}"


def _component_lines(data: Data) -> Iterator[str]:
    if not data.features:
        return
    components = components_of(data)
    yield f"principal components of {len(data.features)} features in {len(data.level)} rows:"
    for component in components[:_SHOWN_COMPONENTS]:
        strongest = sorted(component.loadings.items(), key=lambda each: -abs(each[1]))
        named = ", ".join(f"{name} {loading:+.2f}" for name, loading in strongest[:4])
        yield (
            f"  {component.explained:.1%} of their variance, {component.level_r2:.1%} of the "
            f"level's: {named}"
        )
    shares = carried(components)
    total = float(np.sum(list(shares.values())))
    text = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share > 0.005)
    yield f"  of the level they explain {total:.1%}: {text}"
