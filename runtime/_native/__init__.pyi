"""Types of the native library; bindings.cc and the headers in runtime/native describe them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from . import devices as devices
from . import ipc as ipc
from . import proxy as proxy
from . import sched as sched
from . import sim as sim

# The engine (runtime/native/engine).

# storage, index, offset_bytes, (DLPack code, bits, lanes), shape, strides
Argument: TypeAlias = tuple[int, int, int, tuple[int, int, int], Sequence[int], Sequence[int]]
# symbol, parallel extent, arguments
Variant: TypeAlias = tuple[str, int, Sequence[Argument]]
# path of an ONNX file, names of what it reads, of what it writes, and of those that are framed
Fallback: TypeAlias = tuple[str, Sequence[str], Sequence[str], Sequence[str]]
# offset_bytes, planes, height, width, pixel_bytes, top, left, bottom, right
Border: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
# name, variants, what they run where the layer falls back, borders to clear before
Layer: TypeAlias = tuple[str, Sequence[Variant], Fallback | None, Sequence[Border]]

class Gang:
    def __init__(
        self,
        cpus: Sequence[int],
        spin_ns: int = ...,
        grain: int = ...,
        alone_tasks: int = ...,
        restore_affinity: bool = ...,
    ) -> None: ...
    @property
    def cpus(self) -> list[int]: ...
    @property
    def granted(self) -> int: ...
    def set_cores(self, cores: Sequence[int]) -> None: ...
    def grant(self, core: int) -> None: ...
    def revoke(self, core: int) -> bool: ...
    def in_use(self, core: int) -> bool: ...
    def choose_tasks(self, cores: int, extent: int, least_tasks: int = 1) -> int: ...

class Model:
    def __init__(
        self,
        ffi_path: str,
        kernels_path: str,
        weights_path: str,
        weights_bytes: int,
        arena_bytes: int,
        bordered_bytes: int,
        input_bytes: Sequence[int],
        output_bytes: Sequence[int],
        layers: Sequence[Layer],
        onnxruntime_path: str = "",
    ) -> None: ...
    @property
    def layers(self) -> int: ...

class Instance:
    def __init__(self, model: Model, gang: Gang) -> None: ...
    def run(
        self,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any]],
        cores: Sequence[int],
        layers: tuple[int, int],
        variants: Sequence[int],
    ) -> None: ...
    def time_layers(
        self,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any]],
        cores: Sequence[int],
        variants: Sequence[int],
        layer_ns: NDArray[Any],
    ) -> None: ...
    def time_runs(
        self,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any]],
        cores: Sequence[int],
        variants: Sequence[int],
        run_ns: NDArray[Any],
    ) -> None: ...

def time_empty_launches(gang: Gang, num_task: int, launch_ns: NDArray[Any]) -> None: ...
def time_wake_ups(gang: Gang, sleep_ns: int, wake_ns: NDArray[Any]) -> None: ...
def time_system_wake_ups(gang: Gang, sleep_ns: int, wake_ns: NDArray[Any]) -> None: ...
