"""Measures what boundaries cost: `python -m veltair.eval.bench_blocks ARTIFACT [--json FILE]`.

A chain of tiny matrix products runs in one worker, once as one block and once as a block a layer,
in turns: the difference is what a boundary costs, with the policy's decision, on unchanged cores
and where every block wants another number of them. And in a real model, with kernels that run, how
soon a core is let go that the policy takes back.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.null_model import compile_quietly
from veltair.eval.record import check_writable, spread, write_result
from veltair.runtime._native import ipc, sched
from veltair.runtime.artifact import open_artifact
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import InputError
from veltair.runtime.model import load_native
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.status import Signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.manifest import Manifest

LAYERS = 48
WIDTH = 16
WARM_UP = 20
CORES = 2
SPIN_NS = 50_000
MS = 1_000_000
PLENTY_NS = 60_000 * MS
TIGHT_NS = 9 * MS
ANSWER_S = 60.0
ASLEEP_S = 0.01

Result = dict[str, Any]


def chain() -> onnx.ModelProto:
    """Returns the network: LAYERS products of a row of WIDTH numbers with a square."""
    random = np.random.default_rng(1)
    square = (random.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
    names = ["data", *(f"row{i}" for i in range(1, LAYERS)), "scores"]
    shape = (1, WIDTH)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", [names[i], "square"], [names[i + 1]], name=f"layer{i}")
            for i in range(LAYERS)
        ],
        "chain",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(square, "square")],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def chain_profile(*, changing: bool) -> sched.ModelProfile:
    """Returns a profile by which each layer needs one core, or each second one needs two."""
    few = (MS // 10, MS // 10)
    rows = [(2 * MS, MS // 2) if changing and layer % 2 else few for layer in range(LAYERS)]
    return sched.ModelProfile(
        qos_ns=LAYERS * MS,
        cores=[1, CORES],
        levels=1,
        model_ns=[sum(row[0] for row in rows), sum(row[1] for row in rows)],
        variants=[1] * LAYERS,
        layer_ns=[time_ns for row in rows for time_ns in row],
        layer_flops=[1] * LAYERS,
    )


class OwnServer:
    """A server's segment with workers of it on threads of this process."""

    def __init__(
        self,
        models: Sequence[tuple[str, Path, sched.ModelProfile | None]],
        cpus: Sequence[int],
        workers: int,
    ) -> None:
        """Loads the models and starts the workers.

        Args:
            models: name, artifact, and a profile in place of the artifact's.
            cpus: to serve on.
            workers: how many.
        """
        artifacts = [open_artifact(folder, verify=False) for _, folder, _ in models]
        profiles = [
            given or to_profile(each.manifest)
            for (_, _, given), each in zip(models, artifacts, strict=True)
        ]
        self.segment = ipc.Segment.create(
            cpus=cpus,
            workers=workers,
            policies=ipc.Policies(),
            models=[
                _spec(name, artifact.manifest, profile)
                for (name, _, _), artifact, profile in zip(models, artifacts, profiles, strict=True)
            ],
        )
        self.board = ipc.Board(self.segment)
        for index in range(len(models)):
            self.board.set_model_state(index, ipc.ModelState.READY, "")
        self.board.set_state(ipc.ServerState.SERVING)
        served = [
            (load_native(each.folder, each.manifest), profile)
            for each, profile in zip(artifacts, profiles, strict=True)
        ]
        self._workers = [
            ipc.Worker(segment=self.segment, index=index, models=served, spin_ns=SPIN_NS)
            for index in range(workers)
        ]
        self._threads = [threading.Thread(target=w.run, daemon=True) for w in self._workers]
        for thread in self._threads:
            thread.start()
        self.client = LocalClient(self.segment)

    def submit(self, model: str, within_ns: int) -> None:
        """Sends a query of zeros with this much time until its deadline."""
        slot = self.client.allocate(model)
        for values in slot.inputs.values():
            values[...] = 0
        self.client.submit(slot, deadline_ns=time.monotonic_ns() + within_ns)

    def compute_ns(self, model: str, policy: str, queries: int) -> list[int]:
        """Returns how long queries took from start to end under a policy, one after the other."""
        self.board.set_policies(ipc.Policies(scheduling=policy))
        times_ns = []
        for _ in range(WARM_UP + queries):
            self.submit(model, PLENTY_NS)
            (completion,) = self.client.wait(ANSWER_S)
            times_ns.append(completion.compute_ns)
            completion.slot.release()
        return times_ns[WARM_UP:]

    def stop(self) -> None:
        """Ends the workers."""
        self.board.set_state(ipc.ServerState.STOPPED)
        for thread in self._threads:
            thread.join()
        self.client.close()


