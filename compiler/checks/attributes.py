"""Attributes that something is divided by or moves in steps of."""

from __future__ import annotations

from pathlib import Path

import onnx

from veltair.compiler.nodes import all_nodes, describe
from veltair.runtime.errors import InputError

_POSITIVE = (
    *("block_shape", "blocksize", "dilations", "group", "kernel_shape", "num_groups"),
    *("num_outputs", "strides"),
)


def check_attributes(path: Path, model: onnx.ModelProto) -> None:
    """Checks the numbers that inference doesn't, and that what comes later divides by.

    Raises:
        InputError: one isn't positive.
    """
    for node in all_nodes(model.graph):
        for attribute in node.attribute:
            if attribute.name not in _POSITIVE or node.domain not in ("", "ai.onnx"):
                continue
            single = [attribute.i] if attribute.type == onnx.AttributeProto.INT else []
            numbers = [*attribute.ints, *single]
            if min(numbers, default=1) < 1:
                raise InputError(
                    f"{path}: {describe(node)}: its {attribute.name} is "
                    f"{numbers[0] if single else numbers}, and must be at least 1; export the "
                    "model again"
                )
