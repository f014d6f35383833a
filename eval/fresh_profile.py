"""An artifact's profile as it is just now, for the policies and the simulator.

An artifact's profile was measured when it was compiled, perhaps on a machine that did other things
too. Copies with one of now (`artifact_copies`) make a server and a simulation decide by the same
times. `veltair profile` replaces an artifact's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.compiler import reprofile
from veltair.compiler.progress import Silent

if TYPE_CHECKING:
    from pathlib import Path

    from veltair.runtime.manifest import Profile


def profiled(folder: Path) -> Profile:
    """Measures an artifact alone on this machine, on every core count."""
    return reprofile.profiled(folder, Silent())
