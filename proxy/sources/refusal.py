"""Why the kernel refuses to count, and what would change its mind."""

from __future__ import annotations

import errno
from dataclasses import dataclass

_RIGHTS = frozenset({errno.EACCES, errno.EPERM})
_ABSENT = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.ENXIO, errno.ENODEV})
_KEPT = "a file in /etc/sysctl.d keeps it"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why something doesn't work here.

    Attributes:
        reason: in a few words.
        remedy: what would enable it.
    """

    reason: str
    remedy: str

    def __str__(self) -> str:
        """Both, as an error's message."""
        return f"{self.reason}: {self.remedy}"


def of_event(error: OSError, paranoid: int | None, *, whole_cpu: bool) -> Refusal:
    """Explains what perf_event_open answered.

    Args:
        error: it.
        paranoid: the level of the kernel; None without perf events.
        whole_cpu: whether all that runs on a processor was to be counted, not one thread.
    """
    if paranoid is None or error.errno == errno.ENOSYS:
        return Refusal(
            reason="this kernel has no perf events",
            remedy="a kernel with CONFIG_PERF_EVENTS, and a container whose seccomp profile "
            "allows perf_event_open",
        )
    if error.errno in _RIGHTS:
        return _rights(paranoid, whole_cpu=whole_cpu)
    if error.errno in _ABSENT:
        return Refusal(
            reason="this processor, or virtual machine, doesn't count the event",
            remedy="bare metal, or a virtual PMU in the hypervisor's settings of this machine",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Refusal(
            reason="each event of each thread takes a file, and no more may be open",
            remedy="raise ulimit -n",
        )
    if error.errno == errno.EINVAL:
        return Refusal(
            reason="the kernel doesn't take the event's code",
            remedy="a newer kernel that knows this processor",
        )
    return Refusal(reason=str(error.strerror or error), remedy="see perf_event_open(2)")


def _rights(paranoid: int, *, whole_cpu: bool) -> Refusal:
    most = 0 if whole_cpu else 2
    what = "whole processors" if whole_cpu else "threads"
    if paranoid > most:
        return Refusal(
            reason=f"kernel.perf_event_paranoid is {paranoid}, and counting {what} needs {most}",
            remedy=f"sysctl kernel.perf_event_paranoid={most} ({_KEPT}), or CAP_PERFMON",
        )
    return Refusal(
        reason=f"counting {what} is forbidden here, though kernel.perf_event_paranoid {paranoid} "
        "would allow it",
        remedy="in a container, a seccomp profile that allows perf_event_open and CAP_PERFMON; of "
        "another user's process, that user",
    )
