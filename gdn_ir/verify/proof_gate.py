"""The proof gate: every rewrite is proved in exact arithmetic, equal ones once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gdn_ir.pass_manager import Observer
from gdn_ir.rewrite import Rewrite
from gdn_ir.structural_hash import model_digest
from gdn_ir.verify import Evidence, VerificationFailed
from gdn_ir.verify.proof import Verdict
from gdn_ir.verify.shapes import prove_at_shapes


@dataclass(frozen=True)
class ProvedRewrite:
    """A rewrite's verdict."""

    where: str
    pass_text: str
    verdict: Verdict

    def __str__(self) -> str:
        """For a report."""
        if self.verdict.status == "PROVED":
            return f"'{self.where}' ({self.pass_text}): {self.verdict}"
        return f"not proved: '{self.where}' ({self.pass_text}): {self.verdict.reason}"


class ProofGate(Observer):
    """Proves each distinct rewrite under the facts that it assumes.

    A rewrite that is DIFFERENT is rejected. One that the proof cannot decide is kept for the
    report, or rejected too if `strict`.

    Attributes:
        verdicts: one for each distinct rewrite.
        repeated: how many rewrites were equal to one that had been proved.
        seconds: time spent.
    """

    def __init__(self, *, strict: bool, seed: int | None = None) -> None:
        self.verdicts: list[ProvedRewrite] = []
        self.repeated = 0
        self.seconds = 0.0
        self._strict = strict
        self._seed = seed
        self._done: set[tuple[object, ...]] = set()

    def rewrote(self, rewrite: Rewrite) -> None:
        """Raises `VerificationFailed` for a rewrite that is not, or not provably, equal."""
        names = [value.name for value in rewrite.before.graph.inputs]
        facts = frozenset((names.index(f.value), f.property) for f in rewrite.assumes)
        key = (model_digest(rewrite.before), model_digest(rewrite.after), facts)
        if key in self._done:
            self.repeated += 1
            return
        start = time.perf_counter()
        verdict = prove_at_shapes(rewrite.before, rewrite.after, rewrite.assumes, self._seed)
        self.seconds += time.perf_counter() - start
        self._done.add(key)
        self.verdicts.append(ProvedRewrite(rewrite.where, rewrite.pass_text, verdict))
        if verdict.status == "DIFFERENT" or (self._strict and verdict.status != "PROVED"):
            raise VerificationFailed(
                f"proof: pass '{rewrite.pass_text}' at '{rewrite.where}': {verdict}",
                Evidence.of(rewrite, seed=verdict.seed),
            )

    @property
    def unproved(self) -> list[ProvedRewrite]:
        """Rewrites that are neither proved nor refuted."""
        return [proved for proved in self.verdicts if proved.verdict.status != "PROVED"]
