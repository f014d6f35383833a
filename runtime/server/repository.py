"""What is served: the repository's artifacts, and the shared segment made for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from veltair.runtime._native import ipc, sched
from veltair.runtime.artifact import find_artifacts
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.status import Signature

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from veltair.runtime.config import ServeConfig
    from veltair.runtime.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """One version of a model in the repository.

    Attributes:
        name: the model's folder.
        version: the version's folder; 0 where there is none.
        folder: where it lies.
        manifest: None where the artifact can't be used.
        error: why it can't; empty otherwise.
    """

    name: str
    version: int
    folder: Path
    manifest: Manifest | None
    error: str


def read_repository(repository: Path) -> list[ServedModel]:
    """Reads every artifact's manifest, without hashing its files.

    Raises:
        InputError: the repository is not a folder.
    """
    return [
        ServedModel(
            name=found.name,
            version=found.version,
            folder=found.folder,
            manifest=found.artifact.manifest if found.artifact else None,
            error=str(found.error) if found.error else "",
        )
        for found in find_artifacts(repository, verify=False)
    ]


def make_segment(
    models: Sequence[ServedModel], config: ServeConfig, cpus: Sequence[int], workers: int
) -> ipc.Segment:
    """Makes the shared segment of a server.

    Args:
        models: what is to be served; those with an error get a place too, to be reported.
        config: bounds and policies.
        cpus: the processors to serve on.
        workers: places in the worker table.
    """
    return ipc.Segment.create(
        cpus=cpus,
        workers=workers,
        admission=config.queue.admission,
        scheduling=config.scheduling.policy,
        batching=config.batching.policy,
        placement=config.placement.policy,
        models=[_to_spec(model, config, len(cpus)) for model in models],
    )


def _to_spec(model: ServedModel, config: ServeConfig, cores: int) -> ipc.ModelSpec:
    manifest = model.manifest
    if manifest is None:
        return ipc.ModelSpec(
            name=model.name,
            version=model.version,
            input_bytes=(),
            output_bytes=(),
            slots=1,
            qos_ns=0,
            needed_cores=1,
            expected_ns=0,
            metadata=_encode(Signature(inputs=(), outputs=())),
        )
    needed = sched.needed_cores(to_profile(manifest.profile, manifest.qos_ns), cores)
    return ipc.ModelSpec(
        name=model.name,
        version=model.version,
        input_bytes=[spec.size_bytes for spec in manifest.inputs],
        output_bytes=[spec.size_bytes for spec in manifest.outputs],
        slots=config.queue.max_queries,
        qos_ns=manifest.qos_ns,
        needed_cores=needed.cores,
        expected_ns=needed.expected_ns,
        metadata=_encode(Signature(inputs=manifest.inputs, outputs=manifest.outputs)),
    )


def _encode(signature: Signature) -> bytes:
    return msgspec.msgpack.encode(signature)
