"""What each layer of a batch costs as one or sample by sample, and the choice that costs least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


class LayerCosts:
    """What is known of each layer's cost, by how it runs and how the layer before it does.

    Where a layer finds its input depends on how the one before ran: in a near cache, or among that
    of all samples. What has not been measured counts as little as it may, so that it is chosen and
    then measured, until the choice that costs least is one that was.
    """

    def __init__(
        self,
        one: Sequence[float] | NDArray[np.float64],
        several: Sequence[float] | NDArray[np.float64],
        can: Sequence[bool],
        switch: float,
    ) -> None:
        """Begins with what was measured with all layers alike.

        Args:
            one: of each layer, as many runs of one sample as the batch has.
            several: of each layer, one run of the batch.
            can: which layers may run sample by sample.
            switch: what a layer costs more, as long as it isn't known, where the one before runs
                otherwise.
        """
        alike = np.array([several, one], np.float64)  # [by sample][layer]
        alike[1, ~np.asarray(can, np.bool_)] = np.inf
        # [layer][by sample][the one before by sample]
        self._costs = np.repeat(alike.T[:, :, np.newaxis], 2, axis=2)
        self._costs[1:, 0, 1] += switch
        self._costs[1:, 1, 0] += switch

    def learn(self, chosen: Sequence[bool], costs: ArrayLike) -> None:
        """Takes in what each layer cost where these ran sample by sample."""
        by_sample = np.asarray(chosen, np.intp)
        before = np.concatenate([by_sample[:1], by_sample[:-1]])
        self._costs[np.arange(len(by_sample)), by_sample, before] = costs

    def cheapest(self) -> list[bool]:
        """Which layers run sample by sample, for the least cost in all."""
        # The least cost up to a layer that runs as one, or by sample, and how it came about.
        first = self._costs[0].diagonal()
        totals, paths = list(first), [[False], [True]]
        for costs in self._costs[1:]:
            sums = costs + np.asarray(totals)  # [by sample][the one before]
            best = [int(np.argmin(row)) for row in sums]
            totals = [float(sums[mode, best[mode]]) for mode in (0, 1)]
            paths = [[*paths[best[mode]], bool(mode)] for mode in (0, 1)]
        return paths[int(totals[1] < totals[0])]
