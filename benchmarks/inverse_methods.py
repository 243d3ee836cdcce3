"""What each way to invert I - A costs, and what it loses.

    python benchmarks/inverse_methods.py [--n 64] [--matrices 64] [--rounds 9]

Every method is the replacement that `parallel-inverse` makes of an exporter's row loop. Times are
medians of interleaved rounds, one ONNX Runtime session alive at a time, spinning off; errors are
against the row loop in float64, relative to its largest entry.
"""

from __future__ import annotations

import argparse

import numpy as np
import onnx_ir as ir

from gdn_ir import pipeline, runtime
from gdn_ir.evaluate import Array, evaluate
from gdn_ir.graph_view import serial_steps
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.passes._worst_inverses import worst_inverses
from gdn_ir.rewrite import Rewrite

METHODS = {
    "row loop (the export)": "",
    "block, leaf 16 (default)": "parallel-inverse",
    "block, leaf 32": "parallel-inverse{leaf=32}",
    "substitution, leaf 16": "parallel-inverse{method=substitution}",
    "doubling (unsafe)": "parallel-inverse{method=doubling}",
    "neumann (unsafe)": "parallel-inverse{method=neumann}",
    "neumann, tol 1e-10 (unsafe)": "parallel-inverse{method=neumann tol=1e-10}",
}


def rewrite_of(pass_text: str, n: int, matrices: int) -> Rewrite:
    """The rewrite of one chunk inverse [1, 1, matrices, n, n]."""
    model = build_unrolled(seq=n * matrices, heads=1, head_dim=4, chunk=n)
    (pass_,) = pipeline.parse(pass_text)
    (event,) = pass_.run(model)
    assert isinstance(event, Rewrite), event
    return event


def flops(graph: ir.Graph) -> int:
    """Multiplications and additions, a Loop's body not counted."""
    total = 0
    for node in graph:
        out = int(np.prod(node.outputs[0].shape.numpy())) if node.outputs[0].shape else 0
        first = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
        if node.op_type == "MatMul" and first is not None:
            total += 2 * out * first.numpy()[-1]
        elif node.op_type in ("Add", "Mul", "Sub"):
            total += out
        elif node.op_type == "ReduceSum" and first is not None:
            total += int(np.prod(first.numpy()))
    return total


def error(model: ir.Model, A: Array, truth: Array) -> float:
    """Largest error relative to the largest true entry."""
    name = model.graph.inputs[0].name or ""
    (result,) = runtime.run(model, {name: A.astype(np.float32)})
    return float(np.abs(result - truth).max() / np.abs(truth).max())


def main() -> None:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--matrices", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    n, matrices = options.n, options.matrices

    models: dict[str, ir.Model] = {}
    for label, text in METHODS.items():
        rewrite = rewrite_of(text or "parallel-inverse", n, matrices)
        models[label] = rewrite.after if text else rewrite.before
    original = next(iter(models.values()))
    name = original.graph.inputs[0].name or ""
    families = dict(worst_inverses((1, 1, matrices, n, n)))
    shown = {
        "random": families["random keys"],
        "identical": families["identical keys, beta .99, slow decay"],
    }
    truths = {
        family: evaluate(original, {name: A.astype(np.float32)})[0] for family, A in shown.items()
    }
    feeds = {name: shown["random"].astype(np.float32)}
    timings = runtime.time_interleaved(
        list(models.values()), [feeds] * len(models), rounds=options.rounds
    )
    print(f"{matrices} matrices of {n} by {n}, float32, {runtime.usable_cores()} cores\n")
    columns = ["method", "nodes", "serial steps", "Mflop a matrix", "ms"]
    columns += ["error, random keys", "error, identical keys"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for (label, model), timing in zip(models.items(), timings, strict=True):
        loops = any(node.op_type == "Loop" for node in model.graph)
        steps = "up to " + str(2 * (n - 1)) if loops else str(serial_steps(model.graph))
        work = "depends on A" if loops else f"{flops(model.graph) / matrices / 1e6:.2f}"
        errors = [f"{error(model, A, truths[family]):.0e}" for family, A in shown.items()]
        cells = [label, str(len(model.graph)), steps, work, f"{timing.median_ms:.2f}", *errors]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