def _spec(name: str, manifest: Manifest, profile: sched.ModelProfile) -> ipc.ModelSpec:
    return ipc.ModelSpec(
        name=name,
        version=1,
        input_bytes=[each.size_bytes for each in manifest.inputs],
        output_bytes=[each.size_bytes for each in manifest.outputs],
        slots=4,
        qos_ns=profile.qos_ns,
        needed_cores=1,
        expected_ns=1,
        metadata=msgspec.msgpack.encode(
            Signature(inputs=manifest.inputs, outputs=manifest.outputs)
        ),
    )


def boundary_ns(
    artifact: Path, cpus: Sequence[int], turns: int, *, changing: bool
) -> dict[str, float | int]:
    """Measures what a boundary costs, block to block in one worker.

    Args:
        artifact: of `chain`.
        cpus: to serve on.
        turns: of both policies; each gives one figure.
        changing: whether each block wants another number of cores than the one before.
    """
    profile = chain_profile(changing=changing)
    server = OwnServer([("chain", artifact, profile)], cpus, workers=1)
    costs_ns = []
    for _ in range(turns):
        whole_ns = np.median(server.compute_ns("chain", "model", 50))
        blocks_ns = np.median(server.compute_ns("chain", "layer", 50))
        costs_ns.append((blocks_ns - whole_ns) / (LAYERS - 1))
    server.stop()
    return spread(np.array(costs_ns))


def let_go_ns(artifact: Path, chain_artifact: Path, cpus: Sequence[int], rounds: int) -> Result:
    """Measures how soon a running kernel leaves a core that is taken back.

    A query of the model with plenty of time has all cores; a query of the chain with little time
    comes, and the policy `deadline` gives it one of them.

    Args:
        artifact: of the model.
        chain_artifact: of `chain`.
        cpus: two at least.
        rounds: how many queries of each.
    """
    chained = chain_profile(changing=False)
    models = [("model", artifact, None), ("chain", chain_artifact, chained)]
    server = OwnServer(models, cpus, workers=3)
    server.board.set_policies(ipc.Policies(scheduling="deadline", max_block_ns=MS))
    random = np.random.default_rng(2)
    segment = server.segment
    times_ns = []
    for _ in range(rounds):
        before = segment.revocations, segment.let_go_ns
        server.submit("model", PLENTY_NS)
        time.sleep(float(random.uniform(0.001, 0.006)))
        server.submit("chain", TIGHT_NS)
        time.sleep(ASLEEP_S)  # the client would run on the cores that change hands
        left = 2
        while left > 0:
            for completion in server.client.wait(ANSWER_S):
                completion.slot.release()
                left -= 1
        if segment.revocations == before[0] + 1:
            times_ns.append(segment.let_go_ns - before[1])
    count = segment.revocations
    result = {
        "count": count,
        "mean_ns": segment.let_go_ns // max(count, 1),
        "longest_ns": segment.longest_let_go_ns,
    }
    server.stop()
    # A round in which cores were taken back twice tells only their sum.
    return result | (spread(np.array(times_ns)) if times_ns else {})


def command(
    artifact: Annotated[Path, typer.Argument(help="Of a model whose cores are taken back.")],
    turns: Annotated[int, typer.Option(min=1)] = 9,
    rounds: Annotated[int, typer.Option(min=1, help="Cores taken back.")] = 500,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure block boundaries and how soon a core changes hands."""
    check_writable(json_file)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < CORES:
        raise InputError(f"{len(cpus)} core: cores change hands where there are {CORES} at least")
    cpus = cpus[:CORES]
    result = origin("bench_blocks") | {"cpus": cpus, "layers": LAYERS}
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        compile_quietly(repository, "chain", chain())
        chained = repository / "chain" / "1"
        result["boundary_ns"] = boundary_ns(chained, cpus, turns, changing=False)
        result["boundary_changing_ns"] = boundary_ns(chained, cpus, turns, changing=True)
        result["let_go"] = let_go_ns(artifact, chained, cpus, rounds)
    for name in ("boundary_ns", "boundary_changing_ns", "let_go"):
        print(f"{name}: {result[name]}")
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark("bench_blocks", command)
