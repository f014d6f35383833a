"""Cuts a graph into what is compiled and the segments that fall back: on numbers, no ONNX here.

A segment is convex: no path leaves it and comes back, so that it runs as one layer. Neighbouring
nodes that fall back are one segment wherever that is so: each border between segments is a tensor
that is written and read again, and a graph that ONNX Runtime can't optimise across.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Group:
    """Nodes, by number and ascending, that follow each other: compiled ones, or a segment."""

    nodes: tuple[int, ...]
    is_segment: bool


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Groups in execution order.

    Attributes:
        groups: every node is in one of them.
        between: nodes that fall back only because others do, before and behind them, that must be
            in one segment.
    """

    groups: tuple[Group, ...]
    between: frozenset[int]


def partition(
    before: Sequence[Collection[int]], fallen: Iterable[int], tied: Iterable[tuple[int, int]]
) -> Partition:
    """Finds the segments.

    Args:
        before: the nodes that each node reads from, all of lower numbers.
        fallen: nodes that fall back.
        tied: pairs of them that must be in one segment.
    """
    wanted = set(fallen)
    owners = _closed(before, _Sets(len(before), tied))
    members = Counter(owners)
    between = {i for i, root in enumerate(owners) if i not in wanted and members[root] > 1}
    fallback = [i in wanted or i in between for i in range(len(before))]
    depths = _depths(before, owners, fallback)
    groups: list[Group] = []
    for depth in range(max(depths, default=-1) + 1):
        for is_segment in (False, True):
            nodes = [i for i, d in enumerate(depths) if d == depth and fallback[i] == is_segment]
            if nodes and groups and groups[-1].is_segment == is_segment:
                nodes = sorted((*groups.pop().nodes, *nodes))  # nothing stands between them
            if nodes:
                groups.append(Group(nodes=tuple(nodes), is_segment=is_segment))
    return Partition(groups=tuple(groups), between=frozenset(between))


class _Sets:
    """Disjoint sets of nodes, each named by its lowest."""

    def __init__(self, count: int, pairs: Iterable[tuple[int, int]]) -> None:
        self._owners = list(range(count))
        for a, b in pairs:
            self.join(a, b)

    def find(self, node: int) -> int:
        while self._owners[node] != node:
            self._owners[node] = self._owners[self._owners[node]]
            node = self._owners[node]
        return node

    def join(self, a: int, b: int) -> None:
        low, high = sorted((self.find(a), self.find(b)))
        self._owners[high] = low

    def all(self) -> list[int]:
        return [self.find(node) for node in range(len(self._owners))]


def _closed(before: Sequence[Collection[int]], sets: _Sets) -> list[int]:
    """The set of each node once every set of several has all that lies between its members."""
    ancestors = _reach(before)
    descendants = [0] * len(before)
    for node, above in enumerate(ancestors):
        for other in _bits(above):
            descendants[other] |= 1 << node
    while True:
        members: dict[int, int] = {}
        for node, root in enumerate(sets.all()):
            members[root] = members.get(root, 0) | 1 << node
        joined = False
        for root, inside in members.items():
            if inside & (inside - 1) == 0:
                continue  # one node
            above = below = 0
            for node in _bits(inside):
                above |= ancestors[node]
                below |= descendants[node]
            for node in _bits(above & below & ~inside):
                sets.join(root, node)
                joined = True
        if not joined:
            return sets.all()


def _reach(before: Sequence[Collection[int]]) -> list[int]:
    """All nodes from which a path leads to each, as bits."""
    reach: list[int] = []
    for sources in before:
        mask = 0
        for source in sources:
            mask |= reach[source] | 1 << source
        reach.append(mask)
    return reach


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _depths(
    before: Sequence[Collection[int]], owners: Sequence[int], fallback: Sequence[bool]
) -> list[int]:
    """How often a path to each node changes sides at most: what a set shares."""
    depths = [0] * len(before)
    changed = True
    while changed:  # a set's depth is known when that of all before any of its members is
        changed = False
        for node, sources in enumerate(before):
            root = owners[node]
            for source in sources:
                if owners[source] == root:
                    continue
                least = depths[owners[source]] + (fallback[source] != fallback[node])
                if depths[root] < least:
                    depths[root] = least
                    changed = True
    return [depths[root] for root in owners]
