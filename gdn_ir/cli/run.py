"""`gdn-ir run`: executes a model on ONNX Runtime."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from gdn_ir import model_file, runtime
from gdn_ir.cli.printing import print_json, print_line, print_table
from gdn_ir.evaluate import Array


def command(
    model: Annotated[Path, typer.Argument(help="The model to run.")],
    inputs: Annotated[Path | None, typer.Option(help="An .npz with an array an input.")] = None,
    outputs: Annotated[Path | None, typer.Option(help="Where to write the outputs, .npz.")] = None,
    seed: Annotated[int, typer.Option(help="For random inputs, when none are given.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a model once on ONNX Runtime, on given or on small random inputs."""
    loaded = model_file.load(model)
    feeds = runtime.random_inputs(loaded, seed) if inputs is None else _read(inputs)
    with runtime.session(model) as session:
        _check_names(feeds, [value.name for value in session.get_inputs()], inputs)
        start = time.perf_counter()
        results = session.run(None, feeds)
        milliseconds = (time.perf_counter() - start) * 1e3
        names = [value.name for value in session.get_outputs()]
    if outputs is not None:
        np.savez(outputs, **dict(zip(names, results, strict=True)))
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


def _read(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"cannot read {path} as .npz ({error}); write it with numpy.savez"
        ) from None


def _check_names(feeds: dict[str, Array], wanted: list[str], path: Path | None) -> None:
    if missing := [name for name in wanted if name not in feeds]:
        raise ValueError(
            f"{path} lacks the inputs {', '.join(missing)}; it needs an array for each"
        )
    if unknown := [name for name in feeds if name not in wanted]:
        raise ValueError(f"{path} has {', '.join(unknown)}, which the model takes no input for")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-"
