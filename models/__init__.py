"""The gated delta rule: float64 reference, ONNX builders, exporters of transformers."""
