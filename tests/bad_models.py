"""Models that can't be compiled, each wrong in one way, and what shall be said of it.

`CASES` has them by name. A case writes its files into a folder and returns the model's path, so
that a case can also be wrong in what lies beside the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from fallback_models import BOOL, FLOAT, INT64, STRING, model_of, node, value
from onnx import TensorProto, helper, numpy_helper

from veltair.runtime.errors import InputError, UnsupportedOperatorError, VeltairError

X, Y = value("x", [2, 3]), value("y", [2, 3])
HUGE = 10**12


@dataclass(frozen=True, kw_only=True)
class Case:
    """One bad model.

    Attributes:
        write: writes it into a folder, and returns its path.
        error: what is raised.
        message: a regular expression that the message matches.
    """

    write: Callable[[Path], Path]
    error: type[VeltairError]
    message: str


CASES: dict[str, Case] = {}


def _bad(
    message: str, error: type[VeltairError] = InputError
) -> Callable[[Callable[[], onnx.ModelProto]], Callable[[], onnx.ModelProto]]:
    """Adds a case of a model that stands in one file."""

    def add(build: Callable[[], onnx.ModelProto]) -> Callable[[], onnx.ModelProto]:
        def write(folder: Path) -> Path:
            path = folder / "model.onnx"
            path.write_bytes(build().SerializeToString())
            return path

        CASES[build.__name__] = Case(write=write, error=error, message=message)
        return build

    return add


def _bad_file(message: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Adds a case that writes its own files."""

    def add(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
        CASES[write.__name__] = Case(write=write, error=InputError, message=message)
        return write

    return add


def relu_model() -> onnx.ModelProto:
    """A model that there's nothing wrong with: `y = Relu(x)`."""
    return model_of([node("Relu", "x", "y")], [X], [Y])


def weighted(weight: onnx.TensorProto) -> onnx.ModelProto:
    """The sum of the input and a weight, of any shape, `w`."""
    model = model_of([node("Add", "x w", "y")], [X], [value("y", None)])
    weight.name = "w"
    model.graph.initializer.append(weight)
    return model


def tensor(elem: int, dims: list[int], raw: bytes = b"", name: str = "w") -> onnx.TensorProto:
    """A tensor of which nothing is checked."""
    return TensorProto(data_type=elem, dims=dims, raw_data=raw, name=name)


# --- files ----------------------------------------------------------------------------------------


@_bad_file("no such file")
def absent(folder: Path) -> Path:
    return folder / "model.onnx"


@_bad_file("is a folder")
def directory(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.mkdir()
    return path


@_bad_file("not an ONNX model")
def empty_file(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(b"")
    return path


@_bad_file("not an ONNX model")
def text_file(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    return path


@_bad_file("truncated")
def truncated(folder: Path) -> Path:
    path = folder / "model.onnx"
    data = weighted(numpy_helper.from_array(np.ones((2, 300), np.float32))).SerializeToString()
    path.write_bytes(data[: len(data) // 2])
    return path


@_bad_file("no opset")
def no_opset(folder: Path) -> Path:
    model = relu_model()
    del model.opset_import[:]
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@_bad_file(r"graph\.node\[0\]\.input\[0\] isn't text")
def name_that_is_no_text(folder: Path) -> Path:
    path = folder / "model.onnx"
    model = model_of([node("Relu", "bytes", "y")], [X], [Y])
    path.write_bytes(model.SerializeToString().replace(b"bytes", b"by\xc3\x28s"))
    return path


# --- external data --------------------------------------------------------------------------------


def external(folder: Path, size: int = 24, **entries: object) -> Path:
    """A model with a weight of 24 bytes outside of it, in `weights.bin` if nothing else is said."""
    inner = folder / "inner"
    inner.mkdir()
    (inner / "weights.bin").write_bytes(b"\0" * size)
    (folder / "outside.bin").write_bytes(b"\0" * size)
    weight = tensor(FLOAT, [2, 3])
    weight.data_location = TensorProto.EXTERNAL
    for key, entry in ({"location": "weights.bin"} | entries).items():
        weight.external_data.add(key=key, value=str(entry))
    path = inner / "model.onnx"
    path.write_bytes(weighted(weight).SerializeToString())
    return path


@_bad_file(r"'w'.*gone\.bin.*missing")
def external_missing(folder: Path) -> Path:
    return external(folder, location="gone.bin")


@_bad_file(r"'w'.*outside")
def external_above(folder: Path) -> Path:
    return external(folder, location="../outside.bin")


@_bad_file(r"'w'.*outside")
def external_absolute(folder: Path) -> Path:
    return external(folder, location=folder / "outside.bin")


@_bad_file(r"'w'.*outside")
def external_link(folder: Path) -> Path:
    path = external(folder, location="link.bin")
    (path.parent / "link.bin").symlink_to("../outside.bin")
    return path


@_bad_file(r"'w'.*outside")
def external_linked_folder(folder: Path) -> Path:
    path = external(folder, location="sub/outside.bin")
    (path.parent / "sub").symlink_to("..")
    return path


@_bad_file(r"'w'.*no location|'w'.*names no file")
def external_nameless(folder: Path) -> Path:
    return external(folder, location="")


@_bad_file(r"'w'.*(folder|regular file)")
def external_directory(folder: Path) -> Path:
    path = external(folder, location="sub")
    (path.parent / "sub").mkdir()
    return path


@_bad_file(r"'w'.*bytes 16 to 40.*has 24")
def external_offset(folder: Path) -> Path:
    return external(folder, offset=16)


@_bad_file(r"'w'.*has 20")
def external_short(folder: Path) -> Path:
    return external(folder, size=20)


@_bad_file(r"'w'.*offset.*-8")
def external_negative(folder: Path) -> Path:
    return external(folder, offset=-8)


@_bad_file(r"'w'.*length.*many")
def external_wordy(folder: Path) -> Path:
    return external(folder, length="many")


@_bad_file(r"'w'.*length 12.*24 bytes")
def external_length(folder: Path) -> Path:
    return external(folder, length=12)


@_bad_file(r"'w'.*length")
def external_endless(folder: Path) -> Path:
    return external(folder, length=1 << 70)


# --- operators ------------------------------------------------------------------------------------


@_bad(r"Fused, node 'n_y' \(from x to y\).*domain 'com\.example'", UnsupportedOperatorError)
def custom_domain() -> onnx.ModelProto:
    model = model_of([node("Fused", "x", "y", domain="com.example")], [X], [Y])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return model


@_bad(r"Fused, node 'n_t' \(from x to t\).*domain 'com\.example'", UnsupportedOperatorError)
def custom_domain_in_a_branch() -> onnx.ModelProto:
    model = branches(
        helper.make_graph([node("Fused", "x", "t", domain="com.example")], "then", [], [_t("t")]),
        helper.make_graph([node("Relu", "x", "e")], "else", [], [_t("e")]),
    )
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return model


def _t(name: str) -> onnx.ValueInfoProto:
    return value(name, [2, 3])


def branches(then: onnx.GraphProto, otherwise: onnx.GraphProto) -> onnx.ModelProto:
    """A choice by the input `c`."""
    chosen = node("If", "c", "y", then_branch=then, else_branch=otherwise)
    return model_of([chosen], [X, value("c", [], BOOL)], [Y])


@_bad("Frobnicate, node 'n_y'", UnsupportedOperatorError)
def unknown_operator() -> onnx.ModelProto:
    return model_of([node("Frobnicate", "x", "y")], [X], [Y])


@_bad("n_y")
def missing_attribute() -> onnx.ModelProto:
    return model_of([node("Concat", "x x", "y")], [X], [Y])


@_bad("n_y")
def unknown_attribute() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y", colour="red")], [X], [Y])


@_bad("n_y")
def too_few_inputs() -> onnx.ModelProto:
    return model_of([node("Add", "x", "y")], [X], [Y])


@_bad("n_y.*num_scan_inputs is 4611686018427387904.*from 1 to its 1 inputs")
def scan_of_more_inputs_than_it_has() -> onnx.ModelProto:
    """ONNX's inference counts to it."""
    body = helper.make_graph([], "body", [], [])
    return model_of([node("Scan", "x", "y", body=body, num_scan_inputs=1 << 62)], [X], [Y])


@_bad(r"n_y.*equation is '\.\.\.1'.*must be terms of letters")
def einsum_of_no_equation() -> onnx.ModelProto:
    """ONNX's inference comes to no end."""
    return model_of([node("Einsum", "x", "y", equation="...1")], [X], [Y])


@_bad(r"n_y.*equation is '\.\.\.\.\.\.'")
def einsum_of_too_many_dots() -> onnx.ModelProto:
    return model_of([node("Einsum", "x", "y", equation="......")], [X], [Y])


@_bad("n_y.*equation is")
def einsum_that_is_no_text() -> onnx.ModelProto:
    return model_of([node("Einsum", "x", "y", equation=b"\xff\xfe")], [X], [Y])


@_bad("n_w")
def empty_constant() -> onnx.ModelProto:
    return model_of([node("Constant", "", "w"), node("Add", "x w", "y")], [X], [Y])


@_bad("n_y")
def division_by_no_group() -> onnx.ModelProto:
    image = [value("x", [1, 4, 8, 8])]
    weights = np.zeros((4, 4, 3, 3), np.float32)
    return model_of([node("Conv", "x w", "y", group=0)], image, [value("y", None)], w=weights)


@_bad("n_y")
def steps_of_nothing() -> onnx.ModelProto:
    image = [value("x", [1, 4, 8, 8])]
    pool = node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[0, 0])
    return model_of([pool], image, [value("y", None)])


@_bad(r"SplitToSequence, node 'n_parts'.*ONNX Runtime crashes on it \(SIGFPE\)")
def parts_of_nothing() -> onnx.ModelProto:
    nodes = [
        node("Relu", "x", "r"),
        node("SplitToSequence", "r size", "parts", axis=0),
        node("ConcatFromSequence", "parts", "y", axis=0),
    ]
    return model_of(nodes, [X], [Y], size=np.array(0))


@_bad("n_out")
def loop_over_nothing() -> onnx.ModelProto:
    return model_of([node("Loop", "x", "out")], [X], [value("out", None)])


# --- graphs ---------------------------------------------------------------------------------------


@_bad(r"cycle.*'n_a'.*'b'|cycle.*'n_b'.*'a'")
def cycle() -> onnx.ModelProto:
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]
    return model_of(nodes, [X], [Y])


@_bad(r"cycle.*'n_y'.*'y'")
def cycle_of_one() -> onnx.ModelProto:
    return model_of([node("Add", "x y", "y")], [X], [Y])


@_bad(r"'n_y'.*'nowhere'")
def missing_input() -> onnx.ModelProto:
    return model_of([node("Add", "x nowhere", "y")], [X], [Y])


@_bad(r"output 'z'")
def missing_output() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [X], [Y, value("z", [2, 3])])


@_bad(r"'n_t'.*'nowhere'")
def missing_input_in_a_branch() -> onnx.ModelProto:
    return branches(
        helper.make_graph([node("Add", "x nowhere", "t")], "then", [], [_t("t")]),
        helper.make_graph([node("Relu", "x", "e")], "else", [], [_t("e")]),
    )


@_bad(r"'y'.*(twice|already)")
def made_twice() -> onnx.ModelProto:
    nodes = [node("Relu", "x", "y"), helper.make_node("Exp", ["x"], ["y"], name="other")]
    return model_of(nodes, [X], [Y])


@_bad(r"'x'.*(twice|already)")
def input_made() -> onnx.ModelProto:
    return model_of([node("Exp", "x", "x"), node("Relu", "x", "y")], [X], [Y])


@_bad(r"'x'.*(twice|already)")
def input_twice() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [X, X], [Y])


@_bad(r"'y'.*(twice|already)")
def output_twice() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [X], [Y, Y])


@_bad(r"'w'.*(twice|already)")
def weight_twice() -> onnx.ModelProto:
    model = weighted(numpy_helper.from_array(np.ones(3, np.float32)))
    model.graph.initializer.append(model.graph.initializer[0])
    return model


@_bad("no nodes")
def empty_graph() -> onnx.ModelProto:
    return model_of([], [X], [X])


@_bad("no outputs")
def no_outputs() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [X], [])


