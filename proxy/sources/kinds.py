"""The kinds of sources: what each counts, whether it works here, and how it is opened."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from veltair.proxy.sources import refusal
from veltair.proxy.sources.computer import AMD, Computer
from veltair.proxy.sources.events import has_llc, shared_units, software_groups, task_groups
from veltair.proxy.sources.own import OwnBlocks
from veltair.proxy.sources.perf import Counted, PerfTasks, PerfUnits
from veltair.proxy.sources.probe import Probe
from veltair.proxy.sources.reading import Source
from veltair.proxy.sources.refusal import Refusal
from veltair.proxy.sources.resctrl import Resctrl
from veltair.runtime.errors import SourceError

_BARE_METAL = "bare metal, or a virtual PMU in the hypervisor's settings of this machine"


class Works(str, Enum):
    """Whether a source can be used here."""

    YES = "yes"
    PARTLY = "partly"  # never chosen by itself: it lacks what says most
    NO = "no"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a source works on a machine.

    Attributes:
        works: in one word.
        reason: why it doesn't, or not wholly; empty where it does.
        remedy: what would enable the rest; empty where it does.
    """

    works: Works
    reason: str = ""
    remedy: str = ""


_FINE = Verdict(works=Works.YES)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of source.

    Attributes:
        name: that a user gives.
        counts: what, in a few words.
        look: whether it works for these cores.
        open: opens it for cores and processes. Raises SourceError.
    """

    name: str
    counts: str
    look: Callable[[Computer, Sequence[int]], Verdict]
    open: Callable[[Computer, Sequence[int], Sequence[int]], Source]


def _no(why: Refusal) -> Verdict:
    return Verdict(works=Works.NO, reason=why.reason, remedy=why.remedy)


def _look_tasks(computer: Computer, _cores: Sequence[int]) -> Verdict:
    if (computer.devices / "cpu_core").is_dir():
        return Verdict(
            works=Works.NO,
            reason="cores of two kinds, each with events of its own, are not supported",
            remedy="a processor whose cores are alike",
        )
    if not (computer.devices / "cpu").is_dir():
        return Verdict(works=Works.NO, reason=_no_unit(computer, "cpu"), remedy=_BARE_METAL)
    processor = computer.processor()
    try:
        for group in task_groups(processor):
            Counted(group, tid=threading.get_native_id())
    except OSError as error:
        return _no(refusal.of_event(error, computer.paranoid(), whole_cpu=False))
    if not has_llc(processor):
        return Verdict(
            works=Works.PARTLY,
            reason=f"not this maker: the cores of {processor} don't count the L3",
            remedy="perf-uncore counts it",
        )
    return _FINE


def _look_units(computer: Computer, cores: Sequence[int]) -> Verdict:
    processor = computer.processor()
    try:
        units = shared_units(processor, computer.devices)
        if not units:
            unit = "amd_l3" if processor.maker == AMD else "uncore_cha_0"
            if not (computer.devices / unit).is_dir():
                reason = _no_unit(computer, unit)
                return Verdict(works=Works.NO, reason=reason, remedy="bare metal")
            return Verdict(
                works=Works.NO,
                reason=f"the events of {processor} are not in our table",
                remedy="add them to proxy/sources/events.py, from the maker's tables",
            )
        for unit_events in units:
            for cpu in unit_events.device.cpus():
                Counted(unit_events.group, cpu=cpu)
        PerfUnits(units, cores, computer).close()
    except OSError as error:
        return _no(refusal.of_event(error, computer.paranoid(), whole_cpu=True))
    except SourceError as error:
        return Verdict(works=Works.NO, reason=str(error), remedy="use another source")
    return _FINE


def _look_resctrl(computer: Computer, _cores: Sequence[int]) -> Verdict:
    if not computer.has_filesystem("resctrl"):
        return Verdict(
            works=Works.NO,
            reason="this kernel or processor has no resctrl",
            remedy="bare metal with L3 monitoring (CMT, AMD QoS), a kernel with "
            "CONFIG_X86_CPU_RESCTRL",
        )
    if not (computer.resctrl / "info").is_dir():
        return Verdict(
            works=Works.NO,
            reason="resctrl is not mounted",
            remedy="mount -t resctrl resctrl /sys/fs/resctrl, as root",
        )
    if not (computer.resctrl / "info/L3_MON").is_dir():
        return Verdict(
            works=Works.NO,
            reason="this processor doesn't monitor its L3",
            remedy="one with CMT and MBM (Intel) or QoS monitoring (AMD)",
        )
    if not os.access(computer.resctrl / "mon_groups", os.W_OK):
        return Verdict(
            works=Works.NO,
            reason="this user may not make monitoring groups",
            remedy="run as root, or chown /sys/fs/resctrl/mon_groups to this user",
        )
    return _FINE


def _look_software(computer: Computer, _cores: Sequence[int]) -> Verdict:
    try:
        for group in software_groups():
            Counted(group, tid=threading.get_native_id())
    except OSError as error:
        return _no(refusal.of_event(error, computer.paranoid(), whole_cpu=False))
    return Verdict(
        works=Works.PARTLY,
        reason="says nothing of caches: it shows whether perf_event_open works at all",
        remedy="the sources above",
    )


def _no_unit(computer: Computer, name: str) -> str:
    where = "this virtual machine" if computer.processor().hypervisor else "this kernel"
    return f"no PMU: {where} shows no {name} among the units that count events"


# Best first.
KINDS = (
    Kind(
        name="perf-task",
        counts="LLC references and misses, instructions, cycles, flops of each process",
        look=_look_tasks,
        open=lambda computer, _cores, pids: PerfTasks(
            "perf-task", task_groups(computer.processor()), pids, computer
        ),
    ),
    Kind(
        name="perf-uncore",
        counts="L3 accesses and misses of each core complex; memory traffic on Intel",
        look=_look_units,
        open=lambda computer, cores, _pids: PerfUnits(
            shared_units(computer.processor(), computer.devices), cores, computer
        ),
    ),
    Kind(
        name="resctrl",
        counts="L3 occupancy and memory traffic of the processes together",
        look=_look_resctrl,
        open=lambda computer, _cores, pids: Resctrl(pids, computer),
    ),
    Kind(
        name="probe",
        counts="time of a step to a random line of the shared cache's share",
        look=lambda _computer, _cores: _FINE,
        open=lambda computer, cores, _pids: Probe(cores, computer),
    ),
    Kind(
        name="self",
        counts="slow-down of our own blocks against their profile; always added",
        look=lambda _computer, _cores: _FINE,
        open=lambda _computer, _cores, _pids: OwnBlocks(),
    ),
    Kind(
        name="perf-software",
        counts="time on a processor and page faults of each process, by the kernel",
        look=_look_software,
        open=lambda computer, _cores, pids: PerfTasks(
            "perf-software", software_groups(), pids, computer
        ),
    ),
)
