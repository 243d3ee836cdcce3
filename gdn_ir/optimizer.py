"""The main job: a model through a pipeline, checked, with a report of what happened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import onnx_ir as ir

from gdn_ir import facts, model_file, pipeline, runtime, targets
from gdn_ir.facts import Fact
from gdn_ir.observers import Dumps, PassRecord, Record
from gdn_ir.pass_manager import Observer, run
from gdn_ir.verify.canonical import CanonicalCheck
from gdn_ir.verify.numeric import (
    NumericGate,
    RegionError,
    WholeModelError,
    compare_models,
    is_small_enough,
)
from gdn_ir.verify.structure import StructureCheck

Verify = Literal["numeric", "structure", "none"]
DEFAULT_TARGET = "portable"
# Unsqueeze and ReduceSum take their axes as inputs from here on; the passes emit them so.
_OLDEST_OPSET = 13


@dataclass
class Report:
    """What `optimize` did and how far it was checked.

    Attributes:
        pipeline: its text.
        verify: the level that was asked for.
        passes: a record for each pass.
        assumes: every fact about a boundary value that a rewrite relied on, as text.
        warnings: what a user should know before deploying the model.
        region_errors: numeric gate, one entry for each output, sample and distinct region.
        repeated: rewrites that were equal to one that had been checked.
        whole_model: numeric gate of the model as a whole; empty if it was not run.
    """

    pipeline: str
    verify: Verify
    passes: list[PassRecord]
    assumes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    region_errors: list[RegionError] = field(default_factory=list)
    repeated: int = 0
    whole_model: list[WholeModelError] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The report in plain numbers, strings and lists."""
        return {
            "pipeline": self.pipeline,
            "verify": self.verify,
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
            "region_errors": [vars(error) for error in self.region_errors],
            "repeated_regions": self.repeated,
            "whole_model": [vars(error) for error in self.whole_model],
        }


def optimize(
    model: ir.Model | str | os.PathLike[str],
    *,
    target: str | None = None,
    passes: str | None = None,
    assume: Sequence[str] = (),
    verify: Verify = "numeric",
    dump: str | os.PathLike[str] | None = None,
    observers: Iterable[Observer] = (),
) -> tuple[ir.Model, Report]:
    """Rewrites a model through a pipeline and checks the result.

    Args:
        model: a path, or a model, which is left as it is.
        target: whose pipeline to run, `portable` by default.
        passes: pipeline text to run in its stead; not together with `target`.
        assume: facts to take the caller's word for, `NAME:strictly-lower`.
        verify: `numeric` runs each distinct rewritten region on its worst-case inputs, and the
            whole model if its weights are under 1 GiB and its shapes static. `structure` and
            `none` do not; the structure is checked after every pass all the same.
        dump: a folder for the model after each pass.
        observers: told of everything, after the checks.

    Raises:
        gdn_ir.model_file.BadModel, gdn_ir.pipeline.BadPipeline, ValueError: bad input.
        gdn_ir.verify.VerificationFailed: a gate rejected the result; it names the pass.
    """
    if target is not None and passes is not None:
        raise ValueError("target and passes exclude each other: a target is a pipeline by name")
    if verify not in get_args(Verify):
        raise ValueError(f"verify is one of {', '.join(get_args(Verify))}, not '{verify}'")
    text = targets.load(target or DEFAULT_TARGET).pipeline if passes is None else passes
    parsed = pipeline.parse(text)
    original = model if isinstance(model, ir.Model) else model_file.load(model)
    opset = original.opset_imports.get("", _OLDEST_OPSET)
    if opset < _OLDEST_OPSET:
        raise model_file.BadModel(
            f"the model has opset {opset}; the passes need {_OLDEST_OPSET} or later: "
            "convert it with onnx.version_converter"
        )
    optimized = original.clone()
    for fact in assume:
        facts.state(optimized, fact)

    record, gate = Record(), NumericGate()
    watching: list[Observer] = [record, StructureCheck()]
    if verify == "numeric":
        watching += [CanonicalCheck(), gate]
    if dump is not None:
        watching.append(Dumps(Path(dump)))
    run(optimized, parsed, [*watching, *observers])

    report = Report(pipeline.to_text(parsed), verify, record.passes)
    rewrites = [rewrite for done in record.passes for rewrite in done.rewrites]
    report.assumes = Fact.describe(fact for rewrite in rewrites for fact in rewrite.assumes)
    report.warnings = list(dict.fromkeys(r.warning for r in rewrites if r.warning))
    report.region_errors, report.repeated = gate.errors, gate.repeated
    if verify == "numeric":
        _check_whole(original, optimized, report)
    elif rewrites:
        report.warnings.append(f"not checked numerically: verify={verify}")
    return optimized, report


def _check_whole(original: ir.Model, optimized: ir.Model, report: Report) -> None:
    if not is_small_enough(original):
        report.warnings.append("the whole model was not run: more than 1 GiB of weights")
        return
    try:
        feeds = runtime.random_inputs(original)
    except ValueError as error:
        report.warnings.append(f"the whole model was not run: {error}")
        return
    report.whole_model = compare_models(original, optimized, feeds)
