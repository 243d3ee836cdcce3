"""The gated delta rule: its float64 reference, ONNX builders, exporters of installed transformers."""
