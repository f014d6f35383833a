"""The Open Inference Protocol v2's tensors: what a model's must be, reading and writing them.

Pure: no socket, no slot.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from veltair.runtime.errors import InputError
from veltair.runtime.framed import (
    HEADER_BYTES,
    STRING,
    bytes_of_strings,
    fits,
    write_framed,
    write_header,
)
from veltair.runtime.server.refusals import bad_request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.runtime.manifest import TensorSpec

DATATYPES = {
    "bool": "BOOL",
    "int8": "INT8",
    "uint8": "UINT8",
    "int16": "INT16",
    "uint16": "UINT16",
    "float16": "FP16",
    "bfloat16": "BF16",
    "int32": "INT32",
    "uint32": "UINT32",
    "float32": "FP32",
    "int64": "INT64",
    "uint64": "UINT64",
    "float64": "FP64",
    "string": "BYTES",
}

# Parameters that ask for something that this server doesn't do: leaving them unanswered would give
# another result than the one asked for.
REFUSED_PARAMETERS = {
    "sequence_id": "a model here keeps no state between requests",
    "shared_memory_region": "shared memory regions can't be registered here",
    "classification": "outputs are tensors; sort them on your side",
}


# A JSON number of any type has at most 25 characters; the rest is for white space.
JSON_BYTES_PER_ELEMENT = 64
JSON_BYTES_PER_BYTE = 8  # of a string: an escaped character has six

_NULL = msgspec.Raw(b"null")


class InputTensor(msgspec.Struct, frozen=True):
    """An input as a request describes it; `data` is its JSON text, unread."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: msgspec.Raw = msgspec.Raw()

    @property
    def has_data(self) -> bool:
        """Whether the tensor's numbers are in the JSON; `null` counts as nothing."""
        return len(self.data) > 0 and self.data != _NULL


