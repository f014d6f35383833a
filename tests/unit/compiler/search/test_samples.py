from pathlib import Path

import msgspec
import pytest

from veltair.compiler.search.samples import (
    SCHEMA,
    SEARCH_FILE,
    LayerSearch,
    Sample,
    SearchReport,
    read_search,
)
from veltair.runtime.errors import ArtifactError


def _report() -> SearchReport:
    sample = Sample(
        id="matmul_n2x16_m8_p4",
        algorithm="matmul",
        parallelism=16,
        block_bytes=4096,
        solo_ns=1200,
        status="ok",
        is_chosen=True,
    )
    layer = LayerSearch(name="fc", op="matmul+bias", flops=2000, qos_share_ns=0, samples=(sample,))
    return SearchReport(
        schema=SCHEMA,
        isa="x86-64-v4",
        qos_ns=0,
        qos_share="flops",
        most_variants=5,
        wall_ns=7,
        layers=(layer,),
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / SEARCH_FILE).write_bytes(_report().to_json())
    assert read_search(tmp_path) == _report()


def test_an_artifact_without_a_search_has_none(tmp_path: Path) -> None:
    assert read_search(tmp_path) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{", "damaged"),
        (msgspec.structs.replace(_report(), schema=99).to_json(), "schema 99"),
        (_report().to_json().replace(b'"ok"', b'"good"'), "damaged"),
    ],
)
def test_a_damaged_or_foreign_report_is_refused(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / SEARCH_FILE).write_bytes(data)
    with pytest.raises(ArtifactError, match=expected):
        read_search(tmp_path)
