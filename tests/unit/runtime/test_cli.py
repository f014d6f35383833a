"""The shell around the commands: what is imported, and what errors look like."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from veltair.runtime import cli
from veltair.runtime.errors import InputError, UnsupportedOperatorError, VeltairError

if TYPE_CHECKING:
    from collections.abc import Callable

    StandIn = Callable[[Callable[..., None]], None]

HEAVY = ("numpy", "onnx", "onnxruntime", "tvm", "tvm_ffi", "mpi4py", "starlette", "pydantic_core")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, list(arguments), prog_name="veltair")
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Puts a function in the place of `veltair export`."""

    def replace(function: Callable[..., None]) -> None:
        module = ModuleType("stand_in")
        module.command = function
        monkeypatch.setitem(sys.modules, cli.COMMANDS["export"].module, module)

    return replace


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; from veltair.runtime import cli\n"
        "try: cli.app(['--help'], prog_name='veltair')\n"
        "except SystemExit: pass\n"
        f"wanted = {[c.module for c in cli.COMMANDS.values()]!r} + {list(HEAVY)!r}\n"
        "print('loaded:', [m for m in wanted if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, command in cli.COMMANDS.items():
        assert f"{name} " in done.stdout
        assert command.summary in done.stdout
    assert done.stdout.endswith("loaded: []\n")


def test_version() -> None:
    code, out, _ = run("--version")
    assert (code, out.split()[0]) == (0, "veltair")
    assert out.split()[1][0].isdigit()


def test_unknown_command_exits_2_and_names_the_nearest() -> None:
    code, _, err = run("exprt")
    assert code == 2
    assert "exprt" in err
    assert "export" in err


def test_options_are_the_commands_own(stand_in: StandIn) -> None:
    def command(size: int, deep: bool = False) -> None:
        print(size * 2, deep)

    stand_in(command)
    assert run("export", "21", "--deep") == (0, "42 True\n", "")
    code, _, err = run("export", "many")
    assert code == 2
    assert "valid integer" in err


@pytest.mark.parametrize(("kind", "code"), [(InputError, 2), (UnsupportedOperatorError, 3)])
def test_our_errors_are_one_line_and_their_exit_code(
    stand_in: StandIn, kind: type[VeltairError], code: int
) -> None:
    stand_in(raising(kind("model.onnx: truncated\n at byte 12; export it again")))
    assert run("export") == (
        code,
        "",
        "veltair: model.onnx: truncated at byte 12; export it again\n",
    )


def test_interrupt_exits_130(stand_in: StandIn) -> None:
    stand_in(raising(KeyboardInterrupt()))
    assert run("export") == (130, "", "")


def test_an_interrupt_stays_one_though_an_import_fails_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pybind11 makes `ImportError: initialization failed` of it."""
    (tmp_path / "native.py").write_text(
        "import signal\n"
        "try: signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt: pass\n"
        "raise ImportError('initialization failed')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.COMMANDS, "export", cli.Command(module="native", summary=""))
    assert run("export") == (130, "", "")


def test_unexpected_exception_keeps_its_trace(stand_in: StandIn) -> None:
    stand_in(raising(ZeroDivisionError("by zero")))
    result = CliRunner().invoke(cli.app, ["export"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_missing_extra_is_named(stand_in: StandIn) -> None:
    stand_in(raising(ModuleNotFoundError("No module named 'tvm'", name="tvm.relax")))
    code, _, err = run("export")
    assert code == 2
    assert "`tvm`" in err
    assert "veltair[compile]" in err


def test_another_missing_module_is_a_fault_of_ours(stand_in: StandIn) -> None:
    stand_in(raising(ModuleNotFoundError("No module named 'veltair.x'", name="veltair.x")))
    result = CliRunner().invoke(cli.app, ["export"])
    assert isinstance(result.exception, ModuleNotFoundError)


MAIN = (sys.executable, "-m", "veltair.runtime.cli")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["simulate", "--help"]])
def test_an_output_without_room_is_said_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MAIN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "veltair: the output can't be written (No space left on device)\n"


def test_a_command_that_prints_to_no_room_fails() -> None:
    """What it prints stays in the buffer until it ends."""
    code = (
        "import sys, types; from veltair.runtime import cli\n"
        "module = types.ModuleType('stand_in'); module.command = lambda: print('result')\n"
        "sys.modules[cli.COMMANDS['export'].module] = module\n"
        "sys.argv = ['veltair', 'export']; cli.main()"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "veltair: the output can't be written (No space left on device)\n"


def test_other_errors_of_the_system_keep_their_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/a/file")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(OSError, match="/a/file"):
        cli.main()
