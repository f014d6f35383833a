"""How glibc's allocator is told to give memory in huge pages.

ONNX Runtime and OpenVINO keep their weights on the heap, in small pages unless the allocator asks
for others. On a virtual machine they are then slower the longer nobody asked: see "Huge pages" in
`docs/scheduling.md`. So each process in which a peer is measured is started with these variables.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TUNABLES = "GLIBC_TUNABLES"

_HUGE_PAGES = (
    "glibc.malloc.hugetlb=1",  # glibc 2.35; older ones ignore it
    # A huge page needs 2 MB in one piece: one heap, that tensors below 32 MB are cut from, and not
    # a mapping for each tensor or a heap for each thread.
    "glibc.malloc.arena_max=1",
    f"glibc.malloc.mmap_threshold={32 << 20}",
    f"glibc.malloc.trim_threshold={1 << 40}",  # nor is what was freed given back piece by piece
)


def in_huge_pages(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables to add to an environment; what it says itself of glibc comes last."""
    own = environment.get(TUNABLES)
    return {TUNABLES: ":".join((*_HUGE_PAGES, *([own] if own else [])))}


@contextmanager
def starting_in_huge_pages() -> Iterator[None]:
    """Has processes that this one starts within the block get their memory in huge pages."""
    before = os.environ.get(TUNABLES)
    os.environ.update(in_huge_pages(os.environ))
    try:
        yield
    finally:
        if before is None:
            del os.environ[TUNABLES]
        else:
            os.environ[TUNABLES] = before
