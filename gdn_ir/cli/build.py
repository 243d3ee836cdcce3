"""`gdn-ir build`: writes a baseline model."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import typer

from gdn_ir import model_file
from gdn_ir.cli.printing import AsJson, print_json, print_line
from gdn_ir.models.baseline import build_rule
from gdn_ir.models.layer_model import build_layer
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.observers import count_nodes
from gdn_ir.wording import counted

_UNROLLED_TOKENS = 512


class Form(str, Enum):
    """How the chunk loop and the inverse are written."""

    UNROLLED = "unrolled"
    LOOP = "loop"
    SCAN = "scan"


class Mask(str, Enum):
    """How the decay is masked."""

    FILL_INF = "fill-inf"
    FILL_ZERO = "fill-zero"


class Inverse(str, Enum):
    """How the inverse of a chunk is written."""

    ROWS = "rows"
    BLOCKS = "blocks"


class DType(str, Enum):
    """The type of q, k, v, g and beta."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


class _Sizes(TypedDict):
    """What the rule alone and a layer both take."""

    batch: int
    seq: int | None
    heads: int
    key_heads: int | None
    head_dim: int
    value_dim: int | None
    state: bool
    dtype: Literal["float32", "float16"]


def command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The .onnx file to write.")
    ],
    form: Annotated[
        Form,
        typer.Option(
            help="How the rule is written; unrolled: as torch.onnx leaves it; loop: Loops over "
            "chunks and rows; scan: token by token."
        ),
    ] = Form.UNROLLED,
    mask: Annotated[
        Mask | None,
        typer.Option(
            help="Masks of the decay; fill-inf: of transformers now; fill-zero: its older ones.",
            show_default="fill-inf",
        ),
    ] = None,
    inverse: Annotated[
        Inverse | None,
        typer.Option(
            help="The inverse of a chunk; rows: row by row; blocks: merged from 16 by 16 ones.",
            show_default="rows",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Number of sequences.")] = 1,
    seq: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a sequence; padded to whole chunks in the graph.",
            show_default="512 unrolled, else open as S",
        ),
    ] = None,
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
        int | None,
        typer.Option(
            max=1024, help="Tokens of a chunk; the graph grows with it.", show_default="64"
        ),
    ] = None,
    state: Annotated[
        bool, typer.Option("--state", help="Take an initial state and return the final one.")
    ] = False,
    l2norm: Annotated[
        bool,
        typer.Option(
            "--l2norm", help="Normalise queries and keys in the graph; a layer always does."
        ),
    ] = False,
    dtype: Annotated[
        DType, typer.Option(help="Element type of q, k, v, g, beta and the output.")
    ] = DType.FLOAT32,
    layer: Annotated[
        bool,
        typer.Option(
            "--layer",
            help="A whole layer: projections, convolution, gates, norm, random weights.",
        ),
    ] = False,
    layers: Annotated[
        int | None,
        typer.Option(
            help="Number of layers in a row, with norms and residuals.", show_default="no layer"
        ),
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option(
            help="Channels between layers; goes with --layer or --layers.",
            show_default="heads * value-dim",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a baseline gated delta rule, or a layer around it, as an exporter leaves it."""
    if seq is None and form is Form.UNROLLED:
        seq = _UNROLLED_TOKENS
    rule = RuleForm(
        form.value,
        mask=mask.value if mask else None,
        inverse=inverse.value if inverse else None,
        chunk=chunk,
    )
    sizes = _Sizes(
        batch=batch,
        seq=seq,
        heads=heads,
        key_heads=key_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        state=state,
        dtype=dtype.value,
    )
    if layer or layers is not None:
        model = build_layer(rule, layers=layers, hidden_size=hidden_size, **sizes)
    elif hidden_size is not None:
        raise ValueError(f"hidden_size is {hidden_size}, but only a layer has one; add --layer")
    else:
        model = build_rule(rule, l2norm=l2norm, **sizes)
    model_file.save(model, output)
    if as_json:
        print_json({"output": str(output), "form": form.value, "nodes": count_nodes(model)})
    else:
        print_line(f"wrote {output}: {counted(count_nodes(model), 'node')}")
