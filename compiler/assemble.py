"""Builds the kernels of lowered layers and makes the manifest's layers of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from veltair.compiler.binding import Array
from veltair.compiler.codegen import serialized
from veltair.compiler.fallback_files import FallbackStore
from veltair.compiler.kernels.choices import Choice
from veltair.compiler.kernels.spec import Kernel
from veltair.compiler.lower import Constant, Request
from veltair.compiler.passes.plan import Placement
from veltair.compiler.weights import WeightStore
from veltair.runtime.manifest import Argument, Fallback, Layer, Variant


@dataclass(frozen=True, kw_only=True)
class NamedKernel:
    """A kernel and its symbol in the library."""

    symbol: str
    kernel: Kernel


class Assembler:
    """Makes each distinct kernel once, packs the constants, and describes the layers.

    Attributes:
        weights: the constants of all layers so far.
        fallbacks: the parts that fall back.
    """

    def __init__(
        self,
        build: Callable[[Request, Choice], Kernel],
        threads: Sequence[int],
        on_kernel: Callable[[str, str], None],
    ) -> None:
        """Begins with nothing.

        Args:
            build: makes a layer's kernel of a choice.
            threads: of the versions of layers that fall back.
            on_kernel: hears of each kernel as it is made: its symbol, and its PrimFunc as JSON.
        """
        self.weights, self.fallbacks = WeightStore(), FallbackStore()
        self._build, self._threads, self._on_kernel = build, threads, on_kernel
        self._kernels: dict[object, NamedKernel] = {}

    @property
    def kernel_count(self) -> int:
        """Distinct kernels so far."""
        return len({named.symbol for named in self._kernels.values()})

    def layers(
        self, requests: Sequence[Request], choices: Sequence[Sequence[Choice]]
    ) -> tuple[Layer, ...]:
        """The layers of a model, or of one of its batches.

        Args:
            requests: the layers.
            choices: of each layer's variants, the first first; a layer without gets its request's
                own kernel.
        """
        names: set[str] = set()
        layers = []
        for request, own in zip(requests, choices, strict=True):
            name = _unique(request.nodes[-1] if request.nodes else request.op, names)
            layers.append(self._layer(name, request, own))
        return tuple(layers)

    def _layer(self, name: str, request: Request, choices: Sequence[Choice]) -> Layer:
        if request.segment is not None:
            fallback = self.fallbacks.add(request.segment)
            return _fallback_layer(name, request, fallback, self._threads)
        variants = []
        for choice in choices or (None,):
            named = self._kernel(request, choice)
            arguments = tuple(_argument(a, named.kernel, self.weights) for a in request.arguments)
            variants.append(_variant(named, arguments))
        return _layer(name, request, tuple(variants))

    def _kernel(self, request: Request, choice: Choice | None) -> NamedKernel:
        key = (request.key, choice)
        if key not in self._kernels:
            kernel = request.build() if choice is None else self._build(request, choice)
            symbol, text = serialized(kernel)
            self._kernels[key] = NamedKernel(symbol=symbol, kernel=kernel)
            self._on_kernel(symbol, text)
        return self._kernels[key]


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
    return _placed(argument)


def _placed(argument: Placement) -> Argument:
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


def _variant(named: NamedKernel, arguments: tuple[Argument, ...]) -> Variant:
    kernel = named.kernel
    return Variant(
        id=kernel.variant_id,
        symbol=named.symbol,
        algorithm=kernel.algorithm,
        parallel_extent=kernel.parallel_extent,
        tile_bytes=kernel.tile_bytes,
        arguments=arguments,
    )


def _fallback_layer(
    name: str, request: Request, fallback: Fallback, threads: Sequence[int]
) -> Layer:
    """A layer whose versions differ in how many threads they have."""
    arguments = tuple(_placed(a) for a in request.arguments if isinstance(a, Placement))
    variants = tuple(
        Variant(
            id=f"onnxruntime_t{count}",
            symbol="",
            algorithm="onnxruntime",
            parallel_extent=count,
            tile_bytes=0,
            arguments=arguments,
        )
        for count in threads
    )
    return _layer(name, request, variants, fallback)


def _layer(
    name: str, request: Request, variants: tuple[Variant, ...], fallback: Fallback | None = None
) -> Layer:
    return Layer(
        name=name,
        op=request.op,
        nodes=request.nodes,
        input_shapes=request.input_shapes,
        output_shapes=request.output_shapes,
        flops=request.flops,
        variants=variants,
        fallback=fallback,
        cleared=request.cleared,
    )
