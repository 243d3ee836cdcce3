"""A page that shows what each pass did to a model, with a picture of each rewrite."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx_ir as ir

from gdn_ir import pipeline, place
from gdn_ir.observers import PassRecord
from gdn_ir.report import Report
from gdn_ir.rewrite import Rewrite
from gdn_ir.structural_hash import model_digest
from gdn_ir.visualizations.render import render

PAGE = "README.md"


def walkthrough(
    folder: Path, before: ir.Model, after: ir.Model, report: Report, head: Iterable[str]
) -> Path:
    """Writes pictures of a model, of what it became and of each distinct rewrite, and a page.

    Args:
        folder: an existing one; the page is its README.md, pictures are named after the passes.
        before, after: the model and what the passes of `report` made of it.
        report: of that run.
        head: Markdown lines that the page begins with.

    Returns:
        The page.

    Raises:
        BadPlace: the folder cannot be written to.
        NoPicture: nothing lays the pictures out.
    """
    whole = folder / "dataflow.svg"
    render(before, after, output=whole)
    lines = [
        *head,
        "",
        "## The whole dataflow, before and after",
        "",
        "Green takes pieces out of tensors, red puts pieces into them, blue multiplies matrices;",
        "what is written out again and again stands in one box, **x63** and the like.",
        "",
        f"![before and after]({whole.name})",
        "",
        "## What each pass did",
    ]
    for record in report.passes:
        lines += _section(record, report, folder)
    page = folder / PAGE
    with place.workspace(page) as workspace:
        new = workspace / page.name
        new.write_text("\n".join(lines) + "\n", "utf-8")
        new.replace(page)
    return page


def _section(record: PassRecord, report: Report, folder: Path) -> Iterator[str]:
    name = record.pass_text.partition("{")[0]
    if record.nodes_before == record.nodes_after and not record.rewrites:
        return
    yield from ("", f"### {record.pass_text}: {record.nodes_before} -> {record.nodes_after} nodes")
    yield from ("", _summary(name))
    distinct = {model_digest(rewrite.before): rewrite for rewrite in reversed(record.rewrites)}
    for index, rewrite in enumerate(reversed(distinct.values())):
        picture = folder / f"{name}{f'-{index + 1}' if index else ''}.svg"
        render(rewrite.before, rewrite.after, output=picture)
        yield from ("", f"`{rewrite.where}`: {rewrite.found}; {_checks(rewrite, report)}.")
        yield from ("", f"![{rewrite.found}]({picture.name})")


def _summary(name: str) -> str:
    """The first paragraphs of the pass's documentation: what it does, by which identity."""
    paragraphs = (inspect.getdoc(pipeline.find(name)) or "").split("\n\n")
    return "\n\n".join(paragraphs[:2])


def _checks(rewrite: Rewrite, report: Report) -> str:
    sizes = f"{len(rewrite.before.graph)} -> {len(rewrite.after.graph)} nodes"
    proof = next((p.verdict for p in report.proofs if p.where == rewrite.where), None)
    proved = "" if proof is None else f", {proof.status} (2^{proof.log2_bound:.0f})"
    outputs = {value.name for value in rewrite.before.graph.outputs}
    errors = [error for error in report.region_errors if error.where in outputs]
    if not errors:
        return sizes + proved
    worst = max(errors, key=lambda error: error.after)
    return (
        f"{sizes}{proved}, largest error {worst.after:.1e} of scale on {worst.sample} "
        f"({worst.before:.1e} before)"
    )
