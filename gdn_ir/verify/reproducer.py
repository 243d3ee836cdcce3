"""The reproducer folder: what a gate rejected, as files that show it again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gdn_ir import model_file
from gdn_ir.facts import Fact
from gdn_ir.rewrite import Sample
from gdn_ir.verify import Evidence
from gdn_ir.verify.numeric import RegionError, measure
from gdn_ir.verify.proof import Verdict, prove

_FACTS = "about.json"


def write(folder: Path, evidence: Evidence, message: str, pipeline: str) -> None:
    """Writes before.onnx, after.onnx, pipeline.txt, about.json and, if any, inputs.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    model_file.save(evidence.before, folder / "before.onnx")
    model_file.save(evidence.after, folder / "after.onnx")
    (folder / "pipeline.txt").write_text(pipeline + "\n", encoding="utf-8")
    about = {
        "message": message,
        "pass": evidence.pass_text,
        "seed": evidence.seed,
        "assumes": [vars(fact) for fact in evidence.assumes],
    }
    (folder / _FACTS).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    if evidence.feeds:
        np.savez(folder / "inputs.npz", **evidence.feeds)  # type: ignore[arg-type]


def replay(folder: Path) -> tuple[str, Verdict, list[RegionError]]:
    """Runs both gates again on a reproducer.

    Returns:
        The message that it was written with, the verdict of the proof, and the errors on its
        inputs (none where it has no inputs).

    Raises:
        ValueError: the folder is no reproducer.
    """
    try:
        about = json.loads((folder / _FACTS).read_text("utf-8"))
        assumes = [Fact(**fact) for fact in about["assumes"]]
        message, seed, pass_text = about["message"], about["seed"], about["pass"]
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder} is no reproducer folder: {error}") from None
    before = model_file.load(folder / "before.onnx")
    after = model_file.load(folder / "after.onnx")
    verdict = prove(before, after, assumes, seed)
    errors = []
    if (folder / "inputs.npz").exists():
        with np.load(folder / "inputs.npz", allow_pickle=False) as feeds:
            sample = Sample("the reproducer's inputs", dict(feeds))
        errors = [e for _, found in measure(before, after, [sample], pass_text) for e in found]
    return message, verdict, errors
