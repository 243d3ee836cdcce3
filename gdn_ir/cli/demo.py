"""`gdn-ir demo`: the whole way in one command, on a model that it builds itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx_ir as ir
import typer
from rich.progress import Progress

from gdn_ir import model_file, place, runtime
from gdn_ir.cli.optimize import print_proofs
from gdn_ir.cli.printing import AsJson, console, print_json, print_line, print_table
from gdn_ir.evaluate import Array
from gdn_ir.graph_view import copies, serial_steps
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.models.reference import adversarial_inputs, recurrence
from gdn_ir.observers import count_nodes
from gdn_ir.optimizer import optimize
from gdn_ir.report import Report
from gdn_ir.runtime import Timing
from gdn_ir.visualizations.walkthrough import walkthrough

# For each model its figures by name.
Columns = Mapping[str, Mapping[str, Any]]
_SIZE: dict[str, Any] = {"batch": 1, "seq": 512, "heads": 8, "head_dim": 128}


def command(
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where to write models and pictures; made if missing."),
    ] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Build the baseline, optimize, gate, run, draw, and print a table of both."""
    place.make_folder(out)
    with Progress(console=console(), disable=as_json, transient=True) as progress:
        task = progress.add_task("building the baseline", total=5)
        baseline = build_unrolled(**_SIZE, mask="fill-zero")
        progress.update(task, advance=1, description="optimizing and gating")
        optimized, report = optimize(baseline)
        paths = {"baseline": out / "baseline.onnx", "optimized": out / "optimized.onnx"}
        model_file.save(baseline, paths["baseline"])
        model_file.save(optimized, paths["optimized"])
        progress.update(task, advance=1, description="running against the float64 recurrence")
        models = {"baseline": baseline, "optimized": optimized}
        errors = {name: _errors(model) for name, model in models.items()}
        progress.update(task, advance=1, description="timing")
        feeds = _float32(adversarial_inputs(**_SIZE)["random"], baseline)
        timings = runtime.time_interleaved(list(models.values()), [feeds, feeds])
        columns = _columns(models, timings, errors)
        progress.update(task, advance=1, description="drawing")
        page = walkthrough(out, baseline, optimized, report, _head(columns, report))
        progress.update(task, advance=1)
    if as_json:
        print_json({"size": _SIZE, **columns, "page": str(page), "report": report.to_json()})
        return
    _print(columns, report, paths)
    print_line(f"wrote {page}, with a picture of each rewrite: read this next")


def _columns(
    models: Mapping[str, ir.Model],
    timings: Sequence[Timing],
    errors: Mapping[str, Mapping[str, float]],
) -> Columns:
    return {
        name: {
            "nodes": count_nodes(model),
            "serial steps": serial_steps(model.graph),
            "copies in": copies(model.graph)[0],
            "copies out": copies(model.graph)[1],
            "ms": round(timing.median_ms, 2),
            **{f"error, {family}": value for family, value in errors[name].items()},
        }
        for (name, model), timing in zip(models.items(), timings, strict=True)
    }


def _title() -> str:
    size = ", ".join(f"{name} {value}" for name, value in _SIZE.items())
    return f"Gated delta rule, {size}, float32, CPU"


def _rows(columns: Columns) -> list[list[str]]:
    before, after = columns["baseline"], columns["optimized"]
    return [
        [row, _text(before[row]), _text(after[row]), _gain(before[row], after[row])]
        for row in before
    ]


def _head(columns: Columns, report: Report) -> Iterator[str]:
    yield f"# {_title()}"
    yield ""
    yield "What `gdn-ir demo` built (`baseline.onnx`) and what it made of it (`optimized.onnx`):"
    yield ""
    for line in (["", *columns, "gain"], ["---"] * (len(columns) + 2), *_rows(columns)):
        yield f"| {' | '.join(line)} |"
    yield ""
    yield "Errors are the largest, relative to the largest output, against the float64 recurrence."
    yield f"The pipeline was `{report.pipeline}`."
    yield "Do the same with a model of yours: `gdn-ir optimize model.onnx -o model.opt.onnx`."


def _print(columns: Columns, report: Report, paths: Mapping[str, Path]) -> None:
    print_table(_title(), ["", *columns, "gain"], _rows(columns))
    print_line(f"pipeline: {report.pipeline}")
    print_proofs(report)
    print_line("errors: largest, relative to the largest output, against the float64 recurrence")
    for path in paths.values():
        print_line(f"wrote {path}")


def _errors(model: ir.Model) -> dict[str, float]:
    """Largest output error on each family of inputs, relative to the largest output."""
    errors = {}
    with runtime.session(model) as session:
        for family, inputs in adversarial_inputs(**_SIZE).items():
            feeds = _float32(inputs, model)
            # The recurrence gets the numbers that the model gets, after their rounding.
            truth, _ = recurrence(feeds["q"], feeds["k"], feeds["v"], feeds["g"], feeds["beta"])
            (output,) = session.run(None, feeds)
            errors[family] = float(np.abs(output - truth).max() / np.abs(truth).max())
    return errors


def _float32(inputs: Mapping[str, Array], model: ir.Model) -> dict[str, Array]:
    return {v.name or "": inputs[v.name or ""].astype(np.float32) for v in model.graph.inputs}


def _text(value: float) -> str:
    return f"{value:.1e}" if isinstance(value, float) and value < 1e-2 else str(value)


def _gain(before: float, after: float) -> str:
    if not after or before / after < 1.05:
        return ""
    return f"{before / after:.1f} times less"
