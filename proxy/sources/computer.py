"""What a machine tells about its counters, in Linux's text files below one root.

The root is a parameter, so that a recorded tree stands in for a machine that isn't there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veltair.proxy.topology import SharedCache, shared_cache

INTEL = "GenuineIntel"
AMD = "AuthenticAMD"


@dataclass(frozen=True, kw_only=True)
class Computer:
    """A machine, seen through its files.

    Attributes:
        root: of the file system that describes it.
    """

    root: Path = Path("/")

    @property
    def devices(self) -> Path:
        """The folder of the units that count events."""
        return self.root / "sys/bus/event_source/devices"

    @property
    def resctrl(self) -> Path:
        """Where resctrl is mounted by custom."""
        return self.root / "sys/fs/resctrl"

    @property
    def processes(self) -> Path:
        """The folder of the processes."""
        return self.root / "proc"

    def paranoid(self) -> int | None:
        """`kernel.perf_event_paranoid`; None where the kernel has no perf events."""
        path = self.root / "proc/sys/kernel/perf_event_paranoid"
        return int(path.read_text()) if path.is_file() else None

    def has_filesystem(self, name: str) -> bool:
        """Whether the kernel knows a file system."""
        path = self.root / "proc/filesystems"
        return path.is_file() and name in path.read_text().split()

    def processor(self) -> Processor:
        """Maker, family and model."""
        fields: dict[str, str] = {}
        path = self.root / "proc/cpuinfo"
        for line in path.read_text().splitlines() if path.is_file() else ():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
        return Processor(
            maker=fields.get("vendor_id", "unknown"),
            family=_number(fields.get("cpu family")),
            model=_number(fields.get("model")),
            hypervisor="hypervisor" in fields.get("flags", "").split(),
        )

    def cache_of(self, cpu: int) -> SharedCache | None:
        """The L3 that a processor shares; None where Linux doesn't say."""
        return shared_cache(cpu, self.root / "sys/devices/system/cpu")

    def tasks_of(self, pid: int) -> frozenset[int]:
        """The threads of a process; none where it has ended."""
        try:
            threads = list((self.processes / str(pid) / "task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            return frozenset()
        return frozenset(int(each.name) for each in threads)


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Who made a processor, and which it is.

    Attributes:
        maker: as CPUID names it.
        family: as /proc/cpuinfo has it; -1 if unknown.
        model: the same.
        hypervisor: whether this is a virtual machine.
    """

    maker: str
    family: int
    model: int
    hypervisor: bool

    def __str__(self) -> str:
        """Names it as a message would."""
        return f"{self.maker} family {self.family} model {self.model}"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else -1
