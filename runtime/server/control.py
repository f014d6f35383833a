"""Rank 0's answers to `veltair configure`: the policies in force, and their changes."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from veltair.runtime.errors import ConfigError
from veltair.runtime.reconfiguration import (
    ChangeReply,
    changeable_sections,
    changed_config,
    decode_request,
    encode_reply,
)
from veltair.runtime.server.repository import to_policies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from veltair.runtime._native import ipc
    from veltair.runtime.config import ServeConfig

_LOGGER = logging.getLogger(__name__)


class PolicyControl:
    """Changes a server's policies while it runs. One thread owns it, rank 0's main one.

    Attributes:
        config: the configuration in force.
    """

    def __init__(self, board: ipc.Board, config: ServeConfig) -> None:
        """Takes the configuration that the segment was made with."""
        self._board = board
        self.config = config

    def answer(self, data: bytes) -> bytes:
        """Does what a request asks, all of it or nothing, and returns the reply."""
        error = ""
        try:
            self._change(decode_request(data).changes)
        except ConfigError as refused:
            error = str(refused)
        reply = ChangeReply(error=error, sections=changeable_sections(self.config))
        return encode_reply(reply)

    def _change(self, changes: Mapping[str, object]) -> None:
        changed = changed_config(self.config, changes)
        if changed == self.config:
            return
        try:
            self._board.set_policies(to_policies(changed))
        except ValueError as error:
            given = ", ".join(f"{name} = {value!r}" for name, value in changes.items())
            raise ConfigError(f"configure: {given}: {error}; change one of them") from error
        _LOGGER.info("policies changed: %s", ", ".join(_differences(self.config, changed)))
        self.config = changed


def _differences(before: ServeConfig, after: ServeConfig) -> list[str]:
    old, new = changeable_sections(before), changeable_sections(after)
    return [
        f"{section}.{key} = {json.dumps(value)} (was {json.dumps(old[section][key])})"
        for section, keys in new.items()
        for key, value in keys.items()
        if value != old[section][key]
    ]
