"""The ablations of the simulated evaluation: which settings answer which question."""

from __future__ import annotations

import json
import math
from pathlib import Path

from veltair.eval.capacity.simulated_machine import MOST_VERSIONS, Setting
from veltair.eval.capacity.simulated_study import BASELINE, BY_TIME_LEFT, FULL
from veltair.proxy.machine_file import Machine
from veltair.proxy.machine_model import highest_level, pushed_by_equals

CALIBRATION = Path(__file__).resolve().parents[1] / "results" / "proxy_accuracy.json"


def questions(machine: Machine) -> dict[str, tuple[Setting, ...]]:
    """Returns the settings of each ablation; the first of each is the usual one of its policy."""
    small, large = proxy_errors(machine)
    full, base = Setting(policy=FULL), Setting(policy=BASELINE)
    deadline = Setting(policy=BY_TIME_LEFT)
    return {
        "versions a layer": tuple(
            Setting(policy=FULL, versions=count) for count in range(MOST_VERSIONS, 0, -1)
        ),
        "threshold": (
            full,
            *(
                Setting(policy=FULL, policy_options=(("threshold_cores", cores),))
                for cores in _thresholds(machine.processor.cores)
            ),
        ),
        "proxy": (
            full,
            *(Setting(policy=FULL, machine=(("proxy_error", each),)) for each in (small, large)),
            Setting(policy=FULL, machine=(("proxy", "none"),)),
        ),
        "conflicts cost nothing": _each((full, base), (("conflict_us", 0.0),)),
        "a decision costs 60 us": _each((full, base), (("decision_us", 60.0),)),
        "no interference": _each((full, base, deadline), (("interference", "constant"),)),
        "kernels of half the speed": tuple(
            each for usual in (full, base, deadline) for each in (usual, _slower(usual))
        ),
    }


def _thresholds(cores: int) -> list[int]:
    """From none to a quarter of the machine."""
    return sorted({0, *(cores // part for part in (32, 16, 8, 4))})


def proxy_errors(machine: Machine) -> tuple[float, float]:
    """Standard deviations that a calibrated proxy would have here, were its error normal.

    The calibration's mean error, as a share of its levels: of those of a machine whose cores are
    all in use while memory gives all that is wanted, and of all up to half of memory's bandwidth.
    """
    found = json.loads(CALIBRATION.read_bytes())["simulated"]["perf-uncore"]
    accuracy = found["windows"]["kinds"]["perf-uncore"]["chosen"]
    share = accuracy["mae"] / found["highest_level"] * math.sqrt(math.pi / 2)
    pushed, highest = pushed_by_equals(machine), highest_level(machine)
    return round(share * pushed * highest, 3), round(share * pushed * (2 * (1 + highest) - 1), 3)


def _each(
    settings: tuple[Setting, ...], machine: tuple[tuple[str, float | str], ...]
) -> tuple[Setting, ...]:
    """Each setting as it is, then with other fields of the machine."""
    return tuple(
        each
        for usual in settings
        for each in (usual, Setting(policy=usual.policy, machine=machine))
    )


def _slower(setting: Setting) -> Setting:
    return Setting(policy=setting.policy, slower=0.5)
