"""Compiles the evaluated networks and measures what it costs: time, memory, use of the logs."""

from __future__ import annotations

import hashlib
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from veltair import models
from veltair.compiler.search.samples import read_search
from veltair.eval.children import child, python
from veltair.eval.process_memory import watch_memory
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGE = Path(__file__).resolve().parents[1]
_SAID = 20  # last lines of a command that failed


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What a compile took, and what it had to go by.

    Attributes:
        inputs: digest of all that it depends on: compiler, logs, network.
        wall_ns: of the whole command.
        peak_bytes: of memory, of the command and what it starts.
        search_ns: of the wall clock, for a search; 0 where there was none.
        layers: of the model.
        layers_from_logs: those whose versions were chosen among samples.
        flops_from_logs: their share of the operations.
        samples: of all layers.
        versions: in the artifact, of all layers.
    """

    inputs: str
    wall_ns: int
    peak_bytes: int
    search_ns: int
    layers: int
    layers_from_logs: int
    flops_from_logs: float
    samples: int
    versions: int


def choose_networks(text: str) -> tuple[str, ...]:
    """Parses names with commas between; all networks for the empty text.

    Raises:
        InputError: one is none of ours.
    """
    names = tuple(word for word in text.split(",") if word) or models.names()
    for name in names:
        if name not in models.names():
            raise InputError(
                f"--networks {text}: no network {name!r}; there are {', '.join(models.names())}"
            )
    return names


def export(name: str, folder: Path) -> Path:
    """Writes a network as ONNX, unless the file is there and newer than all recipes."""
    file = folder / f"{name}.onnx"
    recipes = max(path.stat().st_mtime_ns for path in (_PACKAGE / "models").glob("*.py"))
    if not file.is_file() or file.stat().st_mtime_ns < recipes:
        folder.mkdir(parents=True, exist_ok=True)
        run_quietly(python("veltair.runtime.cli", "export", name, "-o", str(file), "--force"))
    return file


def compile_network(
    name: str, onnx: Path, isa: str, repository: Path, options: Sequence[str] = ()
) -> Compiled:
    """Compiles into `repository/NAME/1`, with no logs but the shipped ones.

    Args:
        name: the network's; decides its target.
        onnx: its file.
        isa: of the kernels.
        repository: a folder; an artifact in it is replaced.
        options: more of the command's.

    Raises:
        VeltairError: it failed; the message has its last lines.
    """
    repository.mkdir(parents=True, exist_ok=True)
    command = without_own_logs(
        repository,
        *("compile", str(onnx), "-o", str(repository), "--name", name, "--isa", isa, "--force"),
        *("--qos-ms", f"{models.qos_ms(name):g}", *options),
    )
    inputs = inputs_digest(isa)
    begun_ns = time.monotonic_ns()
    peak = run_quietly(command)
    wall_ns = time.monotonic_ns() - begun_ns
    return _described(resolve_folder(repository / name), inputs, wall_ns, peak)


def compiled_network(
    name: str, onnx: Path, isa: str, repository: Path, *, fresh: bool
) -> tuple[Path, Compiled]:
    """Returns an artifact's folder and its cost; compiles where there is none of today's inputs."""
    note = repository / f"{name}.json"
    if not fresh and note.is_file():
        kept = msgspec.json.decode(note.read_bytes(), type=Compiled)
        if kept.inputs == inputs_digest(isa):
            return resolve_folder(repository / name), kept
    made = compile_network(name, onnx, isa, repository)
    write_whole(note, msgspec.json.encode(asdict(made)))
    return resolve_folder(repository / name), made


def inputs_digest(isa: str, *more: str) -> str:
    """Returns a digest of what a compile depends on: the compiler, the recipes, the ISA's logs.

    Args:
        isa: of the kernels.
        more: folders of the package to count too.
    """
    folders = ("compiler", "models", f"tuning_logs/{isa}", *more)
    hasher = hashlib.sha256(isa.encode())
    for folder in folders:
        for path in sorted((_PACKAGE / folder).rglob("*")):
            if path.suffix in (".py", ".cc", ".h", ".jsonl"):
                hasher.update(str(path.relative_to(_PACKAGE)).encode())
                hasher.update(path.read_bytes())
    return hasher.hexdigest()[:16]


def without_own_logs(scratch: Path, *arguments: str) -> list[str]:
    """Returns a command of `veltair` that doesn't see the user's own tuning logs."""
    none = scratch / "no_logs"
    return ["env", f"XDG_DATA_HOME={none}", *python("veltair.runtime.cli", *arguments)]


def run_quietly(command: Sequence[str]) -> int:
    """Runs a command whose output is only for the case that it fails; returns its peak memory.

    Raises:
        VeltairError: it failed; the message has its last lines.
    """
    with tempfile.TemporaryFile("w+") as said:
        with child(command, said, stderr=said) as process:
            peak = watch_memory(process)
        said.seek(0)
        lines = said.read().splitlines()[-_SAID:]
    if process.returncode:
        raise VeltairError(f"{' '.join(command)} failed:\n" + "\n".join(lines))
    return peak


def _described(folder: Path, inputs: str, wall_ns: int, peak: int) -> Compiled:
    report = read_search(folder)
    assert report is not None, f"{folder}: the compile wrote no report of its search"
    known = [layer for layer in report.layers if layer.samples]
    flops = sum(layer.flops for layer in report.layers)
    return Compiled(
        inputs=inputs,
        wall_ns=wall_ns,
        peak_bytes=peak,
        search_ns=report.wall_ns,
        layers=len(report.layers),
        layers_from_logs=len(known),
        flops_from_logs=sum(layer.flops for layer in known) / flops if flops else 0.0,
        samples=sum(len(layer.samples) for layer in known),
        versions=sum(sample.is_chosen for layer in known for sample in layer.samples)
        + len(report.layers)
        - len(known),
    )
