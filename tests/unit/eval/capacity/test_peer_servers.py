from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peer_models import chain

from veltair.eval.capacity.peers import environments
from veltair.eval.capacity.peers.environments import STAMP, Environment
from veltair.eval.capacity.peers.products import LitServe, MlServer, RayServe, raw_request
from veltair.eval.capacity.peers.whole_server import Product, WholeServer, make_plan
from veltair.runtime.errors import InputError

PRODUCTS: tuple[Product, ...] = (MlServer(), RayServe(), LitServe())
SERVERS = [WholeServer(product) for product in PRODUCTS]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment that looks installed: its interpreter runs and its package is there."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    made = Environment(name="some-server", package="server")
    made.python.parent.mkdir(parents=True)
    made.python.write_text("#!/bin/sh\nexit 0\n")
    made.python.chmod(0o755)
    (made.folder / STAMP).touch()
    facts = made.folder / "lib" / "python3.11" / "site-packages" / "server-1.2.3.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: server\nVersion: 1.2.3\n")
    return made


def reason(environment: Environment) -> str:
    found = environment.missing()
    assert found is not None
    assert "make peers" in found
    return found


def test_an_environment_that_is_whole_can_be_used(environment: Environment) -> None:
    assert environment.missing() is None
    assert environment.version() == "1.2.3"


def test_an_environment_that_is_not_there_says_how_to_make_it(environment: Environment) -> None:
    absent = Environment(name="other", package="server")
    assert "is not there" in reason(absent)


def test_an_environment_that_was_cut_goes_on(environment: Environment) -> None:
    (environment.folder / STAMP).unlink()
    assert "was not installed to the end" in reason(environment)


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 3\n", "#!/no/such/interpreter\n", ""])
def test_an_environment_whose_interpreter_does_not_run_is_refused(
    environment: Environment, content: str
) -> None:
    environment.python.write_text(content)
    assert "no interpreter that runs" in reason(environment)


def test_an_environment_of_something_else_is_refused(environment: Environment) -> None:
    wrong = Environment(name=environment.name, package="another_server")
    assert "lacks the package another_server" in reason(wrong)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_each_server_is_tried_with_either_engine_at_every_split(server: WholeServer) -> None:
    assert server.settings(2) == [
        "openvino-1x2",
        "openvino-2x1",
        "onnxruntime-1x2",
        "onnxruntime-2x1",
    ]
    assert server.kind == "peer"


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.environment.name)
def test_make_peers_installs_each_server_at_one_version(product: Product) -> None:
    name, package = product.environment.name, product.environment.package
    root = environments.FOLDER.parents[1]
    constraints = root / "eval" / "capacity" / "peers" / "constraints" / f"{name}.txt"
    pinned = constraints.read_text().splitlines()
    for needed in (package, "onnxruntime", "openvino", "numpy"):
        assert sum(line.startswith(f"{needed}==") for line in pinned) == 1
    makefile = (root / "Makefile").read_text()
    (servers,) = [line for line in makefile.splitlines() if line.startswith("SERVERS :=")]
    assert name in servers.split()
    assert f"package_{name} := {package}" in makefile


def test_a_plan_has_what_the_servers_side_reads(tmp_path: Path) -> None:
    models = [chain(tmp_path, "long", 2), chain(tmp_path, "short", 1)]
    plan = json.loads(json.dumps(make_plan("s", "onnxruntime-2x2", models, (2, 3, 6, 7), 81)))
    assert plan["engine"] == "onnxruntime"
    assert plan["threads"] == 2
    assert plan["places"] == [[2, 3], [6, 7]]
    assert plan["cores"] == 4
    assert plan["port"] == 81
    assert plan["models"]["long"]["onnx"] == str(tmp_path / "long.onnx")
    assert list(plan["models"]) == ["long", "short"]
    without = type(models[0])(**{**vars(models[0]), "onnx": None})
    with pytest.raises(InputError, match="long: s needs its ONNX file"):
        make_plan("s", "openvino-1x1", [without], (0,), 81)


def test_a_raw_query_is_the_tensors_one_after_the_other() -> None:
    inputs: dict[str, Any] = {
        "ids": np.arange(3, dtype=np.int64).reshape(1, 3),
        "mask": np.ones((1, 2), np.float32),
    }
    request = raw_request("net", inputs)
    assert request.path == "/infer?model=net"
    assert request.body == inputs["ids"].tobytes() + inputs["mask"].tobytes()


def test_mlserver_gets_a_repository_and_tensors_as_base64(tmp_path: Path) -> None:
    pytest.importorskip("tritonclient.http")
    plan = make_plan("mlserver", "openvino-1x1", [chain(tmp_path, "net", 1)], (0,), 8123)
    command = MlServer().command(plan, tmp_path / "plan.json")
    assert command[-1] == str(tmp_path / "models")
    settings = json.loads((tmp_path / "models" / "settings.json").read_text())
    ports = [settings[f"{what}_port"] for what in ("http", "grpc", "metrics")]
    assert ports[0] == 8123
    assert len(set(ports)) == 3
    assert settings["parallel_workers"] == 1
    model = json.loads((tmp_path / "models" / "net" / "model-settings.json").read_text())
    assert model["parameters"]["uri"] == str(tmp_path / "plan.json")
    body = json.loads(MlServer().request("net", {"x": np.zeros(3, np.float32)}).body)
    assert body["inputs"][0]["datatype"] == "BYTES"
    assert body["inputs"][0]["data"] == ["AAAAAAAAAAAAAAAA"]
