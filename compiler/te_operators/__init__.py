"""Operators that TVM's front end lacks, or has in part, as tensor expressions.

A kernel of these is lowered, fused and scheduled as those that Relax makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from veltair.compiler.te_operators.call import Call, Operator
from veltair.compiler.te_operators.convolution import conv_integer
from veltair.compiler.te_operators.elements import (
    bit_cast,
    bit_shift,
    divide,
    is_inf,
    modulo,
    power,
)
from veltair.compiler.te_operators.fourier import dft, stft
from veltair.compiler.te_operators.places import (
    bool_reduction,
    constant_of_shape,
    eye_like,
    one_hot,
    pad,
    reverse_sequence,
)
from veltair.compiler.te_operators.resize import resize, upsample
from veltair.compiler.te_operators.sums import (
    cum_prod,
    cum_sum,
    layer_normalization,
    lp_normalization,
)

# An operator that returns None leaves its node to TVM.
OPERATORS: Mapping[str, Operator] = {
    "BitCast": bit_cast,
    "BitShift": bit_shift,
    "ConstantOfShape": constant_of_shape,
    "ConvInteger": conv_integer,
    "CumProd": cum_prod,
    "CumSum": cum_sum,
    "DFT": dft,
    "Div": divide,
    "EyeLike": eye_like,
    "IsInf": is_inf,
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "Mod": modulo,
    "OneHot": one_hot,
    "Pad": pad,
    "Pow": power,
    "ReduceMax": partial(bool_reduction, largest=True),
    "ReduceMin": partial(bool_reduction, largest=False),
    "Resize": resize,
    "ReverseSequence": reverse_sequence,
    "STFT": stft,
    "Upsample": upsample,
}

__all__ = ["OPERATORS", "Call"]
