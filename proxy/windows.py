"""Rows as a server sees them: of several layers, one after the other, beside the same.

A server reads its sources over a window in which blocks of many layers ran, and what disturbs a
layer more or less than the next evens out. So training puts layers together, always the same ones:
then no layer is in two rows that a test holds apart.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from veltair.proxy.features import together
from veltair.proxy.observations import Observation

_LAYERS = 4  # a window: fewer than a server's has, so that few layers are windows enough
_FEWEST_WINDOWS = 6  # of different layers
_SEED = 0


@dataclass(frozen=True)
class _Beside:
    """What the layers of a window have in common."""

    round: int
    setting: int


def windows_of(observations: Sequence[Observation]) -> list[Observation]:
    """Puts layers together, four a window, or fewer where there would be few windows.

    Args:
        observations: of single layers.

    Returns:
        One for each set of layers, round, setting, and version of the layer with the most of them.
        `layer` names the set.
    """
    layers = sorted({each.layer for each in observations})
    random.Random(_SEED).shuffle(layers)
    size = max(1, min(_LAYERS, len(layers) // _FEWEST_WINDOWS))
    sets = [layers[first :: len(layers) // size] for first in range(len(layers) // size)]
    by_layer: dict[str, dict[_Beside, list[Observation]]] = {layer: {} for layer in layers}
    for each in observations:
        beside = _Beside(each.round, each.setting)
        by_layer[each.layer].setdefault(beside, []).append(each)
    found = []
    for together_layers in sets:
        for beside in by_layer[together_layers[0]]:
            rows = [by_layer[layer].get(beside, []) for layer in together_layers]
            if all(rows):  # a round that was stopped lacks some
                most = max(map(len, rows))
                found += [_joined([row[i % len(row)] for row in rows]) for i in range(most)]
    return found


def _joined(parts: Sequence[Observation]) -> Observation:
    """One observation of all."""
    common = set.intersection(*(set(each.readings) for each in parts))
    own = [each.own for each in parts if each.own is not None]
    return Observation(
        layer=" & ".join(each.layer for each in parts),
        round=parts[0].round,
        setting=parts[0].setting,
        level=float(np.mean([each.level for each in parts])),
        slowdown=float(np.mean([each.slowdown for each in parts])),
        readings={
            name: together([each.readings[name] for each in parts]) for name in sorted(common)
        },
        own=reduce(add, own) if len(own) == len(parts) else None,
    )
