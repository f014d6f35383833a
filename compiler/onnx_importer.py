"""TVM's importer of ONNX into Relax, with operators of our own before its."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from veltair.compiler.te_operators import OPERATORS, Call


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
        operator = OPERATORS.get(op_name)
        if operator is not None:
            call = Call(
                builder=self.bb,
                inputs=tuple(inputs[i] for i in range(len(inputs))),
                attrs=attrs,
                outputs=attrs["tvm_custom"]["num_outputs"],
                opset=opset,
            )
            made = operator(call)
            if made is not None:
                return made
        return super()._convert_operator(op_name, inputs, attrs, opset)
