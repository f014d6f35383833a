"""Runs kernels on strided views, as the engine would, and packs and unpacks their tensors."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tvm_ffi
from tvm.tirx import PrimFunc

from veltair.compiler import codegen
from veltair.compiler.kernels.spec import View
from veltair.runtime.artifact import available_isa
from veltair.runtime.manifest import LANES, compact_strides

SENTINEL = np.float32(-12345.5)


def supported(isa: str) -> bool:
    available = available_isa()
    return available is not None and LANES[isa] <= LANES[available]


class _WithStrides:
    """Hands an array over with its own strides: NumPy before 2.3, the last for Python 3.10, leaves
    them out where only dimensions of size one make an array differ from a dense one."""

    _STRIDES_OFFSET = 32  # of the pointer in DLPack's DLTensor

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        elements = [stride // array.itemsize for stride in array.strides]
        self._strides = (ctypes.c_int64 * array.ndim)(*elements)

    def __dlpack__(self, **_options: object) -> object:
        capsule = self._array.__dlpack__()
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = (
            ctypes.c_void_p,
            [ctypes.py_object, ctypes.c_char_p],
        )
        place = ctypes.c_void_p.from_address(
            pointer_of(capsule, b"dltensor") + self._STRIDES_OFFSET
        )
        if place.value is None:
            place.value = ctypes.addressof(self._strides)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class Bench:
    """Tensors behind views of an ISA's layout, and calls of kernels on them."""

    def __init__(self, isa: str) -> None:
        self.isa, self.lanes = isa, LANES[isa]

    def storage(self, view: View, fill: np.float32 = SENTINEL) -> tuple[np.ndarray, np.ndarray]:
        """A whole buffer, and the view's window into it, aligned as the planner aligns."""
        span = 1 + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
        dtype = np.dtype(view.dtype)
        raw = np.empty(span * dtype.itemsize + 64, np.uint8)
        start = -raw.ctypes.data % 64
        whole = raw[start : start + span * dtype.itemsize].view(dtype)
        whole[:] = fill
        strides = [dtype.itemsize * s for s in view.strides]
        return whole, np.lib.stride_tricks.as_strided(whole, view.shape, strides)

    def put(self, view: View, values: np.ndarray) -> np.ndarray:
        _, window = self.storage(view)
        window[...] = values
        return window

    def pack(self, x: np.ndarray, pad: float = 0.0) -> np.ndarray:
        """NCHW to packed; channels past C become `pad`."""
        n, c, h, w = x.shape
        blocks = math.ceil(c / self.lanes)
        x = np.pad(x, ((0, 0), (0, blocks * self.lanes - c), (0, 0), (0, 0)), constant_values=pad)
        return x.reshape(n, blocks, self.lanes, h, w).transpose(0, 1, 3, 4, 2)

    def unpack(self, x: np.ndarray, channels: int) -> np.ndarray:
        n, blocks, h, w, lanes = x.shape
        return x.transpose(0, 1, 4, 2, 3).reshape(n, blocks * lanes, h, w)[:, :channels]

    def call(self, func: PrimFunc, arguments: Sequence[np.ndarray], isa: str | None = None) -> None:
        module = codegen.lower("kernel", func, isa or self.isa)
        strided = [_WithStrides(a) for a in arguments]  # they own the strides during the call
        module["kernel"](*[tvm_ffi.from_dlpack(a) for a in strided])

    def run(self, func: PrimFunc, inputs: Sequence[np.ndarray], output: View) -> np.ndarray:
        """Calls a kernel of one output; checks that it wrote nothing but its view."""
        (result,) = self.run_all(func, inputs, [output])
        return result

    def run_all(
        self, func: PrimFunc, inputs: Sequence[np.ndarray], outputs: Sequence[View]
    ) -> list[np.ndarray]:
        """Calls a kernel; checks that it wrote nothing but its views."""
        inputs = [a if a.ctypes.data % 64 == 0 else self.put(_like(a), a) for a in inputs]
        stored = [self.storage(output) for output in outputs]
        self.call(func, [*inputs, *(window for _, window in stored)])
        return [self._written(whole, window) for whole, window in stored]

    def _written(self, whole: np.ndarray, window: np.ndarray) -> np.ndarray:
        result = window.copy()
        window[...] = SENTINEL
        sentinel = SENTINEL.astype(whole.dtype)
        assert (whole == sentinel).all(), "the kernel wrote outside its output view"
        if whole.dtype != np.bool_:  # which has no value to spare
            assert not (result == sentinel).any(), "the kernel left part of its output unwritten"
        return result


def _like(array: np.ndarray) -> View:
    return dataclasses.replace(dense(*array.shape), dtype=str(array.dtype))


def dense(*shape: int) -> View:
    return View(shape=shape, strides=compact_strides(shape))


def halo(shape: Sequence[int], rows: int, columns: int, batch_gap: int = 0) -> View:
    """A packed or plain view inside a tensor with `rows` and `columns` more, and gaps of whole
    vectors between samples."""
    outer = list(shape)
    outer[2] += rows
    outer[3] += columns
    strides = list(compact_strides(outer))
    strides[0] += batch_gap
    return View(shape=tuple(shape), strides=tuple(strides))


def conv_reference(
    x: np.ndarray,
    w: np.ndarray,
    strides: tuple[int, int],
    dilations: tuple[int, int],
    groups: int,
) -> np.ndarray:
    """Convolution without padding, in float64."""
    oc, icg, kh, kw = w.shape
    span = ((kh - 1) * dilations[0] + 1, (kw - 1) * dilations[1] + 1)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), span, axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    n, _, oh, ow = windows.shape[:4]
    windows = windows.reshape(n, groups, icg, oh, ow, kh, kw)
    kernels = w.astype(np.float64).reshape(groups, oc // groups, icg, kh, kw)
    out = np.einsum("ngcijyx,gocyx->ngoij", windows, kernels, optimize=True)
    return out.reshape(n, oc, oh, ow)
