"""Searches from an empty log, step by step until they are good, or with one version and several."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.utils import Extractor

from veltair.eval.interleave import Plan, ratios, time_blocks
from veltair.eval.networks import (
    Compiled,
    compile_network,
    compiled_network,
    export,
    inputs_digest,
    run_quietly,
    without_own_logs,
)
from veltair.eval.own_process import in_own_process
from veltair.eval.record import spread
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import InputError
from veltair.runtime.model import Model, sample_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from veltair.runtime.manifest import Isa

CLOSE = 1.05  # of the shipped logs' time
MANY = 5

Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is searched.

    Attributes:
        network: its name.
        isa: of the kernels.
        scratch: folder of artifacts and logs.
    """

    network: str
    isa: Isa
    scratch: Path

    @property
    def onnx(self) -> Path:
        """The network's file, which is made where it is missing."""
        return export(self.network, self.scratch / "onnx")

    def log(self, name: str) -> Path:
        """The tuning log of a measurement; its folder is there."""
        folder = self.scratch / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.network}-{name}.jsonl"


class SpeedSearch:
    """A search that goes on until the network is as fast as with the shipped logs.

    Attributes:
        result: for the file: each step's `trials`, `search_ns` from the empty log on, and by the
            thread count `ratio`, the time over that with the shipped logs.
    """

    def __init__(self, setting: Setting, before: Result) -> None:
        """Goes on with the search before where nothing has changed, else empties its log."""
        self._setting = setting
        self._log = setting.log("speed")
        inputs = f"{setting.network} {inputs_digest(setting.isa)}"
        if before.get("inputs") == inputs and self._log.is_file():
            self.result = before
            return
        self._log.unlink(missing_ok=True)
        self.result = {
            "inputs": inputs,
            "network": setting.network,
            "isa": setting.isa,
            "close": CLOSE,
            "steps": [],
        }

    @property
    def is_close(self) -> bool:
        """Whether the last step is close on every thread count."""
        steps = self.result["steps"]
        return bool(steps) and all(r["p50"] <= CLOSE for r in steps[-1]["ratio"].values())

    def run(
        self,
        trials: Sequence[int],
        choices: Sequence[Sequence[int]],
        plan: Plan,
        save: Callable[[], None],
    ) -> None:
        """Searches with more and more trials a layer, until it is close.

        Args:
            trials: ascending.
            choices: processors that both artifacts are timed on.
            plan: of that.
            save: called after each step.
        """
        setting = self._setting
        shipped, _ = compiled_network(
            setting.network, setting.onnx, setting.isa, setting.scratch / setting.isa, fresh=False
        )
        for count in trials:
            if self.is_close or any(step["trials"] >= count for step in self.result["steps"]):
                continue
            step = self._step(count)
            own = self._compile()
            step["ratio"] = {
                str(len(cpus)): in_own_process(
                    f"{setting.network} on {len(cpus)}", time_over, own, shipped, cpus, plan
                )
                for cpus in choices
            }
            self.result["steps"].append(step)
            save()

    def _step(self, count: int) -> Result:
        """Searches on; the time of the steps before counts."""
        setting, steps = self._setting, self.result["steps"]
        begun_ns = time.monotonic_ns()
        run_quietly(
            without_own_logs(
                setting.scratch,
                *("tune", str(setting.onnx), "--trials", str(count), "--isa", setting.isa),
                *("--log", str(self._log), "--no-shipped-logs"),
            )
        )
        took_ns = time.monotonic_ns() - begun_ns
        return {
            "trials": count,
            "search_ns": took_ns + (steps[-1]["search_ns"] if steps else 0),
        }

    def _compile(self) -> Path:
        setting = self._setting
        repository = setting.scratch / "own"
        options = ("--log", str(self._log), "--no-shipped-logs")
        compile_network(setting.network, setting.onnx, setting.isa, repository, options)
        return resolve_folder(repository / setting.network)


def time_over(ours: Path, reference: Path, cpus: Sequence[int], plan: Plan) -> dict[str, float]:
    """Times two artifacts of one network in turns; the calling process is bound.

    Returns:
        The spread of the rounds' ratios, above 1 where `ours` is slower.
    """
    os.sched_setaffinity(0, cpus)
    models = [Model.load(folder, verify=False) for folder in (ours, reference)]
    inputs = sample_inputs(models[0].manifest.inputs)
    runs = [_bound(model, inputs) for model in models]
    return spread(ratios(time_blocks(runs, plan), 0, 1))


def _bound(model: Model, inputs: Result) -> Callable[[], object]:
    return lambda: model.run(inputs)


def versions_cost(setting: Setting, convolutions: int, rounds: int, trials: int) -> Result:
    """Compiles a network's first layers with one version a layer and with several, in turns.

    Args:
        setting: what.
        convolutions: how many layers, see `first_layers`.
        rounds: compiles of each kind.
        trials: of a layer, in each.

    Returns:
        `compiles`, and the spreads of `wall` and `search`: several versions' time over one's,
        of the whole command and of its search, paired by rounds.
    """
    file = setting.scratch / "onnx" / f"{setting.network}-first{convolutions}.onnx"
    onnx.save(first_layers(onnx.load(setting.onnx), convolutions), file)
    compiles: dict[int, list[Compiled]] = {1: [], MANY: []}
    for turn in range(rounds):
        for count in (1, MANY) if turn % 2 == 0 else (MANY, 1):
            compiles[count].append(_compile_from_nothing(setting, file, count, trials))
    ones, many = compiles[1], compiles[MANY]
    pairs = list(zip(many, ones, strict=True))
    return {
        "network": setting.network,
        "isa": setting.isa,
        "convolutions": convolutions,
        "trials": trials,
        "versions": MANY,
        "wall": spread(np.array([a.wall_ns / b.wall_ns for a, b in pairs])),
        "search": spread(np.array([a.search_ns / b.search_ns for a, b in pairs])),
        "compiles": {str(count): [asdict(c) for c in of] for count, of in compiles.items()},
    }


def _compile_from_nothing(setting: Setting, file: Path, versions: int, trials: int) -> Compiled:
    log = setting.log("versions")
    log.unlink(missing_ok=True)
    options = ("--trials", str(trials), "--variants", str(versions), "--log", str(log))
    return compile_network(
        setting.network,
        file,
        setting.isa,
        setting.scratch / "versions",
        (*options, "--no-shipped-logs"),
    )


def first_layers(model: onnx.ModelProto, convolutions: int) -> onnx.ModelProto:
    """Returns a network up to what its next convolution would read.

    Args:
        model: with more convolutions.
        convolutions: that are left, at most: what the next one reads may need fewer.

    Raises:
        InputError: it has no more than these.
    """
    reads = [node.input[0] for node in model.graph.node if node.op_type == "Conv"]
    if len(reads) <= convolutions:
        raise InputError(
            f"--convolutions {convolutions}: the network has {len(reads)}; give fewer than these"
        )
    inputs = [value.name for value in model.graph.input]
    return Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(
        inputs, [reads[convolutions]]
    )
