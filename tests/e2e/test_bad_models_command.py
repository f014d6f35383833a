"""Bad models as a user of `veltair compile` meets them: an exit code, one message, nothing left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from bad_models import CASES, nested

COMMAND = (sys.executable, "-m", "veltair.runtime.cli", "compile")
MET = [
    *("custom_domain", "cycle", "ill_typed", "external_missing", "external_above"),
    *("external_link", "functions_that_double", "constant_over_64_bits", "doubled", "nan_weight"),
]


def refused(folder: Path, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command's end; it says why in the last line, and leaves no repository."""
    repository = folder / "repository"
    done = subprocess.run(
        [*COMMAND, str(path), "-o", str(repository), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("veltair: ")
    assert not repository.exists() or not any(repository.iterdir())
    return done


@pytest.mark.parametrize("name", MET)
def test_a_bad_model_ends_with_one_message(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    done = refused(tmp_path, case.write(tmp_path))
    assert done.returncode == case.error.exit_code
    assert re.search(case.message, done.stderr), done.stderr


def test_conditions_too_deep_for_protobuf_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(nested(100_000))
    done = refused(tmp_path, path)
    assert done.returncode == 2
    assert "nested too deep" in done.stderr


def test_a_shape_of_more_than_64_bits_is_refused(tmp_path: Path) -> None:
    path = CASES["custom_domain"].write(tmp_path)
    done = refused(tmp_path, path, "--shape", f"x=2,{1 << 63}")
    assert done.returncode == 2
    assert "each of 0 to 9223372036854775807" in done.stderr
