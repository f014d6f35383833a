"""Reads an ONNX file, and the data that lies beside it."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from onnx import TensorProto
from onnx.external_data_helper import load_external_data_for_tensor

from veltair.compiler.checks.functions import check_functions
from veltair.compiler.checks.names import check_names
from veltair.compiler.checks.sizes import check_declared
from veltair.compiler.checks.tensors import (
    Constant,
    check_numbers,
    check_tensors,
    constants_of,
    size_bytes,
)
from veltair.compiler.checks.text import check_text
from veltair.compiler.sparse import make_dense
from veltair.runtime.errors import InputError

# Below it are shapes and axes, which inference wants to know; what is larger would only be copied.
LARGE_BYTES = 1024
_KEYS = ("location", "offset", "length", "checksum", "basepath")


def read_model(path: Path) -> onnx.ModelProto:
    """Reads a model, checks it, and loads what little of its data is small.

    `load_weights` loads the rest.

    Raises:
        InputError: the file is no model, or one that can't be right.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the path of an ONNX model")
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the path of an ONNX model")
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise InputError(f"{path}: can't be read ({os.strerror(error.errno or 0)})") from error
    except Exception as error:  # protobuf's DecodeError has no public base class
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{path}: not an ONNX model, truncated, or nested too deep ({reason[0]}); export it "
            "again"
        ) from error
    if not model.graph.node:
        raise InputError(
            f"{path}: not an ONNX model, or truncated (no nodes in its graph); export it again"
        )
    if not model.opset_import:
        raise InputError(f"{path}: not an ONNX model, or truncated (no opset); export it again")
    check_text(path, model)
    check_functions(path, model)
    check_declared(path, model)
    check_tensors(path, model)
    make_dense(path, model)
    _check_external(path, model)
    check_names(path, model)
    _load(path, model, LARGE_BYTES)
    return model


def load_weights(path: Path, model: onnx.ModelProto) -> None:
    """Loads the data that `read_model` has left where it is.

    Raises:
        InputError: a weight isn't a number.
    """
    _load(path, model, None)
    check_numbers(path, model)


def _load(path: Path, model: onnx.ModelProto, below_bytes: int | None) -> None:
    for constant in constants_of(model):
        tensor = constant.tensor
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        if below_bytes is None or size_bytes(tensor) < below_bytes:
            load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]


def _check_external(path: Path, model: onnx.ModelProto) -> None:
    """Checks where each weight lies: in a regular file within the model's folder, wholly."""
    sizes: dict[str, int] = {}
    for constant in constants_of(model):
        if constant.tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {e.key: e.value for e in constant.tensor.external_data if e.key in _KEYS}
        title = f"{path}: {constant.title}: its data"
        location = entries.get("location", "")
        if location not in sizes:
            sizes[location] = _file_bytes(title, path.parent, location)
        _check_range(title, constant, entries, sizes[location])


def _file_bytes(title: str, folder: Path, location: str) -> int:
    """Size of a file within a folder."""
    if not location or "\0" in location:
        raise InputError(f"{title} names no file; export the model again")
    file = folder / location
    if Path(location).is_absolute() or not _is_within(folder, file):
        raise InputError(
            f"{title} lies in '{location}', outside of the model's folder, which is refused; put "
            "the file beside the model and export it with that location"
        )
    if not os.path.lexists(file):
        raise InputError(f"{title} lies in '{location}', which is missing; put it beside the model")
    if file.is_symlink() or not file.is_file():
        raise InputError(
            f"{title} lies in '{location}', which is no regular file; put the file itself there"
        )
    return file.stat().st_size


def _is_within(folder: Path, file: Path) -> bool:
    try:
        return file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a name too long, links in a circle
        return False


def _check_range(title: str, constant: Constant, entries: dict[str, str], size: int) -> None:
    location, wanted = entries["location"], size_bytes(constant.tensor)
    numbers = {}
    for key, default in (("offset", "0"), ("length", str(wanted))):
        text = entries.get(key) or default
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise InputError(f"{title} has the {key} {text}, which is no number; export it again")
        numbers[key] = int(text)
    begin, length = numbers["offset"], numbers["length"]
    if length != wanted:
        shape = f"{TensorProto.DataType.Name(constant.tensor.data_type).lower()}"
        shape += str(list(constant.tensor.dims))
        raise InputError(
            f"{title} has the length {length}, but {shape} takes {wanted} bytes; export it again"
        )
    if begin + length > size:
        raise InputError(
            f"{title} is bytes {begin} to {begin + length} of '{location}', which has {size}; "
            "copy the file again, or export the model again"
        )
