"""Rewrites, checks and draws ONNX graphs that contain a Gated DeltaNet."""

__version__ = "0.1.0"
