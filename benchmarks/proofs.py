"""What proofs cost: of rewrites in models of more and more layers, and of pairs of exports.

    python benchmarks/proofs.py

Layers are alike, so that each rewrite is proved once however many there are.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from gdn_ir import pass_manager, pipeline, targets
from gdn_ir.models.layer_model import build_layer
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.normal_form import normalise
from gdn_ir.verify.equivalence import compare
from gdn_ir.verify.proof_gate import ProofGate

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fixture_files import load_fixture

LAYERS = (1, 4, 36)
PAIRS = (
    ("hf_fill_inf", "hf_fill_zero"),
    ("hf_fill_zero", "ts_fill_zero"),
    ("hf_fill_inf", "ts_fill_zero"),
)


def main() -> None:
    """Prints two Markdown tables."""
    print("| layers | nodes | distinct rewrites | alike | proofs, s |")
    print("|---|---|---|---|---|")
    for layers in LAYERS:
        model = build_layer(RuleForm("unrolled", chunk=16), layers=layers, seq=48, head_dim=16)
        normalise(model)
        nodes, gate = len(model.graph), ProofGate(strict=True)
        pass_manager.run(model, pipeline.parse(targets.load("portable").pipeline), [gate])
        print(
            f"| {layers} | {nodes} | {len(gate.verdicts)} | {gate.repeated} | {gate.seconds:.2f} |"
        )
    print("\n| first | second | nodes | verdict | s |")
    print("|---|---|---|---|---|")
    for names in PAIRS:
        first, second = map(load_fixture, names)
        start = time.perf_counter()
        verdict = compare(first, second)
        seconds = time.perf_counter() - start
        nodes = f"{len(first.graph)}, {len(second.graph)}"
        print(f"| {' | '.join(names)} | {nodes} | {verdict.status} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
