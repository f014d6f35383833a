from __future__ import annotations

from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

from veltair.runtime.config import ServeConfig, load_config, parse_config
from veltair.runtime.errors import ConfigError

NULL = "[engine]\nexecutor = 'null'\n"
MODEL = "[[model]]\nname = 'a'\nprofile = 'a.csv'\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "serve.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_pass_their_own_check() -> None:
    assert load_config() == ServeConfig()
    assert parse_config(msgspec.to_builtins(ServeConfig())) == ServeConfig()


def test_reads_every_kind_of_value(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[server]\nhttp_host = "::1"\nhttp_port = 9000\n[queue]\nadmission = true\n'
        "[engine]\ncores = [0, 3]\n",
    )
    config = load_config(path)
    assert (config.server.http_host, config.server.http_port) == ("::1", 9000)
    assert config.queue.admission is True
    assert config.engine.cores == (0, 3)


def test_models_of_profiles_alone_survive_the_command_line(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, NULL + MODEL + "qos_ms = 3\n"), {"server.http_port": 0})
    (model,) = config.model
    assert (model.name, model.profile, model.qos_ms) == ("a", "a.csv", 3)
    assert config.server.http_port == 0


def test_command_line_wins_and_none_does_not(tmp_path: Path) -> None:
    path = write(tmp_path, "[server]\nhttp_port = 9000\nmax_body_bytes = 2048\n")
    config = load_config(path, {"server.http_port": 9001, "server.max_body_bytes": None})
    assert config.server.http_port == 9001
    assert config.server.max_body_bytes == 2048


def test_command_line_is_checked_like_the_file() -> None:
    with pytest.raises(ConfigError, match=r"command line: \[server\] http_port = 70000"):
        load_config(None, {"server.http_port": 70_000})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[server]\nhttp_prot = 1\n", ["http_prot", "unknown key", "did you mean 'http_port'"]),
        ("[sevrer]\n", ["sevrer", "unknown section", "did you mean 'server'"]),
        ("server = 3\n", ["server = 3", "section", "[server]"]),
        ("[server]\nhttp_port = '80'\n", ["'80'", "integer from 0 to 65535", "default, 8000"]),
        ("[server]\nhttp_port = 65536\n", ["65536", "integer from 0 to 65535", "default, 8000"]),
        ("[server]\nhttp_port = true\n", ["True", "integer from 0 to 65535"]),
        ("[server]\nhttp_port = 1.5\n", ["1.5", "integer from 0 to 65535"]),
        ("[server]\nhttp_host = ''\n", ["''", "length >= 1", "default, '127.0.0.1'"]),
        ("[queue]\nadmission = 1\n", ["admission = 1", "`bool`", "default, False"]),
        ("[queue]\nmax_queries = 0\n", ["max_queries = 0", "from 1 to 65536"]),
        ("[scheduling]\npolicy = 'fifo'\n", ["'fifo'", "block-N", "default, 'veltair-deadline'"]),
        ("[scheduling]\npolicy = 'block-0'\n", ["'block-0'", "block-N"]),
        ("[engine]\ncores = [0, 0]\n", ["(0, 0)", "named once", "change one"]),
        ("[engine]\ncores = [-1]\n", ["[-1]", ">= 0"]),
        ("[engine]\nexecutor = 'gpu'\n", ["'gpu'", "'kernels', 'null'"]),
        ("[engine]\nvirtual_cores = 4\n", ["virtual_cores = 4", 'needs "null"']),
        ("[engine]\nexecutor = 'null'\nvirtual_cores = 4\ncores = [0]\n", ["not both"]),
        ("[engine]\nexecutor = 'null'\nvirtual_cores = 4097\n", ["4097", "from 0 to 4096"]),
        ("[scheduling]\nmax_block_ms = nan\n", ["nan", "from 0.001 to 10000"]),
        ("model = 3\n", ["model = 3", "[[model]]"]),
        ("model = 'a'\n", ["model = 'a'", "[[model]]"]),
        ("[[model]]\nname = 'a'\n", ["model[0].profile is missing"]),
        (MODEL, ["[[model]] 'a'", 'executor = "null"', "leave [[model]] out"]),
        (NULL + MODEL + MODEL, ["'a' twice"]),
        (NULL + MODEL + "qos_ms = -1\n", ["model[0].qos_ms = -1"]),
        (NULL + MODEL + "weight = 2.0\n", ["model[0].weight = 2.0", "leave it out"]),
        ("[workers]\nheartbeat_ms = 5000\n", ["heartbeat_ms = 5000", "three times"]),
        ("[server\n", ["not TOML", "line 1"]),
    ],
)
def test_refusal_names_value_rule_and_remedy(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert refused.value.exit_code == 2
    for part in (str(path), *parts):
        assert part in str(refused.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: .*No such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"/dev/zero: .*longer than"):
        load_config(Path("/dev/zero"))


def test_every_field_says_what_it_is_and_every_number_has_bounds() -> None:
    hints = get_type_hints(ServeConfig)
    (model,) = set(get_args(hints.pop("model"))) - {...}
    for section in (*hints.values(), model):
        for name, hint in get_type_hints(section, include_extras=True).items():
            meta = hint.__metadata__[0]
            assert meta.description, f"{section.__name__}.{name} has no description"
            if hint.__origin__ is int:
                assert meta.ge is not None, name
                assert meta.le is not None, name


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        ServeConfig().server.http_port = 1  # type: ignore[misc]
