"""The rule in every form on one runtime: exported, doubled, ours, as a Scan, as one fused op.

    python benchmarks/rule_forms.py [--seq 512 --heads 8 --head-dim 128] [--out benchmarks/results]

Writes the models to a temporary folder and times them with `gdn-ir bench`: `rule_forms.json`, `.md`
and `.svg`. The last two are the only ones that name the rule: the standard op, which ONNX Runtime
runs as a Scan over tokens, and its own op, which has a kernel from 1.25.1 on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import onnx.parser
import onnx_ir as ir

from gdn_ir.cli import exit_code
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.optimizer import optimize

DOUBLING = (
    "fold-constants,cse,exp-mask,parallel-inverse{method=doubling},scatter-to-concat,"
    "flatten-matmul,identity,fold-constants,cse,dce"
)
# Heads lie side by side in the last axis of what the fused ops take.
FUSED = """<ir_version: 13, opset_import: ["": {opset}, "com.microsoft": 1]>
rule (float[1,{T},{H},{D}] q, float[1,{T},{H},{D}] k, float[1,{T},{H},{D}] v,
      float[1,{T},{H}] g, float[1,{T},{H}] beta) => (float[1,{T},{H},{D}] o)
<int64[3] flat = {{1, {T}, {W}}}, int64[4] heads = {{1, {T}, {H}, {D}}}> {{
  q_flat = Reshape (q, flat)
  k_flat = Reshape (k, flat)
  v_flat = Reshape (v, flat)
  o_flat, state = {op} <q_num_heads = {H}, kv_num_heads = {H}, update_rule = "gated_delta">
    (q_flat, k_flat, v_flat, , g, beta)
  o = Reshape (o_flat, heads)
}}"""


def main() -> int:
    """Builds and times the models; the exit code is that of `gdn-ir bench`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    export = build_unrolled(seq=given.seq, heads=given.heads, head_dim=given.head_dim)
    portable, _ = optimize(export)
    doubling, _ = optimize(export, passes=DOUBLING, verify="none")
    sizes = {"T": given.seq, "H": given.heads, "D": given.head_dim}
    sizes["W"] = given.heads * given.head_dim
    models = {
        "export": export,
        "doubling (unsafe)": doubling,
        "portable": portable,
        "onnx LinearAttention-27": _fused(27, "LinearAttention", sizes),
        "com.microsoft.LinearAttention": _fused(20, "com.microsoft.LinearAttention", sizes),
    }
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in models]
        for file, model in zip(files, models.values(), strict=True):
            ir.save(model, file)
        places = [given.out / f"rule_forms{suffix}" for suffix in (".json", ".md", ".svg")]
        options = [text for place in places for text in ("-o", str(place))]
        return exit_code(["bench", *map(str, files), "--rounds", str(given.rounds), *options])


def _fused(opset: int, op: str, sizes: dict[str, int]) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(FUSED.format(opset=opset, op=op, **sizes)))


if __name__ == "__main__":
    sys.exit(main())
