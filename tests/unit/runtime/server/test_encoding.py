from __future__ import annotations

import gzip
import zlib

import pytest

from veltair.runtime.server.encoding import choose_coding, compress


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"gzip, deflate", b"gzip"),
        (b"deflate, gzip;q=0.5", b"deflate"),
        (b"GZIP ; q=1.0", b"gzip"),
        (b"gzip;q=0, deflate;q=0.1", b"deflate"),
        (b"*", b"gzip"),
        (b"*;q=0", None),
        (b"identity", None),
        (b"br", None),
        (b"", None),
        (b"gzip;q=x", None),
    ],
)
def test_the_client_gets_the_coding_that_it_prefers(accepted: bytes, coding: bytes | None) -> None:
    assert choose_coding(accepted) == coding


def test_codings_are_what_their_names_say() -> None:
    data = bytes(1000)
    assert gzip.decompress(compress(data, b"gzip")) == data
    assert zlib.decompress(compress(data, b"deflate")) == data
