"""One version of a model, as the front end serves it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from veltair.runtime.server.refusals import INTERNAL_ERROR, Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.runtime.client import ModelInfo
    from veltair.runtime.server.exchange import Buffer
    from veltair.runtime.server.infer import Query
    from veltair.runtime.server.protocol import Signature
    from veltair.runtime.server.tensors import TensorRule

JSON_BYTES_BESIDE = 64 * 1024


class Endpoint:
    """One version of a model, as the front end serves it.

    Attributes:
        info: the model as last seen.
        signature: its inputs and outputs.
        filling: queries whose slots wait for the network, oldest first. Clients may hold a
            quarter of a model's slots so; past that, the oldest goes on in memory of its own, so
            that half-sent requests never keep a whole one out.
        invalid: requests refused because of what they say, by HTTP status.
    """

    def __init__(self, info: ModelInfo, signature: Signature) -> None:
        """Takes the attributes above."""
        self.info = info
        self.signature = signature
        self.filling: dict[Query, None] = {}
        self.invalid: Counter[int] = Counter()
        tensors = sum(rule.json_bytes for rule in signature.inputs.values())
        self.json_limit_bytes = JSON_BYTES_BESIDE + tensors
        self._prefix = (
            msgspec.json.encode({"model_name": info.name, "model_version": str(info.version)})[:-1]
            + b","
        )

    @property
    def filling_limit(self) -> int:
        """Slots that may wait for the network at once."""
        return max(1, self.info.slots // 4)

    def count(self, refusal: Refusal) -> None:
        """Counts a refusal that the server's own counters don't see."""
        if refusal.status < INTERNAL_ERROR:
            self.invalid[refusal.status] += 1

    def answer(
        self,
        request_id: str,
        wanted: list[tuple[TensorRule, bool]],
        arrays: dict[str, NDArray[Any]],
    ) -> tuple[int | None, list[Buffer]]:
        """Builds an answer's body.

        Args:
            request_id: as the client sent it; empty if it sent none.
            wanted: the outputs, each with whether as binary.
            arrays: the outputs by name.

        Returns:
            The length of the JSON if tensors follow it, else None; and the body's parts, of which
            some are views of `arrays`.
        """
        tensors: list[Buffer] = []
        described = []
        for rule, binary in wanted:
            array = arrays[rule.name]
            if binary:
                description, data = rule.read_binary(array)
                described.append(description)
                tensors.append(data)
            else:
                described.append(rule.read(array))
        text = b"".join(
            (
                self._prefix,
                b'"id":%b,' % msgspec.json.encode(request_id) if request_id else b"",
                b'"outputs":[',
                b",".join(described),
                b"]}",
            )
        )
        return (len(text) if tensors else None), [text, *tensors]
