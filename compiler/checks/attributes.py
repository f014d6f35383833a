"""Attributes that something is divided by, moves in steps of, counts to, or reads as a language."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from veltair.compiler.definitions import ONNX_DOMAINS
from veltair.compiler.nodes import all_nodes, describe
from veltair.runtime.errors import InputError

_POSITIVE = (
    *("block_shape", "blocksize", "dilations", "group", "kernel_shape", "num_groups"),
    *("num_outputs", "strides"),
)
_TERM = rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rb"%b(,%b)*(->%b)?" % (_TERM, _TERM, _TERM))


def check_equations(path: Path, model: onnx.ModelProto) -> None:
    """Checks what `Einsum` is to compute, before inference reads it: of some it comes to no end.

    Raises:
        InputError: it isn't as ONNX defines it.
    """
    for node in all_nodes(model.graph):
        if node.op_type != "Einsum" or node.domain not in ONNX_DOMAINS:
            continue
        for attribute in node.attribute:
            if attribute.name == "equation" and not _EQUATION.fullmatch(
                attribute.s.replace(b" ", b"")
            ):
                text = attribute.s.decode(errors="replace")
                raise InputError(
                    f"{path}: {describe(node)}: its equation is {text!r}, and must be terms of "
                    "letters with at most one '...' each, with ',' between them, and at most one "
                    "more after '->'; export the model again"
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
            if attribute.name not in _POSITIVE or node.domain not in ONNX_DOMAINS:
                continue
            single = [attribute.i] if attribute.type == onnx.AttributeProto.INT else []
            numbers = [*attribute.ints, *single]
            if min(numbers, default=1) < 1:
                raise InputError(
                    f"{path}: {describe(node)}: its {attribute.name} is "
                    f"{numbers[0] if single else numbers}, and must be at least 1; export the "
                    "model again"
                )
