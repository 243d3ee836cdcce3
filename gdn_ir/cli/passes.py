"""`gdn-ir passes`: lists the passes or documents one."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated

import typer

from gdn_ir import pipeline
from gdn_ir.cli.printing import AsJson, print_json, print_line, print_table
from gdn_ir.pass_base import Pass


def command(
    name: Annotated[
        str | None, typer.Argument(help="The pass to document.", show_default="list all")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all passes, or document one with its options."""
    known = pipeline.registry()
    if name is None:
        described = {n: _summary(cls) for n, cls in sorted(known.items())}
        if as_json:
            print_json(described)
            return
        print_table("Passes", ["name", "what it does"], described.items())
        return
    cls = pipeline.find(name)
    options = [
        {"name": field.name, "type": str(field.type), "default": field.default}
        for field in dataclasses.fields(cls)
    ]
    if as_json:
        print_json({"name": cls.name, "doc": inspect.getdoc(cls), "options": options})
        return
    print_line(f"{cls.name}\n\n{inspect.getdoc(cls)}\n")
    if options:
        print_table(
            "Options",
            ["name", "type", "default"],
            [[o["name"], o["type"], o["default"]] for o in options],
        )


def _summary(cls: type[Pass]) -> str:
    return (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
