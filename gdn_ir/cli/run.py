"""`gdn-ir run`: executes a model on ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx_ir as ir
import typer

from gdn_ir import array_file, model_file, runtime
from gdn_ir.cli.printing import AsJson, print_json, print_line, print_table
from gdn_ir.evaluate import Array


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The .onnx file to run.")],
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="An .npz with an array for each input, by name.",
            show_default="random, N(0, 1) / 8",
        ),
    ] = None,
    outputs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the outputs to this .npz, by name."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a model once on ONNX Runtime, on given or on small random inputs."""
    loaded = model_file.load(model)
    if outputs is not None:
        array_file.check_place(outputs, inputs=[model] if inputs is None else [model, inputs])
    if inputs is None:
        feeds = runtime.random_inputs(loaded, seed)
    else:
        feeds = array_file.load(inputs)
        if problem := _misfit(feeds, loaded):
            raise ValueError(f"{inputs} does not fit {model}: {problem}")
    with runtime.session(model) as session:
        start = time.perf_counter()
        results = session.run(None, feeds)
        milliseconds = (time.perf_counter() - start) * 1e3
        names = [value.name for value in session.get_outputs()]
    if outputs is not None:
        array_file.save(outputs, dict(zip(names, results, strict=True)))
    summary = [
        {
            "output": name,
            "shape": list(array.shape),
            "type": str(array.dtype),
            "largest": float(np.abs(array).max(initial=0)) if array.dtype.kind in "fiu" else None,
            "finite": bool(np.isfinite(array).all()) if array.dtype.kind == "f" else True,
        }
        for name, array in zip(names, results, strict=True)
    ]
    if as_json:
        print_json(
            {"milliseconds": milliseconds, "random_inputs": inputs is None, "outputs": summary}
        )
        return
    source = "small random inputs" if inputs is None else str(inputs)
    print_table(
        f"{model.name} on {source}: {milliseconds:.1f} ms (first run)",
        ["output", "shape", "type", "largest", "finite"],
        [[o["output"], o["shape"], o["type"], _short(o["largest"]), o["finite"]] for o in summary],
    )
    if outputs is not None:
        print_line(f"wrote {outputs}")


def _misfit(feeds: Mapping[str, Array], model: ir.Model) -> str:
    """What the model would not take of these arrays, or ""."""
    inputs = {value.name or "": value for value in model.graph.inputs}
    needed = [name for name, value in inputs.items() if value.const_value is None]
    problems = []
    if missing := [name for name in needed if name not in feeds]:
        problems.append(f"it lacks {_quoted(missing)}; add an array for each")
    if unknown := [name for name in feeds if name not in inputs]:
        problems.append(f"{_quoted(unknown)} is no input; there are: {', '.join(inputs) or 'none'}")
    return "; ".join(problems) or "; ".join(
        problem
        for name, array in feeds.items()
        for problem in (_wrong_type(inputs[name], array), _wrong_shape(inputs[name], array))
        if problem
    )


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _wrong_type(value: ir.Value, array: Array) -> str:
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        return ""
    expected = value.dtype.numpy()
    if array.dtype == expected:
        return ""
    return f"'{value.name}' is {array.dtype}, not {expected}; convert it with .astype"


def _wrong_shape(value: ir.Value, array: Array) -> str:
    shape = value.shape
    if shape is None or (
        len(shape) == array.ndim
        and all(
            size == given or not isinstance(size, int)
            for size, given in zip(shape, array.shape, strict=True)
        )
    ):
        return ""
    return f"'{value.name}' has shape {list(array.shape)}, not {shape}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-"
