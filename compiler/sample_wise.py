"""Layers of a batch that run sample by sample, so that their activations stay in the caches.

A batch reads each weight once for all its samples, and has as many times the activations. Where
these no longer fit into a cache that one sample's fit into, some layers in a row are faster for one
sample after the other, by the kernels and in the memory of one sample; only what others read lies
in the batch's. Which layers, measured times say.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from veltair.compiler.graph import Graph, Op
from veltair.compiler.lower import FREE_KINDS, Request, lower
from veltair.compiler.passes.allocation import Sizes
from veltair.compiler.passes.plan import Placement, Plan, plan_memory
from veltair.runtime.manifest import ALIGNMENT_BYTES, ITEM_BYTES, LANES

Run = tuple[int, int]  # requests from, and up to


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A graph with its memory, and a request for each of its operations that runs."""

    graph: Graph
    plan: Plan
    requests: list[Request]

    @property
    def ops(self) -> list[Op]:
        """Those that run, as the requests are ordered."""
        return [op for op in self.graph.ops if op.kind not in FREE_KINDS]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A request of an arrangement, and the number of the request that it stands for.

    Attributes:
        request: with its own arguments.
        index: among the requests of one sample, or of the batch.
        of_one: which of the two.
    """

    request: Request
    index: int
    of_one: bool


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """One sample and a batch of the same model."""

    one: Planned
    several: Planned
    size: int
    isa: str

    def twins(self) -> list[int | None]:
        """For each request of the batch the one of a sample that may run in its place."""
        of_one = {op.outputs: i for i, op in enumerate(self.one.ops)}
        found: list[int | None] = []
        for op in self.several.ops:
            index = of_one.get(op.outputs)
            fits = index is not None and self._same(self.one.ops[index], op)
            found.append(index if fits else None)
        return found

    def _same(self, one: Op, several: Op) -> bool:
        if one.kind == "Fallback" or (one.kind, one.reads) != (several.kind, several.reads):
            return False
        names = [n for n in (*one.reads, *one.outputs) if n in self.one.plan.placements]
        return all(self._has_slices(name) for name in names)

    def _has_slices(self, name: str) -> bool:
        """Whether a sample's part of a tensor lies as the tensor of one sample does."""
        small, large = self.one.plan.placements[name], self.several.plan.placements.get(name)
        if large is None or self.one.plan.roots[name] != self.several.plan.roots[name]:
            return False
        if not small.shape or not large.shape or small.dtype != large.dtype:
            return False
        between = small.shape[0] * large.strides[0] * ITEM_BYTES[small.dtype]
        return (
            large.shape == (self.size * small.shape[0], *small.shape[1:])
            and small.strides[1:] == large.strides[1:]
            and (small.shape[0] == 1 or small.strides[0] == large.strides[0])
            and between % ALIGNMENT_BYTES == 0
            and (large.offset_bytes - small.offset_bytes) % ALIGNMENT_BYTES == 0
        )

    def requests(self, ops: Sequence[Op], own: Collection[str], sample: int) -> list[Request]:
        """The operations of one sample: `own` memory is one sample's."""
        placements = dict(self.one.plan.placements)
        for name in dict.fromkeys(name for op in ops for name in (*op.reads, *op.outputs)):
            if name not in placements:  # a constant
                continue
            if self.one.plan.roots[name] not in own:
                placements[name] = self._slice(name, sample)
        plan = replace(self.one.plan, placements=placements)
        return lower(self.one.graph, plan, self.isa, ops)

    def _slice(self, name: str, sample: int) -> Placement:
        """Where a sample's part of a batch's tensor lies."""
        small, large = self.one.plan.placements[name], self.several.plan.placements[name]
        rows = sample * small.shape[0] * large.strides[0]
        return replace(
            small,
            storage=large.storage,
            index=large.index,
            offset_bytes=large.offset_bytes + rows * ITEM_BYTES[small.dtype],
        )


def eligible(one: Planned, several: Planned, size: int) -> list[int | None]:
    """For each request of a batch the one of a sample that can run in its place, if any can."""
    return _Pair(one=one, several=several, size=size, isa="").twins()


def arrange(
    one: Planned, several: Planned, size: int, isa: str, chosen: Sequence[bool]
) -> tuple[list[Step], Sizes]:
    """The layers of a batch, some of which run sample by sample.

    Args:
        one: one sample.
        several: the batch.
        size: samples.
        isa: instruction set.
        chosen: which of the batch's requests run sample by sample; only those that are eligible.

    Returns:
        The steps in order, and what memory they need.
    """
    twins = eligible(one, several, size)
    runs = list(_runs(chosen))
    own = {run: _own_roots(several, *run) for run in runs if chosen[run[0]]}
    pair = _planned_again(one, several, size, isa, own)
    steps: list[Step] = []
    for run in runs:
        indices = [i for i in twins[slice(*run)] if i is not None]
        if run not in own:
            requests = pair.several.requests
            steps += [Step(request=requests[i], index=i, of_one=False) for i in range(*run)]
            continue
        assert len(indices) == run[1] - run[0], "chosen, and not eligible"
        begun = [border for each in pair.several.requests[slice(*run)] for border in each.cleared]
        for sample in range(size):
            requests = pair.requests([one.ops[i] for i in indices], own[run], sample)
            if sample == 0:  # what all samples of the run write, before the first does
                first = requests[0]
                requests[0] = replace(first, cleared=(*first.cleared, *begun))
            steps += [
                Step(request=request, index=i, of_one=True)
                for request, i in zip(requests, indices, strict=True)
            ]
    return steps, pair.one.plan.sizes


def _planned_again(
    one: Planned, several: Planned, size: int, isa: str, own: Mapping[Run, Collection[str]]
) -> _Pair:
    """Both with the memory that they need where one sample's has what runs have as their own."""
    lanes = LANES[isa]
    roots = set().union(*own.values())
    begins = {index: run[0] for run in own for index in range(*run)}
    numbers = itertools.accumulate(op.kind not in FREE_KINDS for op in several.graph.ops)
    times = [begins.get(number - 1, number - 1) for number in numbers]
    plan = plan_memory(several.graph, lanes, without=roots, times=times)
    others = set(one.plan.roots.values()) - roots
    return _Pair(
        one=replace(one, plan=plan_memory(one.graph, lanes, without=others, base=plan.sizes)),
        several=Planned(graph=several.graph, plan=plan, requests=lower(several.graph, plan, isa)),
        size=size,
        isa=isa,
    )


def order(chosen: Sequence[bool], size: int) -> list[int]:
    """Which of the batch's requests each step of an arrangement stands for."""
    return [
        index
        for run in _runs(chosen)
        for _ in range(size if chosen[run[0]] else 1)
        for index in range(*run)
    ]


def _runs(chosen: Sequence[bool]) -> Iterator[Run]:
    """Begin and end of what is alike in a row."""
    begin = 0
    for index in range(1, len(chosen) + 1):
        if index == len(chosen) or chosen[index] != chosen[begin]:
            yield begin, index
            begin = index


def _own_roots(several: Planned, begin: int, end: int) -> set[str]:
    """The memory that only these requests touch."""
    roots = several.plan.roots
    ends = {roots[name] for name in (*several.graph.inputs, *several.graph.outputs)}
    inside: set[str] = set()
    outside = set(ends)
    for index, op in enumerate(several.ops):
        touched = {roots[name] for name in (*op.reads, *op.outputs) if name in roots}
        (inside if begin <= index < end else outside).update(touched)
    return inside - outside
