"""The main job: a model through a pipeline, checked, with a report of what happened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import onnx_ir as ir

from gdn_ir import facts, model_file, pipeline, runtime, targets
from gdn_ir.dimensions import bind_dimensions
from gdn_ir.facts import Fact
from gdn_ir.normal_form import normalise
from gdn_ir.observers import Dumps, PassRecord, Record
from gdn_ir.pass_base import Pass
from gdn_ir.pass_manager import Observer, run
from gdn_ir.verify import Evidence, VerificationFailed
from gdn_ir.verify.bisect import first_breaking_pass
from gdn_ir.verify.canonical import CanonicalCheck
from gdn_ir.verify.numeric import (
    NumericGate,
    RegionError,
    WholeModelError,
    compare_models,
    is_small_enough,
)
from gdn_ir.verify.proof_gate import ProofGate, ProvedRewrite
from gdn_ir.verify.structure import StructureCheck

Verify = Literal["full", "proof", "numeric", "structure", "none"]
DEFAULT_TARGET = "portable"


@dataclass
class Report:
    """What `optimize` did and how far it was checked.

    Attributes:
        pipeline: its text.
        verify: the level that was asked for.
        passes: a record for each pass.
        dims: symbolic dimensions that were bound, and to what.
        assumes: every fact about a boundary value that a rewrite relied on, as text.
        warnings: what a user should know before deploying the model.
        proofs: proof gate, one entry for each distinct rewrite.
        region_errors: numeric gate, one entry for each output, sample and distinct region.
        repeated: rewrites that were equal to one that had been checked.
        whole_model: numeric gate of the model as a whole; empty if it was not run.
    """

    pipeline: str
    verify: Verify
    passes: list[PassRecord]
    dims: dict[str, int] = field(default_factory=dict)
    assumes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    proofs: list[ProvedRewrite] = field(default_factory=list)
    region_errors: list[RegionError] = field(default_factory=list)
    repeated: int = 0
    whole_model: list[WholeModelError] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The report in plain numbers, strings and lists."""
        return {
            "pipeline": self.pipeline,
            "verify": self.verify,
            "dims": self.dims,
            "passes": [
                {
                    "pass": record.pass_text,
                    "nodes_before": record.nodes_before,
                    "nodes_after": record.nodes_after,
                    "op_delta": record.op_delta,
                    "seconds": round(record.seconds, 3),
                    "rewrites": [
                        {
                            "where": rewrite.where,
                            "found": rewrite.found,
                            "nodes_before": len(rewrite.before.graph),
                            "nodes_after": len(rewrite.after.graph),
                            "assumes": list(map(str, rewrite.assumes)),
                        }
                        for rewrite in record.rewrites
                    ],
                    "declined": [vars(declined) for declined in record.declined],
                }
                for record in self.passes
            ],
            "assumes": self.assumes,
            "warnings": self.warnings,
            "proofs": [
                {"where": p.where, "pass": p.pass_text, **vars(p.verdict)} for p in self.proofs
            ],
            "region_errors": [vars(error) for error in self.region_errors],
            "repeated_regions": self.repeated,
            "whole_model": [vars(error) for error in self.whole_model],
        }


