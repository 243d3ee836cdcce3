"""`gdn-ir optimize`: the main job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gdn_ir import dimensions, model_file, targets
from gdn_ir.cli.printing import AsJson, print_json, print_line, print_table, print_warning
from gdn_ir.cli.rejected import Rejected
from gdn_ir.optimizer import DEFAULT_TARGET
from gdn_ir.optimizer import optimize as optimize_model
from gdn_ir.report import Report
from gdn_ir.verify import VerificationFailed, reproducer
from gdn_ir.wording import counted


class Verify(str, Enum):
    """How far the result is checked."""

    FULL = "full"
    PROOF = "proof"
    NUMERIC = "numeric"
    STRUCTURE = "structure"
    NONE = "none"


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The .onnx file to rewrite.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The .onnx file to write; not the input."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(help="Run the pipeline of this target.", show_default=DEFAULT_TARGET),
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(
            metavar="PIPELINE",
            help="Run these passes instead, e.g. 'exp-mask,parallel-inverse{leaf=32}'.",
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SIZE",
            help="Bind a symbolic dimension of the inputs, e.g. S=512; repeatable.",
        ),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:FACT",
            help="Take your word for FACT, strictly-lower, of value NAME; repeatable.",
        ),
    ] = None,
    verify: Annotated[
        Verify,
        typer.Option(
            help="Gates; full: proof and numeric; proof: must be proved in exact arithmetic; "
            "numeric: as accurate on its worst inputs; structure, none: no gate."
        ),
    ] = Verify.FULL,
    dump: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write the model after each pass there, as NNN-pass.onnx."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite a model, check it, and write it if it passes."""
    loaded = model_file.load(model)
    model_file.check_place(loaded, output, inputs=[model])
    try:
        optimized, report = optimize_model(
            loaded,
            target=target,
            passes=passes,
            dims=dimensions.parse(dim or ()),
            assume=assume or (),
            verify=verify.value,
            dump=dump,
        )
    except VerificationFailed as failure:
        assert failure.evidence is not None, "optimize adds it"
        folder = output.with_name(f"{output.name}.reproducer")
        text = passes or targets.load(target or DEFAULT_TARGET).pipeline
        reproducer.write(folder, failure.evidence, str(failure), text)
        raise Rejected(
            f"{failure}; nothing written but a reproducer: gdn-ir verify --replay {folder}",
            {"reproducer": str(folder)},
        ) from None
    model_file.save(optimized, output, inputs=[model])
    if as_json:
        print_json({"output": str(output), **report.to_json()})
    else:
        _print(report)
        print_line(f"wrote {output}")
    for warning in report.warnings:
        print_warning(warning)


def group_rewrites(report: Report) -> dict[str, list[str]]:
    """What was replaced by how many nodes, and where: equal rewrites together."""
    groups: dict[str, list[str]] = {}
    for record in report.passes:
        for rewrite in record.rewrites:
            nodes = f"{len(rewrite.before.graph)} -> {counted(len(rewrite.after.graph), 'node')}"
            text = f"{record.pass_text}: {rewrite.found}; {nodes}"
            groups.setdefault(text, []).append(rewrite.where)
    return groups


def _places(places: list[str]) -> str:
    return f"'{places[0]}'" + (f" and {len(places) - 1} more" if len(places) > 1 else "")


def print_proofs(report: Report) -> None:
    """What the proof gate found, in a line and one for each constant that it rounded."""
    verdicts = [proof.verdict for proof in report.proofs]
    proved = [verdict for verdict in verdicts if verdict.status == "PROVED"]
    if proved:
        bound = math.ceil(max(verdict.log2_bound for verdict in proved))
        print_line(
            f"proof: {len(proved)} of {counted(len(verdicts), 'distinct rewrite')} PROVED at "
            f"their shapes, each wrong with a chance below 2^{bound}{_repeated(report.repeated)}"
        )
    for one, other in sorted({pair for verdict in proved for pair in verdict.unified}):
        print_line(f"  {other!r} taken for {one!r}: they differ by rounding alone")


def print_left_alone(loops: Mapping[str, int]) -> None:
    """How many loops of each kind stay."""
    if loops:
        kinds = ", ".join(counted(n, kind) for kind, n in loops.items())
        print_line(
            f"left alone: {kinds}, whose steps need one another (static-unroll writes them out)"
        )


def _repeated(number: int) -> str:
    if number == 0:
        return ""
    return f"; {number} more {'is' if number == 1 else 'are'} like one of them"


def _print(report: Report) -> None:
    print_table(
        "Passes",
        ["pass", "nodes", "rewrites", "seconds"],
        [
            [
                record.pass_text,
                f"{record.nodes_before} -> {record.nodes_after}",
                len(record.rewrites),
                f"{record.seconds:.2f}",
            ]
            for record in report.passes
        ],
    )
    for name, size in report.dims.items():
        print_line(f"  bound dimension {name} = {size}")
    for text, places in group_rewrites(report).items():
        print_line(f"  {text} ({_places(places)})")
    for record in report.passes:
        for declined in record.declined:
            print_line(f"  {declined.pass_text} declined '{declined.where}': {declined.reason}")
    for fact in report.assumes:
        print_line(f"  assumes {fact}")
    print_proofs(report)
    if report.region_errors:
        worst = max(report.region_errors, key=lambda error: error.after)
        print_line(
            f"numeric gate: passed on {counted(len(report.region_errors), 'output')} of "
            "worst-case runs; "
            f"largest error {worst.after:.1e} of scale ({worst.before:.1e} before) "
            f"at '{worst.where}' on {worst.sample}"
        )
    if report.whole_model:
        largest = max(error.difference for error in report.whole_model)
        print_line(f"whole model: outputs within {largest:.1e} of scale of the original's")
    print_left_alone(report.left_alone)