class TensorRule:
    """What one tensor of a model has to be.

    Attributes:
        name: of the tensor.
        datatype: as the protocol names it.
        shape: -1 for a dimension that only a framed tensor's value tells.
        size_bytes: of the dense tensor; of a framed one, at most.
        is_framed: whether the tensor carries its own shape.
        json_bytes: of its text, at most.
        text: e.g. `data FP32 [1, 3, 224, 224]`.
        description: the tensor in the model's metadata.
    """

    def __init__(self, spec: TensorSpec, model: str, version: int) -> None:
        """Takes the tensor, and its model for the messages."""
        self.name = spec.name
        self.datatype = DATATYPES[spec.dtype]
        self.shape = list(spec.shape)
        self.is_framed = spec.is_framed
        self.size_bytes = spec.most_bytes or spec.size_bytes
        self.elements = math.prod(spec.shape)
        self.json_bytes = (
            JSON_BYTES_PER_BYTE * spec.most_bytes
            if spec.is_framed
            else JSON_BYTES_PER_ELEMENT * self.elements
        )
        self.text = f"{self.name} {self.datatype} {self.shape}"
        self.description = {"name": self.name, "datatype": self.datatype, "shape": self.shape}
        self._fixed_text = self._binary_text(self.shape, self.size_bytes)
        self._owner = f"{model} version {version}"
        self._is_string = spec.dtype == STRING
        self._noun = "strings" if self._is_string else "numbers"
        self._dtype = (
            None
            if spec.dtype == "bfloat16"
            else np.dtype(np.object_ if self._is_string else spec.dtype)
        )
        element = {"b": bool, "i": int, "u": int, "O": str}.get(
            self._dtype.kind if self._dtype is not None else "f", float
        )
        nested: Any = element
        for _ in spec.shape:
            nested = list[nested]
        self._flat_decoder = msgspec.json.Decoder(list[element])  # type: ignore[valid-type]
        self._nested_decoder = msgspec.json.Decoder(nested)

    def check(self, tensor: InputTensor) -> None:
        """Checks type, shape, parameters, and that the data is given in exactly one way.

        Raises:
            Refusal: 400.
        """
        where = f"input {self.name!r}"
        if tensor.datatype != self.datatype:
            raise bad_request(
                f"{where} has datatype {tensor.datatype!r}; {self._owner} takes {self.text}; "
                f"convert it to {self.datatype}"
            )
        if not fits(tuple(tensor.shape), tuple(self.shape)) or min(tensor.shape, default=0) < 0:
            raise bad_request(
                f"{where} has shape {tensor.shape}; {self._owner} takes {self.text}; "
                f"reshape it to {self.shape}"
            )
        if self.is_framed and math.prod(tensor.shape) > self.size_bytes:
            raise bad_request(
                f"{where} has shape {tensor.shape}; there is room for {self.size_bytes} bytes; "
                "send fewer"
            )
        check_parameters(tensor.parameters, where)
        size = binary_size(tensor)
        if size is None and not tensor.has_data:
            raise bad_request(
                f"{where} has no data: neither `data` nor the parameter `binary_data_size` is "
                f"given; send {math.prod(tensor.shape)} {self._noun} or "
                f"{'at most ' if self.is_framed else ''}{self.size_bytes} bytes"
            )
        if size is not None and tensor.has_data:
            raise bad_request(f"{where} has both `data` and `binary_data_size`; give one of them")
        if self.is_framed and size is not None and size <= self.size_bytes:
            return
        if size is not None and size != self.size_bytes:
            raise bad_request(
                f"{where} has binary_data_size {size}; {self.text} takes {self.size_bytes} bytes; "
                "correct the size or the tensor"
            )

    def payload(self, array: NDArray[Any], size: int) -> NDArray[Any]:
        """Returns the part of an input's memory that so many bytes of binary data go to."""
        return array[HEADER_BYTES : HEADER_BYTES + size] if self.is_framed else array

    def frame(self, tensor: InputTensor, size: int, target: NDArray[Any]) -> None:
        """Writes what a framed input says of itself before its payload, sent as binary data."""
        if self.is_framed:
            write_header(target, size, tuple(tensor.shape))

    def write(self, tensor: InputTensor, target: NDArray[Any]) -> None:
        """Reads a tensor's JSON data, flat or nested, into the memory of the model.

        Args:
            tensor: checked; its data is a JSON array.
            target: writable, of the model's type and shape; a framed tensor's bytes.

        Raises:
            Refusal: 400, wrong count, nesting or type of a value, or one that doesn't fit.
        """
        text = tensor.data
        shape = tuple(tensor.shape)
        elements = math.prod(shape)
        where = f"input {self.name!r}"
        if self._dtype is None:
            raise bad_request(f"{where} is BF16, which JSON can't carry; send it as binary data")
        try:
            values = self._decode(text)
            array = np.asarray(values, dtype=self._dtype)
        except (msgspec.DecodeError, OverflowError) as error:
            raise bad_request(
                f"{where}: `data` is not {elements} {self._noun} of {self.datatype}: {error}; "
                "correct it, or send it as binary data"
            ) from error
        except ValueError as error:  # NumPy's, about lists of different lengths
            raise bad_request(
                f"{where}: `data` has lists of different lengths; {self.text} takes "
                f"{elements} {self._noun}, flat or nested as its shape; correct the nesting"
            ) from error
        if array.size != elements:
            raise bad_request(
                f"{where}: `data` has {array.size} {self._noun}; {self.text} takes {elements}; "
                "correct the count"
            )
        if array.ndim > 1 and array.shape != shape:
            raise bad_request(
                f"{where}: `data` is nested as {list(array.shape)}; {self.text} takes its "
                f"{self._noun} flat or nested as {list(shape)}; correct the nesting"
            )
        if not self.is_framed:
            target[...] = array.reshape(target.shape)
            return
        try:
            write_framed(target, array.reshape(shape), self.name)
        except InputError as error:
            raise bad_request(f"input {error}") from error

    def read(self, array: NDArray[Any]) -> bytes:
        """Returns a tensor in the JSON of an answer; a value that JSON lacks becomes null.

        Args:
            array: of the model's type and shape; BF16 as the bits in uint16, strings as objects.
        """
        if self._dtype is None:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        described = {**self.description, "shape": list(array.shape)}
        return msgspec.json.encode({**described, "data": array.ravel().tolist()})

    def read_binary(self, array: NDArray[Any]) -> tuple[bytes, memoryview | bytes]:
        """Returns a tensor's description in the JSON of an answer, and its bytes that follow."""
        if not self.is_framed:
            return self._fixed_text, bytes_of(array)
        data = bytes_of_strings(array) if self._is_string else bytes_of(np.ascontiguousarray(array))
        return self._binary_text(list(array.shape), len(data)), data

    def _binary_text(self, shape: list[int], size: int) -> bytes:
        described = {**self.description, "shape": shape}
        return msgspec.json.encode({**described, "parameters": {"binary_data_size": size}})

    def _decode(self, text: msgspec.Raw) -> Any:  # noqa: ANN401 # numbers, nested or not
        nested = bytes(memoryview(text)[:64]).lstrip()[1:].lstrip().startswith(b"[")
        return (self._nested_decoder if nested else self._flat_decoder).decode(text)


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Returns the memory of a contiguous array; writable if the array is."""
    return array.reshape(-1).view(np.uint8).data


def binary_size(tensor: InputTensor) -> int | None:
    """Returns a tensor's `binary_data_size`; None if its data is in the JSON.

    Raises:
        Refusal: 400, it is not a natural number.
    """
    size = tensor.parameters.get("binary_data_size")
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise bad_request(
            f"input {tensor.name!r} has binary_data_size {size!r}; it must be the number of bytes "
            "that follow the JSON"
        )
    return size


def check_parameters(parameters: dict[str, Any], where: str) -> None:
    """Refuses the parameters in `REFUSED_PARAMETERS`.

    Raises:
        Refusal: 400.
    """
    for name, why in REFUSED_PARAMETERS.items():
        if parameters.get(name):
            raise bad_request(
                f"{where} has the parameter {name} = {parameters[name]!r}, which is not served: "
                f"{why}; leave it out"
            )
