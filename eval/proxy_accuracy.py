"""How well counters tell the level: `python -m veltair.eval.proxy_accuracy [--record FILE]`.

The paper takes two counters, the L3's miss rate and its accesses (VELTAIR, section 4.3, Fig. 11).
This compares them with the best subset of what a source has, with all of it, with ridge regression
and with boosted trees, always on layers that the model hasn't seen (`proxy/training.py`): on the
record of a calibration (`veltair calibrate`), and on simulated counters of machines that have them
(`simulated_counters.py`). Rows are of single layers, and of several, as in the window of a server
(`proxy/windows.py`). Principal components go with it, and for the most accurate model what it
says at each level.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.proxy_accuracy_report import report
from veltair.eval.record import spread, write_result
from veltair.eval.simulated_counters import SOURCES, simulated
from veltair.proxy.calibration import control
from veltair.proxy.calibration_record import CalibrationRecord
from veltair.proxy.calibration_report import compared
from veltair.proxy.observations import levels_of, noise_of, observations_of, table_of
from veltair.proxy.principal_components import carried, components_of
from veltair.proxy.training import best_subset, data_of, held_out, model_of, source_sets, uses_all
from veltair.proxy.windows import windows_of
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.proxy.observations import Observation
    from veltair.proxy.training import Data

_LAYERS = 40  # that are simulated
_PARTS = 10  # of the rows, by level


def command(
    record: Annotated[
        Path | None, typer.Option(help="The record of a calibration, PROXY.record.jsonl.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("eval/results"),
) -> None:
    """Compare the paper's two counters with the best subset, here and simulated."""
    if not out.is_dir():
        raise InputError(f"--out {out}: no such folder; create it first")
    result = origin("proxy_accuracy")
    result["measured"] = None if record is None else measured(CalibrationRecord.read(record))
    result["simulated"] = {
        SOURCES[maker]: both_rows(simulated(maker, _LAYERS)) for maker in SOURCES
    }
    write_result(out / "proxy_accuracy.json", result)
    text = report(result)
    write_whole(out / "proxy_accuracy.md", text.encode())
    print(text)


def measured(record: CalibrationRecord) -> dict[str, Any]:
    """What a record says: of the machine that it is of, not of this one."""
    steady = control(record)
    turns = [turn for turn in record.turns if turn.round in steady.kept]
    if len(steady.kept) < 2:
        raise InputError(
            f"{record.path}: has {len(steady.kept)} rounds that can be used, and a layer's profile "
            "is of other rounds than its row: go on with the calibration"
        )
    observations = observations_of(record, steady.kept)
    settings = [str(setting) for setting in record.header.settings]
    levels = levels_of(turns, len(settings))
    return {
        "machine": record.header.machine,
        "artifacts": sorted(record.header.artifacts),
        "co_runner": record.co_runner,
        "minutes": record.elapsed_s / 60,
        "rounds": steady.rounds,
        "rounds_kept": len(steady.kept),
        "drift": steady.drift,
        "noise": noise_of(turns),
        "settings": [
            {"setting": settings[number], "level": level}
            for number, level in enumerate(levels.tolist())
        ],
        "slowdowns": slowdowns_of(observations, record),
        **both_rows(observations),
    }


def both_rows(observations: Sequence[Observation]) -> dict[str, Any]:
    """Accuracies of rows of one layer, and of windows of several, as a server sees them."""
    return {
        "highest_level": max(each.level for each in observations),
        "single": accuracy_of(observations),
        "windows": accuracy_of(windows_of(observations)),
    }


def accuracy_of(observations: Sequence[Observation]) -> dict[str, Any]:
    """Accuracies of all kinds of models by each set of sources, components, and levels told."""
    table = table_of(observations)
    data = data_of(table, sorted(set(table.sources)))
    components = components_of(data)
    sets = [sources for sources in source_sets(table) if data_of(table, sources).features]
    models = {" + ".join(sources): model_of(data_of(table, sources)) for sources in sets}
    used = [sources for sources in sets if uses_all(models[" + ".join(sources)], table)]
    best = max(used, key=lambda sources: models[" + ".join(sources)].accuracy.r2)
    return {
        "rows": len(table.level),
        "layers": data.layers,
        "components": [msgspec.to_builtins(each) for each in components],
        "carried": carried(components),
        "kinds": {
            " + ".join(sources): msgspec.to_builtins(compared(table, sources)) for sources in sets
        },
        "chosen": {name: [term.feature for term in model.terms] for name, model in models.items()},
        "best": " + ".join(best),
        "told": told_levels(data_of(table, best)),
    }


def told_levels(data: Data) -> list[dict[str, Any]]:
    """What the chosen features say at each level, on unseen layers (Fig. 11b)."""
    predicted, _ = held_out(best_subset, data)
    order = np.argsort(data.level, kind="stable")
    return [
        {
            "level": float(data.level[rows].mean()),
            "rows": len(rows),
            "told": spread(predicted[rows]),
        }
        for rows in np.array_split(order, min(_PARTS, len(order)))
    ]


def slowdowns_of(
    observations: Sequence[Observation], record: CalibrationRecord
) -> list[dict[str, Any]]:
    """Of each layer, over its versions, what it loses beside what disturbs most (Fig. 6)."""
    turns = [turn for turn in record.turns if turn.round in {each.round for each in observations}]
    highest = int(levels_of(turns, len(record.header.settings)).argmax())
    names = {work.key: f"{work.model} {work.name}" for work in record.header.works}
    found = []
    for layer in sorted({each.layer for each in observations}):
        values = [
            each.slowdown
            for each in observations
            if each.layer == layer and each.setting == highest
        ]
        found.append({"layer": names[layer], "key": layer, "slowdown": spread(np.array(values))})
    return sorted(found, key=lambda each: -each["slowdown"]["p50"])


if __name__ == "__main__":
    run_benchmark("proxy_accuracy", command)
