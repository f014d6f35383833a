"""Asks ONNX Runtime whether it runs what falls back, while the model can still be refused."""

from __future__ import annotations

import onnxruntime

from veltair.compiler.fallback import Segment

_MOST_BYTES = 1 << 31  # of a model in one piece: a protocol buffer holds no more


def refusal(segment: Segment) -> str:
    """Why ONNX Runtime doesn't run a segment; empty where it does.

    Makes a session, and drops it.
    """
    if segment.model.ByteSize() >= _MOST_BYTES:
        return ""  # its weights lie in a file of their own when it is loaded
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(
            segment.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime's exceptions share no base but Exception
        why = str(error).strip().splitlines()[0]
        return f"{'; '.join(segment.explanations)}; ONNX Runtime can't run it either ({why})"
    return ""
