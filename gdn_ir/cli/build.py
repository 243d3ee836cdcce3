"""`gdn-ir build`: writes a baseline model."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gdn_ir import model_file
from gdn_ir.cli.printing import AsJson, print_json, print_line
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.observers import count_nodes
from gdn_ir.wording import counted


class Form(str, Enum):
    """How the chunk loop and the inverse are written."""

    UNROLLED = "unrolled"


class Mask(str, Enum):
    """How the decay is masked."""

    FILL_INF = "fill-inf"
    FILL_ZERO = "fill-zero"


class DType(str, Enum):
    """The type of q, k, v, g and beta."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


def command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The .onnx file to write.")
    ],
    form: Annotated[
        Form, typer.Option(help="How the rule is written; unrolled: as torch.onnx leaves it.")
    ] = Form.UNROLLED,
    mask: Annotated[
        Mask,
        typer.Option(
            help="Masks of the decay; fill-inf: of transformers now; fill-zero: its older ones."
        ),
    ] = Mask.FILL_INF,
    batch: Annotated[int, typer.Option(help="Number of sequences.")] = 1,
    seq: Annotated[
        int, typer.Option(help="Tokens of a sequence; padded to whole chunks in the graph.")
    ] = 512,
    heads: Annotated[int, typer.Option(help="Number of value heads.")] = 4,
    key_heads: Annotated[
        int | None,
        typer.Option(
            help="Number of query and key heads; divides --heads.", show_default="as --heads"
        ),
    ] = None,
    head_dim: Annotated[int, typer.Option(help="Channels of a query or key, per head.")] = 64,
    value_dim: Annotated[
        int | None,
        typer.Option(help="Channels of a value, per head.", show_default="as --head-dim"),
    ] = None,
    chunk: Annotated[
        int, typer.Option(max=1024, help="Tokens of a chunk; the graph grows with it.")
    ] = 64,
    state: Annotated[
        bool, typer.Option("--state", help="Take an initial state and return the final one.")
    ] = False,
    l2norm: Annotated[
        bool, typer.Option("--l2norm", help="Normalise queries and keys in the graph.")
    ] = False,
    dtype: Annotated[
        DType, typer.Option(help="Element type of q, k, v, g, beta and the output.")
    ] = DType.FLOAT32,
    as_json: AsJson = False,
) -> None:
    """Write a baseline gated delta rule, as an exporter leaves it."""
    model = build_unrolled(
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=key_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        chunk=chunk,
        state=state,
        l2norm=l2norm,
        dtype=dtype.value,
        mask=mask.value,
    )
    model_file.save(model, output)
    if as_json:
        print_json({"output": str(output), "form": form.value, "nodes": count_nodes(model)})
    else:
        print_line(f"wrote {output}: {counted(count_nodes(model), 'node')}")
