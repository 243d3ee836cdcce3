"""The committed exports in tests/fixtures, which `python -m gdn_ir.models.export_hf` makes."""

import lzma
from pathlib import Path

import onnx
import onnx_ir as ir

FIXTURES = Path(__file__).parent / "fixtures"


def fixture_bytes(name: str) -> bytes:
    """The serialized model NAME.onnx.xz."""
    return lzma.decompress((FIXTURES / f"{name}.onnx.xz").read_bytes())


def load_fixture(name: str) -> ir.Model:
    """A fresh copy of the model NAME.onnx.xz; the names are in fixtures/README.md."""
    return ir.from_proto(onnx.load_model_from_string(fixture_bytes(name)))
