"""What happened to a model, for people, programs and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gdn_ir.observers import PassRecord
from gdn_ir.verify.numeric import RegionError, WholeModelError
from gdn_ir.verify.proof_gate import ProvedRewrite

Verify = Literal["full", "proof", "numeric", "structure", "none"]


@dataclass
class Report:
    """What `optimize` did and how far it was checked.

    Attributes:
        pipeline: its text.
        verify: the level that was asked for.
        passes: a record for each pass.
        dims: symbolic dimensions that were bound, and to what.
        left_alone: how many Loops and Scans the result holds, in all scopes; no pass removes one.
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
    left_alone: dict[str, int] = field(default_factory=dict)
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
            "left_alone": self.left_alone,
            "assumes": self.assumes,
            "warnings": self.warnings,
            "proofs": [
                {"where": p.where, "pass": p.pass_text, **vars(p.verdict)} for p in self.proofs
            ],
            "region_errors": [vars(error) for error in self.region_errors],
            "repeated_regions": self.repeated,
            "whole_model": [vars(error) for error in self.whole_model],
        }
