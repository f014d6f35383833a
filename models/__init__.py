"""The evaluated networks as recipes that write ONNX, and their QoS."""

from veltair.models.catalog import build, names, qos_ms, trained_names

__all__ = ["build", "names", "qos_ms", "trained_names"]
