"""`GET /metrics`: the server's counters in Prometheus's text format.

The values are read from the shared segment when they are asked for; a query pays nothing for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.runtime.client import Histogram, LocalClient, ModelStats, ServerStats
    from veltair.runtime.server.endpoint import Endpoint

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
LABELS = ("model", "version")

# Name, what it says, and the value's place in the stats, for the counters with one value a model.
COUNTERS = (
    ("nv_inference_request_success", "Queries answered with outputs", "succeeded", 1),
    ("nv_inference_count", "Inferences performed (a batch counts as its size)", "succeeded", 1),
    ("nv_inference_exec_count", "Tasks run (a batch counts once)", "executions", 1),
    (
        "nv_inference_request_duration_us",
        "Sum of the queries' times from arrival to end, microseconds",
        "request_ns",
        1000,
    ),
    (
        "nv_inference_queue_duration_us",
        "Sum of the queries' times from submission to start, microseconds",
        "queue_ns",
        1000,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Sum of the queries' times from start to end, microseconds",
        "compute_ns",
        1000,
    ),
    ("veltair_qos_satisfied", "Queries answered within their deadline", "within_qos", 1),
)


class Metrics(Collector):
    """Collects from a local client's `stats` and from the front end's endpoints.

    Attributes:
        endpoints: the models as the front end serves them, for what it refused itself.
    """

    def __init__(self, client: LocalClient) -> None:
        """Takes where the counters come from."""
        self.endpoints: tuple[Endpoint, ...] = ()
        self._client = client
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def page(self) -> bytes:
        """Returns the whole page."""
        # prometheus-client calls a counter so only if its name ends in `_total`; the names that
        # dashboards already know don't, so they are collected as `unknown` and named here.
        return generate_latest(self._registry).replace(b" untyped\n", b" counter\n")

    def describe(self) -> Iterator[Metric]:
        """Returns nothing, so that registering does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yields the families."""
        stats = self._client.stats()
        for name, text, attribute, divisor in COUNTERS:
            family = Metric(name, text, "unknown")
            for model in stats.models:
                family.add_sample(name, _labels(model), getattr(model, attribute) // divisor)
            yield family
        yield self._failures(stats)
        yield from _gauges(stats)
        yield from _policies(stats)
        yield from _interference(stats)
        yield _latencies(stats)

    def _failures(self, stats: ServerStats) -> Metric:
        name = "nv_inference_request_failure"
        family = Metric(name, "Queries not answered with outputs, by reason", "unknown")
        for model in stats.models:
            for reason, count in sorted(model.failed.items()):
                family.add_sample(name, {**_labels(model), "reason": reason}, count)
        for endpoint in self.endpoints:
            info = endpoint.info
            labels = {"model": info.name, "version": str(info.version), "reason": "invalid"}
            family.add_sample(name, labels, endpoint.invalid.total())
        return family


def _labels(model: ModelStats) -> dict[str, str]:
    return {"model": model.name, "version": str(model.version)}


def _gauges(stats: ServerStats) -> Iterator[Metric]:
    pending = GaugeMetricFamily(
        "nv_inference_pending_request_count", "Queries accepted and not ended", labels=LABELS
    )
    attainment = GaugeMetricFamily(
        "veltair_qos_attainment",
        "Share of the accepted and refused queries that were answered within their deadline",
        labels=LABELS,
    )
    lateness = GaugeMetricFamily(
        "veltair_model_lateness_ratio",
        "By how many targets a model's queries go ahead, since more were late than may be",
        labels=LABELS,
    )
    for model in stats.models:
        labels = tuple(_labels(model).values())
        lateness.add_metric(labels, model.lateness)
        pending.add_metric(labels, model.pending)
        ended = model.succeeded + sum(model.failed.values())
        if ended:
            attainment.add_metric(labels, model.within_qos / ended)
    yield pending
    yield attainment
    yield lateness
    for name, text, value in (
        ("veltair_cores", "Cores that the server has", stats.cores),
        ("veltair_cores_in_use", "Cores that a running task holds", stats.cores_in_use),
        ("veltair_workers", "Worker ranks that the server was started with", stats.workers),
        ("veltair_workers_alive", "Worker ranks that are alive", stats.workers_alive),
    ):
        yield GaugeMetricFamily(name, text, value=value)


def _policies(stats: ServerStats) -> Iterator[Metric]:
    labels = ("scheduling", "batching", "placement")
    info = GaugeMetricFamily(
        "veltair_policy_info", "1; the labels name the policies in force", labels=labels
    )
    info.add_metric([getattr(stats, label) for label in labels], 1)
    yield info
    for name, text, value in (
        (
            "veltair_policy_changes",
            "Changes of the policies or their parameters since the start",
            stats.policy_changes,
        ),
        ("veltair_task_returns", "Late queries put back into the queue", stats.returns),
        ("veltair_core_revocations", "Cores taken from running blocks", stats.revocations),
    ):
        family = Metric(name, text, "unknown")
        family.add_sample(name, {}, value)
        yield family
    text = "Time of the last blocks for what their profiles predict: 1 is as predicted"
    yield GaugeMetricFamily("veltair_block_pace_ratio", text, value=stats.pace)


def _interference(stats: ServerStats) -> Iterator[Metric]:
    """The level is left out where it isn't known, so that no old one is taken for one of now."""
    if not stats.levels:
        return
    level = GaugeMetricFamily(
        "veltair_interference_level",
        "Slow-down of a reference kernel by what else runs: 0 is alone",
        labels=("complex",),
    )
    confidence = GaugeMetricFamily(
        "veltair_interference_confidence",
        "How far the level can be trusted, from 0 to 1",
        labels=("complex",),
    )
    for each in stats.levels:
        if each.level is not None:
            level.add_metric((each.where,), each.level)
        confidence.add_metric((each.where,), each.confidence)
    yield level
    yield confidence
    source = GaugeMetricFamily(
        "veltair_interference_source_info",
        "1; the label names what the level is measured by",
        labels=("source",),
    )
    source.add_metric((stats.level_source,), 1)
    yield source
    for name, text, value in (
        ("veltair_decisions", "Decisions of the scheduling policy", stats.decisions),
        (
            "veltair_decisions_level_unknown",
            "Decisions for which the interference level was measured and not known",
            stats.decisions_unmeasured,
        ),
    ):
        family = Metric(name, text, "unknown")
        family.add_sample(name, {}, value)
        yield family


def _latencies(stats: ServerStats) -> Metric:
    family = HistogramMetricFamily(
        "veltair_request_latency_seconds",
        "Time from arrival to end of the queries answered with outputs",
        labels=LABELS,
    )
    for model in stats.models:
        buckets, total = _buckets(model.latency)
        family.add_metric(tuple(_labels(model).values()), [*buckets, ("+Inf", total)], None)
    return family


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], int]:
    """Returns cumulative buckets, each bound (in seconds) twice the last, and the count of all.

    The segment's buckets are eight times as fine: hundreds of lines a model, for a page that is
    asked for every few seconds.
    """
    buckets: list[tuple[str, float]] = []
    total = 0
    last_ns = 0
    for bound_ns, count in zip(histogram.bounds_ns[:-1], histogram.counts, strict=False):
        total += count
        if bound_ns >= 2 * last_ns:
            buckets.append((repr(bound_ns / 1e9), total))
            last_ns = bound_ns
    return buckets, total + histogram.counts[-1]
