"""Exports the graphs in tests/fixtures from the installed transformers (extra `hf`).

    python -m gdn_ir.models.export_hf --out tests/fixtures

Each file is what torch.onnx.export (dynamo or TorchScript, opset 20) makes, without optimization of
ours, less what it says about the machine it was made on, and compressed with xz.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import lzma
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from gdn_ir.models.graph_writer import OPSET

__all__ = ["FIXTURES", "Fixture", "compressed", "export", "main"]

KEPT_METADATA = {"namespace", "pkg.torch.onnx.name_scopes"}  # which layer a node came from
LOCAL_PATHS = (b"/tmp", b"/usr", b"/root", b"site-packages", b"home")
MAX_BYTES = 400_000


@dataclasses.dataclass(frozen=True)
class Fixture:
    """One file: what is exported, on inputs of which shapes, and the names of its interface.

    A dimension with a name may have any size. `torchscript` is torch's older exporter, whose graphs
    are ten times as large.
    """

    form: str
    inputs: dict[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    torchscript: bool = False


def _rule_inputs(
    *, seq: int | str, key_heads: int, state: bool
) -> dict[str, tuple[int | str, ...]]:
    heads, dim = 2, 32
    shapes: dict[str, tuple[int | str, ...]] = {
        "q": (1, seq, key_heads, dim),
        "k": (1, seq, key_heads, dim),
        "v": (1, seq, heads, dim),
        "g": (1, seq, heads),
        "beta": (1, seq, heads),
    }
    return shapes | ({"state": (1, heads, dim, dim)} if state else {})


FIXTURES = {
    "hf_fill_inf": Fixture(
        form="fill-inf",
        inputs=_rule_inputs(seq=128, key_heads=2, state=False),
        outputs=("o", "final_state"),
    ),
    "hf_fill_inf_gqa_ragged_state": Fixture(
        form="fill-inf, state, l2norm",
        inputs=_rule_inputs(seq=100, key_heads=1, state=True),
        outputs=("o", "final_state"),
    ),
    "hf_fill_zero": Fixture(
        form="fill-zero",
        inputs=_rule_inputs(seq=128, key_heads=2, state=False),
        outputs=("o", "final_state"),
    ),
    "ts_fill_zero": Fixture(
        form="fill-zero",
        inputs=_rule_inputs(seq=128, key_heads=2, state=False),
        outputs=("o", "final_state"),
        torchscript=True,
    ),
    "scan_tokens": Fixture(
        form="scan",
        inputs=_rule_inputs(seq="T", key_heads=2, state=False),
        outputs=("o", "final_state"),
    ),
    "ts_loop_tokens": Fixture(
        form="scripted tokens",
        inputs=_rule_inputs(seq="T", key_heads=2, state=False),
        outputs=("o", "final_state"),
        torchscript=True,
    ),
    "ts_loop_inverse": Fixture(
        form="scripted inverse",
        inputs={"A": (1, 2, 2, 64, 64)},
        outputs=("inverse",),
        torchscript=True,
    ),
    "qwen3_5_tiny": Fixture(
        form="qwen3.5",
        inputs={"input_ids": (1, 128)},
        outputs=("logits",),
    ),
}


def export(fixture: Fixture) -> ir.Model:
    """Runs torch's exporter and strips the result.

    Raises ImportError without torch, onnxscript or a transformers that has these models.
    """
    import torch

    from gdn_ir.models import torch_forms, torch_loops

    modules: dict[str, Callable[[], Any]] = {
        "fill-inf": lambda: torch_forms.as_module(
            torch_forms.installed_rule(l2norm=False, state=False)
        ),
        "fill-inf, state, l2norm": lambda: torch_forms.as_module(
            torch_forms.installed_rule(l2norm=True, state=True)
        ),
        "fill-zero": lambda: torch_forms.as_module(torch_forms.fill_zero),
        "scan": lambda: torch_forms.as_module(torch_loops.scan_tokens),
        "scripted tokens": lambda: torch_loops.scripted_tokens,
        "scripted inverse": lambda: torch_loops.scripted_inverse,
        "qwen3.5": torch_forms.tiny_qwen3_5,
    }
    arguments = tuple(
        torch.zeros(
            [size if isinstance(size, int) else 8 for size in shape],
            dtype=torch.int64 if name == "input_ids" else torch.float32,
        )
        for name, shape in fixture.inputs.items()
    )
    open_axes = {
        name: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in fixture.inputs.items()
    }
    names: dict[str, Any] = {
        "input_names": list(fixture.inputs),
        "output_names": list(fixture.outputs),
        "opset_version": OPSET,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        if fixture.torchscript:
            written = io.BytesIO()
            torch.onnx.export(
                modules[fixture.form](),
                arguments,
                written,
                dynamo=False,
                dynamic_axes=open_axes,
                **names,
            )
            model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(written.getvalue()))
        else:
            program: Any = torch.onnx.export(
                modules[fixture.form](),
                arguments,
                dynamo=True,
                verbose=False,
                dynamic_shapes=tuple(open_axes.values()) if any(open_axes.values()) else None,
                **names,
            )
            model = program.model
    strip(model)
    return model


def strip(model: ir.Model) -> None:
    """Removes doc strings and all metadata but the name of the layer, in place."""
    model.doc_string = None
    for graph in model.graphs():
        graph.doc_string = None
        for node in graph:
            node.doc_string = None
    for metadata in _all_metadata(model):
        for key in set(metadata) - KEPT_METADATA:
            del metadata[key]


def _all_metadata(model: ir.Model) -> Iterator[MutableMapping[str, str]]:
    yield model.metadata_props
    for graph in model.graphs():
        yield graph.metadata_props
        for value in (*graph.inputs, *graph.initializers.values()):
            yield value.metadata_props
        for node in graph:
            yield node.metadata_props
            for value in node.outputs:
                yield value.metadata_props


def compressed(model: ir.Model) -> bytes:
    """The model as xz. Raises RuntimeError if it is too large or tells a path of this machine."""
    plain = ir.to_proto(model).SerializeToString(deterministic=True)
    told = [path.decode() for path in LOCAL_PATHS if path in plain]
    if told:
        raise RuntimeError(f"the model contains {', '.join(told)}: strip that too")
    packed = lzma.compress(plain, preset=9 | lzma.PRESET_EXTREME)
    if len(packed) > MAX_BYTES:
        raise RuntimeError(f"the model takes {len(packed)} bytes; at most {MAX_BYTES} are kept")
    return packed


def main(arguments: list[str] | None = None) -> int:
    """The command line: returns 0, or 2 with a one-line message where torch is missing."""
    parser = argparse.ArgumentParser(prog="python -m gdn_ir.models.export_hf", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the .onnx.xz files")
    parser.add_argument("--only", choices=FIXTURES, action="append", help="just this one")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only or FIXTURES:
        try:
            model = export(FIXTURES[name])
        except ImportError as error:
            sys.stderr.write(f"{error}: pip install 'gdn-ir[hf]'\n")
            return 2
        target = options.out / f"{name}.onnx.xz"
        target.write_bytes(compressed(model))
        size = target.stat().st_size
        sys.stdout.write(f"{target}: {model.graph.num_nodes()} nodes, {size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
