"""What a search leaves in the artifact: `search.json`, every sample of every layer.

The report and the choice of variants read the same records; nothing here builds or measures.

Reference: VELTAIR, section 4.1, Fig. 9b to 9d: samples, those within the QoS, the frontier, the
chosen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from veltair.runtime.errors import ArtifactError

SCHEMA = 1
SEARCH_FILE = "search.json"

Status = Literal["ok", "filtered", "failed"]
QosShare = Literal["flops", "measured"]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the file's records: immutable, unknown fields refused."""


class Sample(_Record, frozen=True, kw_only=True):
    """One candidate that was built, or that a log says was.

    Attributes:
        id: the variant's self-describing id.
        algorithm: `direct`, `winograd`, `matmul`, ...
        parallelism: parallel extent times unroll factor.
        block_bytes: working set of the cache tile: the locality.
        solo_ns: time alone on all cores that it was measured on, the lower quartile of its calls;
            0 where it failed.
        status: `ok`; `filtered`, slower than the layer's share of the QoS; `failed`, no time or
            a wrong result.
        reason: why it was filtered or failed; empty where it is ok.
        is_frontier: no sample of the layer has both less parallelism and a smaller block.
        is_chosen: it is a variant in the artifact.
    """

    id: str
    algorithm: str
    parallelism: int
    block_bytes: int
    solo_ns: int
    status: Status
    reason: str = ""
    is_frontier: bool = False
    is_chosen: bool = False


class Removed(_Record, frozen=True, kw_only=True):
    """A version that was chosen, compiled and measured, and then found spare.

    Attributes:
        id: the variant's.
        reason: why the layer does without it.
        layer_ns: int64[cores][levels], its times in the artifact's profile; empty where the profile
            was measured again since.
    """

    id: str
    reason: str
    layer_ns: tuple[tuple[int, ...], ...] = ()


class LayerSearch(_Record, frozen=True, kw_only=True):
    """The samples of one layer of the manifest.

    Attributes:
        name: the layer's, as in the manifest.
        op: the layer's, as in the manifest.
        flops: floating-point operations.
        qos_share_ns: the layer's part of the model's QoS; 0 where the model has none.
        dropped: candidates of the space that were not worth building.
        missed_ns: how much the fastest sample is above `qos_share_ns`; 0 where it is within.
        machine: another one that the samples are of; empty where they are of the one that compiled.
        samples: in the order of their trials; empty for a layer without a space, whose one kernel
            nobody measured in a search.
        removed: versions that the profile showed to be spare.
    """

    name: str
    op: str
    flops: int
    qos_share_ns: int
    dropped: int = 0
    missed_ns: int = 0
    machine: str = ""
    samples: tuple[Sample, ...] = ()
    removed: tuple[Removed, ...] = ()


class SearchReport(_Record, frozen=True, kw_only=True):
    """All layers of a model, in the manifest's order.

    Attributes:
        schema: of this file.
        isa: instruction set of the kernels.
        qos_ns: the model's latency target; 0 if there is none.
        qos_share: how the target was divided: by operations or by measured time.
        most_variants: that a layer could keep.
        wall_ns: how long the search took; 0 where the logs had everything.
        layers: one for each of the manifest's.
    """

    schema: int
    isa: str
    qos_ns: int
    qos_share: QosShare
    most_variants: int
    wall_ns: int
    layers: tuple[LayerSearch, ...]

    def to_json(self) -> bytes:
        """Encodes the report, indented by one space so that it diffs line by line."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def read_search(folder: Path) -> SearchReport | None:
    """Reads `folder/search.json`; None where the artifact has none.

    Raises:
        ArtifactError: the file can't be read, or is of another schema.
    """
    path = folder / SEARCH_FILE
    try:
        report = msgspec.json.decode(path.read_bytes(), type=SearchReport)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArtifactError(f"{path}: can't be read ({error.strerror})") from error
    except msgspec.DecodeError as error:
        raise ArtifactError(f"{path}: damaged: {error}; compile the model again") from error
    if report.schema != SCHEMA:
        raise ArtifactError(
            f"{path}: schema {report.schema}, this Veltair reads schema {SCHEMA}; "
            "compile the model again"
        )
    return report
