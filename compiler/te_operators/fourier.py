"""`DFT` and `STFT`: sums of the input with a table, in float64.

Both are linear, so that their table is what NumPy's transforms make of unit vectors.
"""

from __future__ import annotations

import numpy as np
from tvm import te

from veltair.compiler.binding import Array
from veltair.compiler.te_operators.call import Call, Expr, Tensor

_LONGEST = 2048  # where a sum costs more than a fast transform is worth falling back for


def dft(call: Call) -> Expr:
    """`DFT` in both directions, of real and complex inputs, one-sided or not."""
    shape = call.shape()
    given = call.value(2)  # an input since opset 20
    default = int(call.attrs.get("axis", 1)) if call.opset < 20 else -2
    axis = (default if given is None else int(given.reshape(()))) % len(shape)
    inverse, onesided = (bool(call.attrs.get(name, 0)) for name in ("inverse", "onesided"))
    real = inverse and onesided  # a one-sided spectrum is that of a real signal
    stated = call.value(1)
    usual = 2 * (shape[axis] - 1) if real else shape[axis]
    length = usual if stated is None else int(stated.reshape(()))
    table = _table(shape[axis], length, shape[-1], inverse=inverse, onesided=onesided)
    out = [*shape[:axis], table.shape[0], *shape[axis + 1 : -1], table.shape[3]]

    def dft(data: Tensor, factors: Tensor) -> Tensor:
        step = te.reduce_axis((0, shape[axis]), name="step")
        part = te.reduce_axis((0, shape[-1]), name="part")

        def element(*at: Tensor) -> Tensor:
            source = data(*at[:axis], step, *at[axis + 1 : -1], part).astype("float64")
            return te.sum(source * factors(at[axis], step, part, at[-1]), axis=[step, part])

        total = te.compute(out, element, name="dft")
        return te.compute(out, lambda *at: total(*at).astype(data.dtype), name="rounded")

    return call.emit(dft, call.inputs[0], table)


def stft(call: Call) -> Expr:
    """`STFT`: of each frame, times a window where there is one, its transform."""
    step_value, length_value = call.value(1), call.value(3)
    assert step_value is not None
    batch, samples, parts = call.shape()
    step = int(step_value.reshape(()))
    length = int(length_value.reshape(())) if length_value is not None else call.shape(2)[0]
    onesided = bool(call.attrs.get("onesided", 1))
    table = _table(length, length, parts, inverse=False, onesided=onesided)
    out = [batch, 1 + (samples - length) // step, table.shape[0], 2]
    windows = [call.inputs[2]] if call.has(2) else []

    def stft(data: Tensor, factors: Tensor, *window: Tensor) -> Tensor:
        place = te.reduce_axis((0, length), name="place")
        part = te.reduce_axis((0, parts), name="part")

        def element(*at: Tensor) -> Tensor:
            source = data(at[0], at[1] * step + place, part).astype("float64")
            for each in window:
                source *= each(place).astype("float64")
            return te.sum(source * factors(at[2], place, part, at[3]), axis=[place, part])

        total = te.compute(out, element, name="stft")
        return te.compute(out, lambda *at: total(*at).astype(data.dtype), name="rounded")

    return call.emit(stft, call.inputs[0], table, *windows)


def _table(size: int, length: int, parts: int, *, inverse: bool, onesided: bool) -> Array:
    """float64[out, size, parts, 1 or 2]: what each part of each element adds to each bin."""
    if max(size, length) > _LONGEST:
        raise NotImplementedError(f"a transform of {max(size, length)} elements")
    columns = []
    for unit in (1, 1j)[:parts]:
        signal = np.eye(size) * unit
        if inverse and onesided:
            columns.append(np.fft.irfft(signal, n=length, axis=0)[..., None])
            continue
        spectrum = (np.fft.ifft if inverse else np.fft.fft)(signal, n=length, axis=0)
        kept = spectrum[: length // 2 + 1] if onesided else spectrum
        columns.append(np.stack([kept.real, kept.imag], axis=-1))
    return np.stack(columns, axis=2)
