"""Runs passes over a model and tells observers what happens; it knows nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from gdn_ir.pass_base import Pass
from gdn_ir.rewrite import Declined, Rewrite


class Observer:
    """Sees a pipeline run; every method does nothing until overridden.

    Checks, timing, dumps and progress bars are observers. One that raises stops the run.
    """

    def before(self, pass_: Pass, model: ir.Model) -> None:
        """The pass is about to run."""

    def rewrote(self, rewrite: Rewrite) -> None:
        """The pass replaced a region."""

    def declined(self, declined: Declined) -> None:
        """The pass left a candidate alone."""

    def after(self, pass_: Pass, model: ir.Model) -> None:
        """The pass is done; the model is valid again."""


def run(model: ir.Model, passes: Iterable[Pass], observers: Sequence[Observer] = ()) -> None:
    """Runs the passes in order, in place."""
    for pass_ in passes:
        for observer in observers:
            observer.before(pass_, model)
        for event in pass_.run(model):
            for observer in observers:
                if isinstance(event, Rewrite):
                    observer.rewrote(event)
                else:
                    observer.declined(event)
        for observer in observers:
            observer.after(pass_, model)
