from __future__ import annotations

from factories import disturbed_profile

from veltair.eval.bench_qos_share import best_ns


def test_each_layer_counts_with_its_fastest_version() -> None:
    """The product's second variant is the faster one at the last level alone."""
    assert best_ns(disturbed_profile()) == [
        [50_000 + 9_000, 60_000 + 9_500, 70_000 + 11_000],
        [30_000 + 7_000, 36_000 + 7_400, 41_000 + 8_600],
    ]
