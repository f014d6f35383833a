"""What is asked of a server or of the simulator: a mix of models, and when their queries arrive."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from veltair.runtime.artifact import open_artifact
from veltair.runtime.manifest import MANIFEST_FILE
from veltair.runtime.simulate.arrivals import make_arrivals
from veltair.runtime.simulate.scenario import parse_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from veltair.runtime.manifest import Profile
    from veltair.runtime.simulate.arrivals import Arrivals
    from veltair.runtime.simulate.scenario import Scenario

_NS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Models that are asked for equally often.

    Attributes:
        models: their names.
        queries: of all models.
        seed: of times and models.
    """

    models: tuple[str, ...]
    queries: int
    seed: int

    def scenario(
        self,
        *,
        machine: Mapping[str, Any],
        policy: Mapping[str, Any],
        rate_qps: float = 1.0,
    ) -> Scenario:
        """Returns the simulator's scenario; the profiles are given to it apart."""
        return parse_scenario(
            {
                "machine": dict(machine),
                "policy": dict(policy),
                "model": [{"name": name, "profile": name} for name in self.models],
                "arrivals": {
                    "process": "poisson",
                    "rate_qps": rate_qps,
                    "queries": self.queries,
                    "seed": self.seed,
                },
            }
        )

    def arrivals(self, rate_qps: float) -> Arrivals:
        """Draws Poisson arrivals as `veltair simulate` does; the same fields give the same ones."""
        return make_arrivals(self.scenario(machine={"cores": 1}, policy={}, rate_qps=rate_qps))


def capacity_qps(profiles: Sequence[Profile], cores: int) -> float:
    """Returns the rate at which the models, equally often asked for, would keep all cores busy.

    Each query is counted with the least processor time that its model's profile has: the bound that
    no policy can pass but by chance. 1.2 of it is overload for every policy.
    """
    core_ns = [
        min(
            row[0] * count
            for row, count in zip(profile.model_ns, profile.cores, strict=True)
            if count <= cores
        )
        for profile in profiles
    ]
    return cores * len(core_ns) * _NS_PER_S / sum(core_ns)


def digests(repository: Path, models: Sequence[str]) -> dict[str, str]:
    """Returns the SHA-256 of each model's manifest, which has those of its other files."""
    return {
        name: hashlib.sha256(
            (open_artifact(repository / name, verify=False).folder / MANIFEST_FILE).read_bytes()
        ).hexdigest()
        for name in models
    }
