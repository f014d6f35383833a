"""Lowers regions of ordinary operators through Relax: import, legalise, fuse."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import relax, te

from veltair.compiler.binding import Array
from veltair.compiler.graph import Graph, Op
from veltair.compiler.kernels.default import has_reductions
from veltair.compiler.nodes import describe
from veltair.compiler.onnx_importer import Importer
from veltair.runtime.errors import UnsupportedOperatorError
from veltair.runtime.interrupts import uninterrupted

_LARGEST = {float(np.finfo(dtype).max) for dtype in (np.float16, np.float32, np.float64)}

_Value = tuple["str | Array", ...]  # what a Relax variable stands for, one entry a tuple field


@dataclass(frozen=True, kw_only=True)
class TirCall:
    """One kernel of a lowered region.

    Attributes:
        func: the PrimFunc; buffers are the inputs, then the outputs, all dense.
        name: what Relax called it, e.g. `fused_add_relu`.
        inputs: tensor names, or constants that Relax made.
        outputs: tensor names.
    """

    func: Any
    name: str
    inputs: tuple[str | Array, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Region:
    """A lowered region; `shapes` has physical shape and dtype of the tensors that it adds."""

    calls: tuple[TirCall, ...]
    shapes: dict[str, tuple[tuple[int, ...], str]]


@uninterrupted()
def lower_region(graph: Graph, op: Op, physical: dict[str, tuple[int, ...]]) -> Region:
    """Lowers one `Default` operation.

    Args:
        graph: the operation's graph.
        op: nodes to lower together.
        physical: shape in memory of every tensor that the region reads or writes.

    Raises:
        UnsupportedOperatorError: a node has no lowering, or one of another shape than ONNX's; it
            is named.
    """
    try:
        return _Lowering(graph, op, physical).run()
    except MemoryError:
        raise
    except Exception as error:  # TVM raises a different type at each of its stages
        culprit = _culprit(graph, op, physical) or op.protos[0]
        reason = f"TVM can't lower it ({_last_line(error)})"
        # A node that a pass has made stands for those that it was made of.
        names = (culprit.name,) if culprit.name in op.nodes else op.nodes
        raise UnsupportedOperatorError(
            f"{describe(culprit)}: {reason}", dict.fromkeys(names, reason)
        ) from error


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__


def _culprit(graph: Graph, op: Op, physical: dict[str, tuple[int, ...]]) -> onnx.NodeProto | None:
    """The first node that can't be lowered alone."""
    if len(op.protos) == 1:
        return op.protos[0]
    for proto in op.protos:
        inputs = tuple(dict.fromkeys(n for n in proto.input if n))
        single = op.replaced(
            inputs=inputs, outputs=tuple(o for o in proto.output if o), protos=(proto,)
        )
        try:
            _Lowering(graph, single, physical).run()
        except Exception:  # whatever TVM raises marks the node
            return proto
    return None


