"""The main job: a model through a pipeline, checked, and what is to be reported of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import onnx_ir as ir

from gdn_ir import facts, model_file, pipeline, runtime, targets
from gdn_ir.dimensions import bind_dimensions
from gdn_ir.evaluate import Array
from gdn_ir.facts import BY_USER, Fact
from gdn_ir.normal_form import normalise
from gdn_ir.observers import Dumps, Record, count_ops
from gdn_ir.pass_base import CleanUp, Pass
from gdn_ir.pass_manager import Observer, run
from gdn_ir.report import Report, Verify
from gdn_ir.rewrite import Rewrite
from gdn_ir.verify import Evidence, InvalidGraph, VerificationFailed
from gdn_ir.verify.bisect import first_breaking_pass
from gdn_ir.verify.canonical import CanonicalCheck
from gdn_ir.verify.numeric import (
    NumericGate,
    WholeModelError,
    compare_models,
    is_small_enough,
)
from gdn_ir.verify.proof_gate import ProofGate
from gdn_ir.verify.shapes import bind, symbols
from gdn_ir.verify.structure import StructureCheck

DEFAULT_TARGET = "portable"
# Serial loops, whose bodies are rewritten but which stay loops.
_LOOPS = ("Loop", "Scan")


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
            its worst-case inputs, and the whole model too if its weights are under 1 GiB.
            `structure` and `none`: neither; the structure is checked after every pass all the
            same.
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
        ran = parsed[: len(record.passes)]
        failure.evidence = failure.evidence or _evidence(failure, before, optimized, ran)
        raise

    report = Report(pipeline.to_text(parsed), verify, record.passes, dict(dims or {}))
    rewrites = [rewrite for done in record.passes for rewrite in done.rewrites]
    report.assumes = Fact.describe(fact for rewrite in rewrites for fact in rewrite.assumes)
    ops = count_ops(optimized)
    report.left_alone = {op: ops[op] for op in _LOOPS if ops[op]}
    report.warnings = list(dict.fromkeys(r.warning for r in rewrites if r.warning))
    report.warnings += _unused(before, rewrites)
    report.proofs, report.region_errors = proof.verdicts, numeric.errors
    report.repeated = max(proof.repeated, numeric.repeated)
    report.warnings += map(str, [*proof.unproved, *numeric.not_run])
    _refuse_unchecked(verify, proof, numeric)
    if verify in ("full", "numeric"):
        _check_whole(before, optimized, parsed, report)
    elif rewrites:
        report.warnings.append(f"not checked numerically: verify={verify}")
    return optimized, report


def _unused(model: ir.Model, rewrites: Iterable[Rewrite]) -> list[str]:
    """Facts that the user stated and no rewrite relied on."""
    used = {
        (fact.value, fact.property)
        for rewrite in rewrites
        for fact in rewrite.assumes
        if fact.basis == BY_USER
    }
    return [
        f"--assume {fact.value}:{fact.property} was not used: no rewrite relied on it"
        for fact in facts.stated(model)
        if (fact.value, fact.property) not in used
    ]


def _evidence(
    failure: VerificationFailed, before: ir.Model, broken: ir.Model, ran: Sequence[Pass]
) -> Evidence:
    """What the last pass that ran was given and what it left, if that is a valid graph."""
    *earlier, culprit = ran
    given = before.clone()
    run(given, earlier)
    return Evidence(
        str(culprit),
        given,
        None if isinstance(failure, InvalidGraph) else broken,
        assumes=facts.stated(given),
        clean_up=isinstance(culprit, CleanUp),
    )


def _refuse_unchecked(verify: Verify, proof: ProofGate, numeric: NumericGate) -> None:
    """A rewrite may lack the word of one gate, not of all that were asked for."""
    unproved = {(proved.where, proved.pass_text): proved for proved in proof.unproved}
    for left in numeric.not_run:
        proved = unproved.get((left.rewrite.where, left.rewrite.pass_text))
        if verify == "full" and proved is None:
            continue
        raise VerificationFailed(
            f"no gate could check pass '{left.rewrite.pass_text}': "
            + "; ".join(str(text) for text in (proved, left) if text is not None),
            Evidence.of(left.rewrite),
        )


def _check_whole(
    before: ir.Model, optimized: ir.Model, passes: Sequence[Pass], report: Report
) -> None:
    """Runs both models whole; raises `VerificationFailed` with the first pass that breaks it.

    Open dimensions are 65 and then 130 together: one and two chunks of 64, and a ragged end.
    """
    if not is_small_enough(before):
        report.warnings.append("the whole model was not run: more than 1 GiB of weights")
        return
    names = symbols(before)
    for length in (65, 130) if names else (None,):
        sizes = {} if length is None else dict.fromkeys(names, length)
        at = "" if length is None else f" with open dimensions at {length}"
        try:
            feeds = runtime.random_inputs(bind(before, sizes))
            facts.satisfy(before, feeds)
            report.whole_model += _compare_whole(before, optimized, passes, feeds)
        except (ValueError, runtime.RunFailed) as error:
            report.warnings.append(f"the whole model was not run{at}: {error}")
            return


def _compare_whole(
    before: ir.Model, optimized: ir.Model, passes: Sequence[Pass], feeds: dict[str, Array]
) -> list[WholeModelError]:
    def is_broken(model: ir.Model) -> bool:
        try:
            compare_models(before, model, feeds)
        except VerificationFailed:
            return True
        return False

    try:
        return compare_models(before, optimized, feeds)
    except VerificationFailed as failure:
        culprit = first_breaking_pass(before, passes, is_broken)
        if culprit is None:
            raise
        message = f"{failure}; pass '{culprit.pass_text}' is the first to break it"
        raise VerificationFailed(message, replace(culprit, feeds=feeds)) from None
