"""Attributes that something is divided by, moves in steps of, or counts to."""

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
    """Checks the numbers that inference doesn't, and that what comes later divides by or counts to.

    Raises:
        InputError: one isn't positive, or a `Scan` has more inputs to scan than it has.
    """
    for node in all_nodes(model.graph):
        for attribute in node.attribute:
            if attribute.name == "num_scan_inputs" and not 1 <= attribute.i <= len(node.input):
                raise InputError(
                    f"{path}: {describe(node)}: its num_scan_inputs is {attribute.i}, and must be "
                    f"from 1 to its {len(node.input)} inputs; export the model again"
                )
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
