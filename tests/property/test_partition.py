"""What falls back is cut into segments that can run one after the other."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from veltair.compiler.partition import Group, partition


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[set[int]], set[int], list[tuple[int, int]]]:
    """Sources of each node, nodes that fall back, and some of the edges between such."""
    count = draw(st.integers(0, 14))
    before = [
        draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set()
        for node in range(count)
    ]
    fallen = draw(st.sets(st.integers(0, count - 1), max_size=count)) if count else set()
    edges = [(a, b) for b in range(count) for a in before[b] if {a, b} <= fallen]
    tied = draw(st.lists(st.sampled_from(edges), max_size=4)) if edges else []
    return before, fallen, tied


@given(graphs())
def test_groups_run_one_after_the_other(
    graph: tuple[list[set[int]], set[int], list[tuple[int, int]]],
) -> None:
    before, fallen, tied = graph
    found = partition(before, fallen, tied)
    order = [node for group in found.groups for node in group.nodes]
    assert sorted(order) == list(range(len(before)))
    place = {node: i for i, group in enumerate(found.groups) for node in group.nodes}
    for node, sources in enumerate(before):
        assert all(order.index(source) < order.index(node) for source in sources)
        assert all(place[source] <= place[node] for source in sources)
    assert all(place[a] == place[b] for a, b in tied)
    within = {node for group in found.groups if group.is_segment for node in group.nodes}
    assert within == fallen | found.between
    assert not found.between & fallen
    assert tied or not found.between, "what nothing holds together takes nothing with it"
    for one, next_one in itertools.pairwise(found.groups):
        assert one.is_segment != next_one.is_segment, "neighbours of a kind are one group"


def test_neighbours_are_one_segment_and_a_path_through_compiled_nodes_parts_them() -> None:
    before = [set(), {0}, {0}, {1, 2}, {3}, {4}]
    found = partition(before, {0, 1, 2, 4}, [])
    assert found.groups == (
        Group(nodes=(0, 1, 2), is_segment=True),
        Group(nodes=(3,), is_segment=False),
        Group(nodes=(4,), is_segment=True),
        Group(nodes=(5,), is_segment=False),
    )


def test_what_lies_between_the_ends_of_a_tie_falls_back_too() -> None:
    before = [set(), {0}, {1}, {0, 2}, set()]
    found = partition(before, {0, 3}, [(0, 3)])
    assert found.between == {1, 2}
    assert found.groups == (
        Group(nodes=(4,), is_segment=False),
        Group(nodes=(0, 1, 2, 3), is_segment=True),
    )
