"""Changes to a running server's policies: what can change, and how it is asked for and answered.

The messages are JSON: a request and its reply, over the socket of rendezvous.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from veltair.runtime.config import (
    BatchingConfig,
    PlacementConfig,
    SchedulingConfig,
    ServeConfig,
    change_config,
)
from veltair.runtime.errors import ConfigError, UnavailableError, unknown_name

# By section: the keys that can change.
CHANGEABLE = {
    "queue": ("admission",),
    "scheduling": SchedulingConfig.__struct_fields__,
    "batching": BatchingConfig.__struct_fields__,
    "placement": PlacementConfig.__struct_fields__,
}
_WHAT_CAN = "queue.admission, scheduling, batching, placement"
_SOURCE = "configure"


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server is asked.

    Attributes:
        changes: values by `section.key`; none asks what is in force.
    """

    changes: dict[str, Any]


class ChangeReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What it answers.

    Attributes:
        error: why nothing has changed; empty otherwise.
        sections: the keys in `CHANGEABLE`, as they are in force now.
    """

    error: str
    sections: dict[str, dict[str, Any]]


def parse_assignments(assignments: Sequence[str]) -> dict[str, object]:
    """Reads `section.key=value`s; a value is JSON, or a bare word, which is a string.

    Raises:
        ConfigError: one has another form, or a key comes twice.
    """
    changes: dict[str, object] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        section, _, key = name.partition(".")
        if not (equals and section and key):
            raise ConfigError(
                f"{assignment!r}: expected SECTION.KEY=VALUE, as in scheduling.policy=veltair-as"
            )
        if name in changes:
            raise ConfigError(f"{assignment!r}: {name} is set twice; set it once")
        try:
            changes[name] = json.loads(text)
        except (ValueError, RecursionError):
            changes[name] = text
    return changes


def encode_request(changes: Mapping[str, object]) -> bytes:
    """Returns the request's bytes; not a number and infinities are kept, to be refused by name."""
    return json.dumps({"changes": dict(changes)}).encode()


def decode_request(data: bytes) -> ChangeRequest:
    """Reads a request.

    Raises:
        ConfigError: it is none of this version's.
    """
    try:
        return msgspec.convert(json.loads(data), ChangeRequest)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"the request can't be read ({error}); use the `veltair configure` of the server's "
            "version"
        ) from error


def encode_reply(reply: ChangeReply) -> bytes:
    """Returns the reply's bytes; whatever text a request has had can be in it."""
    return json.dumps(msgspec.structs.asdict(reply)).encode()


def decode_reply(data: bytes) -> ChangeReply:
    """Reads a reply.

    Raises:
        UnavailableError: it is none of this version's.
    """
    try:
        return msgspec.convert(json.loads(data), ChangeReply)
    except ValueError as error:
        raise UnavailableError(
            f"the server gave no answer that can be read ({error}); it may be stopping, or of "
            "another version"
        ) from error


def changed_config(config: ServeConfig, changes: Mapping[str, object]) -> ServeConfig:
    """Returns the configuration after some changes, checked as `serve.toml` is.

    Raises:
        ConfigError: a key can't change while the server runs, or breaks its rule.
    """
    for name in changes:
        section, _, key = name.partition(".")
        if section in CHANGEABLE and not _is_fixed(config, section, key):
            continue
        if section not in ServeConfig.__struct_fields__:
            raise ConfigError(
                unknown_name(f"{_SOURCE}: [{section}]", "section", section, list(CHANGEABLE))
            )
        raise ConfigError(
            f"{_SOURCE}: {name} can't change while the server runs; set it in serve.toml and start "
            f"the server again; what can change: {_WHAT_CAN}"
        )
    return change_config(config, changes, source=_SOURCE)


def _is_fixed(config: ServeConfig, section: str, key: str) -> bool:
    """Whether there is such a key and it can't change; one that isn't there has an own message."""
    return key in getattr(config, section).__struct_fields__ and key not in CHANGEABLE[section]


def changeable_sections(config: ServeConfig) -> dict[str, dict[str, Any]]:
    """Returns what can change: by section, the values by key."""
    return {
        section: {key: getattr(getattr(config, section), key) for key in keys}
        for section, keys in CHANGEABLE.items()
    }


def to_toml(sections: Mapping[str, Mapping[str, object]]) -> str:
    """Writes sections of strings, numbers and truth values as `serve.toml` has them."""
    blocks = (
        "".join(
            [f"[{name}]\n", *(f"{key} = {_toml_value(value)}\n" for key, value in keys.items())]
        )
        for name, keys in sections.items()
    )
    return "\n".join(blocks)


def _toml_value(value: object) -> str:
    assert isinstance(value, str | int | float)  # all that policies have
    return json.dumps(value, ensure_ascii=False)  # these are written alike in both
