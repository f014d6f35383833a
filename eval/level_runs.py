"""What the benchmarks of the interference level share: artifacts with levels, servers, co-runners.

A co-runner that comes and goes is bubbles on the processors that the server leaves them, at full
speed for a while, then at rest for as long; or evictors of all that the server's models have as
weights.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler import reprofile
from veltair.compiler.progress import Silent
from veltair.eval.artifact_copies import copy_artifacts
from veltair.eval.null_model import compile_quietly
from veltair.eval.served import serving
from veltair.proxy.bubbles import Bubbles
from veltair.proxy.co_runners import BUBBLES
from veltair.proxy.evictors import Evictors, Victim
from veltair.runtime._native import ipc
from veltair.runtime.artifact import open_artifact
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import WEIGHTS_FILE
from veltair.runtime.rendezvous import port_of, request_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from veltair.proxy.co_runners import CoRunner, CoRunners
    from veltair.runtime.manifest import Manifest

FOOTPRINT_BYTES = 32 << 20
WIDE = "wide"
_SLOTS = 64

Folders = Annotated[list[Path] | None, typer.Argument(metavar="DIR...", help="Artifacts to serve.")]
Wide = Annotated[
    int, typer.Option(min=0, help="Width of a fully connected network to serve too; 0: none.")
]
Proxy = Annotated[
    Path | None, typer.Option(help="Trained models, proxy.json; our own blocks if not given.")
]
Levels = Annotated[int, typer.Option(min=0, help="To profile copies at; 0: as the artifacts are.")]


@dataclass(frozen=True, kw_only=True)
class LevelServer:
    """How a server is started.

    Attributes:
        repository: folder of artifacts.
        cores: processors to serve on.
        workers: worker ranks.
        source: of the interference level; `none` takes level 0, each layer's version for that.
        proxy: file of trained models; None: none.
        policy: of scheduling.
    """

    repository: Path
    cores: Sequence[int]
    workers: int
    source: str = "auto"
    proxy: Path | None = None
    policy: str = "veltair-ac"

    def config(self) -> str:
        """Returns the `serve.toml`."""
        proxy = "" if self.proxy is None else str(self.proxy.resolve())
        return (
            f'[scheduling]\npolicy = "{self.policy}"\n[queue]\nmax_queries = {_SLOTS}\n'
            f"[engine]\ncores = {list(self.cores)}\n"
            f'[interference]\nsource = "{self.source}"\nproxy = "{proxy}"\n'
        )


@contextmanager
def running(server: LevelServer, scratch: Path) -> Iterator[tuple[LocalClient, ipc.Segment]]:
    """Serves until the block ends; yields a client and the server's segment.

    Raises:
        VeltairError: the server does not run.
    """
    config = scratch / f"{server.source}.toml"
    config.write_text(server.config())
    with (
        serving(server.repository, workers=server.workers, config=config) as address,
        LocalClient.attach(address) as client,
    ):
        descriptor = request_segment(port_of(address))
        try:
            segment = ipc.Segment.attach(descriptor)
        finally:
            os.close(descriptor)
        yield client, segment


def with_levels(
    folders: Sequence[Path],
    width: int,
    scratch: Path,
    levels: int,
    co_runner: CoRunner = BUBBLES,
) -> dict[str, Manifest]:
    """Makes a repository, `scratch/repository`, of artifacts' copies, profiled here and now.

    Args:
        folders: `<model>/<version>`, or `<model>` for the highest version.
        width: of `wide_model`, which is compiled and joins them; 0: none.
        scratch: an empty folder.
        levels: of interference to profile; 0 keeps the profiles as they are.
        co_runner: what they are made with.

    Returns:
        The manifests, by model.

    Raises:
        InputError: there is no model, two artifacts are of the same name, or it can't be measured
            at so many levels.
    """
    asked = list(folders)
    if width:
        compile_quietly(scratch / "compiled", WIDE, wide_model(width))
        asked.append(scratch / "compiled" / WIDE)
    if not asked:
        raise InputError("no model: name artifacts, or a width (--wide)")
    made: dict[str, Manifest] = {}
    repository = scratch / "repository"
    repository.mkdir()
    for folder in asked:
        artifact = open_artifact(folder)
        name = artifact.folder.parent.name
        if name in made:
            raise InputError(f"{folder}: another artifact has the name {name!r}; leave one out")
        profiles = {}
        if levels:
            print(f"profiling {name} at {levels} levels of interference", flush=True)
            profiles[name] = reprofile.profiled(
                artifact.folder, Silent(), levels=levels, co_runner=co_runner
            )
        alone = scratch / "alone"
        made |= copy_artifacts(artifact.folder.parents[1], alone, [name], profiles=profiles)
        (alone / name).rename(repository / name)
    return made


def wide_model(width: int, depth: int = 4) -> onnx.ModelProto:
    """Returns fully connected layers with a ReLU each, `width` wide, of one sample."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "data"
    for layer in range(depth):
        weight = random.standard_normal((width, width), dtype=np.float32) / np.sqrt(width)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"weight{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"weight{layer}"], [f"sum{layer}"]))
        last = f"out{layer}" if layer < depth - 1 else "scores"
        nodes.append(helper.make_node("Relu", [f"sum{layer}"], [last]))
    graph = helper.make_graph(
        nodes,
        WIDE,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, (1, width))],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, width))],
        weights,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def weights_of(repository: Path, names: Iterable[str]) -> list[Path]:
    """Returns the weights' files of some models."""
    return [path for name in names for path in sorted(repository.glob(f"{name}/*/{WEIGHTS_FILE}"))]


class ComingAndGoing:
    """Co-runners that come and go by a thread of their own, as long as the block runs.

    Attributes:
        period_s: how long they stay, and stay away.
        changes: (when, on the monotonic clock, ns; whether they came), in order.
    """

    def __init__(
        self,
        cpus: Sequence[int],
        period_s: float,
        weights: Sequence[Path],
        co_runner: CoRunner = BUBBLES,
    ) -> None:
        """Makes them.

        Args:
            cpus: theirs.
            period_s: how long they stay, and stay away.
            weights: files of the models that evictors disturb.
            co_runner: which kind.
        """
        self.changes: list[tuple[int, bool]] = []
        self._co_runners: CoRunners
        if co_runner == BUBBLES:
            self._co_runners = Bubbles(cpus, FOOTPRINT_BYTES)
        else:
            self._co_runners = Evictors(cpus, [Victim.whole(path) for path in weights])
        self._rate = self._co_runners.highest_rate()
        self.period_s = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._turn, name="co-runner")

    def _turn(self) -> None:
        there = False
        while not self._ended.wait(self.period_s):
            there = not there
            self._co_runners.set_rate(self._rate if there else 0)
            self.changes.append((time.monotonic_ns(), there))

    def __enter__(self) -> ComingAndGoing:
        """Begins with them at rest."""
        self._co_runners.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends them."""
        self._ended.set()
        self._thread.join()
        self._co_runners.__exit__(None, None, None)
