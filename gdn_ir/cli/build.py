"""`gdn-ir build`: writes a baseline model."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, TypedDict

import typer

from gdn_ir import model_file
from gdn_ir.cli.printing import print_json, print_line
from gdn_ir.models.baseline import build_rule
from gdn_ir.models.layer_model import build_layer
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.observers import count_nodes

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
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    form: Annotated[
        Form,
        typer.Option(
            help="unrolled: as torch.onnx leaves it, for one length. "
            "loop: as it leaves a scripted rule, Loops over the chunks and the rows, any length. "
            "scan: token by token, any length, without chunks, masks and an inverse."
        ),
    ] = Form.UNROLLED,
    mask: Annotated[
        Mask | None,
        typer.Option(help="fill-inf (default): today's transformers; fill-zero: the older form."),
    ] = None,
    inverse: Annotated[
        Inverse | None,
        typer.Option(
            help="rows (default): row by row, as in exports; blocks: 16 by 16 blocks row by row, "
            "then merged, for chunks of 16, 32, 64, 128, ..."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences.")] = 1,
    seq: Annotated[
        int | None,
        typer.Option(
            help="Tokens; any number. Default: 512 unrolled, else left open as dimension S."
        ),
    ] = None,
    heads: Annotated[int, typer.Option(help="Value heads.")] = 4,
    key_heads: Annotated[int | None, typer.Option(help="Query/key heads; default: heads.")] = None,
    head_dim: Annotated[int, typer.Option(help="Key dimension.")] = 64,
    value_dim: Annotated[
        int | None, typer.Option(help="Value dimension; default: head-dim.")
    ] = None,
    chunk: Annotated[int | None, typer.Option(help="Tokens in a chunk; default: 64.")] = None,
    state: Annotated[bool, typer.Option(help="Take and return a state.")] = False,
    l2norm: Annotated[
        bool, typer.Option(help="Normalise q and k in the graph; a layer always does.")
    ] = False,
    dtype: Annotated[
        DType, typer.Option(help="Of q, k, v, g and beta, or of a layer.")
    ] = DType.FLOAT32,
    layer: Annotated[
        bool,
        typer.Option(
            "--layer", help="A whole layer: projections, convolution, gates, norm, random weights."
        ),
    ] = False,
    layers: Annotated[
        int | None, typer.Option(help="So many layers in a row, with norms and residuals.")
    ] = None,
    hidden_size: Annotated[
        int | None, typer.Option(help="Of a layer; default: heads * value-dim.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
        print_line(f"wrote {output}: {count_nodes(model)} nodes")
