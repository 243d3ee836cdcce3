"""`gdn-ir inspect`: what a model holds and what would be done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import onnx_ir as ir
import typer

from gdn_ir import model_file, targets
from gdn_ir.cli.optimize import print_left_alone
from gdn_ir.cli.printing import AsJson, print_json, print_line, print_table
from gdn_ir.graph_view import copies, scopes, serial_steps
from gdn_ir.observers import count_nodes, count_ops
from gdn_ir.optimizer import DEFAULT_TARGET, optimize
from gdn_ir.wording import counted


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The .onnx file to look at.")],
    as_json: AsJson = False,
) -> None:
    """Show a model's GDN regions, what would replace them, and what is left alone and why."""
    loaded = model_file.load(model)
    found = _describe(loaded)
    if as_json:
        print_json({"model": str(model), **found})
        return
    print_line(
        f"{model}: opset {found['opset']}, {counted(found['nodes'], 'node')}, "
        f"{counted(found['serial_steps'], 'serial step')}, "
        f"{counted(found['copies_in'], 'copy', 'copies')} in, "
        f"{counted(found['copies_out'], 'copy', 'copies')} out"
    )
    for direction in ("inputs", "outputs"):
        for value in found[direction]:
            print_line(f"  {direction[:-1]} {value['name']} {value['type']}{value['shape']}")
    print_table("Most frequent ops", ["op", "nodes"], list(found["ops"].items())[:10])
    if found["regions"]:
        print_table(
            "Regions that the portable pipeline rewrites",
            ["value", "what it is", "pass", "nodes"],
            [
                [r["where"], r["found"], r["pass"], f"{r['nodes_before']} -> {r['nodes_after']}"]
                for r in found["regions"]
            ],
        )
    else:
        print_line("no region of a gated delta rule found that the portable pipeline rewrites")
    for declined in found["declined"]:
        print_line(
            f"declined by {declined['pass_text']}: '{declined['where']}': {declined['reason']}"
        )
    print_left_alone(found["left_alone"])
    for name, lacking in found["targets"].items():
        state = f"lacks {', '.join(lacking)}" if lacking else "has every op"
        print_line(f"target {name}: {state}")


def _describe(model: ir.Model) -> dict[str, Any]:
    copies_in, copies_out = copies(model.graph)
    _, report = optimize(model, target=DEFAULT_TARGET, verify="structure")
    regions = [
        {
            "pass": rewrite.pass_text,
            "where": rewrite.where,
            "found": rewrite.found,
            "nodes_before": len(rewrite.before.graph),
            "nodes_after": len(rewrite.after.graph),
            "assumes": list(map(str, rewrite.assumes)),
        }
        for record in report.passes
        for rewrite in record.rewrites
    ]
    return {
        "opset": model.opset_imports.get(""),
        "nodes": count_nodes(model),
        "serial_steps": serial_steps(model.graph),
        "copies_in": copies_in,
        "copies_out": copies_out,
        "inputs": list(map(_value, model.graph.inputs)),
        "outputs": list(map(_value, model.graph.outputs)),
        "ops": dict(count_ops(model).most_common()),
        "regions": regions,
        "left_alone": report.left_alone,
        "declined": [vars(d) for record in report.passes for d in record.declined],
        "targets": {name: _lacking(model, targets.load(name)) for name in targets.names()},
    }


def _value(value: ir.Value) -> dict[str, str]:
    dtype = "?" if value.dtype is None else value.dtype.name.lower()
    return {"name": value.name or "", "type": dtype, "shape": str(value.shape or "[?]")}


def _lacking(model: ir.Model, target: targets.Target) -> list[str]:
    """Ops of domains that the target does not execute, local functions looked into."""
    ops = {
        f"{node.domain}::{node.op_type}"
        for graph in scopes(model)
        for node in graph
        if node.domain not in target.domains and node.op_identifier() not in model.functions
    }
    return sorted(ops)
