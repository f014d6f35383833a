"""Builds the kernels of lowered layers and makes the manifest's layers of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm

from veltair.compiler.graph import Array
from veltair.compiler.kernels.spec import Kernel
from veltair.compiler.lower import Constant, Request
from veltair.compiler.passes.plan import Placement
from veltair.compiler.weights import WeightStore
from veltair.runtime.manifest import Argument, Layer, Variant


@dataclass(frozen=True, kw_only=True)
class NamedKernel:
    """A kernel and its symbol in the library."""

    symbol: str
    kernel: Kernel


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The layers, the distinct kernels that they call, and their constants."""

    layers: tuple[Layer, ...]
    kernels: tuple[NamedKernel, ...]
    weights: WeightStore


def assemble(requests: Sequence[Request]) -> Assembly:
    """Makes each distinct kernel once, packs the constants, and describes the layers."""
    kernels: dict[object, NamedKernel] = {}
    weights = WeightStore()
    layers = []
    names: set[str] = set()
    for request in requests:
        if request.key not in kernels:
            kernels[request.key] = _name(request.build())
        named = kernels[request.key]
        arguments = tuple(_argument(a, named.kernel, weights) for a in request.arguments)
        name = _unique(request.nodes[-1] if request.nodes else request.op, names)
        layers.append(_layer(name, request, named, arguments))
    return Assembly(layers=tuple(layers), kernels=tuple(kernels.values()), weights=weights)


def _name(kernel: Kernel) -> NamedKernel:
    text = tvm.ir.save_json(kernel.func)
    suffix = hashlib.sha256(text.encode()).hexdigest()[:8]
    stem = re.sub(r"\W", "_", kernel.variant_id)[:64]
    return NamedKernel(symbol=f"{stem}_{suffix}", kernel=kernel)


def _unique(base: str, taken: set[str]) -> str:
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}#{count}"
    taken.add(name)
    return name


def _argument(
    argument: Placement | Constant,
    kernel: Kernel,
    weights: WeightStore,
) -> Argument:
    if isinstance(argument, Constant):
        return weights.add(_pack(argument, kernel))
    return Argument(
        storage=argument.storage,
        index=argument.index,
        offset_bytes=argument.offset_bytes,
        dtype=argument.dtype,
        shape=argument.shape,
        strides=argument.strides,
    )


def _pack(constant: Constant, kernel: Kernel) -> Array:
    packers = {"weight": kernel.pack_weight, "channel": kernel.pack_channel, "none": None}
    packer = packers[constant.packing]
    if packer is None:
        return constant.data
    return packer(np.ascontiguousarray(constant.data))


def _layer(
    name: str, request: Request, named: NamedKernel, arguments: tuple[Argument, ...]
) -> Layer:
    kernel = named.kernel
    variant = Variant(
        id=kernel.variant_id,
        symbol=named.symbol,
        algorithm=kernel.algorithm,
        parallel_extent=kernel.parallel_extent,
        tile_bytes=kernel.tile_bytes,
        arguments=arguments,
    )
    return Layer(
        name=name,
        op=request.op,
        nodes=request.nodes,
        input_shapes=request.input_shapes,
        output_shapes=request.output_shapes,
        flops=request.flops,
        variants=(variant,),
    )
