"""Checks that a rewritten graph is valid and computes what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.facts import Fact


@dataclass(frozen=True)
class Evidence:
    """What a gate rejected: enough to see it fail again.

    Attributes:
        pass_text: the pass that is to blame.
        before, after: the two models that should be equal; no `after` if it is no valid graph.
        assumes: facts about their inputs under which they should be.
        feeds: inputs that show the difference, empty where none were needed.
        seed: of the proof that found it, or 0.
    """

    pass_text: str
    before: ir.Model
    after: ir.Model | None = None
    assumes: tuple[Fact, ...] = ()
    feeds: Mapping[str, Array] = field(default_factory=dict)
    seed: int = 0


class VerificationFailed(Exception):
    """A gate rejected a model; the message names the pass, the place and the difference."""

    def __init__(self, message: str, evidence: Evidence | None = None) -> None:
        super().__init__(message)
        self.evidence = evidence
