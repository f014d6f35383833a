"""Passes over the layer graph: pure functions, no input or output."""
