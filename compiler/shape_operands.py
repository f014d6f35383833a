"""Which operands of operators give shapes, axes or counts, which a compiled model must know.

Reference: XLA names such operands of TensorFlow's operators likewise, compile-time constants.
"""

from __future__ import annotations

import onnx

from veltair.compiler.nodes import tensor_reads

# Positions among the inputs, by operator.
SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **dict.fromkeys(
        (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        ),
        (1,),
    ),
}


def shape_inputs(model: onnx.ModelProto) -> frozenset[str]:
    """The model's inputs that are read, and by nothing but as such operands.

    What a subgraph reads stays an input.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    shaping: set[str] = set()
    others = {output.name for output in model.graph.output}
    for node in model.graph.node:
        positions = SHAPE_OPERANDS.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
        for position, name in enumerate(node.input):
            (shaping if position in positions else others).add(name)
        others |= set(tensor_reads(node)) - set(node.input)
    inputs = {value.name for value in model.graph.input} - weights
    return frozenset(inputs & shaping - others)