@_bad("n_y")
def ill_typed() -> onnx.ModelProto:
    return model_of([node("Add", "x i", "y")], [X, value("i", [2, 3], INT64)], [Y])


@_bad("n_y")
def ill_shaped() -> onnx.ModelProto:
    return model_of([node("MatMul", "x z", "y")], [X, value("z", [2, 3])], [Y])


@_bad(r"n_y.*\(int64\)")
def ill_typed_output() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [X], [value("y", [2, 3], INT64)])


@_bad("n_y")
def text_is_added() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [value("x", [2, 3], STRING)], [value("y", None)])


@_bad("'x'.*type 999")
def unknown_type() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [value("x", [2], 999)], [value("y", None)])


@_bad("'x'.*no type|'x' is not a tensor")
def no_type() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [onnx.ValueInfoProto(name="x")], [Y])


# --- what grows -----------------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    """`If` in `If`, as deep as it goes; serialised by hand, as protobuf itself recurses."""
    inner = helper.make_graph([node("Relu", "x", "y")], "inner", [], [_t("y")])
    leaf = bytes(inner.SerializeToString())
    chosen = _field(1, b"c") + _field(2, b"y") + _field(3, b"n_y") + _field(4, b"If")
    is_graph = b"\xa0\x01\x05"  # the attribute's type
    other = _field(5, _field(1, b"else_branch") + _field(6, leaf) + is_graph)
    ends = _field(2, b"g") + _field(12, _t("y").SerializeToString())
    before, behind, size = [], [leaf], len(leaf)
    for _ in range(depth):
        heads = [_head(6, size), _field(1, b"then_branch")]
        size += sum(map(len, heads)) + len(is_graph)
        heads += [_head(5, size), chosen]
        size += sum(map(len, heads[2:])) + len(other)
        heads.append(_head(1, size))
        size += len(heads[-1]) + len(ends)
        before += heads
        behind += [is_graph, other, ends]
    inputs = (X, value("c", [], BOOL))
    behind += [_field(11, each.SerializeToString()) for each in inputs]
    graph = b"".join((*reversed(before), *behind))
    shell = onnx.ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 18)])
    return bytes(shell.SerializeToString()) + _field(7, graph)


