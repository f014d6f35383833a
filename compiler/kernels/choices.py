"""The decisions of a kernel as plain data: what a builder takes, a search varies, a log records.

A builder without one makes its own by a cost model. A choice that doesn't fit a layer is refused
with `ValueError` by its builder, before anything is emitted.
"""

from __future__ import annotations

import msgspec

UNROLL = 4  # steps of a reduction emitted one after another, where nobody says otherwise


class DirectChoice(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="direct"
):
    """Of a direct convolution.

    Attributes:
        merged: rows of the image that are taken as one, where it is contiguous.
        rows: of the register tile; more than one spans all columns.
        columns: of the register tile.
        blocks: channel vectors of the register tile: of a chunk.
        row_tiles: tiles of rows in a task.
        chunks: of output channels in a task, one after another.
        weights_outer: the task's index walks the weights in its outer part, the data in its inner.
        passes: over the input channels; more than one keeps partial sums between them, and fetches
            the next one's weights meanwhile.
        unroll: steps of the reduction emitted one after another.
        prefetch: steps of the reduction that weights are fetched ahead; 0 leaves that to the
            processor.
    """

    merged: int
    rows: int
    columns: int
    blocks: int
    row_tiles: int
    chunks: int = 1
    weights_outer: bool
    passes: int = 1
    unroll: int = UNROLL
    prefetch: int = 0


class WinogradChoice(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="winograd"
):
    """Of a convolution through Winograd's transform.

    Attributes:
        size: outputs of a tile in one dimension: 2 or 4.
        tile_rows: rows of tiles that are transformed, multiplied and transformed back together; of
            several samples where there are more than one has.
        columns: tiles in registers.
        blocks: channel vectors in registers.
        whole: a task takes a block of tile rows through all three stages; else each stage is
            parallel by itself, and cores pass their tiles to each other between two.
        unroll: as for `DirectChoice`.
    """

    size: int
    tile_rows: int
    columns: int
    blocks: int
    whole: bool = False
    unroll: int = UNROLL


class MatmulChoice(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="matmul"
):
    """Of a matrix product with a constant weight.

    Attributes:
        rows: most rows of the register tile.
        blocks: column vectors of the register tile: of a chunk.
        pieces: tiles of rows in a task.
        chunks: of columns in a task, one after another.
        passes: over the reduction; more than one keeps partial sums between them.
        unroll: as for `DirectChoice`.
    """

    rows: int
    blocks: int
    pieces: int
    chunks: int = 1
    passes: int = 1
    unroll: int = UNROLL


class DepthwiseChoice(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="depthwise"
):
    """Of a depthwise convolution.

    Attributes:
        pixels: most pixels of a row accumulated together.
        rows: output rows of a task.
    """

    pixels: int
    rows: int


class PlainChoice(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="plain"
):
    """Of a convolution on plain NCHW.

    Attributes:
        channels: output channels of a group that share each loaded vector of pixels.
        vectors: of a row's pixels that are accumulated together.
        rows: output rows of a task.
    """

    channels: int
    vectors: int
    rows: int


class PoolChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="pool"):
    """Of a pooling.

    Attributes:
        pixels: most pixels of a row accumulated together.
        rows: output rows of a task.
    """

    pixels: int
    rows: int


class RowsChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="rows"):
    """Of a kernel that takes row by row, whatever is a row to it.

    Attributes:
        rows: of a task.
    """

    rows: int


class DefaultChoice(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="default"
):
    """Of an operator without an expert kernel: the schedule by rule."""


class SketchChoice(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sketch"
):
    """Of an operator without an expert kernel: a sample of MetaSchedule's sketches.

    Attributes:
        trace: steps of the schedule and the decisions in them, as TVM writes them to JSON.
        tasks: most that each stage is cut into.
        unroll: most steps of its loops emitted one after another; 0 leaves that to LLVM.
    """

    trace: str
    tasks: int
    unroll: int


Choice = (
    DirectChoice
    | WinogradChoice
    | MatmulChoice
    | DepthwiseChoice
    | PlainChoice
    | PoolChoice
    | RowsChoice
    | DefaultChoice
    | SketchChoice
)


def require(condition: bool, what: str) -> None:
    """Refuses a choice.

    Raises:
        ValueError: the condition doesn't hold.
    """
    if not condition:
        raise ValueError(f"the choice doesn't fit the layer: {what}")
