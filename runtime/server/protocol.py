"""The Open Inference Protocol v2's records: what a request may say, and what a model answers.

Pure: no socket, no slot. Everything that is the same for all requests of a model is computed once,
in `Signature`.

Reference: Open Inference Protocol v2, REST, with the binary tensor data extension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from veltair.runtime.server.refusals import bad_request
from veltair.runtime.server.tensors import InputTensor, TensorRule, check_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.manifest import TensorSpec

MAX_TIMEOUT_US = 3_600_000_000


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
        check_parameters(request.parameters, "the request")
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
            check_parameters(output.parameters, where)
            wanted[output.name] = rule, _flag(output.parameters, "binary_data", default, where)
        return list(wanted.values())


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


def _flag(parameters: dict[str, Any], name: str, default: bool, where: str) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise bad_request(f"{where} has {name} = {value!r}; it must be true or false")
    return value


_REQUEST_DECODER = msgspec.json.Decoder(InferRequest)
