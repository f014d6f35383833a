"""TVM's importer of ONNX into Relax, with operators of our own before its."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, onnx_input

from veltair.compiler.te_operators import OPERATORS, Call
from veltair.compiler.te_operators.indices import bounded


class Importer(ONNXGraphImporter):  # type: ignore[misc] # TVM is untyped
    """Converts the nodes of a graph one by one."""

    def _check_for_unsupported_ops(self, graph: Any) -> None:  # noqa: ANN401 (onnx.GraphProto)
        """Leaves it to each node."""

    def _convert_operator(
        self,
        op_name: str,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        opset: int,
    ) -> Any:  # noqa: ANN401 (relax.Expr)
        call = Call(
            builder=self.bb,
            inputs=tuple(inputs[i] for i in range(len(inputs))),
            attrs=attrs,
            outputs=attrs["tvm_custom"]["num_outputs"],
            opset=opset,
        )
        call = bounded(op_name, call)
        operator = OPERATORS.get(op_name)
        made = operator(call) if operator is not None else None
        if made is not None:
            return made
        return super()._convert_operator(op_name, onnx_input(call.inputs), attrs, opset)