def optimize(
    model: ir.Model | str | os.PathLike[str],
    *,
    target: str | None = None,
    passes: str | None = None,
    dims: Mapping[str, int] | None = None,
    assume: Sequence[str] = (),
    verify: Verify = "full",
    dump: str | os.PathLike[str] | None = None,
    observers: Iterable[Observer] = (),
) -> tuple[ir.Model, Report]:
    """Rewrites a model through a pipeline and checks the result.

    Args:
        model: a path, or a model, which is left as it is.
        target: whose pipeline to run, `portable` by default.
        passes: pipeline text to run in its stead; not together with `target`.
        dims: sizes for symbolic dimensions of the inputs, bound before the pipeline runs: the one
            thing that changes declared shapes. Everything is checked against the bound model.
        assume: facts to take the caller's word for, `NAME:strictly-lower`.
        verify: `full` is both gates. `proof`: each distinct rewrite is proved in exact arithmetic,
            and fails if it cannot be decided, which `full` only reports. `numeric`: each runs on
            its worst-case inputs, and the whole model too if its weights are under 1 GiB and its
            shapes static. `structure` and `none`: neither; the structure is checked after every
            pass all the same.
        dump: a folder for the model after each pass.
        observers: told of everything, after the checks.

    Raises:
        gdn_ir.model_file.BadModel, gdn_ir.pipeline.BadPipeline, ValueError: bad input.
        gdn_ir.verify.VerificationFailed: a gate rejected the result; it names the pass, and holds
            what shows the fault.
    """
    if target is not None and passes is not None:
        raise ValueError("target and passes exclude each other: a target is a pipeline by name")
    if verify not in get_args(Verify):
        raise ValueError(f"verify is one of {', '.join(get_args(Verify))}, not '{verify}'")
    text = targets.load(target or DEFAULT_TARGET).pipeline if passes is None else passes
    parsed = pipeline.parse(text)
    original = model if isinstance(model, ir.Model) else model_file.load(model)
    optimized = original.clone()
    normalise(optimized)
    bind_dimensions(optimized, dims or {})
    for fact in assume:
        facts.state(optimized, fact)

    record, proof, numeric = Record(), ProofGate(strict=verify == "proof"), NumericGate()
    watching: list[Observer] = [record, StructureCheck()]
    if verify not in ("structure", "none"):
        watching.append(CanonicalCheck())
    if verify in ("full", "proof"):
        watching.append(proof)
    if verify in ("full", "numeric"):
        watching.append(numeric)
    if dump is not None:
        watching.append(Dumps(Path(dump)))
    before = optimized.clone()
    try:
        run(optimized, parsed, [*watching, *observers])
    except VerificationFailed as failure:
        # A graph that is not valid cannot be kept; the pipeline breaks its input again.
        failure.evidence = failure.evidence or Evidence("", before)
        raise

    report = Report(pipeline.to_text(parsed), verify, record.passes, dict(dims or {}))
    rewrites = [rewrite for done in record.passes for rewrite in done.rewrites]
    report.assumes = Fact.describe(fact for rewrite in rewrites for fact in rewrite.assumes)
    report.warnings = list(dict.fromkeys(r.warning for r in rewrites if r.warning))
    report.proofs, report.region_errors = proof.verdicts, numeric.errors
    report.repeated = max(proof.repeated, numeric.repeated)
    report.warnings += map(str, [*proof.unproved, *numeric.not_run])
    _refuse_unchecked(verify, proof, numeric, before)
    if verify in ("full", "numeric"):
        _check_whole(before, optimized, parsed, report)
    elif rewrites:
        report.warnings.append(f"not checked numerically: verify={verify}")
    return optimized, report


def _refuse_unchecked(
    verify: Verify, proof: ProofGate, numeric: NumericGate, before: ir.Model
) -> None:
    """A rewrite may lack the word of one gate, not of all that were asked for."""
    unproved = {(proved.where, proved.pass_text): proved for proved in proof.unproved}
    for left in numeric.not_run:
        proved = unproved.get((left.where, left.pass_text))
        if verify == "full" and proved is None:
            continue
        raise VerificationFailed(
            f"no gate could check pass '{left.pass_text}': "
            + "; ".join(str(text) for text in (proved, left) if text is not None),
            Evidence(left.pass_text, before),
        )


def _check_whole(
    before: ir.Model, optimized: ir.Model, passes: Sequence[Pass], report: Report
) -> None:
    """Runs both models whole; raises `VerificationFailed` with the first pass that breaks it."""
    if not is_small_enough(before):
        report.warnings.append("the whole model was not run: more than 1 GiB of weights")
        return
    try:
        feeds = runtime.random_inputs(before)
    except ValueError as error:
        report.warnings.append(f"the whole model was not run: {error}")
        return
    facts.satisfy(before, feeds)

    def is_broken(model: ir.Model) -> bool:
        try:
            compare_models(before, model, feeds)
        except VerificationFailed:
            return True
        return False

    try:
        report.whole_model = compare_models(before, optimized, feeds)
    except runtime.RunFailed as error:
        report.warnings.append(f"the whole model was not run: {error}")
    except VerificationFailed as failure:
        culprit = first_breaking_pass(before, passes, is_broken)
        if culprit is None:
            raise
        message = f"{failure}; pass '{culprit.pass_text}' is the first to break it"
        raise VerificationFailed(message, replace(culprit, feeds=feeds)) from None
