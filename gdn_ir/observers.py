"""Observers of a pipeline run that keep a record or write files; the gates are in `verify`."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from gdn_ir import model_file, place
from gdn_ir.graph_view import scopes
from gdn_ir.pass_base import Pass
from gdn_ir.pass_manager import Observer
from gdn_ir.rewrite import Declined, Rewrite


def count_nodes(model: ir.Model) -> int:
    """Nodes of all scopes, Loop bodies and local functions included."""
    return sum(len(graph) for graph in scopes(model))


def count_ops(model: ir.Model) -> Counter[str]:
    """Nodes of all scopes by op type."""
    return Counter(node.op_type for graph in scopes(model) for node in graph)


@dataclass
class PassRecord:
    """What one pass of a pipeline did.

    Attributes:
        pass_text: the pass as the pipeline names it.
        nodes_before, nodes_after: nodes of all scopes.
        op_delta: ops whose number changed, and by how much.
        seconds: time of the pass, the checks of its rewrites included.
        rewrites: what it replaced.
        declined: candidates it left alone, with reasons.
    """

    pass_text: str
    nodes_before: int
    nodes_after: int = 0
    op_delta: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    rewrites: list[Rewrite] = field(default_factory=list)
    declined: list[Declined] = field(default_factory=list)


class Record(Observer):
    """Keeps a `PassRecord` for each pass."""

    def __init__(self) -> None:
        self.passes: list[PassRecord] = []

    def before(self, pass_: Pass, model: ir.Model) -> None:
        """Starts a record."""
        self._ops = count_ops(model)
        self.passes.append(PassRecord(str(pass_), self._ops.total()))
        self._start = time.perf_counter()

    def rewrote(self, rewrite: Rewrite) -> None:
        """Keeps the rewrite."""
        self.passes[-1].rewrites.append(rewrite)

    def declined(self, declined: Declined) -> None:
        """Keeps the reason."""
        self.passes[-1].declined.append(declined)

    def after(self, pass_: Pass, model: ir.Model) -> None:
        """Counts again."""
        record, ops = self.passes[-1], count_ops(model)
        record.seconds = time.perf_counter() - self._start
        record.nodes_after = ops.total()
        changed = {op: ops[op] - self._ops[op] for op in sorted(ops.keys() | self._ops.keys())}
        record.op_delta = {op: delta for op, delta in changed.items() if delta}


class Dumps(Observer):
    """Writes `000-input.onnx`, then the model after each pass as `NNN-pass.onnx`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def before(self, pass_: Pass, model: ir.Model) -> None:
        """Writes the input of the first pass."""
        if self._count == 0:
            self._write(model, "input")

    def after(self, pass_: Pass, model: ir.Model) -> None:
        """Writes what the pass left."""
        self._write(model, pass_.name)

    def _write(self, model: ir.Model, name: str) -> None:
        place.make_folder(self._folder)
        model_file.save(model, self._folder / f"{self._count:03d}-{name}.onnx")
        self._count += 1
