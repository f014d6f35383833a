"""Compiles the networks with the shipped logs: `python -m veltair.eval.bench_compile`.

Measured are the wall clock of the whole command and the most memory that it and what it starts
have. The artifacts stay, for other benchmarks.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from veltair.compiler.target_options import IsaName, choose_isa
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.children import stopped_by_signals
from veltair.eval.networks import choose_networks, compile_network, export
from veltair.eval.record import check_writable, write_result


def command(
    folder: Annotated[Path, typer.Argument(help="Gets NAME.onnx and NAME/, a repository each.")],
    networks: Annotated[str, typer.Option(help="All that there are, if not set.")] = "",
    isa: IsaName = "auto",
    cores: Annotated[
        int | None, typer.Option(min=1, max=4096, help="As `veltair compile` has it.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure what compiling the networks takes."""
    names = choose_networks(networks)
    check_writable(json_file)
    chosen = choose_isa(isa)
    made: dict[str, dict[str, Any]] = {}
    result = origin("bench_compile") | {"isa": chosen, "networks": made}
    options = () if cores is None else ("--cores", str(cores))
    with stopped_by_signals():
        for name in names:
            compiled = compile_network(name, export(name, folder), chosen, folder / name, options)
            made[name] = asdict(compiled)
            print(
                f"{name}: {compiled.wall_ns / 1e9:.1f} s, {compiled.peak_bytes / 1e9:.2f} GB, "
                f"{compiled.layers_from_logs} of {compiled.layers} layers from the logs",
                flush=True,
            )
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark("bench_compile", command)
