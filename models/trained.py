"""Writes a transformer's encoder with weights that are given instead of drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from veltair.models.transformer import TransformerBuilder
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class TrainedBuilder(TransformerBuilder):
    """One ONNX graph of an encoder in the making, its weights trained.

    Args:
        name: the graph's.
        batch: samples a run.
        tokens: of each sample.
        heads: that the channels are divided into.
        weights: float32, by the names that a layer gives its weights; a matrix's rows are what it
            writes, its columns what it reads, as PyTorch keeps them.
    """

    def __init__(
        self,
        name: str,
        *,
        batch: int,
        tokens: int,
        heads: int,
        weights: Mapping[str, NDArray[np.float32]],
    ) -> None:
        super().__init__(name, batch=batch, tokens=tokens, heads=heads, seed=0)
        self._trained = weights

    def _matrix(self, name: str, rows: int, columns: int, gain: float) -> str:
        return self._constant(name, np.ascontiguousarray(self._given(name, columns, rows).T))

    def _table(self, name: str, rows: int, channels: int, scale: float) -> str:
        weight = f"{name}.weight"
        return self._constant(weight, self._given(weight, rows, channels))

    def _drawn(self, name: str, channels: int, *, mean: float, deviation: float) -> str:
        return self._constant(name, self._given(name, channels))

    def _given(self, name: str, *shape: int) -> NDArray[np.float32]:
        value = self._trained.get(name)
        found = "none" if value is None else f"{value.dtype}{list(value.shape)}"
        if value is None or value.shape != shape or value.dtype != np.float32:
            raise InputError(
                f"{self._name}: the network reads {name} as float32{list(shape)}, and its trained "
                f"weights have {found}; install the version of their package that constraints.txt "
                "names"
            )
        return value
