"""What the search tells the process that measures, and what that answers: JSON lines."""

from __future__ import annotations

import msgspec


class Placed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strided view of a buffer of its own.

    Attributes:
        path: of a `.npy` with its values; empty for an output, which starts as zeros.
        offset_bytes: of its first element in the buffer: what the kernel's loads are aligned to.
        shape: elements a dimension.
        strides: elements between neighbours of each dimension.
        dtype: of the elements.
    """

    path: str = ""
    offset_bytes: int = 0
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "float32"


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel.

    Attributes:
        symbol: in the library.
        extent: of its parallel loop.
        arguments: in the kernel's order, the outputs left out; a path of packed values, or the
            number of a placed tensor of the work's.
        weight: which of the arguments is a weight; -1 for none.
        computed: paths for what it computed, a `.npy` for each output.
    """

    symbol: str
    extent: int
    arguments: tuple[str | int, ...]
    weight: int
    computed: tuple[str, ...]


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Candidates of one layer to measure.

    Attributes:
        library: with all their kernels.
        tensors: what they read, other than packed constants.
        results: where they write, in the kernel's order.
        candidates: at least one.
        core_counts: to measure on.
        budget_ns: of one candidate on one core count.
    """

    library: str
    tensors: tuple[Placed, ...]
    results: tuple[Placed, ...]
    candidates: tuple[Candidate, ...]
    core_counts: tuple[int, ...]
    budget_ns: int = 20_000_000


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line about one candidate.

    Attributes:
        index: of the candidate in the work; -1 once all are done.
        begun: it is about to run; what ends the process now is its doing.
        ns: times of its calls at each core count.
        error: why it failed.
    """

    index: int
    begun: bool = False
    ns: dict[int, tuple[int, ...]] = {}
    error: str = ""
