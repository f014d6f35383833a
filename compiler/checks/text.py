"""Names that aren't text: Python reads them as bytes, which no message and no file name takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

from veltair.runtime.errors import InputError


def check_text(path: Path, model: onnx.ModelProto) -> None:
    """Checks that each name of a model, and whatever else is text, is UTF-8.

    Raises:
        InputError: one isn't; where it stands is said in ONNX's terms.
    """
    where = _not_text(model)
    if where:
        raise InputError(f"{path}: {where[1:]} isn't text (UTF-8); export the model again")


def _not_text(message: Any) -> str:  # noqa: ANN401 (any message of protobuf)
    """Where a message, or one within it, has text that isn't; empty where none does."""
    for field, held in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        is_single = isinstance(held, (str, bytes)) or hasattr(held, "ListFields")
        for index, value in enumerate((held,) if is_single else held):
            where = f".{field.name}" if is_single else f".{field.name}[{index}]"
            if isinstance(value, bytes):
                return where
            if not isinstance(value, str) and (inner := _not_text(value)):
                return where + inner
    return ""
