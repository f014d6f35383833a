"""Compares two ways to share a target among layers: `python -m veltair.eval.bench_qos_share`.

A layer's share decides which of its samples may become versions. Each network is compiled twice
from the same logs, once with shares by operations and once by measured time, and both artifacts are
profiled at levels of interference. What a share is worth is how fast the versions that it lets
through are together: of each layer the fastest one, on each core count and at each level.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from veltair import models
from veltair.compiler.search.samples import QosShare, read_search
from veltair.compiler.target_options import choose_isa
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.children import stopped_by_signals
from veltair.eval.networks import choose_networks, compile_network, export
from veltair.eval.record import check_writable, write_result
from veltair.runtime.artifact import open_artifact

if TYPE_CHECKING:
    from veltair.runtime.manifest import Profile

NETWORKS = "resnet50,googlenet,mobilenet_v2"
SHARES: tuple[QosShare, ...] = get_args(QosShare)

Result = dict[str, Any]


def described(folder: Path) -> Result:
    """What the versions of an artifact are worth.

    Args:
        folder: of the artifact.

    Returns:
        `versions`; `missed`, the layers whose fastest sample is above their share, and `missed_ns`,
        by how much together; `levels`, slow-downs of the reference kernel; and
        int64[cores][levels] `best_ns`, the sum of the layers' fastest versions.
    """
    manifest = open_artifact(folder, verify=False).manifest
    search = read_search(folder)
    assert search is not None, f"{folder}: the compile wrote no report of its search"
    missed = [layer.missed_ns for layer in search.layers if layer.missed_ns]
    return {
        "versions": sum(len(layer.variants) for layer in manifest.layers),
        "missed": len(missed),
        "missed_ns": sum(missed),
        "levels": list(manifest.profile.levels),
        "best_ns": best_ns(manifest.profile),
    }


def best_ns(profile: Profile) -> list[list[int]]:
    """Returns int64[cores][levels]: the sum over the layers of the fastest version's time."""
    return [
        [
            sum(min(table[column][level] for table in layer) for layer in profile.layer_ns)
            for level in range(len(profile.levels))
        ]
        for column in range(len(profile.cores))
    ]


def command(
    folder: Annotated[Path, typer.Argument(help="Gets the networks and both artifacts of each.")],
    networks: Annotated[str, typer.Option(help="Which.")] = NETWORKS,
    levels: Annotated[int, typer.Option(min=1, help="Of interference.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Compare versions by shares of operations with versions by shares of measured time."""
    names = choose_networks(networks)
    check_writable(json_file)
    isa = choose_isa("auto")
    made: dict[str, Result] = {}
    result = origin("bench_qos_share") | {"isa": isa, "networks": made}
    with stopped_by_signals():
        for name in names:
            onnx = export(name, folder)
            shares: dict[str, Result] = {}
            for share in SHARES:
                options = ("--qos-share", share, "--levels", str(levels))
                compile_network(name, onnx, isa, folder / share, options)
                shares[share] = described(folder / share / name / "1")
            made[name] = {"qos_ms": models.qos_ms(name), "shares": shares}
            for of_share, found in shares.items():
                times = "; ".join(
                    ", ".join(f"{ns / 1e6:.2f}" for ns in row) for row in found["best_ns"]
                )
                print(
                    f"{name}, {of_share}: {found['versions']} versions, "
                    f"{found['missed']} layers miss their share "
                    f"by {found['missed_ns'] / 1e6:.2f} ms, at each level {times} ms",
                    flush=True,
                )
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark("bench_qos_share", command)
