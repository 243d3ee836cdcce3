"""Checks that a rewritten graph is valid and computes what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.facts import Fact
from gdn_ir.rewrite import Rewrite


@dataclass(frozen=True)
class Evidence:
    """What a gate rejected: enough to see it fail again.

    Attributes:
        pass_text: the pass that is to blame.
        before, after: the two models that should be equal; no `after` if it is no valid graph.
        assumes: facts about their inputs under which they should be.
        feeds: inputs that show the difference, empty where none were needed.
        seed: of the proof that found it, or 0.
        clean_up: whether the pass may only tidy, so that `after` must be made of the same
            computation, not of an equal one.
    """

    pass_text: str
    before: ir.Model
    after: ir.Model | None = None
    assumes: tuple[Fact, ...] = ()
    feeds: Mapping[str, Array] = field(default_factory=dict)
    seed: int = 0
    clean_up: bool = False

    @classmethod
    def of(cls, rewrite: Rewrite, **found: Any) -> Evidence:
        """A region and its replacement, and what was found about them."""
        return cls(
            rewrite.pass_text, rewrite.before, rewrite.after, assumes=rewrite.assumes, **found
        )


class VerificationFailed(Exception):
    """A gate rejected a model; the message names the pass, the place and the difference."""

    def __init__(self, message: str, evidence: Evidence | None = None) -> None:
        super().__init__(message)
        self.evidence = evidence


class InvalidGraph(VerificationFailed):
    """A pass left a graph that is not valid, and so cannot be kept as evidence."""
