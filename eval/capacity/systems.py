"""The systems that `veltair eval` compares, and how the command line names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.capacity.null import Null
from veltair.eval.capacity.ours import POLICIES, Ours
from veltair.eval.capacity.peers import peers
from veltair.runtime.errors import InputError, unknown_name

if TYPE_CHECKING:
    from veltair.eval.capacity.system import System

GROUPS = ("all", "ours", "peers")


def all_systems(percentile: float = 95.0) -> list[System]:
    """Returns every system there is: ours, the peers, the null system.

    Args:
        percentile: share of each model's queries that must be in time, which ours are told.
    """
    return [*(Ours(policy, percentile) for policy in POLICIES), *peers(), Null()]


def chosen_systems(names: str, percentile: float = 95.0) -> list[System]:
    """Returns the systems that `--systems` names, each once, in the order of all.

    Args:
        names: of systems, or `ours`, `peers` or `all`, with commas between.
        percentile: see `all_systems`.

    Raises:
        InputError: there is no such system, or none is named.
    """
    systems = all_systems(percentile)
    wanted: set[str] = set()
    for name in names.split(","):
        if name in GROUPS:
            kind = {"ours": ("ours",), "peers": ("peer",)}.get(name, ("ours", "peer", "null"))
            wanted |= {each.name for each in systems if each.kind in kind}
        elif name in (known := [each.name for each in systems]):
            wanted.add(name)
        else:
            raise InputError(unknown_name("--systems", f"system {name!r}", name, [*GROUPS, *known]))
    return [each for each in systems if each.name in wanted]
