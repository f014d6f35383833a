"""Searches from an empty log: what is searched, and when it is enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.eval import search_cost
from veltair.eval.interleave import Plan
from veltair.eval.search_cost import Setting, SpeedSearch, first_layers
from veltair.runtime.errors import InputError

PLAN = Plan(budget_ns=1)


def chain(convolutions: int) -> onnx.ModelProto:
    """A chain of 1x1 convolutions, each with a ReLU."""
    nodes = []
    for i in range(convolutions):
        data = f"relu{i - 1}" if i else "data"
        nodes += [
            helper.make_node("Conv", [data, "weight"], [f"conv{i}"]),
            helper.make_node("Relu", [f"conv{i}"], [f"relu{i}"]),
        ]
    shape = (1, 4, 2, 2)
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"relu{convolutions - 1}", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "weight")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_first_layers_end_where_the_next_convolution_would_read() -> None:
    cut = first_layers(chain(4), 2)
    assert [node.op_type for node in cut.graph.node] == ["Conv", "Relu", "Conv", "Relu"]
    assert [value.name for value in cut.graph.output] == ["relu1"]
    onnx.checker.check_model(cut, full_check=True)


def test_a_network_with_no_more_convolutions_is_refused() -> None:
    with pytest.raises(InputError, match="--convolutions 4: the network has 4"):
        first_layers(chain(4), 4)


class Machine:
    """Searches a minute for each trial, and finds a network that is slower with fewer."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, over: dict[int, tuple[float, float]]
    ) -> None:
        self.over = over
        self.searched: list[int] = []
        self.now_ns = 0
        monkeypatch.setattr(search_cost, "run_quietly", self._tune)
        monkeypatch.setattr(search_cost, "in_own_process", self._time)
        monkeypatch.setattr(search_cost, "compiled_network", lambda *_, **__: (Path("a"), None))
        monkeypatch.setattr(search_cost, "compile_network", self._compile)
        monkeypatch.setattr(search_cost, "resolve_folder", lambda path: path)
        monkeypatch.setattr(search_cost, "export", lambda name, _: Path(f"{name}.onnx"))
        monkeypatch.setattr(search_cost.time, "monotonic_ns", lambda: self.now_ns)

    def _tune(self, command: Sequence[str]) -> int:
        assert "--no-shipped-logs" in command
        trials = int(command[command.index("--trials") + 1])
        before = max(self.searched, default=0)
        self.now_ns += (trials - before) * 60_000_000_000
        self.searched.append(trials)
        Path(command[command.index("--log") + 1]).touch()
        return 0

    def _compile(self, *_: object) -> None:
        self.now_ns += 7_000_000_000  # is no search

    def _time(self, *arguments: Any) -> dict[str, float]:  # noqa: ANN401 # only one is of interest
        cpus: Sequence[int] = arguments[4]
        return {"p50": self.over[self.searched[-1]][len(cpus) - 1]}


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(network="resnet50", isa="x86-64-v3", scratch=tmp_path)


def test_a_search_ends_when_it_is_close_on_every_thread_count(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, {2: (1.3, 1.2), 4: (1.04, 1.1), 8: (1.05, 1.0), 16: (1, 1)})
    search = SpeedSearch(setting, {})
    saved = []
    steps = search.result["steps"]
    search.run((2, 4, 8, 16), [(0,), (0, 1)], PLAN, lambda: saved.append(len(steps)))
    assert machine.searched == [2, 4, 8]
    assert saved == [1, 2, 3]
    assert search.is_close
    assert [step["search_ns"] / 60e9 for step in steps] == [2, 4, 8]


def test_a_stopped_search_goes_on_where_it_was(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, {2: (1.3, 1.2), 4: (1.0, 1.0)})
    first = SpeedSearch(setting, {})
    first.run((2,), [(0,)], PLAN, lambda: None)
    second = SpeedSearch(setting, first.result)
    second.run((2, 4), [(0,)], PLAN, lambda: None)
    assert machine.searched == [2, 4]
    assert [step["search_ns"] / 60e9 for step in second.result["steps"]] == [2, 4]


def test_another_compilers_search_does_not_count(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(monkeypatch, {2: (1.0, 1.0)})
    first = SpeedSearch(setting, {})
    first.run((2,), [(0,)], PLAN, lambda: None)
    monkeypatch.setattr(search_cost, "inputs_digest", lambda _: "another")
    second = SpeedSearch(setting, first.result)
    assert second.result["steps"] == []
    assert not setting.log("speed").exists()
