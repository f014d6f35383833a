"""Symphony's models, read from `eval/data`."""

from __future__ import annotations

import csv
from pathlib import Path

from veltair.runtime.errors import InputError
from veltair.runtime.simulate.device_simulation import DeviceModel, milliseconds

_FOLDER = Path(__file__).resolve().parent / "data"
_COLUMNS = ["model", "alpha_ms", "beta_ms", "slo_ms"]


def device_model(name: str, alpha_ms: float, beta_ms: float, slo_ms: float) -> DeviceModel:
    """Returns a model whose times are given in milliseconds, as papers give them.

    Raises:
        ConfigError: a time is no number, or out of range.
    """
    return DeviceModel(
        name=name,
        alpha_ns=milliseconds(f"{name} alpha_ms", alpha_ms),
        beta_ns=milliseconds(f"{name} beta_ms", beta_ms),
        slo_ns=milliseconds(f"{name} slo_ms", slo_ms),
    )


def read_profiles(path: Path) -> list[DeviceModel]:
    """Reads a table of linear batch latencies: model, alpha_ms, beta_ms, slo_ms; `#` comments.

    Raises:
        InputError: the file can't be read, has other columns, or a row has a value that can't be.
    """
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read ({error}); give a text file") from error
    reader = csv.DictReader(lines)
    if reader.fieldnames != _COLUMNS:
        raise InputError(f"{path}: columns {reader.fieldnames}; they must be {_COLUMNS}")
    return [_model(path, row) for row in reader]


def symphony_profiles(gpu: str) -> list[DeviceModel]:
    """Returns the models of the paper's appendix C on a GPU: `a100` or `1080ti`."""
    return read_profiles(_FOLDER / f"symphony_profiles_{gpu}.csv")


def _model(path: Path, row: dict[str, str]) -> DeviceModel:
    try:
        times = [float(row[column]) for column in _COLUMNS[1:]]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{path}: {row}: {error}; each row needs a name and three times"
        ) from error
    return device_model(row["model"], *times)
