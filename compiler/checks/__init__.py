"""Refuses what no model may be, before a library meets it: ours says which node and which tensor.

What the checks let through, ONNX's and ONNX Runtime's own checks may still refuse.
"""
