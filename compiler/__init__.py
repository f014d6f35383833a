"""Compiles ONNX models into artifacts: machine-code variants of each layer, with their profile."""
