"""`gdn-ir bench`: models timed against each other on ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import onnxruntime as ort
import typer

from gdn_ir import array_file, dimensions, place, runtime
from gdn_ir.bench import Measured, bench
from gdn_ir.cli.printing import AsJson, print_json, print_line, print_table, print_warning
from gdn_ir.visualizations.bars import bars

_FORMATS = (".svg", ".md", ".json")
# Two float32 models that compute the same are closer than this by far.
_APART = 1e-3
_COLUMNS = ["model", "nodes", "ms", "fastest", "times faster", "outputs apart"]


def command(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="The .onnx files; the first is 1.0.")
    ],
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SIZE", help="Size of a symbolic dimension, e.g. S=512; repeatable."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="An .npz with an array for each input, by name.",
            show_default="random, N(0, 1) / 8",
        ),
    ] = None,
    ep: Annotated[
        runtime.Provider, typer.Option(help="ONNX Runtime's execution provider.")
    ] = "cpu",
    rounds: Annotated[int, typer.Option(min=1, help="Sessions that each model gets in turn.")] = 7,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs of each session.")] = 3,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the figures: .svg (a plot), .md or .json; repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time models of one interface against each other: medians of interleaved rounds."""
    for file in output or ():
        if file.suffix not in _FORMATS:
            raise ValueError(f"{file}: name a file that ends in {', '.join(_FORMATS)}")
        with place.workspace(file, inputs=models):
            pass
    measured = bench(
        models,
        dims=dimensions.parse(dim or ()),
        inputs=None if inputs is None else array_file.load(inputs),
        rounds=rounds,
        runs=runs,
        provider=ep,
    )
    found = {
        "provider": ep,
        "onnxruntime": ort.__version__,
        "threads": runtime.usable_cores(),
        "dims": dimensions.parse(dim or ()),
        "rounds": rounds,
        "runs": runs,
        "models": [_plain(one) for one in measured],
    }
    title = (
        f"{ep.upper()}, {found['threads']} threads, ONNX Runtime {ort.__version__}, "
        f"medians of {rounds} x {runs} runs"
    )
    for file in output or ():
        with place.workspace(file) as folder:
            new = folder / file.name
            new.write_text(_text(file.suffix, title, measured, found), "utf-8")
            new.replace(file)
    for one in measured:
        if not one.apart <= _APART:  # nor if it is NaN
            print_warning(f"{one.name} computes something else: {one.apart:.1e} of scale apart")
    if as_json:
        print_json(found)
        return
    print_table(title, _COLUMNS, map(_row, measured))
    for file in output or ():
        print_line(f"wrote {file}")


def _plain(one: Measured) -> dict[str, Any]:
    return {
        "name": one.name,
        "nodes": one.nodes,
        "median_ms": one.timing.median_ms,
        "all_ms": list(one.timing.all_ms),
        "times_faster": one.times_faster,
        "apart": one.apart,
    }


def _row(one: Measured) -> list[str]:
    return [
        one.name,
        str(one.nodes),
        f"{one.timing.median_ms:.2f}",
        f"{min(one.timing.all_ms):.2f}",
        f"{one.times_faster:.2f}",
        f"{one.apart:.1e}",
    ]


def _text(suffix: str, title: str, measured: list[Measured], found: dict[str, Any]) -> str:
    if suffix == ".json":
        return json.dumps(found, indent=2) + "\n"
    if suffix == ".svg":
        rows = [
            (
                one.name,
                one.timing.median_ms,
                f"{one.timing.median_ms:.2f} ms, {one.times_faster:.1f}x",
            )
            for one in measured
        ]
        return bars(title, rows)
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *map(_row, measured)]
    escaped = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return f"{title}\n\n" + "".join(f"| {line} |\n" for line in escaped)
