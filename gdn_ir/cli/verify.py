"""`gdn-ir verify`: both gates on any two models, or again on what a gate rejected."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from gdn_ir import model_file
from gdn_ir.cli.printing import AsJson, print_json, print_line, print_table
from gdn_ir.cli.rejected import Rejected
from gdn_ir.verify import reproducer
from gdn_ir.verify.equivalence import EQUAL_BY_HASH
from gdn_ir.verify.numeric import RegionError
from gdn_ir.verify.proof import Verdict
from gdn_ir.verify.two_models import AtShape, verify_models


class Gates(str, Enum):
    """Which gates to run, and whether the proof must decide."""

    FULL = "full"
    PROOF = "proof"
    NUMERIC = "numeric"


def command(
    before: Annotated[
        Path | None,
        typer.Argument(metavar="BEFORE", help="The .onnx file that is taken to be right."),
    ] = None,
    after: Annotated[
        Path | None, typer.Argument(metavar="AFTER", help="The .onnx file to check against it.")
    ] = None,
    verify: Annotated[
        Gates,
        typer.Option(
            help="Gates; full: proof and numeric; proof: must be proved in exact arithmetic; "
            "numeric: as accurate on random and on equal tokens."
        ),
    ] = Gates.FULL,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the proof's random points.", show_default="fresh"),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Instead of two models: check the reproducer that a failed optimize left.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that two models of one interface compute the same."""
    if replay is not None:
        if before is not None:
            raise ValueError("--replay takes no models: the folder holds them")
        _replay(replay, as_json)
        return
    if before is None or after is None:
        raise ValueError("name two models, or a folder with --replay")
    found = list(
        verify_models(
            model_file.load(before),
            model_file.load(after),
            proof=verify is not Gates.NUMERIC,
            numeric=verify is not Gates.PROOF,
            seed=seed,
        )
    )
    document = {"before": str(before), "after": str(after), "shapes": list(map(_json, found))}
    failures = [text for at in found for text in _failures(at, strict=verify is Gates.PROOF)]
    if not as_json:
        for at_shape in found:
            _print(at_shape)
    if failures:
        raise Rejected(f"{after} is not {before}: {failures[0]}", document)
    if as_json:
        print_json(document)


def _failures(at: AtShape, *, strict: bool) -> list[str]:
    accepted = {"PROVED"} if strict else {"PROVED", "UNDECIDED", "UNSUPPORTED"}
    where = "".join(f" with {name}={size}" for name, size in at.sizes.items())
    found = []
    if at.comparison is not None:
        for name, verdict in at.comparison.outputs.items():
            if isinstance(verdict, Verdict) and verdict.status not in accepted:
                found.append(f"output '{name}'{where} is {verdict}; --seed {verdict.seed}")
    found += [_complaint(error) + where for error in at.errors if not error.is_accepted]
    proved = at.comparison is not None and at.comparison.status == "PROVED"
    if not found and not proved and not at.errors:
        found.append(f"neither proved nor run{where}")
    return found


def _complaint(error: RegionError) -> str:
    if error.after <= error.limit:
        return f"'{error.where}' on {error.sample}: NaN or infinities stand in other places"
    return (
        f"'{error.where}' on {error.sample}: an error of {error.after:.1e} of scale; "
        f"{error.before:.1e} is that of the first model"
    )


def _print(at: AtShape) -> None:
    if at.sizes:
        print_line("with " + ", ".join(f"{name}={size}" for name, size in at.sizes.items()))
    if at.comparison is not None:
        inner = at.comparison.proved
        for name, verdict in at.comparison.outputs.items():
            print_line(f"output '{name}': {_verdict_text(verdict, bool(inner))}")
        for name, verdict in inner.items():
            print_line(f"  on the way '{name}': {verdict}")
    if at.errors:
        print_table(
            "Largest error against the first model in float64, relative to the largest output",
            ["output", "inputs", "first", "second", "at most", "accepted"],
            [
                [e.where, e.sample, f"{e.before:.1e}", f"{e.after:.1e}", f"{e.limit:.1e}",
                 "yes" if e.is_accepted else "no"]
                for e in at.errors
            ],
        )  # fmt: skip
    for note in at.notes:
        print_line(f"numeric gate: {note}")


def _verdict_text(verdict: Verdict | str, proved_inside: bool) -> str:
    if verdict == EQUAL_BY_HASH:
        return EQUAL_BY_HASH + (", given the proofs below" if proved_inside else "")
    if isinstance(verdict, Verdict) and verdict.status in ("UNDECIDED", "UNSUPPORTED"):
        return f"not proved: {verdict}"
    return str(verdict)


def _json(at: AtShape) -> dict[str, Any]:
    comparison = at.comparison
    return {
        "sizes": dict(at.sizes),
        "outputs": {}
        if comparison is None
        else {n: _plain(v) for n, v in comparison.outputs.items()},
        "proved_inside": {}
        if comparison is None
        else {n: _plain(v) for n, v in comparison.proved.items()},
        "errors": [{**vars(error), "accepted": error.is_accepted} for error in at.errors],
        "notes": at.notes,
    }


def _plain(verdict: Verdict | str) -> Any:
    return vars(verdict) if isinstance(verdict, Verdict) else verdict


def _replay(folder: Path, as_json: bool) -> None:
    found = reproducer.replay(folder)
    document = {
        "message": found.message,
        "proof": None if found.verdict is None else vars(found.verdict),
        "errors": [{**vars(error), "accepted": error.is_accepted} for error in found.errors],
        "failure": found.failure,
    }
    if not as_json:
        _print_replay(found)
    if found.fails:
        raise Rejected(f"{folder} still fails: {found.failure or found.message}", document)
    if as_json:
        print_json(document)
    else:
        print_line("it passes now")


def _print_replay(found: reproducer.Replay) -> None:
    print_line(f"written with: {found.message}")
    if found.verdict is not None:
        print_line(f"proof: {found.verdict}")
    for error in found.errors:
        state = "accepted" if error.is_accepted else "rejected"
        print_line(
            f"numeric gate: '{error.where}': {error.before:.1e} before, "
            f"{error.after:.1e} after, at most {error.limit:.1e}: {state}"
        )
