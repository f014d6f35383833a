"""What the logs know of a layer: this machine's samples, and what others say is worth a try.

Times of different machines are never compared. A machine's own say what is fast on it; another's
say what to try first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from veltair.compiler.kernels.choices import Choice
from veltair.compiler.search.log import Record

# The default, and one to hold it against: fewer of this machine's choose nothing.
_FEWEST_OWN = 2
_MOST_HINTS = 16


@dataclass(frozen=True, kw_only=True)
class Known:
    """A layer's records, one a choice and machine.

    Attributes:
        own: this machine's.
        others: of each other machine, the one with most records first.
    """

    own: tuple[Record, ...] = ()
    others: tuple[tuple[Record, ...], ...] = ()

    @property
    def counting(self) -> tuple[Record, ...]:
        """The records that variants are chosen from, all of one machine.

        This machine's as soon as two of them have a time, however many another has: whoever tuned
        here wants that to count, and only a time from here says whether a QoS is met here. With
        fewer there is nothing to choose from, and those of the machine with most records count.
        """
        usable = sum(record.status == "ok" for record in self.own)
        most = self.others[0] if self.others else ()
        return self.own if usable >= _FEWEST_OWN or len(self.own) >= len(most) else most

    @property
    def hints(self) -> tuple[Choice, ...]:
        """What other machines found fastest, each machine's best before any one's second best."""
        ranked = [
            [record.choice for record in sorted(records, key=lambda r: r.mean_ns)]
            for records in ([r for r in of if r.status == "ok"] for of in self.others)
        ]
        turns = (choice for turn in zip_longest(*ranked) for choice in turn if choice is not None)
        return tuple(dict.fromkeys(turns))[:_MOST_HINTS]


def by_layer(records: Iterable[Record], machine: str) -> dict[str, Known]:
    """The records of each layer by its key.

    Of several records of a choice the last counts: a second measurement corrects the first.

    Args:
        records: of the logs, in their order.
        machine: this one.
    """
    groups: dict[str, dict[str, dict[Choice, Record]]] = {}
    for record in records:
        of_key = groups.setdefault(record.key, {})
        of_key.setdefault(record.machine, {})[record.choice] = record
    found = {}
    for key, machines in groups.items():
        own = tuple(machines.pop(machine, {}).values())
        others = (tuple(of.values()) for of in machines.values())
        found[key] = Known(own=own, others=tuple(sorted(others, key=len, reverse=True)))
    return found
