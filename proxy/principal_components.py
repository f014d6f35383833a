"""Principal components of standardised features: which of them carry what the counters say.

Reference: VELTAIR, section 4.3 and Fig. 11a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.decomposition import PCA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from veltair.proxy.training import Data


@dataclass(frozen=True, kw_only=True)
class Component:
    """One component.

    Attributes:
        explained: share of the features' variance.
        level_r2: share of the level's variance that it explains alone; components are not
            correlated, so shares add up.
        loadings: by feature; of length one.
    """

    explained: float
    level_r2: float
    loadings: Mapping[str, float]


def components_of(data: Data) -> list[Component]:
    """Returns all components, the one that explains most first."""
    scales = data.values.std(axis=0)
    standard = (data.values - data.values.mean(axis=0)) / np.where(scales > 0, scales, 1.0)
    fitted = PCA().fit(standard)
    scores = fitted.transform(standard)
    level = data.level - data.level.mean()
    total = float(level @ level)
    found = []
    for index, loading in enumerate(fitted.components_):
        score = scores[:, index]
        length = float(score @ score) * total
        found.append(
            Component(
                explained=float(fitted.explained_variance_ratio_[index]),
                level_r2=float(score @ level) ** 2 / length if length > 0 else 0.0,
                loadings=dict(zip(data.features, map(float, loading), strict=True)),
            )
        )
    return found


def carried(components: list[Component]) -> dict[str, float]:
    """Returns the share of the level that each feature carries, by the loadings of the components.

    A component's share of the level is divided among the features by their squared loadings; all
    shares add up to what the features explain together.
    """
    shares: dict[str, float] = {}
    for component in components:
        for name, loading in component.loadings.items():
            shares[name] = shares.get(name, 0.0) + component.level_r2 * loading**2
    return dict(sorted(shares.items(), key=lambda each: -each[1]))
