"""`gdn-ir render`: dataflows as pictures, two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gdn_ir.cli.printing import AsJson, print_json, print_line, print_table
from gdn_ir.visualizations.build_scene import MOST_BOXES
from gdn_ir.visualizations.counts import table
from gdn_ir.visualizations.render import render


def command(
    before: Annotated[Path, typer.Argument(metavar="MODEL", help="The .onnx file to draw.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The picture: .svg, .png, .html or .dot."
        ),
    ],
    after: Annotated[
        Path | None,
        typer.Argument(metavar="AFTER", help="Another .onnx file, to draw at its side."),
    ] = None,
    dot: Annotated[
        Path | None,
        typer.Option(
            metavar="PROGRAM",
            help="A Graphviz dot to lay out with.",
            show_default="graphviz-pure, else the system's dot, else pygraphviz",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option(min=20, help="Boxes of a model; what has more is folded further.")
    ] = MOST_BOXES,
    as_json: AsJson = False,
) -> None:
    """Draw the dataflow of a model, or of two: copies green and red, repeated steps folded."""
    picture = render(before, after, output=output, dot=dot, most=most)
    if as_json:
        counts = {name: vars(figures) for name, figures in picture.counts.items()}
        print_json({"output": str(output), "engine": picture.engine, "counts": counts})
        return
    head, *rows = table(picture.counts)
    print_table("Dataflow", head, rows)
    by = f", laid out by {picture.engine}" if picture.engine else ""
    print_line(f"wrote {output}{by}")
