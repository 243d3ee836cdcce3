"""Pass: what finds regions of a graph and replaces them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.rewrite import Declined, Rewrite


@dataclasses.dataclass(frozen=True)
class Pass(ir.passes.InPlacePass, abc.ABC):
    """A graph rewrite. Subclasses are frozen dataclasses whose fields are the pass's options.

    `name` is what a pipeline calls it; the docstring is what `gdn-ir passes NAME` prints: the
    identity used, when it holds, what it costs, its source. It is an `onnx_ir` pass too and runs
    in any onnx_ir pipeline.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Replaces one region after another through `region.replace` and yields a record of each.

        A candidate that is left alone is yielded as `Declined`, with the reason. Never changes
        names, order, types or shapes of the model's inputs and outputs.
        """

    def run(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """`rewrites`, then the nodes sorted again: replacements are appended to their scope."""
        changed = False
        for event in self.rewrites(model):
            changed |= isinstance(event, Rewrite)
            yield event
        if changed:
            model.graph.sort()
            for function in model.functions.values():
                function.sort()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs the pass without observers, as onnx_ir pass managers do."""
        events = list(self.run(model))
        return ir.passes.PassResult(model, any(isinstance(event, Rewrite) for event in events))

    def __str__(self) -> str:
        """The pass as it stands in a pipeline: options that differ from their default shown."""
        options = [
            f"{field.name}={_text(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return self.name + (f"{{{' '.join(options)}}}" if options else "")


@dataclasses.dataclass(frozen=True)
class CleanUp(Pass):
    """A pass that changes how a graph is written, not what it computes.

    It yields no rewrites; the whole graph is checked instead, by the canonical hash of its outputs
    (`gdn_ir.verify.canonical`).
    """

    @abc.abstractmethod
    def clean(self, model: ir.Model) -> bool:
        """Cleans every scope of the model; returns whether anything changed."""

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """None: see `clean`."""
        self.clean(model)
        return iter(())

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs the pass without observers."""
        return ir.passes.PassResult(model, self.clean(model))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
