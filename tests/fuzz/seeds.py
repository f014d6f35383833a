"""What the fuzzer begins with: small models, good and bad, made when it starts."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from random import Random

import fallback_models
import onnx
from bad_models import CASES, functions, nested, relu_model, sparse
from random_graphs import random_graph

_DRAWN = 400  # random graphs, of which those few are kept that have every kind of node
_MOST_BYTES = 1 << 16  # of a seed: what is larger is slow, and no more likely to be wrong


def seeds() -> dict[str, bytes]:
    """Files of models, by name."""
    found = {f"bad-{name}": data for name, data in _bad().items()}
    for name, build in inspect.getmembers(fallback_models, inspect.isfunction):
        if not inspect.signature(build).parameters and build.__module__ == "fallback_models":
            made = build()
            if isinstance(made, onnx.ModelProto):
                found[f"fallback-{name}"] = made.SerializeToString()
    for seed, model in _covering().items():
        found[f"random-{seed}"] = model.SerializeToString()
    found["relu"] = relu_model().SerializeToString()
    found["sparse"] = sparse([1, 5], [2, 3]).SerializeToString()
    found["nested"] = nested(3)
    calls = {"f0": ["f1", "f1"], "f1": ["Relu", "Exp"]}
    found["functions"] = functions(calls).SerializeToString()
    return {name: data for name, data in found.items() if len(data) <= _MOST_BYTES}


def _covering() -> dict[int, onnx.ModelProto]:
    """Random graphs by seed, each with kinds of nodes that those before it have not."""
    drawn = {seed: random_graph(Random(seed), 1 + seed % 8) for seed in range(_DRAWN)}
    kinds = {seed: {node.op_type for node in model.graph.node} for seed, model in drawn.items()}
    missing = set().union(*kinds.values())
    kept = {}
    while missing:
        best = max(kinds, key=lambda seed: len(kinds[seed] & missing))
        kept[best] = drawn[best]
        missing -= kinds[best]
    return kept


def _bad() -> dict[str, bytes]:
    """The bad models that are one file each."""
    found = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory(prefix="veltair-seeds-") as folder:
            path = case.write(Path(folder))
            if path.is_file():
                found[name] = path.read_bytes()
    return found
