"""Runs tests of ONNX's backend suite: `python -m veltair.eval.conformance_child`.

Reads a test's name a line, and answers with a line of JSON: see `Outcome`. A kernel that crashes or
hangs takes this process with it and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import unittest
import warnings
from typing import Any

import msgspec
import onnx
from onnx.backend.test.runner import Runner

from veltair.compiler.backend import VeltairBackend, VeltairRep
from veltair.compiler.fold import draws
from veltair.compiler.search.dependents import depend_on
from veltair.runtime.manifest import Manifest

STATUSES = ("compiled", "fallback", "refused", "skipped", "failed")
# What a compile says of what can't be served: values that are no tensors or of types that clients
# can't send, operators that neither TVM nor ONNX Runtime has, on such types at least.
_REFUSALS = (
    "clients send and receive",
    "give a NumPy array",
    "Veltair takes tensors only",
    "UnsupportedOperatorError",
)
# Tests whose expected values don't bear the suite's tolerance, by name: what they bear, and why.
TOLERANCES = dict.fromkeys(
    ("test_dft_inverse", "test_dft_inverse_opset19"),
    (1e-6, "its expected values are a transform by NumPy in single precision, off by 1.9e-7"),
)
# Tests that ask for what we do otherwise on purpose, by name, and why.
EXCEPTIONS = {
    "test_maxunpool_export_with_output_shape_cpu": (
        "its indices count in the shape without output_shape, those that MaxPool writes in that of "
        "output_shape, as ours do and ONNX Runtime's (onnx/onnx#2398)"
    )
}
_MOST_REASON = 300  # characters
_MACHINE_PATH = re.compile(r"(?<![\w:])/[\w./+-]+/")  # what a message says of where it was


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one test.

    Attributes:
        name: of the test.
        category: of the suite, e.g. `OnnxBackendNodeModelTest`.
        status: `compiled`, `fallback` (a part or all of it ran on ONNX Runtime), `failed`,
            `refused` (the compile says that nothing here serves it: see `_REFUSALS`) or `skipped`.
        operators: of the model.
        types: of the model's inputs and outputs, as ONNX names them.
        fallen: operators that fell back, and why.
        reason: why it failed, or was refused or skipped.
    """

    name: str
    category: str
    status: str
    operators: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    fallen: tuple[str, ...] = ()
    reason: str = ""


class _Watched(VeltairBackend):
    """The backend, and what it was asked for last."""

    model: onnx.ModelProto | None = None
    rep: VeltairRep | None = None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> VeltairRep:  # noqa: ANN401
        cls.model, cls.rep = model, None
        cls.rep = super().prepare(model, device, **kwargs)
        return cls.rep


def suite() -> dict[str, tuple[str, unittest.TestCase]]:
    """The tests for the CPU by name, each with its category; none that needs the network."""
    found = {}
    tolerances = {name: {"atol": atol} for name, (atol, _) in TOLERANCES.items()}
    for category, case in Runner(_Watched, __name__, tolerances).test_cases.items():
        for name in unittest.TestLoader().getTestCaseNames(case):
            if name.endswith("_cpu") and "Real" not in category:
                found[name] = (category, case(name))
    return found


def main() -> None:
    """Runs tests until the input ends."""
    depend_on(os.getppid())
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    tests = suite()
    for line in sys.stdin:
        name = line.strip()
        category, test = tests[name]
        answers.write(msgspec.json.encode(_run(name, category, test)) + b"\n")
        answers.flush()


def _run(name: str, category: str, test: unittest.TestCase) -> Outcome:
    _Watched.model = _Watched.rep = None
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()):
        test.run(result)
    rep = _Watched.rep
    manifests: list[Manifest] = rep.manifests if rep is not None else []
    layers = [layer for manifest in manifests for layer in manifest.layers]
    fallen = tuple(r for layer in layers if layer.fallback for r in layer.fallback.reasons)
    status, reason = _status(result, has_fallen=any(layer.fallback for layer in layers))
    if status == "failed" and manifests and _Watched.model is not None:
        if draws(_Watched.model):
            status, reason = "skipped", "it expects the draws of NumPy's generator"
        elif name in EXCEPTIONS:
            status, reason = "skipped", EXCEPTIONS[name]
    operators, types = _described(_Watched.model)
    return Outcome(
        name=name,
        category=category,
        status=status,
        operators=operators,
        types=types,
        fallen=fallen,
        reason=reason[-_MOST_REASON:],
    )


def _status(result: unittest.TestResult, *, has_fallen: bool) -> tuple[str, str]:
    problems = [text for _, text in (*result.errors, *result.failures)]
    if problems:
        reason = _MACHINE_PATH.sub("", problems[0].strip().splitlines()[-1])
        return ("refused" if any(text in reason for text in _REFUSALS) else "failed"), reason
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return ("fallback" if has_fallen else "compiled"), ""


def _described(model: onnx.ModelProto | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if model is None:
        return (), ()
    operators = dict.fromkeys(node.op_type for node in model.graph.node)
    types: dict[str, None] = {}
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind == "tensor_type":
            types[onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)] = None
        else:
            types[str(kind).removesuffix("_type").upper()] = None
    return tuple(operators), tuple(types)


if __name__ == "__main__":
    main()
