"""The Open Inference Protocol v2's records: what a request may say, and what a model answers.

Pure: no socket, no slot. Everything that is the same for all requests of a model is computed once,
in `Signature`.

Reference: Open Inference Protocol v2, REST, with the binary tensor data extension.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from veltair.runtime.manifest import ITEM_BYTES
from veltair.runtime.server.refusals import bad_request

if TYPE_CHECKING:
    from collections.abc import Sequence

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
}

MAX_TIMEOUT_US = 3_600_000_000

# Parameters that ask for something that this server doesn't do: leaving them unanswered would give
# another result than the one asked for.
REFUSED_PARAMETERS = {
    "sequence_id": "a model here keeps no state between requests",
    "shared_memory_region": "shared memory regions can't be registered here",
    "classification": "outputs are tensors; sort them on your side",
}


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


class RequestedOutput(msgspec.Struct, frozen=True):
    """An output that a request names."""

    name: str
    parameters: dict[str, Any] = {}


class InferRequest(msgspec.Struct, frozen=True):
    """The JSON part of an inference request; unknown fields are ignored, as v2 says."""

    inputs: list[InputTensor]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[RequestedOutput] = []


class Signature:
    """A model's inputs and outputs, and what can be known about all its requests.

    Attributes:
        model: its name.
        version: of the artifact.
        inputs: in the artifact's order.
        outputs: likewise.
        metadata: the body of `GET /v2/models/M/versions/V`, but for `versions`.
    """

    def __init__(
        self,
        model: str,
        version: int,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        """Takes the attributes above, without the metadata."""
        self.model = model
        self.version = version
        self.inputs = {spec.name: TensorRule(spec, model, version) for spec in inputs}
        self.outputs = {spec.name: TensorRule(spec, model, version) for spec in outputs}
        self.metadata: dict[str, Any] = {
            "name": model,
            "platform": "veltair",
            "inputs": [rule.description for rule in self.inputs.values()],
            "outputs": [rule.description for rule in self.outputs.values()],
        }
        self.inputs_text = "; ".join(rule.text for rule in self.inputs.values())

    def check(self, request: InferRequest) -> None:
        """Checks names, types, shapes and parameters of a request, but not its tensors' data.

        Raises:
            Refusal: 400, with what was expected.
        """
        _check_parameters(request.parameters, "the request")
        seen = set()
        for tensor in request.inputs:
            rule = self.inputs.get(tensor.name)
            if rule is None:
                raise bad_request(
                    f"input {tensor.name!r} is not an input of {self.model} version "
                    f"{self.version}, which takes {self.inputs_text}; rename it or leave it out"
                )
            if tensor.name in seen:
                raise bad_request(f"input {tensor.name!r} is given twice; give it once")
            seen.add(tensor.name)
            rule.check(tensor)
        for name, rule in self.inputs.items():
            if name not in seen:
                raise bad_request(
                    f"input {name!r} is missing: {self.model} version {self.version} takes "
                    f"{self.inputs_text}; add {rule.text}"
                )

    def wanted(self, request: InferRequest) -> list[tuple[TensorRule, bool]]:
        """Returns the outputs that a request wants, in its order, each with whether as binary.

        Raises:
            Refusal: 400, it names an output that the model doesn't have, or names one twice.
        """
        default = _flag(request.parameters, "binary_data_output", False, "the request")
        if not request.outputs:
            return [(rule, default) for rule in self.outputs.values()]
        wanted: dict[str, tuple[TensorRule, bool]] = {}
        for output in request.outputs:
            rule = self.outputs.get(output.name)
            if rule is None:
                names = ", ".join(rule.text for rule in self.outputs.values())
                raise bad_request(
                    f"output {output.name!r} is not an output of {self.model} version "
                    f"{self.version}, which gives {names}; rename it or leave it out"
                )
            if output.name in wanted:
                raise bad_request(f"output {output.name!r} is named twice; name it once")
            where = f"output {output.name!r}"
            _check_parameters(output.parameters, where)
            wanted[output.name] = rule, _flag(output.parameters, "binary_data", default, where)
        return list(wanted.values())


class TensorRule:
    """What one tensor of a model has to be.

    Attributes:
        name: of the tensor.
        datatype: as the protocol names it.
        shape: all dimensions are fixed.
        size_bytes: of the dense tensor.
        text: e.g. `data FP32 [1, 3, 224, 224]`.
        description: the tensor in the model's metadata.
        binary_text: the tensor in the JSON of an answer, if it follows as binary data.
    """

    def __init__(self, spec: TensorSpec, model: str, version: int) -> None:
        """Takes the tensor, and its model for the messages."""
        self.name = spec.name
        self.datatype = DATATYPES[spec.dtype]
        self.shape = list(spec.shape)
        self.size_bytes = spec.size_bytes
        self.elements = math.prod(spec.shape)
        self.item_bytes = ITEM_BYTES[spec.dtype]
        self.text = f"{self.name} {self.datatype} {self.shape}"
        self.description = {"name": self.name, "datatype": self.datatype, "shape": self.shape}
        self.binary_text = msgspec.json.encode(
            {**self.description, "parameters": {"binary_data_size": self.size_bytes}}
        )
        self._owner = f"{model} version {version}"
        self._dtype = None if spec.dtype == "bfloat16" else np.dtype(spec.dtype)
        element = {"b": bool, "i": int, "u": int}.get(
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
            hint = "no model here takes strings; " if tensor.datatype == "BYTES" else ""
            raise bad_request(
                f"{where} has datatype {tensor.datatype!r}; {hint}{self._owner} takes {self.text}; "
                f"convert it to {self.datatype}"
            )
        if tensor.shape != self.shape:
            raise bad_request(
                f"{where} has shape {tensor.shape}; {self._owner} takes {self.text}; "
                f"reshape it to {self.shape}"
            )
        _check_parameters(tensor.parameters, where)
        size = binary_size(tensor)
        if size is None and not tensor.has_data:
            raise bad_request(
                f"{where} has no data: neither `data` nor the parameter `binary_data_size` is "
                f"given; send {self.elements} numbers or {self.size_bytes} bytes"
            )
        if size is not None and tensor.has_data:
            raise bad_request(f"{where} has both `data` and `binary_data_size`; give one of them")
        if size is not None and size != self.size_bytes:
            raise bad_request(
                f"{where} has binary_data_size {size}; {self.text} takes {self.size_bytes} bytes; "
                "correct the size or the tensor"
            )

    def write(self, text: msgspec.Raw, target: NDArray[Any]) -> None:
        """Reads a tensor's JSON numbers, flat or nested, into the memory of the model.

        Args:
            text: a JSON array.
            target: writable, of the model's type and shape.

        Raises:
            Refusal: 400, wrong count, nesting or type of a value, or one that doesn't fit.
        """
        where = f"input {self.name!r}"
        if self._dtype is None:
            raise bad_request(f"{where} is BF16, which JSON can't carry; send it as binary data")
        try:
            values = self._decode(text)
            array = np.asarray(values, dtype=self._dtype)
        except (msgspec.DecodeError, OverflowError) as error:
            raise bad_request(
                f"{where}: `data` is not {self.elements} numbers of {self.datatype}: {error}; "
                "correct it, or send it as binary data"
            ) from error
        except ValueError as error:  # NumPy's, about lists of different lengths
            raise bad_request(
                f"{where}: `data` has lists of different lengths; {self.text} takes "
                f"{self.elements} numbers, flat or nested as its shape; correct the nesting"
            ) from error
        if array.size != self.elements:
            raise bad_request(
                f"{where}: `data` has {array.size} numbers; {self.text} takes {self.elements}; "
                "correct the count"
            )
        if array.ndim > 1 and array.shape != target.shape:
            raise bad_request(
                f"{where}: `data` is nested as {list(array.shape)}; {self.text} takes its numbers "
                f"flat or nested as {self.shape}; correct the nesting"
            )
        target[...] = array.reshape(target.shape)

    def read(self, array: NDArray[Any]) -> bytes:
        """Returns a tensor in the JSON of an answer; a value that JSON lacks becomes null.

        Args:
            array: of the model's type and shape; BF16 as the bits in uint16.
        """
        if self._dtype is None:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return msgspec.json.encode({**self.description, "data": array.ravel().tolist()})

    def _decode(self, text: msgspec.Raw) -> Any:  # noqa: ANN401 # numbers, nested or not
        nested = bytes(memoryview(text)[:64]).lstrip()[1:].lstrip().startswith(b"[")
        return (self._nested_decoder if nested else self._flat_decoder).decode(text)


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


def decode_request(text: bytes | bytearray | memoryview) -> InferRequest:
    """Reads the JSON part of an inference request.

    Raises:
        Refusal: 400, not JSON, or not the record that v2 asks for.
    """
    try:
        return _REQUEST_DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(
            f"the first {len(text)} bytes of the body are not the JSON of an inference request: "
            f"{error}; send an object with `inputs`, each with name, shape, datatype, and data or "
            "binary_data_size; if tensors follow the JSON, Inference-Header-Content-Length must be "
            "the JSON's length"
        ) from error


def timeout_ns(request: InferRequest) -> int | None:
    """Returns the parameter `timeout`, microseconds on the wire; None if it is not given.

    Raises:
        Refusal: 400, it is not a number of microseconds.
    """
    timeout = request.parameters.get("timeout")
    if timeout is None:
        return None
    if type(timeout) is not int or not 0 <= timeout <= MAX_TIMEOUT_US:
        raise bad_request(
            f"the parameter timeout is {timeout!r}; it must be a number of microseconds from 1 to "
            f"{MAX_TIMEOUT_US}, or 0 for the model's own target"
        )
    return timeout * 1000 or None


def _check_parameters(parameters: dict[str, Any], where: str) -> None:
    for name, why in REFUSED_PARAMETERS.items():
        if parameters.get(name):
            raise bad_request(
                f"{where} has the parameter {name} = {parameters[name]!r}, which is not served: "
                f"{why}; leave it out"
            )


def _flag(parameters: dict[str, Any], name: str, default: bool, where: str) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise bad_request(f"{where} has {name} = {value!r}; it must be true or false")
    return value


_REQUEST_DECODER = msgspec.json.Decoder(InferRequest)
