"""Which of the logs' samples become variants, on the cores that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from layers import conv

from veltair.compiler.lower import Request
from veltair.compiler.progress import Silent
from veltair.compiler.search.key import SPACE, key_of
from veltair.compiler.search.log import VERSION, LogPlace, LogWriter, Record, this_machine
from veltair.compiler.search.spaces import space_of
from veltair.compiler.search.variants import SearchOptions, find_variants, report

ISA = "x86-64-v3"
LAYER = conv(8, ic=16, oc=16, hw=(16, 16))


def request_of() -> Request:
    return Request(
        key=LAYER,
        build=lambda: pytest.fail("nothing is built"),
        arguments=(),
        op="conv3x3",
        nodes=("conv",),
        input_shapes=((1, 16, 18, 18),),
        output_shapes=((1, 16, 16, 16),),
        flops=1000,
    )


def logged(log: Path, machine: str) -> None:
    """Two samples that two cores measured: of two tasks, and a little slower of 64."""
    space = space_of(LAYER, ISA, 2)
    assert space is not None
    writer = LogWriter(log)
    times: list[tuple[str, int, dict[int, int]]] = [
        ("conv_p2", 2, {1: 100_000, 2: 50_000}),
        ("conv_p64", 64, {1: 106_000, 2: 53_000}),
    ]
    for trial, (name, parallelism, ns) in enumerate(times):
        fields: dict[str, Any] = {"v": VERSION, "space": SPACE, "isa": ISA, "status": "ok"}
        writer.append(
            Record(
                **fields,
                key=key_of(LAYER, ISA),
                machine=machine,
                trial=trial,
                choice=space.candidates[trial].choice,
                id=name,
                parallelism=parallelism,
                block_bytes=1000 * (trial + 1),
                ns=ns,
            )
        )


def options_of(log: Path, cores: int, most_variants: int) -> SearchOptions:
    return SearchOptions(
        isa=ISA,
        trials=0,
        most_variants=most_variants,
        qos_ns=0,
        qos_share="flops",
        logs=LogPlace(folders=(), own=log),
        jobs=1,
        cores=cores,
    )


@pytest.mark.parametrize(
    ("cores", "first", "within"),
    [(1, "conv_p2", 2), (2, "conv_p2", 2), (64, "conv_p64", 1), (4, "conv_p64", 2)],
)
def test_variants_are_chosen_for_the_machines_cores(
    tmp_path: Path, cores: int, first: str, within: int
) -> None:
    log = tmp_path / "layer.jsonl"
    logged(log, this_machine())
    options = options_of(log, cores, most_variants=1)
    found = find_variants([request_of()], options, tmp_path, Silent())
    (layer,) = report(["conv"], [request_of()], found, options).layers
    assert [each.id for each in layer.samples if each.is_chosen] == [first]
    # Those of too few tasks for so many cores take more than twice the fastest's time there.
    assert sum(each.status == "ok" for each in layer.samples) == within
    assert [each.solo_ns for each in layer.samples] == [50_000, 53_000]  # as measured


@pytest.mark.parametrize(
    ("machine", "chosen"), [(this_machine(), ["conv_p2"]), ("Z80", ["conv_p2", "conv_p64"])]
)
def test_the_next_fastest_of_another_machines_log_stays(
    tmp_path: Path, machine: str, chosen: list[str]
) -> None:
    log = tmp_path / "layer.jsonl"
    logged(log, machine)
    options = options_of(log, 2, most_variants=5)
    found = find_variants([request_of()], options, tmp_path, Silent())
    (layer,) = report(["conv"], [request_of()], found, options).layers
    assert [each.id for each in layer.samples if each.is_chosen] == chosen