class _Lowering:
    def __init__(self, graph: Graph, op: Op, physical: dict[str, tuple[int, ...]]) -> None:
        self.graph = graph
        self.op = op
        self.physical = physical
        self.constants = {n for n in op.inputs if graph.tensors[n].data is not None}
        self.shapes: dict[str, tuple[tuple[int, ...], str]] = {}

    def run(self) -> Region:
        model = self._model()
        # TVM takes a size of 0 in the model for an unknown one.
        sizes = {i.name: list(self._shape(i.name)) for i in model.graph.input}
        importer = Importer(sizes, "float32", keep_params_in_input=False, sanitize=False)
        module = importer.from_onnx(model.graph, self.graph.opset)
        passes = tvm.transform.Sequential(
            [
                relax.transform.FoldConstant(),
                relax.transform.LegalizeOps(),
                relax.transform.FoldConstant(),
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.DeadCodeElimination(),
            ]
        )
        with tvm.transform.PassContext(opt_level=3), tvm.target.Target("llvm"):
            module = passes(module)
        return self._read(module)

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.physical.get(name, self.graph.tensors[name].shape)

    def _value(self, name: str) -> onnx.ValueInfoProto:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(self.graph.tensors[name].dtype))
        return helper.make_tensor_value_info(name, elem, self._shape(name))

    def _model(self) -> onnx.ModelProto:
        weights = []
        for name in self.constants:
            data = self.graph.tensors[name].data
            assert data is not None
            data = _packed_constant(data, self.physical[name])
            weights.append(numpy_helper.from_array(np.ascontiguousarray(data), name))
        graph = helper.make_graph(
            list(self.op.protos),
            "region",
            [self._value(n) for n in self.op.inputs if n not in self.constants],
            [self._value(n) for n in self.op.outputs],
            initializer=weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.graph.opset)])

    def _read(self, module: Any) -> Region:  # noqa: ANN401 (tvm.IRModule is untyped)
        """Turns the module's bindings into calls over named tensors."""
        main = module["main"]
        parameters = [n for n in self.op.inputs if n not in self.constants]
        names: dict[Any, _Value] = {
            var: (name,) for var, name in zip(main.params, parameters, strict=True)
        }
        calls = []
        for binding in (b for block in main.body.blocks for b in block.bindings):
            value = binding.value
            if isinstance(value, relax.Tuple):
                names[binding.var] = tuple(self._operand(f, names) for f in value.fields)
            elif isinstance(value, relax.TupleGetItem):
                names[binding.var] = (names[value.tuple_value][value.index],)
            elif isinstance(value, tvm.ir.Call) and value.op.name == "relax.call_tir":
                call = self._call(module, binding, names)
                names[binding.var] = call.outputs
                calls.append(call)
            elif isinstance(value, tvm.ir.Call):
                raise NotImplementedError(f"no kernel for {value.op.name}")
            else:
                names[binding.var] = (self._operand(value, names),)
        results = names.get(main.body.body, ())
        return self._named(calls, results)

    def _operand(self, value: Any, names: dict[Any, _Value]) -> str | Array:  # noqa: ANN401
        if isinstance(value, tvm.ir.GenericConst):
            return np.array(value.value.numpy())
        (operand,) = names[value]
        return operand

    def _call(self, module: Any, binding: Any, names: dict[Any, _Value]) -> TirCall:  # noqa: ANN401
        function, arguments = binding.value.args[0], binding.value.args[1]
        types = binding.var.ty
        fields = types.fields if isinstance(types, tvm.ir.TupleType) else [types]
        outputs = []
        for field in fields:
            name = f"{self.op.nodes[0]}/{binding.var.name}.{len(self.shapes)}"
            shape = tuple(int(d) for d in field.shape.values)
            self.shapes[name] = (shape, str(field.dtype))
            outputs.append(name)
        hint = next(v.name_hint for v in module.get_global_vars() if v.same_as(function))
        return TirCall(
            func=_with_infinite_starts(module[function]),
            name=str(hint),
            inputs=tuple(self._operand(a, names) for a in arguments.fields),
            outputs=tuple(outputs),
        )

    def _named(self, calls: list[TirCall], results: _Value) -> Region:
        """Gives the region's outputs their names; an output that is no call's own is copied."""
        renames: dict[str, str] = {}
        copies = []
        made = dict(self.shapes)
        for name, value in zip(self.op.outputs, results, strict=True):
            self._check_kind(name, value, made)
            shape = self.physical.get(name, self.graph.tensors[name].shape)
            made_here = isinstance(value, str) and value in self.shapes and value not in renames
            if isinstance(value, str) and made_here and self.shapes[value][0] == shape:
                renames[value] = name
                del self.shapes[value]
            else:
                source = renames.get(value, value) if isinstance(value, str) else value
                known = self._kind(value, made)[0]
                func = copy_function(shape, self.graph.tensors[name].dtype, known)
                copies.append(TirCall(func=func, name="copy", inputs=(source,), outputs=(name,)))
        renamed = [
            replace(
                call,
                inputs=tuple(renames.get(i, i) if isinstance(i, str) else i for i in call.inputs),
                outputs=tuple(renames.get(o, o) for o in call.outputs),
            )
            for call in calls
        ]
        return Region(calls=(*renamed, *copies), shapes=self.shapes)

    def _kind(
        self, value: str | Array, made: dict[str, tuple[tuple[int, ...], str]]
    ) -> tuple[tuple[int, ...], str]:
        """Shape in memory and type of a value; `made` has those of the region's own."""
        if not isinstance(value, str):
            return value.shape, value.dtype.name
        if value in made:
            return made[value]
        source = self.graph.tensors[value]
        return self.physical.get(value, source.shape), source.dtype

    def _check_kind(
        self, name: str, value: str | Array, made: dict[str, tuple[tuple[int, ...], str]]
    ) -> None:
        """Refuses a region whose shape or type TVM makes otherwise than ONNX's inference."""
        tensor = self.graph.tensors[name]
        expected = (self.physical.get(name, tensor.shape), tensor.dtype)
        actual = self._kind(value, made)
        if actual != expected and not _is_scalar_of(actual, expected):
            raise ValueError(
                f"'{name}' becomes {actual[1]}{list(actual[0])}, in ONNX it is "
                f"{expected[1]}{list(expected[0])}"
            )


def _is_scalar_of(
    actual: tuple[tuple[int, ...], str], expected: tuple[tuple[int, ...], str]
) -> bool:
    """Whether they are one element each: TVM has one of no dimensions as one of one, and so on."""
    return actual[1] == expected[1] and math.prod(actual[0]) == math.prod(expected[0]) == 1


def _with_infinite_starts(func: Any) -> Any:  # noqa: ANN401 (tvm.tirx.PrimFunc)
    """The function with maxima and minima that start from infinity.

    TVM starts them from the largest finite number: wrong where all elements are infinite, as in a
    row of an attention's mask that hides everything.
    """
    if not has_reductions(func):
        return func
    tree = json.loads(tvm.ir.save_json(func))
    changed = False
    for node in tree["nodes"]:
        if node["type"] == "ir.FloatImm" and abs(node["data"]["value"]) in _LARGEST:
            node["data"]["value"] = math.copysign(math.inf, node["data"]["value"])
            changed = True
    return tvm.ir.load_json(json.dumps(tree)) if changed else func


def copy_function(shape: tuple[int, ...], dtype: str, source: tuple[int, ...] | None = None) -> Any:  # noqa: ANN401 (tvm.tirx.PrimFunc)
    """A PrimFunc that copies a dense tensor.

    Args:
        shape: of the copy.
        dtype: of both.
        source: shape of what is copied where it is another, of one element.
    """
    known = shape if source is None else source
    data = te.placeholder(known, dtype, name="data")
    out = te.compute(
        shape, lambda *at: data(*(at if known == shape else [0] * len(known))), name="copy"
    )
    return te.create_prim_func([data, out])


def _packed_constant(data: Array, physical: tuple[int, ...]) -> Array:
    """A constant as a packed run reads it: channels in vectors where it has one a channel."""
    if data.shape == physical:
        return data
    full = data.reshape((1,) * (4 - data.ndim) + data.shape)
    lanes = physical[-1]
    if lanes == 1:
        return full[..., None]
    n, c, h, w = full.shape
    padded = np.zeros((n, physical[1] * lanes, h, w), data.dtype)
    padded[:, :c] = full
    return padded.reshape(n, physical[1], lanes, h, w).transpose(0, 1, 3, 4, 2)
