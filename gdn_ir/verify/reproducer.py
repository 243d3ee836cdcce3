"""The reproducer folder: what a gate rejected, as files that show it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from gdn_ir import array_file, facts, model_file, place
from gdn_ir.facts import Fact
from gdn_ir.pass_manager import run
from gdn_ir.pipeline import parse
from gdn_ir.rewrite import Sample
from gdn_ir.verify import Evidence, VerificationFailed
from gdn_ir.verify.canonical import (
    CanonicalCheck,
    canonical_outputs,
    changed_output,
    complaint,
)
from gdn_ir.verify.numeric import RegionError, measure
from gdn_ir.verify.proof import Verdict
from gdn_ir.verify.shapes import prove_at_shapes
from gdn_ir.verify.structure import StructureCheck

_ABOUT = "about.json"


@dataclass(frozen=True)
class Replay:
    """What both gates say about a reproducer now.

    Attributes:
        message: what the gate said when the folder was written.
        verdict: of the proof; None for a clean-up pass, and where there is no graph to prove.
        errors: of each output on the reproducer's inputs; empty where it has none.
        failure: what is wrong beyond these: what a clean-up pass changed, or what a pass breaks
            when it runs again; "" if nothing is.
    """

    message: str
    verdict: Verdict | None = None
    errors: tuple[RegionError, ...] = ()
    failure: str = ""

    @property
    def fails(self) -> bool:
        """Whether a gate still rejects it."""
        proved = self.verdict is None or self.verdict.status == "PROVED"
        return bool(self.failure) or not proved or not all(e.is_accepted for e in self.errors)


def write(folder: Path, evidence: Evidence, message: str, pipeline: str) -> None:
    """Writes before.onnx, after.onnx if there is one, pipeline.txt, about.json and inputs.npz."""
    place.make_folder(folder)
    for name in ("before.onnx", "after.onnx", "inputs.npz"):
        (folder / name).unlink(missing_ok=True)
    model_file.save(evidence.before, folder / "before.onnx")
    if evidence.after is not None:
        model_file.save(evidence.after, folder / "after.onnx")
    (folder / "pipeline.txt").write_text(pipeline + "\n", encoding="utf-8")
    about = {
        "message": message,
        "pass": evidence.pass_text,
        "seed": evidence.seed,
        "clean_up": evidence.clean_up,
        "assumes": [vars(fact) for fact in evidence.assumes],
    }
    (folder / _ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    if evidence.feeds:
        array_file.save(folder / "inputs.npz", evidence.feeds)


def replay(folder: Path) -> Replay:
    """Runs the gates again on a reproducer, or its pass where that left no valid graph.

    Raises:
        ValueError: the folder is no reproducer.
    """
    try:
        about = json.loads((folder / _ABOUT).read_text("utf-8"))
        assumes = [Fact(**fact) for fact in about["assumes"]]
        message, seed, pass_text = about["message"], about["seed"], about["pass"]
        clean_up = about["clean_up"]
    except (OSError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"{folder} is no reproducer folder: it holds no readable {_ABOUT}; "
            "name the folder that optimize wrote"
        ) from None
    before = model_file.load(folder / "before.onnx")
    if not (folder / "after.onnx").exists():
        return Replay(message, failure=_run_again(before, pass_text, assumes))
    after = model_file.load(folder / "after.onnx")
    if clean_up:
        output = changed_output(canonical_outputs(before), after)
        return Replay(message, failure="" if output is None else complaint(pass_text, output))
    errors: list[RegionError] = []
    if (folder / "inputs.npz").exists():
        sample = Sample("the reproducer's inputs", array_file.load(folder / "inputs.npz"))
        try:
            errors = [e for _, found in measure(before, after, [sample], pass_text) for e in found]
        except VerificationFailed as failure:
            return Replay(message, failure=str(failure))
    return Replay(message, prove_at_shapes(before, after, assumes, seed), tuple(errors))


def _run_again(model: ir.Model, pass_text: str, assumes: list[Fact]) -> str:
    """What the pass breaks now, or ""."""
    for fact in assumes:
        facts.state(model, f"{fact.value}:{fact.property}")
    try:
        run(model, parse(pass_text), [StructureCheck(), CanonicalCheck()])
    except VerificationFailed as failure:
        return str(failure)
    return ""
