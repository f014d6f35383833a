"""What is served: artifacts, or profiles alone, and the shared segment made for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from veltair.proxy.topology import core_complexes
from veltair.runtime._native import ipc, sched
from veltair.runtime.artifact import find_artifacts
from veltair.runtime.errors import ConfigError, InputError
from veltair.runtime.machine import cores_to_serve
from veltair.runtime.manifest import TensorSpec
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.simulate.profiles import load_profile
from veltair.runtime.status import Signature

NS_PER_MS = 1_000_000

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.artifact import FoundArtifact
    from veltair.runtime.config import ServeConfig


# What a model has of which there is only a profile: something to send, and to get back.
_NOTHING_SENT = (TensorSpec(name="input", dtype="uint8", shape=(1,)),)
_NOTHING_ANSWERED = (TensorSpec(name="output", dtype="uint8", shape=(1,)),)


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """One version of a model.

    Attributes:
        name: the model's folder in the repository, or its name under `[[model]]`.
        version: the version's folder; 0 where there is none.
        folder: where its artifact lies; None where it has nothing but a profile.
        profile: what policies decide by; None where the artifact can't be used.
        signature: its inputs and outputs.
        error: why the artifact can't be used; empty otherwise.
    """

    name: str
    version: int
    folder: Path | None
    profile: sched.ModelProfile | None
    signature: Signature
    error: str


def check_sources(repository: Path | None, config: ServeConfig) -> None:
    """Checks that there is something to serve.

    Raises:
        InputError: no repository is named where one is needed, or it is no folder.
    """
    if repository is not None and not repository.is_dir():
        raise InputError(
            f"{repository}: not a folder; a repository holds artifacts as <model>/<version>/, "
            "as `veltair compile -o` writes them"
        )
    if repository is not None or config.model:
        return
    if config.engine.executor == "null":
        raise InputError(
            'no model: [engine] executor = "null", but neither --repository nor a [[model]] names '
            "one; give --repository, or add [[model]] with `name`, `profile` and `qos_ms`"
        )
    raise InputError("--repository is missing; name the folder that holds the artifacts")


def read_models(
    repository: Path | None, config: ServeConfig, folder: Path = Path()
) -> list[ServedModel]:
    """Reads what is to be served: the repository's artifacts, then the `[[model]]`s.

    Args:
        repository: its manifests are read, its files not hashed; None: there is none.
        config: with the models that have only a profile.
        folder: where their relative paths begin: the configuration's.

    Raises:
        InputError: the repository is not a folder, a `[[model]]` has a name of the repository's, or
            its profile can't be used.
    """
    models = [] if repository is None else read_repository(repository)
    names = {model.name for model in models}
    cores = len(cores_to_serve(config.engine))
    for index, section in enumerate(config.model):
        if section.name in names:
            raise InputError(
                f"model[{index}].name = {section.name!r}: the repository {repository} has a model "
                "of that name; choose another, or leave the [[model]] out"
            )
        models.append(
            ServedModel(
                name=section.name,
                version=1,
                folder=None,
                profile=load_profile(section, folder, cores, f"model[{index}]"),
                signature=Signature(inputs=_NOTHING_SENT, outputs=_NOTHING_ANSWERED),
                error="",
            )
        )
    return models


def read_repository(repository: Path) -> list[ServedModel]:
    """Reads every artifact's manifest, without hashing its files.

    Raises:
        InputError: the repository is not a folder.
    """
    return [_served(found) for found in find_artifacts(repository, verify=False)]


def _served(found: FoundArtifact) -> ServedModel:
    manifest = found.artifact.manifest if found.artifact else None
    return ServedModel(
        name=found.name,
        version=found.version,
        folder=found.folder,
        profile=to_profile(manifest) if manifest else None,
        signature=Signature(
            inputs=manifest.inputs if manifest else (), outputs=manifest.outputs if manifest else ()
        ),
        error=str(found.error) if found.error else "",
    )


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
    virtual = bool(config.engine.virtual_cores)
    return ipc.Segment.create(
        cpus=cpus,
        complexes=() if virtual else core_complexes(cpus),
        workers=workers,
        policies=to_policies(config),
        models=[_to_spec(model, config, len(cpus)) for model in models],
    )


def to_policies(config: ServeConfig) -> ipc.Policies:
    """Returns the policies of a configuration, with their parameters, as the segment takes them."""
    scheduling, batching = config.scheduling, config.batching
    return ipc.Policies(
        scheduling=scheduling.policy,
        batching=batching.policy,
        placement=config.placement.policy,
        max_block_ns=round(scheduling.max_block_ms * NS_PER_MS),
        margin_percent=scheduling.margin_percent,
        late_percent=scheduling.late_percent,
        refuse_late=scheduling.refuse_late,
        partition_cores=scheduling.partition_cores,
        threshold_cores=scheduling.threshold_cores,
        timeout_ns=round(batching.timeout_ms * NS_PER_MS),
        max_batch=batching.max_batch,
        least_percent=batching.least_percent,
        executors=batching.executors,
        level=scheduling.level,
        measured=is_measured(config),
        admission=config.queue.admission,
    )


def is_measured(config: ServeConfig) -> bool:
    """Whether the server measures the interference level; by default not where nothing runs."""
    source = config.interference.source
    return source != "none" and (source != "auto" or config.engine.executor != "null")


def check_policies(config: ServeConfig, cores: int) -> None:
    """Checks what depends on the machine's size.

    Raises:
        ConfigError: a policy's parameter goes beyond it.
    """
    try:
        to_policies(config).check(cores)
    except ValueError as error:
        raise ConfigError(
            f"configuration: policy {config.scheduling.policy!r}: {error}; change it in serve.toml"
        ) from error


def _to_spec(model: ServedModel, config: ServeConfig, cores: int) -> ipc.ModelSpec:
    profile = model.profile
    needed = sched.needed_cores(profile, cores) if profile else None
    return ipc.ModelSpec(
        name=model.name,
        version=model.version,
        input_bytes=[spec.size_bytes for spec in model.signature.inputs],
        output_bytes=[spec.size_bytes for spec in model.signature.outputs],
        slots=config.queue.max_queries if profile else 1,
        qos_ns=profile.qos_ns if profile else 0,
        needed_cores=needed.cores if needed else 1,
        expected_ns=needed.expected_ns if needed else 0,
        fastest_ns=needed.fastest_ns if needed else 0,
        metadata=msgspec.msgpack.encode(model.signature),
    )
