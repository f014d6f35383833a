from __future__ import annotations

import pytest

from veltair.runtime.config import ServerConfig
from veltair.runtime.errors import ConfigError
from veltair.runtime.server.front import address_of, bind


def test_any_free_port_is_taken_and_named() -> None:
    with bind(ServerConfig(http_port=0)) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert address_of(listener) == f"http://127.0.0.1:{port}"


def test_a_port_in_use_is_refused_with_the_remedy() -> None:
    with bind(ServerConfig(http_port=0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"http_port {port} .*in use.*--http-port"
        ) as refused:
            bind(ServerConfig(http_port=port))
    assert refused.value.exit_code == 2
    bind(ServerConfig(http_port=port)).close()  # free again as soon as it is closed


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=rf"http_host '{host}' is not an address .*127.0.0.1"):
        bind(ServerConfig(http_host=host, http_port=0))
