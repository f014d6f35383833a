"""Plants a recorded machine's files (tests/data/machines) below a root."""

from __future__ import annotations

from pathlib import Path

from veltair.proxy.sources.computer import Computer

MACHINES = Path(__file__).parent / "data" / "machines"


def planted(name: str, root: Path) -> Computer:
    for line in (MACHINES / f"{name}.txt").read_text().splitlines():
        path, _, content = line.partition(" = ")
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content.replace("\\n", "\n") + "\n")
    return Computer(root=root)
