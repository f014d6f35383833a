"""Compiles ONNX models into artifacts: several machine-code variants a layer, with their profile."""
