"""What part of a core's peak kernels reach, by algorithm: what the machine model knows of kernels.

`kernel_shares.json` is written by `python -m veltair.eval.machine_model --fit`, from profiles on a
machine whose peak is known.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from veltair.runtime.errors import InputError
from veltair.runtime.files import read_whole

SHARES_FILE = Path(__file__).resolve().parent / "kernel_shares.json"


class KernelShares(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shares, and what they were found from.

    Attributes:
        command: what wrote them.
        revision: of the project, then.
        machine: name of the processor.
        samples: variants of each algorithm that were measured.
        shares: of a core's peak, by algorithm; of layers that only move data, moves of 4 bytes
            over the multiply-adds' peak. Above 1 where an algorithm needs fewer operations than
            the manifest counts.
    """

    command: str
    revision: str
    machine: str
    samples: dict[str, int]
    shares: dict[str, float]


def read_shares(path: Path = SHARES_FILE) -> dict[str, float]:
    """Returns the share of each algorithm, as `read_kernel_shares` does with where it is from."""
    return read_kernel_shares(path).shares


def read_kernel_shares(path: Path = SHARES_FILE) -> KernelShares:
    """Returns the shares and what they were found from.

    Raises:
        InputError: the file can't be read, or isn't what was written.
    """
    try:
        found = msgspec.json.decode(read_whole(path), type=KernelShares)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(
            f"{path}: {error}; write it again with `python -m veltair.eval.machine_model --fit`"
        ) from error
    wrong = [name for name, share in found.shares.items() if not 0 < share < 1e3]
    if wrong:
        raise InputError(f"{path}: shares of {', '.join(wrong)}: above 0; write the file again")
    return found