def _field(number: int, data: bytes) -> bytes:
    return _head(number, len(data)) + data


def _head(number: int, size: int) -> bytes:
    digits = b""
    while size >= 128:
        digits += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + digits + bytes([size])


@_bad_file("nested|not an ONNX model")
def nested_10000(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(nested(10_000))
    return path


@_bad_file("nested")
def nested_30(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(nested(30))
    return path


def functions(calls: dict[str, list[str]]) -> onnx.ModelProto:
    """Functions that call others in turn; the model calls `f0`."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    made = []
    for name, called in calls.items():
        names = ["a", *(f"v{i}" for i in range(len(called) - 1)), "b"]
        body = [
            helper.make_node(
                op, [names[i]], [names[i + 1]], domain="local" if op in calls else "", name=f"{i}"
            )
            for i, op in enumerate(called)
        ]
        made.append(helper.make_function("local", name, ["a"], ["b"], body, opsets))
    model = model_of([node("f0", "x", "y", domain="local")], [X], [Y])
    model.opset_import.append(opsets[1])
    model.functions.extend(made)
    return model


@_bad("function 'f1?'.*call|'f0'.*calls itself")
def function_calls_itself() -> onnx.ModelProto:
    return functions({"f0": ["f0"]})


@_bad("calls itself")
def functions_call_each_other() -> onnx.ModelProto:
    return functions({"f0": ["f1"], "f1": ["f2", "Relu"], "f2": ["Exp", "f0"]})


@_bad("functions")
def functions_that_double() -> onnx.ModelProto:
    calls = {f"f{i}": [f"f{i + 1}", f"f{i + 1}"] for i in range(60)}
    return functions(calls | {"f60": ["Relu"]})


@_bad("'x'.*elements")
def input_over_64_bits() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [value("x", [1 << 40, 1 << 40])], [value("y", None)])


@_bad("'x'.*-3")
def negative_input() -> onnx.ModelProto:
    return model_of([node("Relu", "x", "y")], [value("x", [2, -3])], [value("y", None)])


@_bad("'w'.*elements")
def weight_over_64_bits() -> onnx.ModelProto:
    return weighted(tensor(FLOAT, [1 << 62, 4]))


@_bad("n_w.*type 255")
def window_of_no_type() -> onnx.ModelProto:
    """Inference takes it over."""
    window = node("BlackmanWindow", "n", "w", output_datatype=255)
    return model_of([window, node("Relu", "x", "y")], [X], [Y], n=np.array(3))


@_bad("'w'.*elements")
def weight_of_no_elements_over_64_bits() -> onnx.ModelProto:
    """NumPy leaves sizes of 0 out where it counts."""
    return weighted(tensor(FLOAT, [9, 0, 1 << 62], b""))


@_bad("'w'.*-2")
def negative_weight() -> onnx.ModelProto:
    return weighted(tensor(FLOAT, [-2, 3], b"\0" * 24))


def shaped(op: str, *shape: int, **attributes: object) -> onnx.ModelProto:
    """The sum of the input and a constant that an operator makes of a shape."""
    nodes = [node(op, "one s" if op != "ConstantOfShape" else "s", "big", **attributes)]
    return model_of(
        [*nodes, node("ReduceSum", "big", "sum", keepdims=0), node("Add", "x sum", "y")],
        [X],
        [Y],
        s=np.array(shape, np.int64),
        one=np.ones([1] * len(shape), np.float32),
    )


@_bad("n_big.*'big'")
def constant_of_shape() -> onnx.ModelProto:
    return shaped("ConstantOfShape", 10**6, 10**6)


@_bad("n_big.*'big'")
def constant_over_64_bits() -> onnx.ModelProto:
    return shaped("ConstantOfShape", 1 << 40, 1 << 40)


@_bad("n_big.*non-negative")
def constant_of_negative_shape() -> onnx.ModelProto:
    return shaped("ConstantOfShape", 2, -7)


@_bad("n_big.*'big'")
def expanded() -> onnx.ModelProto:
    return shaped("Expand", 10**6, 10**6)


@_bad("n_big.*'big'")
def tiled() -> onnx.ModelProto:
    return shaped("Tile", 10**6, 10**6)


@_bad("n_big.*'big'")
def expanded_input() -> onnx.ModelProto:
    nodes = [node("Expand", "x s", "big"), node("ReduceSum", "big", "y", keepdims=0)]
    return model_of(nodes, [X], [value("y", None)], s=np.array([10**11, 2, 3]))


@_bad("n_big.*'big'")
def padded() -> onnx.ModelProto:
    nodes = [node("Pad", "x s", "big"), node("ReduceSum", "big", "y", keepdims=0)]
    return model_of(nodes, [X], [value("y", None)], s=np.array([0, 0, 10**6, 10**6]))


@_bad("n_big.*'big'")
def ranged() -> onnx.ModelProto:
    return model_of(
        [
            node("Range", "from to by", "big"),
            node("ReduceSum", "big", "sum", keepdims=0),
            node("Add", "x sum", "y"),
        ],
        [X],
        [Y],
        **{"from": np.float32(0).reshape(()), "to": np.full((), 1e12, np.float32)},
        by=np.ones((), np.float32),
    )


@_bad("n_big.*'big'")
def ranged_for_a_branch() -> onnx.ModelProto:
    """Inference would follow the row's elements through the sum."""
    branch = helper.make_graph(
        [node("Add", "big step", "more")], "branch", [], [value("more", None)]
    )
    nodes = [
        node("Range", "from to step", "big"),
        node("If", "which", "y", then_branch=branch, else_branch=branch),
    ]
    ends = {"from": np.float32(0), "to": np.float32(1e12), "step": np.float32(1)}
    which = value("which", [], TensorProto.BOOL)
    return model_of(nodes, [which], [value("y", None)], **ends)


@_bad("n_big.*'big'")
def ranged_and_added() -> onnx.ModelProto:
    """A row that is too long, where something else is wrong too."""
    model = ranged()
    model.graph.node.extend([node("Add", "big sum", "more"), node("MatMul", "x", "z")])
    model.graph.output.append(value("z", None))
    return model


@_bad("n_d")
def doubled() -> onnx.ModelProto:
    """A constant that is joined with itself fifty times over."""
    nodes = [
        helper.make_node("Concat", [f"d{i}"] * 2, [f"d{i + 1}"], name=f"n_d{i + 1}", axis=0)
        for i in range(50)
    ]
    nodes += [node("ReduceSum", "d50", "sum", keepdims=0), node("Add", "x sum", "y")]
    return model_of(nodes, [X], [Y], d0=np.ones(4, np.float32))


@_bad("n_big.*'big'")
def computed_shape() -> onnx.ModelProto:
    """A constant of a shape that other constants make."""
    return model_of(
        [
            node("Mul", "a a", "b"),
            node("Mul", "b b", "s"),
            node("ConstantOfShape", "s", "big"),
            node("ReduceSum", "big", "sum", keepdims=0),
            node("Add", "x sum", "y"),
        ],
        [X],
        [Y],
        a=np.array([1000]),
    )


# --- weights --------------------------------------------------------------------------------------


@_bad(r"'w'.*'n_y'.*1 of 3 elements are NaN")
def nan_weight() -> onnx.ModelProto:
    return weighted(numpy_helper.from_array(np.array([1, np.nan, 3], np.float32)))


@_bad(r"'w'.*NaN")
def nan_weight_of_16_bits() -> onnx.ModelProto:
    model = weighted(numpy_helper.from_array(np.array([1, np.nan, 3], np.float16)))
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


@_bad(r"'w'.*NaN")
def nan_constant() -> onnx.ModelProto:
    data = numpy_helper.from_array(np.array([1, np.nan, 3], np.float32))
    return model_of([node("Constant", "", "w", value=data), node("Add", "x w", "y")], [X], [Y])


@_bad(r"'w'.*NaN")
def nan_floats() -> onnx.ModelProto:
    floats = node("Constant", "", "w", value_floats=[1.0, float("nan"), 3.0])
    return model_of([floats, node("Add", "x w", "y")], [X], [Y])


@_bad(r"'w'.*NaN")
def nan_in_a_branch() -> onnx.ModelProto:
    data = numpy_helper.from_array(np.array([1, np.nan, 3], np.float32), "w")
    return branches(
        helper.make_graph([node("Add", "x w", "t")], "then", [], [_t("t")], [data]),
        helper.make_graph([node("Relu", "x", "e")], "else", [], [_t("e")]),
    )


@_bad(r"'w'.*16 bytes.*24|'w'.*24 bytes.*16")
def short_weight() -> onnx.ModelProto:
    return weighted(tensor(FLOAT, [2, 3], b"\0" * 16))


@_bad(r"'w'")
def long_weight() -> onnx.ModelProto:
    return weighted(tensor(FLOAT, [2, 3], b"\0" * 32))


@_bad(r"'w'")
def short_fields() -> onnx.ModelProto:
    return weighted(TensorProto(data_type=FLOAT, dims=[2, 3], float_data=[1.0] * 4))


@_bad(r"'w'.*type 999")
def weight_of_unknown_type() -> onnx.ModelProto:
    return weighted(tensor(999, [2, 3], b"\0" * 24))


@_bad(r"'w'.*no type|'w'.*type 0")
def weight_of_no_type() -> onnx.ModelProto:
    return weighted(tensor(0, [2, 3], b"\0" * 24))


@_bad(r"n_y")
def weight_of_strings() -> onnx.ModelProto:
    return weighted(TensorProto(data_type=STRING, dims=[3], string_data=[b"a", b"b", b"c"]))


def sparse(indices: list[int], dims: list[int], values: int = 2) -> onnx.ModelProto:
    """A sparse weight `w` of two values."""
    model = model_of([node("Add", "x w", "y")], [X], [value("y", None)])
    model.graph.sparse_initializer.append(
        onnx.SparseTensorProto(
            values=numpy_helper.from_array(np.ones(values, np.float32), "w"),
            indices=numpy_helper.from_array(np.array(indices, np.int64), "w_at"),
            dims=dims,
        )
    )
    return model


@_bad(r"'w'")
def sparse_outside() -> onnx.ModelProto:
    return sparse([1, 60], [2, 3])


@_bad(r"'w'")
def sparse_negative() -> onnx.ModelProto:
    return sparse([-9, 1], [2, 3])


@_bad(r"'w'")
def sparse_huge() -> onnx.ModelProto:
    return sparse([0, 1], [HUGE, HUGE])


@_bad(r"'w'")
def sparse_of_another_size() -> onnx.ModelProto:
    return sparse([0, 1, 2], [2, 3])
