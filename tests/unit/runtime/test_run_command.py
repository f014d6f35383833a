from __future__ import annotations

from pathlib import Path

import factories
import numpy as np
import pytest
from typer.testing import CliRunner

from veltair.runtime import cli
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import WEIGHTS_FILE
from veltair.runtime.run_command import first_cpus, read_arrays, write_arrays


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    factories.write_tiny_artifact(tmp_path / "tiny" / "1")
    return tmp_path / "tiny"


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, ["run", *map(str, arguments)], prog_name="veltair")
    return result.exit_code, result.stdout, result.stderr


def test_a_run_from_file_to_file(tiny: Path, tmp_path: Path) -> None:
    data = factories.tiny_input()
    np.savez(tmp_path / "in.npz", data=data)
    code, out, err = run(tiny, "-i", tmp_path / "in.npz", "-o", tmp_path / "out", "--cores", 1)
    assert (code, err) == (0, "")
    assert "scores [8, 512]; tiny version 1" in out
    assert "on 1 core " in out
    with np.load(tmp_path / "out") as outputs:
        assert outputs.files == ["scores"]
        np.testing.assert_allclose(
            outputs["scores"], factories.tiny_reference(data), rtol=1e-5, atol=1e-5
        )


def test_what_cannot_be_run_exits_with_one_line(tiny: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "in.npz", tmp_path / "bad.npz"
    np.savez(good, data=factories.tiny_input())
    np.savez(bad, image=factories.tiny_input())
    out = tmp_path / "out.npz"
    cases = [
        ((tiny, "-i", tmp_path / "missing.npz", "-o", out), 2, "No such file"),
        ((tiny, "-i", tmp_path, "-o", out), 2, "Is a directory"),
        ((tiny, "-i", bad, "-o", out), 2, "'image': there is none of that name"),
        ((tiny, "-i", good, "-o", tmp_path / "no" / "out.npz"), 2, "there is no folder"),
        ((tiny, "-i", good, "-o", out, "--cores", 100_000), 2, "--cores 100000"),
        ((tiny, "-i", good, "-o", out, "--cores", 0), 2, "--cores 0"),
        ((tmp_path, "-i", good, "-o", out), 4, "not an artifact"),
    ]
    for arguments, expected_code, message in cases:
        code, printed, err = run(*arguments)
        assert (code, printed) == (expected_code, "")
        assert message in err
        assert err.count("\n") == 1
    (tiny / "1" / WEIGHTS_FILE).write_bytes(b"")
    assert run(tiny, "-i", good, "-o", out)[0] == 4
    assert not out.exists()


def test_only_archives_of_numbers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, data=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="Python objects"):
        read_arrays(path)
    np.savez(path, data=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match=r"not an \.npz file"):
        read_arrays(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"not an \.npz file"):
        read_arrays(path)


def test_any_output_name_can_be_written(tmp_path: Path) -> None:
    arrays = {name: np.arange(3) for name in ("file", "args", "dense/out:0", "allow_pickle")}
    write_arrays(tmp_path / "out.npz", arrays)
    read = read_arrays(tmp_path / "out.npz")
    assert sorted(read) == sorted(arrays)
    assert all((array == np.arange(3)).all() for array in read.values())
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="can't be written"):
        write_arrays(tmp_path / "folder.npz", arrays)
    assert len(list(tmp_path.iterdir())) == 2


def test_first_cpus_counts_processors_not_numbers() -> None:
    assert first_cpus([4, 6, 9], 2) == (4, 6)
    assert first_cpus([4, 6, 9], None) == (4, 6, 9)
    for cores in (0, 4, -1):
        with pytest.raises(InputError, match="from 1 to 3"):
            first_cpus([4, 6, 9], cores)
