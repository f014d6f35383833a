"""The `veltair` command: a table of commands, each imported when it is called, and their errors.

A command is a module with a function `command`, annotated as typer reads it. Only the module of the
command that was asked for is imported, so `veltair serve` never loads the compiler and `--help` is
immediate.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, as shells report it


@dataclass(frozen=True, kw_only=True)
class Command:
    """Where a command lives, and its line in `veltair --help`."""

    module: str
    summary: str


COMMANDS = {
    "export": Command(
        module="veltair.models.export_command",
        summary="Write an evaluated network as ONNX with seeded weights.",
    ),
    "compile": Command(
        module="veltair.compiler.compile_command",
        summary="Compile an ONNX model into an artifact.",
    ),
    "tune": Command(
        module="veltair.compiler.tune_command",
        summary="Search the layers of an ONNX model and log every sample.",
    ),
    "inspect": Command(
        module="veltair.compiler.inspect_command",
        summary="Print an artifact's layers and profile.",
    ),
    "profile": Command(
        module="veltair.compiler.profile_command",
        summary="Measure an artifact's profile again, also under interference.",
    ),
    "report": Command(
        module="veltair.eval.report_command",
        summary="Write an HTML page about an artifact's layers and versions.",
    ),
    "report-eval": Command(
        module="veltair.eval.capacity.report.command",
        summary="Write an HTML page and tables about an evaluation.",
    ),
    "run": Command(
        module="veltair.runtime.run_command",
        summary="Run an artifact once on given inputs.",
    ),
    "bench": Command(
        module="veltair.eval.bench_command",
        summary="Measure artifacts, alone or against other engines.",
    ),
    "serve": Command(
        module="veltair.runtime.serve_command",
        summary="Serve a repository of artifacts with workers under MPI.",
    ),
    "configure": Command(
        module="veltair.runtime.configure_command",
        summary="Change a running server's policies, or print them.",
    ),
    "bubble": Command(
        module="veltair.proxy.bubble_command",
        summary="Disturb what else runs, by a set footprint and bandwidth.",
    ),
    "counters": Command(
        module="veltair.proxy.counters_command",
        summary="List what tells of interference here, and read it.",
    ),
    "calibrate": Command(
        module="veltair.proxy.calibrate_command",
        summary="Learn the level of interference from what counters tell here.",
    ),
    "machine": Command(
        module="veltair.eval.machine_command",
        summary="Measure this machine for the machine model.",
    ),
    "loadgen": Command(
        module="veltair.eval.loadgen_command",
        summary="Load a server with MLPerf LoadGen and report what it kept.",
    ),
    "simulate": Command(
        module="veltair.runtime.simulate.simulate_command",
        summary="Run a scenario on a simulated machine.",
    ),
    "replay": Command(
        module="veltair.runtime.replay_command",
        summary="Feed recorded decisions to their policies again and compare.",
    ),
    "eval": Command(
        module="veltair.eval.capacity.command",
        summary="Find the highest rates that systems serve in time.",
    ),
    "capacity": Command(
        module="veltair.runtime.simulate.capacity_command",
        summary="Find the highest rate that a simulated machine keeps.",
    ),
}

# Packages that an installation may lack, and the extra of pyproject.toml that brings each.
EXTRAS = {
    "onnx": "compile",
    "onnxruntime": "compile",
    "scipy": "compile",
    "tvm": "compile",
    "mlperf_loadgen": "loadgen",
    "PIL": "demo",
    "matplotlib": "figures",
    "sklearn": "calibrate",
    "tritonclient": "demo",
    "openvino": "peers",
}


def load_command(name: str) -> TyperCommand:
    """Imports the module of a command in `COMMANDS` and returns it ready to parse its arguments."""
    with uninterrupted():  # extension modules fail with an ImportError of it
        module = importlib.import_module(COMMANDS[name].module)
    function: Callable[..., Any] = module.command
    single = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    single.command(name)(function)
    command = typer.main.get_command(single)
    assert isinstance(command, TyperCommand)
    return command


def missing_extra(error: ModuleNotFoundError) -> InputError | None:
    """Returns the error that names the extra that a missing package belongs to, if it has one."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return InputError(
        f"the package `{package}` is not installed, and this command needs it; "
        f"it belongs to the extra `{extra}`: pip install 'veltair[{extra}]'"
    )


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS`: listed from the table, imported only when called."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 # typer's own, handed through
        """Lists each command by its summary; `resolve_command` puts the real one in its place."""
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name=name, help=command.summary)
            for name, command in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 # click's, or typer's copy of it
        """Finds the command that `args` begins with and imports it; unknown names exit 2."""
        name, _, rest = super().resolve_command(ctx, args)
        assert name is not None
        return name, load_command(name), rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 # as above
        """Runs the command; our errors become one line on stderr and their exit code."""
        try:
            return super().invoke(ctx)
        except VeltairError as error:
            _fail(error)
        except ModuleNotFoundError as error:
            explained = missing_extra(error)
            if explained is None:
                raise
            _fail(explained)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED_EXIT_CODE) from None


def _fail(error: VeltairError) -> NoReturn:
    print(f"veltair: {' '.join(str(error).split())}", file=sys.stderr)
    raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"veltair {version('veltair')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Compile DNN models and serve many of them on one CPU machine, each within its latency."""


# What writing to a device without room or a pipe without a reader gives. The errors of files that
# a command names are the command's own.
_NO_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


def main() -> None:
    """Entry point of `veltair`."""
    try:
        try:
            app(prog_name="veltair")
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # before a command had begun
        sys.exit(INTERRUPTED_EXIT_CODE)
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_OUTPUT:
            raise
        # What is still in the buffer has nowhere to go when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:  # `| head` has read enough
            print(f"veltair: the output can't be written ({error.strerror})", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
