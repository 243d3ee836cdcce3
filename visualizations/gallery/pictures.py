"""What the gallery shows: an export before and after, and forms with a body."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from gdn_ir.optimizer import DEFAULT_TARGET, optimize
from gdn_ir.visualizations import engines
from gdn_ir.visualizations.counts import count
from gdn_ir.visualizations.render import picture_text

# Links resolved: this file is also seen through gdn_ir/.
FOLDER = Path(__file__).resolve().parent
_EXPORTS = FOLDER.parents[1] / "tests" / "fixtures"


def texts() -> Iterator[tuple[str, str]]:
    """The name of each picture and its DOT text."""
    before = _export("hf_fill_inf")
    after, _ = optimize(before, verify="structure")
    pictures = {
        "hf_fill_inf": {"hf_fill_inf": before, f"after --target {DEFAULT_TARGET}": after},
        "loop": {"ts_loop_inverse": _export("ts_loop_inverse")},
        "scan": {"scan_tokens": _export("scan_tokens")},
    }
    for name, models in pictures.items():
        counts = {title: count(model) for title, model in models.items()}
        yield name, picture_text(models, counts)


def write_all() -> Iterator[Path]:
    """Writes the DOT text and the SVG of each picture."""
    for name, text in texts():
        svg, _ = engines.draw(text, "svg")
        for path, content in (
            (FOLDER / f"{name}.dot", text.encode()),
            (FOLDER / f"{name}.svg", svg),
        ):
            path.write_bytes(content)
            yield path


def _export(name: str) -> ir.Model:
    path = _EXPORTS / f"{name}.onnx.xz"
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; run this in a checkout of the source")
    return ir.from_proto(onnx.load_model_from_string(lzma.decompress(path.read_bytes())))
