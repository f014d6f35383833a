"""Small random ONNX graphs over the operators that are compiled, as hypothesis draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.binding import Array
from veltair.compiler.inference import value_shapes
from veltair.compiler.reference import TOLERANCE, relative_difference

OPSET = 18
MOST_ELEMENTS = 6000
Shape = tuple[int, ...]

# What gives values of its inputs, or small integers and truth values: exact in any order.
EXACT = {
    *("Relu", "Neg", "Abs", "Max", "Min", "Clip", "Sign", "Floor", "Ceil", "Round", "Where"),
    *("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Slice", "Pad"),
    *("Gather", "Expand", "Tile", "Split", "DepthToSpace", "Resize", "Identity", "Cast"),
    *("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"),
}
UNARY = [
    *("Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Erf", "Softplus", "Elu", "LeakyRelu"),
    *("HardSwish", "HardSigmoid", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Softsign"),
    *("Selu", "Mish", "ThresholdedRelu", "Reciprocal", "Identity", "Sqrt", "Log"),
]
REDUCTIONS = [
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSumExp", "ReduceSumSquare"),
]
FLOAT, INT64, BOOL = (np.dtype(t) for t in (np.float32, np.int64, np.bool_))


class Builder:
    """A graph in the making: what values there are, and what makes them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rng = np.random.default_rng(random.getrandbits(32))
        self.values: dict[str, tuple[Shape, np.dtype[Any]]] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def coin(self) -> bool:
        return self.random.random() < 0.5

    def shuffled(self, items: Iterable[Any]) -> list[Any]:
        return self.random.sample(list(items), len(list(items)))

    def input(self, shape: Shape, dtype: np.dtype[Any]) -> None:
        name = f"x{len(self.inputs)}"
        self.inputs.append(_value(name, shape, dtype))
        self.values[name] = (shape, dtype)

    def constant(self, data: Any) -> str:  # noqa: ANN401 (whatever NumPy makes an array of)
        name = f"k{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.asarray(data), name)
        return name

    def weight(self, shape: Sequence[int], dtype: np.dtype[Any] = FLOAT) -> str:
        """A constant; of integers none is 0, as some are divided by."""
        if dtype == FLOAT:
            return self.constant(self.rng.standard_normal(shape).astype(np.float32))
        if dtype == BOOL:
            return self.constant(self.rng.integers(0, 2, shape).astype(np.bool_))
        return self.constant(np.asarray(self.rng.integers(1, 4, shape)).astype(dtype))

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str | None:  # noqa: ANN401
        """Adds a node, and returns its first output; None where ONNX allows no such node."""
        made = [f"{op.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, made, name=f"n_{made[0]}", **attributes)
        known = [_value(n, *self.values[n]) for n in set(inputs) if n in self.values]
        constants = [self.weights[n] for n in set(inputs) if n in self.weights]
        graph = helper.make_graph([node], "g", known, [onnx.ValueInfoProto(name=n) for n in made])
        graph.initializer.extend(constants)
        try:
            model = onnx.shape_inference.infer_shapes(
                _model(graph), check_type=True, strict_mode=True, data_prop=True
            )
        except onnx.shape_inference.InferenceError:
            return None
        shapes = {}
        for output in model.graph.output:
            tensor = output.type.tensor_type
            dims = [int(d.dim_value) for d in tensor.shape.dim if d.HasField("dim_value")]
            if not tensor.HasField("shape") or len(dims) != len(tensor.shape.dim):
                return None
            if min(dims, default=1) < 0 or np.prod(dims) > MOST_ELEMENTS:
                return None
            shapes[output.name] = (tuple(dims), helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        self.values |= shapes
        self.nodes.append(node)
        return made[0]

    def pick(self, *dtypes: np.dtype[Any], ranks: Sequence[int] = range(6)) -> str | None:
        """One of the values of such types and ranks; None where there is none."""
        fits = [
            n
            for n, (s, d) in self.values.items()
            if (not dtypes or d in dtypes) and len(s) in ranks
        ]
        return self.random.choice(fits) if fits else None

    def model(self) -> onnx.ModelProto:
        read = {i for n in self.nodes for i in n.input}
        made = [o for n in self.nodes for o in n.output]
        ends = [o for o in made if o not in read]
        inside = [o for o in made if o in read]
        if inside:
            ends += self.random.sample(inside, min(len(inside), self.random.randint(0, 2)))
        outputs = [_value(n, *self.values[n]) for n in ends]
        graph = helper.make_graph(
            self.nodes, "g", self.inputs, outputs, list(self.weights.values())
        )
        return _model(graph)


def _value(name: str, shape: Shape, dtype: np.dtype[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", OPSET)])


def _unary(b: Builder) -> None:
    op = b.random.choice(UNARY)
    x = b.pick(FLOAT, INT64) if op in ("Neg", "Abs", "Sign", "Identity") else b.pick(FLOAT)
    if x and op in ("Sqrt", "Log", "Reciprocal"):
        x = b.add("Add", b.add("Abs", x) or x, b.constant(np.asarray(0.1, b.values[x][1])))
    if x:
        b.add(op, x)


def _clip(b: Builder) -> None:
    x = b.pick(FLOAT, INT64)
    if x:
        low, high = sorted(b.random.randint(-2, 6) for _ in range(2))
        dtype = b.values[x][1]
        bounds = [b.constant(np.asarray(v, dtype)) for v in (low, high)]
        b.add("Clip", x, *b.random.choice([bounds, bounds[:1], ["", bounds[1]]]))


def _operand(b: Builder, x: str) -> str:
    """A value or a constant that broadcasts with a value, often."""
    shape, dtype = b.values[x]
    others = [n for n, (s, d) in b.values.items() if d == dtype and _broadcasts(s, shape)]
    if b.coin():
        return b.random.choice(others)
    kept = shape[b.random.randint(0, len(shape)) :]
    full = [b.random.choice([n, 1] if n != 1 else [1, 1, 3]) for n in kept]
    extra = [1] * b.random.randint(0, 1) if len(full) == len(shape) and len(shape) < 5 else []
    return b.weight((*extra, *full), dtype)


def _broadcasts(a: Shape, b: Shape) -> bool:
    pairs = zip(a[::-1], b[::-1], strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def _binary(b: Builder) -> None:
    op = b.random.choice(["Add", "Sub", "Mul", "Max", "Min", "Div", "Pow", "PRelu", "Mod"])
    x = b.pick(FLOAT) if op in ("Pow", "PRelu") else b.pick(FLOAT, INT64)
    if x is None:
        return
    y = _operand(b, x)
    if op in ("Div", "Mod") and y not in b.weights:  # nothing is divided by 0
        y = b.weight(b.values[y][0][-1:], b.values[x][1])
    if op == "Pow":
        y = b.constant(np.float32(b.random.choice([2, 3, 0.5, 1.5, -1])))
        x = b.add("Add", b.add("Abs", x) or x, b.constant(np.float32(0.2))) or x
    flipped = op not in ("Div", "Mod", "Pow", "PRelu") and b.coin()
    attributes = {"fmod": 1} if op == "Mod" and b.values[x][1] == FLOAT else {}
    b.add(op, *((y, x) if flipped else (x, y)), **attributes)


def _variadic(b: Builder) -> None:
    x = b.pick(FLOAT)
    if x:
        operands = [x, *(_operand(b, x) for _ in range(b.random.randint(0, 2)))]
        b.add(b.random.choice(["Sum", "Max", "Min", "Mean"]), *operands)


def _compare(b: Builder) -> None:
    x = b.pick(FLOAT, INT64)
    if x:
        ops = ["Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"]
        b.add(b.random.choice(ops), x, _operand(b, x))


def _logic(b: Builder) -> None:
    x = b.pick(BOOL)
    if x:
        op = b.random.choice(["And", "Or", "Xor", "Not"])
        b.add(op, x, *([] if op == "Not" else [_operand(b, x)]))


def _where(b: Builder) -> None:
    c, x = b.pick(BOOL), b.pick(FLOAT, INT64)
    if c and x:
        b.add("Where", c, *b.shuffled([x, _operand(b, x)]))


def _cast(b: Builder) -> None:
    x = b.pick()
    if x:
        to = [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT32]
        b.add("Cast", x, to=b.random.choice(to))


def _window(b: Builder, rank: int) -> dict[str, Any]:
    """Kernel, strides, and pads that are smaller than the kernel."""
    kernel = [b.random.randint(1, 4) for _ in range(rank)]
    pads = [b.random.randint(0, k - 1) for k in kernel * 2]
    strides = [b.random.randint(1, 3) for _ in kernel]
    return {"kernel_shape": kernel, "pads": pads, "strides": strides}


def _conv(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=(3, 4))
    if x is None:
        return
    shape = b.values[x][0]
    channels = shape[1]
    groups = [g for g in (1, channels, 2, 3) if g > 0 and channels % g == 0]
    group = b.random.choice(groups)
    window = _window(b, len(shape) - 2)
    if b.random.randint(0, 3) == 3:
        window["dilations"] = [b.random.randint(1, 2) for _ in shape[2:]]
    each = b.random.choice([1, 2, 3, 8, 11, 16])
    bias = [b.weight((each * group,))] if b.coin() else []
    weight = b.weight((each * group, channels // group, *window["kernel_shape"]))
    b.add("Conv", x, weight, *bias, group=group, **window)


def _conv_transpose(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=(4,))
    if x:
        window = _window(b, 2)
        weight = b.weight((b.values[x][0][1], b.random.randint(1, 9), *window["kernel_shape"]))
        b.add("ConvTranspose", x, weight, **window)


def _pool(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=(3, 4))
    if x is None:
        return
    op = b.random.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    if op.startswith("Global"):
        b.add(op, x)
        return
    window = _window(b, len(b.values[x][0]) - 2)
    if op == "AveragePool":
        window["count_include_pad"] = b.random.randint(0, 1)
    b.add(op, x, ceil_mode=b.random.randint(0, 1), **window)


def _normalise(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=(2, 3, 4))
    if x is None:
        return
    shape = b.values[x][0]
    op = b.random.choice(["BatchNormalization", "LayerNormalization", "LRN"])
    if op == "LayerNormalization":
        axis = b.random.randint(-len(shape), len(shape) - 1)
        b.add(op, x, b.weight(shape[axis:]), b.weight(shape[axis:]), axis=axis)
    elif op == "LRN":
        b.add(op, x, size=b.random.choice([1, 3, 5]), alpha=0.1, bias=1.5)
    else:
        positive = np.abs(b.rng.standard_normal(shape[1])).astype(np.float32) + np.float32(0.3)
        statistics = [b.weight(shape[1:2]) for _ in range(3)]
        b.add(op, x, *statistics, b.constant(positive))


def _matmul(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=(1, 2, 3, 4))
    if x is None:
        return
    shape = b.values[x][0]
    others = [n for n, (s, d) in b.values.items() if d == FLOAT and s and len(s) <= 4]
    fits = [n for n in others if shape[-1] == b.values[n][0][-2:][0]]
    if fits and b.coin():
        b.add("MatMul", x, b.random.choice(fits))
        return
    columns = b.random.choice([1, 2, 5, 8, 16, 17, 33])
    batch = shape[:-2] if b.coin() else ()
    b.add("MatMul", x, b.weight((*batch, shape[-1], columns)))


def _gemm(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=(2,))
    if x is None:
        return
    turned_a, turned_b = b.coin(), b.coin()
    rows, inner = b.values[x][0][:: -1 if turned_a else 1]
    columns = b.random.choice([1, 3, 8, 16, 19])
    weight = b.weight((columns, inner) if turned_b else (inner, columns))
    bias = b.random.choice([None, (columns,), (1,), (), (rows, 1), (rows, columns)])
    extra = [] if bias is None else [b.weight(bias)]
    scales = {"alpha": b.random.choice([1.0, 0.5]), "beta": b.random.choice([1.0, 2.0])}
    b.add("Gemm", x, weight, *extra, transA=int(turned_a), transB=int(turned_b), **scales)


def _axes(b: Builder, x: str, least: int = 0) -> list[int]:
    rank = len(b.values[x][0])
    picked = b.random.sample(range(rank), b.random.randint(least, min(rank, 3)))
    return [a - rank if b.coin() else a for a in picked]


def _reduce(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=range(1, 6))
    if x:
        axes = _axes(b, x)
        extra = [b.constant(np.asarray(axes, np.int64))] if axes else []
        b.add(b.random.choice(REDUCTIONS), x, *extra, keepdims=b.random.randint(0, 1))


def _argmax(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=range(1, 6))
    if x:
        (axis,) = _axes(b, x, 1)[:1]
        op = b.random.choice(["ArgMax", "ArgMin"])
        b.add(op, x, axis=axis, keepdims=b.random.randint(0, 1))


def _softmax(b: Builder) -> None:
    x = b.pick(FLOAT, ranks=range(1, 6))
    if x:
        (axis,) = _axes(b, x, 1)[:1]
        b.add(b.random.choice(["Softmax", "LogSoftmax"]), x, axis=axis)


def _transpose(b: Builder) -> None:
    x = b.pick(ranks=range(1, 6))
    if x:
        b.add("Transpose", x, perm=b.shuffled(range(len(b.values[x][0]))))


def _reshape(b: Builder) -> None:
    x = b.pick()
    if x is None:
        return
    shape = list(b.values[x][0])
    kind = b.random.choice(["merge", "unsqueeze", "flatten", "split", "squeeze"])
    if kind == "flatten":
        b.add("Flatten", x, axis=b.random.randint(0, len(shape)))
    elif kind == "squeeze" and 1 in shape:
        b.add("Squeeze", x, b.constant(np.array([shape.index(1)])))
    elif kind == "unsqueeze" and len(shape) < 5:
        b.add("Unsqueeze", x, b.constant(np.array([b.random.randint(-1, len(shape))])))
    elif kind == "merge" and len(shape) > 1:
        at = b.random.randint(0, len(shape) - 2)
        merged = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
        b.add("Reshape", x, b.constant(np.array(merged)), allowzero=1)
    elif kind == "split" and 0 < len(shape) < 5:
        at = b.random.randint(0, len(shape) - 1)
        by = next((d for d in (2, 3, 5, 7) if shape[at] % d == 0 and shape[at]), 1)
        b.add("Reshape", x, b.constant(np.array([*shape[:at], by, -1, *shape[at + 1 :]])))


def _concat(b: Builder) -> None:
    x = b.pick(ranks=range(1, 6))
    if x is None:
        return
    shape, dtype = b.values[x]
    axis = b.random.randint(0, len(shape) - 1)
    fits = [
        n
        for n, (s, d) in b.values.items()
        if d == dtype and len(s) == len(shape) and _but(s, axis) == _but(shape, axis)
    ]
    parts = [x]
    for _ in range(b.random.randint(1, 2)):
        size = b.random.randint(0, 4)
        own = b.weight((*shape[:axis], size, *shape[axis + 1 :]), dtype)
        parts.append(b.random.choice([*fits, own]))
    b.add("Concat", *b.shuffled(parts), axis=b.random.choice([axis, axis - len(shape)]))


def _but(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _slice(b: Builder) -> None:
    x = b.pick(ranks=range(1, 6))
    if x:
        axes = _axes(b, x, 1)
        bounds = [[b.random.randint(-4, 4) for _ in axes] for _ in range(2)]
        steps = [b.random.choice([1, 2, 3, -1, -2]) for _ in axes]
        b.add("Slice", x, *(b.constant(np.asarray(v, np.int64)) for v in (*bounds, axes, steps)))


def _pad(b: Builder) -> None:
    x = b.pick(FLOAT, INT64, ranks=range(1, 6))
    if x:
        mode = b.random.choice(["constant", "reflect", "edge"])
        rank = len(b.values[x][0])
        low = -1 if mode == "constant" else 0
        pads = [b.random.randint(low, 2) for _ in range(2 * rank)]
        fill = (
            [b.constant(np.asarray(2, b.values[x][1]))] if mode == "constant" and b.coin() else []
        )
        b.add("Pad", x, b.constant(np.array(pads)), *fill, mode=mode)


def _gather(b: Builder) -> None:
    x = b.pick(ranks=range(1, 5))
    if x is None:
        return
    axis = _axes(b, x, 1)[0]
    size = b.values[x][0][axis]
    known = [
        i.name for i in b.inputs if b.values[i.name][1] == INT64 and len(b.values[i.name][0]) < 3
    ]
    if known and size > 1 and b.coin():
        b.add("Gather", x, b.random.choice(known), axis=axis)
    elif size > 0:
        shape = b.random.choice([(), (1,), (3,), (2, 2), (0,)])
        b.add("Gather", x, b.constant(np.asarray(b.rng.integers(-size, size, shape))), axis=axis)


def _spread(b: Builder) -> None:
    x = b.pick(ranks=range(1, 5))
    if x is None:
        return
    shape = b.values[x][0]
    op = b.random.choice(["Expand", "Tile", "Split", "Resize", "DepthToSpace"])
    if op == "Expand":
        wanted = [b.random.choice([1, n if n != 1 else 3]) for n in shape]
        b.add(op, x, b.constant(np.array([*([2] if b.coin() else []), *wanted])))
    elif op == "Tile":
        b.add(op, x, b.constant(np.array([b.random.randint(1, 2) for _ in shape])))
    elif op == "Split":
        axis = b.random.randint(0, len(shape) - 1)
        first = b.random.randint(0, shape[axis])
        sizes = b.constant(np.array([first, shape[axis] - first]))
        b.add(op, x, sizes, outputs=2, axis=axis)
    elif len(shape) == 4 and b.values[x][1] == FLOAT:
        if op == "DepthToSpace":
            b.add(op, x, blocksize=2)
        else:
            scales = b.constant(
                np.array([1, 1, *(b.random.randint(1, 3) for _ in "hw")], np.float32)
            )
            b.add(op, x, "", scales, mode=b.random.choice(["nearest", "linear"]))


STEPS: list[Callable[[Builder], None]] = [
    *(_unary, _clip, _binary, _binary, _variadic, _compare, _logic, _where, _cast),
    *(_conv, _conv, _conv_transpose, _pool, _normalise, _matmul, _gemm, _reduce, _argmax),
    *(_softmax, _transpose, _reshape, _concat, _slice, _pad, _gather, _spread),
]


SIZES = [1, 2, 3, 4, 5, 7, 8, 16, 17]


def _inputs(b: Builder) -> None:
    """One to four; the first are images or matrices more often than not."""
    choose = b.random.choice
    for index in range(choose([1, 1, 2, 3])):
        rank = choose([4, 2, 3, 1, 0] if index else [4, 4, 4, 3, 2])
        shape = [choose(SIZES) for _ in range(rank)]
        if rank and b.random.random() < 0.08:
            shape[choose(range(rank))] = 0
        while np.prod(shape) > MOST_ELEMENTS:
            shape[choose(range(rank))] = choose(SIZES[:5])
        b.input(tuple(shape), choose([FLOAT, INT64, BOOL]) if index else FLOAT)
    if b.coin():  # two of one shape, for what takes two
        b.input(*b.values["x0"])


def random_graph(random: Random, nodes: int) -> onnx.ModelProto:
    """A graph of about so many nodes."""
    b = Builder(random)
    _inputs(b)
    for _ in range(nodes):
        random.choice(STEPS)(b)
    if not b.nodes:
        b.add("Relu", "x0")
    return b.model()


def graphs() -> st.SearchStrategy[onnx.ModelProto]:
    """Random graphs; of one that fails, the same with fewer nodes is what shrinking tries."""
    return st.builds(random_graph, st.randoms(use_true_random=True), st.integers(1, 10))


def is_settled(model: onnx.ModelProto) -> bool:
    """Whether a graph has but one right answer: finite, and not at the mercy of rounding.

    ONNX Runtime runs it once as it is and once with each inexact value changed by its last bits.
    Nor does a graph count of which ONNX Runtime makes other shapes than ONNX says.
    """
    as_it_is, jittered = _session(model), _session(_jittered(model))
    if as_it_is is None or jittered is None:
        return False
    shapes = {name: shape for name, (shape, _) in _inferred(model).items()}
    names = [output.name for output in as_it_is.get_outputs()]
    for seed in range(2):
        feed = _feed(model, np.random.default_rng(seed))
        try:
            plain, changed = as_it_is.run(None, feed), jittered.run(None, feed)
        except Exception:  # ONNX Runtime's exceptions share no other base
            return False
        for name, a, b in zip(names, plain, changed, strict=True):
            reference, other = np.asarray(a), np.asarray(b)
            if reference.shape != shapes[name] or not _is_close(other, reference):
                return False
    return True


def _is_close(other: Array, reference: Array) -> bool:
    in_range = reference.dtype != FLOAT or bool(np.all(np.abs(reference) < 1e6))
    return in_range and relative_difference(other, reference) <= TOLERANCE / 10


def _inferred(model: onnx.ModelProto) -> dict[str, tuple[Shape, int]]:
    return value_shapes(onnx.shape_inference.infer_shapes(model, data_prop=True))


def _feed(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs like those of `random_inputs`."""
    feed = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [int(d.dim_value) for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        drawn = rng.standard_normal(shape) if dtype == FLOAT else rng.integers(0, 2, shape)
        feed[value.name] = np.asarray(drawn).astype(dtype)
    return feed


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession | None:
    """Every value is an output; none where ONNX Runtime lacks an operator for such types."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    made = [o for n in watched.graph.node for o in n.output if not o.endswith("/exact")]
    watched.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made)
    try:
        return onnxruntime.InferenceSession(
            watched.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # ONNX Runtime's exceptions share no other base
        return None


def _jittered(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a product by almost 1 behind whatever rounds."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    rng = np.random.default_rng(0)
    shapes = {n: s for n, (s, elem) in _inferred(model).items() if elem == TensorProto.FLOAT}
    for node in model.graph.node:
        copy = changed.graph.node.add()
        copy.CopyFrom(node)
        for index, name in enumerate(node.output):
            if node.op_type in EXACT or name not in shapes:
                continue
            copy.output[index] = f"{name}/exact"
            factor = 1 + rng.uniform(-2e-6, 2e-6, shapes[name])
            changed.graph.initializer.append(
                numpy_helper.from_array(np.asarray(factor, np.float32), f"{name}/factor")
            )
            changed.graph.node.append(
                helper.make_node("Mul", [f"{name}/exact", f"{name}/factor"], [name])
            )
    return changed
