"""Processes that peers are measured in: what glibc's allocator is told there."""

from __future__ import annotations

import os

import pytest

from veltair.eval.allocator import TUNABLES, in_huge_pages, starting_in_huge_pages
from veltair.eval.children import child, python
from veltair.eval.own_process import in_own_process


def told() -> str | None:
    return os.environ.get(TUNABLES)


def test_what_one_says_oneself_comes_last() -> None:
    assert in_huge_pages({})[TUNABLES].startswith("glibc.malloc.hugetlb=1:")
    own = {TUNABLES: "glibc.malloc.hugetlb=0"}
    assert in_huge_pages(own)[TUNABLES].endswith(":glibc.malloc.hugetlb=0")


@pytest.mark.parametrize("own", [None, "glibc.malloc.check=0"])
def test_a_process_of_its_own_has_them_and_this_one_does_not(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TUNABLES, raising=False)
    if own is not None:
        monkeypatch.setenv(TUNABLES, own)
    expected = in_huge_pages(os.environ)[TUNABLES]
    assert in_own_process("what it was told", told) == expected
    assert told() == own
    with starting_in_huge_pages():
        assert told() == expected
    assert told() == own


def test_a_child_has_variables_of_its_own_beside_those_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANOTHER", "kept")
    code = "import os; print(os.environ['ANOTHER'], os.environ['ADDED'])"
    command = [python("x")[0], "-c", code]
    with child(command, stdout=-1, variables={"ADDED": "new"}) as process:
        assert process.communicate()[0].split() == ["kept", "new"]
