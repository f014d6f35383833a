"""The evaluated networks as recipes that write ONNX, and their QoS."""
