"""Builders of interference models for tests."""

from __future__ import annotations

from veltair.proxy.proxy_file import SCHEMA, Accuracy, LinearModel, ProxyFile, Term
from veltair.proxy.sources.reading import Count, Missing, Reading, Scope
from veltair.runtime.machine import machine_facts


def count(
    name: str,
    value: float,
    *,
    unit: str = "events",
    scope: Scope = Scope.TASK,
    where: str = "process 1",
    confidence: float = 1.0,
) -> Count:
    return Count(name=name, value=value, unit=unit, scope=scope, where=where, confidence=confidence)


def reading(
    *counts: Count, missing: tuple[Missing, ...] = (), elapsed_ns: int = 10_000_000
) -> Reading:
    return Reading(time_ns=elapsed_ns, elapsed_ns=elapsed_ns, counts=counts, missing=missing)


def term(
    feature: str,
    *,
    mean: float = 0.5,
    scale: float = 0.25,
    coefficient: float = 0.5,
    low: float = 0.0,
    high: float = 1.0,
) -> Term:
    return Term(
        feature=feature, mean=mean, scale=scale, coefficient=coefficient, low=low, high=high
    )


def linear_model(
    *terms: Term, sources: tuple[str, ...] = ("perf-task",), r2: float = 1.0
) -> LinearModel:
    return LinearModel(
        sources=sources,
        terms=terms,
        intercept=1.0,
        highest=2.0,
        accuracy=Accuracy(r2=r2, r2_folds=(r2, r2), mae=0.01, mae_folds=(0.0, 0.02)),
        rows=100,
        layers=5,
    )


def proxy_file(*models: LinearModel) -> ProxyFile:
    return ProxyFile(schema=SCHEMA, machine=machine_facts(), models=models, alone={})
