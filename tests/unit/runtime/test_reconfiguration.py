"""What `veltair configure` asks, and what a server answers; the conversation, beside a segment."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

import pytest
from typer.testing import CliRunner

from veltair.runtime import cli
from veltair.runtime._native import ipc
from veltair.runtime.config import ServeConfig, parse_config
from veltair.runtime.errors import ConfigError, InputError, NotFoundError, UnavailableError
from veltair.runtime.reconfiguration import (
    ChangeReply,
    changeable_sections,
    changed_config,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    parse_assignments,
    to_toml,
)
from veltair.runtime.rendezvous import Rendezvous, ask_server, request_segment
from veltair.runtime.server.control import PolicyControl
from veltair.runtime.server.repository import to_policies

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PORT = 2  # nobody serves HTTP here
NOBODY = 65_534


def test_values_are_json_or_bare_words() -> None:
    given = ["a.b=3", "a.c=block-6", "a.d=0.5", "a.e=true", 'a.f="true"', "a.g=x=y", "a.h="]
    assert parse_assignments(given) == {
        "a.b": 3,
        "a.c": "block-6",
        "a.d": 0.5,
        "a.e": True,
        "a.f": "true",
        "a.g": "x=y",
        "a.h": "",
    }


@pytest.mark.parametrize("text", ["policy", "policy=model", ".policy=a", "scheduling.=a", "=", ""])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"SECTION\.KEY=VALUE"):
        parse_assignments([text])


def test_a_key_comes_once() -> None:
    with pytest.raises(ConfigError, match=r"a\.b is set twice"):
        parse_assignments(["a.b=1", "a.b=2"])


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("queue.max_queries", 1, ["queue.max_queries can't change", "serve.toml"]),
        ("queue.admission", "maybe", ["[queue] admission = 'maybe'", "bool"]),
        ("queue.admisson", True, ["did you mean 'admission'"]),
        ("engine.virtual_cores", 1, ["can't change", "queue.admission, scheduling, batching"]),
        ("model.name", "x", ["can't change"]),
        ("schedulin.policy", "model", ["unknown section", "did you mean 'scheduling'"]),
        ("scheduling.policy", "fifo", ["[scheduling] policy = 'fifo'", "block-N"]),
        ("scheduling.policy", None, ["policy = None"]),
        ("scheduling.policy", {"a": [1]}, ["policy = {'a': [1]}"]),
        ("scheduling.max_block_ms", float("nan"), ["max_block_ms = nan", "from 0.001"]),
        ("scheduling.max_block_ms", float("inf"), ["max_block_ms = inf"]),
        ("scheduling.margin_percent", 10**30, ["margin_percent", "from 1 to 100"]),
        ("scheduling.late_percent", 101, ["late_percent", "from 1 to 100"]),
        ("scheduling.margin_percent", True, ["margin_percent = True"]),
        ("scheduling.levle", 1, ["did you mean 'level'"]),
        ("scheduling.a.b", 1, ["[scheduling] a.b: unknown key"]),
    ],
)
def test_a_bad_change_is_refused_as_in_the_file(name: str, value: object, parts: list[str]) -> None:
    changes = decode_request(encode_request({name: value})).changes
    with pytest.raises(ConfigError) as refused:
        changed_config(ServeConfig(), changes)
    assert refused.value.exit_code == 2
    for part in parts:
        assert part in str(refused.value)


def test_a_good_change_leaves_the_rest() -> None:
    before = parse_config(
        {
            "queue": {"max_queries": 3},
            "scheduling": {"margin_percent": 50},
            "server": {"http_port": 1},
        }
    )
    changes = {"scheduling.policy": "deadline", "scheduling.level": 1, "queue.admission": True}
    after = changed_config(before, changes)
    assert (after.queue.max_queries, after.queue.admission) == (3, True)
    assert (after.scheduling.policy, after.scheduling.level) == ("deadline", 1)
    assert (after.scheduling.margin_percent, after.server.http_port) == (50, 1)
    assert before.scheduling.policy == "veltair-deadline"


def test_what_is_in_force_can_be_a_serve_toml() -> None:
    config = parse_config({"scheduling": {"policy": "block-7", "max_block_ms": 0.001}})
    read = tomllib.loads(to_toml(changeable_sections(config)))
    assert parse_config(read) == config


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"{}", b'{"changes": 1}', b'{"more": {}}', b"[" * 9000]
)
def test_what_is_no_request_is_answered_too(data: bytes) -> None:
    _, control = server()
    reply = decode_reply(control.answer(data))
    assert "the request can't be read" in reply.error
    assert reply.sections == changeable_sections(ServeConfig())


def test_any_text_comes_back() -> None:
    _, control = server()
    for text in ("\udc80", "\x00", "\N{SNOWMAN}", '"'):
        reply = decode_reply(control.answer(encode_request({f"scheduling.{text}": text})))
        assert "unknown key" in reply.error


def test_what_is_no_reply_is_refused() -> None:
    for data in (b"", b"{}", b"\xff"):
        with pytest.raises(UnavailableError, match="no answer that can be read"):
            decode_reply(data)
    reply = ChangeReply(error="", sections={"a": {"b": 1}})
    assert decode_reply(encode_reply(reply)) == reply


def server(cores: int = 2) -> tuple[ipc.Segment, PolicyControl]:
    config = ServeConfig()
    segment = ipc.Segment.create(
        cpus=range(cores), workers=1, policies=to_policies(config), models=[]
    )
    return segment, PolicyControl(ipc.Board(segment), config)


def test_a_change_is_all_or_nothing() -> None:
    segment, control = server(cores=2)
    client = ipc.Client(segment)
    # The second one breaks a rule that only the machine's size makes.
    changes = {"scheduling.policy": "partition", "scheduling.partition_cores": 3}
    reply = decode_reply(control.answer(encode_request(changes)))
    assert "partition_cores = 3" in reply.error
    assert control.config == ServeConfig()
    record, epoch = client.policies()
    assert (record.scheduling, epoch) == ("veltair-deadline", 0)

    changes["scheduling.partition_cores"] = 2
    reply = decode_reply(control.answer(encode_request(changes)))
    assert reply.error == ""
    assert reply.sections["scheduling"]["partition_cores"] == 2
    record, epoch = client.policies()
    assert (record.scheduling, epoch) == ("partition", 1)


class Rank0(threading.Thread):
    """Meets clients until it has answered a request."""

    def __init__(self, segment: ipc.Segment, control: PolicyControl) -> None:
        super().__init__()
        self.rendezvous = Rendezvous(PORT)
        self.segment, self.control = segment, control
        self.answered = False

    def run(self) -> None:
        import select

        while not self.answered:
            waiting = [self.rendezvous.fileno(), *self.rendezvous.descriptors()]
            ready, _, _ = select.select(waiting, [], [], 30)
            assert ready
            self.rendezvous.answer(self.segment.fd)
            self.rendezvous.converse(ready, self.respond)
        self.rendezvous.close()

    def respond(self, request: bytes) -> bytes:
        self.answered = True
        return self.control.answer(request)


def test_clients_that_say_nothing_hold_nobody_up() -> None:
    rank_0 = Rank0(*server())
    with socket.socket(socket.AF_UNIX) as idle, socket.socket(socket.AF_UNIX) as endless:
        for channel in (idle, endless):
            channel.connect(f"\0veltair/{PORT}")
        rank_0.start()
        os.close(request_segment(PORT))
        endless.settimeout(30)
        with pytest.raises(OSError, match=r"reset|pipe"):  # cut off
            endless.sendall(bytes(10_000_000))
        code, said = configure("scheduling.policy=layer")
    rank_0.join()
    assert code == 0
    assert tomllib.loads(said)["scheduling"]["policy"] == "layer"


def configure(*changes: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["configure", "--address", str(PORT), *changes])
    return result.exit_code, result.stdout + result.stderr


def test_nobody_there() -> None:
    code, said = configure()
    assert code == 1
    assert f"no Veltair server with the HTTP port {PORT}" in said


def test_too_much_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InputError, match="at most"):
        ask_server(PORT, encode_request({"scheduling.policy": "x" * 20_000}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_server_is_not_trusted() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listening, listens = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(NOBODY)
            listener.bind(f"\0veltair/{PORT}")
            listener.listen()
            os.write(listens, b".")
            signal.pause()
        try:
            os.read(listening, 1)
            with pytest.raises(NotFoundError, match="another user's"):
                ask_server(PORT, encode_request({}))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(listening)
            os.close(listens)
