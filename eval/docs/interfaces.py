"""The reference of what a server answers: its addresses and its metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from veltair.eval.docs.markup import cell
from veltair.runtime.server.metrics import Metrics
from veltair.runtime.server.routes import ADDRESSES
from veltair.runtime.status import Histogram, LevelStats, ModelStats, ServerStats

if TYPE_CHECKING:
    from veltair.runtime.client import LocalClient
    from veltair.runtime.server.endpoint import Endpoint

_LEVEL = LevelStats(where="node", level=0.0, confidence=1.0)
_COUNTED = ModelStats(
    name="MODEL",
    version=1,
    accepted=1,
    succeeded=1,
    failed={},
    within_qos=1,
    executions=1,
    queue_ns=0,
    compute_ns=0,
    request_ns=0,
    pending=0,
    lateness=0.0,
    latency=Histogram(bounds_ns=(2**63 - 1,), counts=(1,)),
)
# A server of which every metric has a value.
_STATS = ServerStats(
    state="serving",
    cores=1,
    cores_in_use=0,
    workers=1,
    workers_alive=1,
    scheduling="model",
    batching="none",
    placement="local",
    policy_changes=0,
    returns=0,
    revocations=0,
    pace=1.0,
    level_source="self",
    levels=(_LEVEL,),
    decisions=1,
    decisions_unmeasured=0,
    models=(_COUNTED,),
)


def addresses_reference() -> str:
    """Writes the table of the HTTP front end's addresses."""
    rows = [
        f"| {' or '.join(method.decode() for method in address.methods)} "
        f"| `{address.path}` | {cell(address.says)} |"
        for address in ADDRESSES
    ]
    return "\n".join(("| method | address | answers |", "|---|---|---|", *rows))


def metrics_reference() -> str:
    """Writes the table of the metrics: name, kind, labels, meaning."""
    metrics = Metrics(cast("LocalClient", SimpleNamespace(stats=lambda: _STATS)))
    info = SimpleNamespace(name="MODEL", version=1)
    refused: Any = SimpleNamespace(info=info, invalid=SimpleNamespace(total=lambda: 0))
    metrics.endpoints = (cast("Endpoint", refused),)
    rows = []
    for family in metrics.collect():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        kind = "counter" if family.type == "unknown" else family.type
        rows.append(
            f"| `{family.name}` | {kind} | {', '.join(sorted(labels))} "
            f"| {cell(family.documentation)} |"
        )
    return "\n".join(("| name | kind | labels | meaning |", "|---|---|---|---|", *rows))
