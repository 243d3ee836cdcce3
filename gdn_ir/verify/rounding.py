"""Rounding: whether two graphs that differ in exact arithmetic do so by a constant's last digit.

Div(x, 3) and Mul(x, 0.33333334) are two functions, and Exp(x + 1) is not 2.7182817 Exp(x). Exact
arithmetic tells them apart, rightly; a user would be misled by DIFFERENT.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from gdn_ir import runtime
from gdn_ir.evaluate import Array, CannotEvaluate, evaluate

# In the last place of the constants' type: what a few rounded ones may add up to.
MOST_UNITS = 8


def distance(before: ir.Model, after: ir.Model, strictly_lower: Collection[str]) -> float:
    """How far the outputs are apart in float64 at a random N(0, 1) point, relative to their scale.

    Infinite if they cannot be evaluated, have other shapes, or are not finite in the same places.

    Args:
        before, after: with static input shapes; inputs of one name are one.
        strictly_lower: names of inputs that are zero on and above the diagonal.
    """
    try:
        feeds = runtime.random_inputs(after) | runtime.random_inputs(before)
        for name, array in feeds.items():
            if array.dtype.kind == "f":
                array *= array.dtype.type(8)
            if name in strictly_lower:
                feeds[name] = np.tril(array, -1)
        olds, news = (
            evaluate(model, {value.name or "": feeds[value.name or ""] for value in inputs})
            for model in (before, after)
            for inputs in ([v for v in model.graph.inputs if v.name in feeds],)
        )
    except (CannotEvaluate, ValueError):
        return np.inf
    return max(map(_apart, olds, news), default=np.inf)


def _apart(old: Array, new: Array) -> float:
    if old.shape != new.shape or not np.array_equal(np.isfinite(old), np.isfinite(new)):
        return np.inf
    if old.dtype.kind != "f":
        return 0.0 if np.array_equal(old, new) else np.inf
    finite = np.isfinite(old)
    scale = max(np.abs(old[finite]).max(initial=0), np.abs(new[finite]).max(initial=0)) or 1.0
    same = np.array_equal(old[~finite], new[~finite], equal_nan=True)
    return float(np.abs(old - new)[finite].max(initial=0) / scale) if same else np.inf
