"""Whole rules: what an exporter leaves, against what the portable pipeline makes of it.

    python benchmarks/forms.py [--rounds 7]

Times are medians of interleaved rounds, one ONNX Runtime session alive at a time, spinning off.
"""

from __future__ import annotations

import argparse
from typing import Any

from gdn_ir import runtime
from gdn_ir.models.baseline import build_unrolled
from gdn_ir.observers import count_nodes
from gdn_ir.optimizer import optimize

SIZES: list[dict[str, Any]] = [
    {"seq": 512, "heads": 8, "head_dim": 128},
    {"seq": 512, "heads": 8, "head_dim": 128, "mask": "fill-zero"},
    {"seq": 512, "heads": 8, "head_dim": 128, "l2norm": True, "state": True},
    {"seq": 512, "heads": 32, "head_dim": 64},
    {"seq": 1024, "heads": 4, "head_dim": 128},
]
DOUBLING = (
    "fold-constants,cse,exp-mask,parallel-inverse{method=doubling},scatter-to-concat,"
    "flatten-matmul,identity,fold-constants,cse,dce"
)


def main() -> None:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print(f"batch 1, chunk 64, float32, {runtime.usable_cores()} cores\n")
    print("| size | export ms (nodes) | doubling, unsafe | portable ms (nodes) | times faster |")
    print("|---|---|---|---|---|")
    for size in SIZES:
        export = build_unrolled(**size)
        portable, _ = optimize(export)
        doubling, _ = optimize(export, passes=DOUBLING, verify="none")
        feeds = runtime.random_inputs(export)
        times = runtime.time_interleaved([export, doubling, portable], [feeds] * 3, rounds=rounds)
        slow, unsafe, fast = (timing.median_ms for timing in times)
        label = ", ".join(f"{name} {value}" for name, value in size.items())
        print(
            f"| {label} | {slow:.1f} ({count_nodes(export)}) | {unsafe:.1f} "
            f"| {fast:.1f} ({count_nodes(portable)}) | {slow / fast:.1f} |"
        )


if __name__ == "__main__":
    main()
