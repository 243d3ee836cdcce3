"""Bisect: which pass of a pipeline is the first to break a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from gdn_ir.pass_base import Pass
from gdn_ir.pass_manager import run
from gdn_ir.verify import Evidence


def first_breaking_pass(
    model: ir.Model, passes: Iterable[Pass], is_broken: Callable[[ir.Model], bool]
) -> Evidence | None:
    """Runs the passes one by one on a copy and checks after each.

    A pass that breaks what an earlier one relied on need not be the last one that changed
    something, so this goes in order rather than by halves.

    Returns:
        The first pass after which the check fails, with the model before and after it; None if
        none does.
    """
    current = model.clone()
    for pass_ in passes:
        before = current.clone()
        run(current, [pass_])
        if is_broken(current):
            return Evidence(str(pass_), before, current)
    return None
