from __future__ import annotations

import socket

import pytest

from veltair.eval import ports
from veltair.eval.ports import HOST, PORTS, free_port
from veltair.runtime.errors import VeltairError


def test_a_port_is_free_and_not_one_that_the_kernel_gives_away() -> None:
    port = free_port()
    assert port in PORTS
    with socket.socket() as server:
        server.bind((HOST, port))


def test_taken_and_excluded_ports_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        taken = server.getsockname()[1]
        excluded = free_port()
        other = free_port(excluded)
        monkeypatch.setattr(ports, "PORTS", [taken, excluded, other])
        for _ in range(20):  # each in an order of its own
            assert free_port(excluded) == other


def test_no_port_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind((HOST, 0))
        taken = server.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(taken, taken + 1))
        with pytest.raises(VeltairError, match=rf"from {taken} to {taken} is free: end what"):
            free_port()
