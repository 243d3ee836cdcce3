"""Equivalence of any two models of one interface: what is written alike is peeled off first.

Values of both graphs are hashed in topological order. Where the hashes agree, the two are the same
computation; where they differ and the names agree, the pair is a candidate, and its two slices are
proved equal down to what has been found equal so far, which becomes unknowns. A proved pair gets
one hash, so that everything after it is found equal by hash again. So a rewritten layer is proved
once, and ops without meaning in the algebra do not matter outside of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from gdn_ir import pipeline
from gdn_ir.facts import static_shape
from gdn_ir.graph_view import operands
from gdn_ir.modular.interpreter import is_exact
from gdn_ir.pass_manager import run
from gdn_ir.region import Region, is_constant
from gdn_ir.verify.canonical import CanonicalHash
from gdn_ir.verify.proof import Status, Verdict, prove

# Pairs that share a name by chance cost time; unrelated exports share dozens.
_MOST_FAILURES = 12
# Elements of all values of two models that are proved whole in seconds.
_SMALL = 2**26
EQUAL_BY_HASH = "equal by hash"
_FOLDING = "infer-shapes,fold-constants,cse,dce,infer-shapes,fold-constants,cse,identity,dce"


@dataclass
class Comparison:
    """What comparing two models came to.

    Attributes:
        outputs: for each output, `EQUAL_BY_HASH` or the verdict on it.
        proved: the pairs of inner values that were proved, by name.
    """

    outputs: dict[str, Verdict | str] = field(default_factory=dict)
    proved: dict[str, Verdict] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The worst of the outputs' verdicts."""
        found = {v.status for v in self.outputs.values() if isinstance(v, Verdict)}
        for status in ("DIFFERENT", "UNSUPPORTED", "UNDECIDED"):
            if status in found:
                return status
        return "PROVED"


def compare(before: ir.Model, after: ir.Model, seed: int | None = None) -> Comparison:
    """Proves the outputs of two models equal, or says why not.

    Raises:
        ValueError: their interfaces differ.
    """
    check_interfaces(before, after)
    return _Comparing(_folded(before), _folded(after), seed).run()


def _folded(model: ir.Model) -> ir.Model:
    """A copy with shapes inferred and constants folded in the model's own types."""
    copy = model.clone()
    run(copy, pipeline.parse(_FOLDING))
    return copy


class _Comparing:
    def __init__(self, before: ir.Model, after: ir.Model, seed: int | None) -> None:
        self._before, self._after, self._seed = before, after, seed
        hashing = CanonicalHash(before, "first")
        self._old = hashing.leaves(before.graph)
        for node in before.graph:
            self._old.update(zip(node.outputs, hashing.node(node, self._old), strict=True))
        self._named = {value.name: value for node in before.graph for value in node.outputs}
        self._by_hash = {digest: value for value, digest in self._old.items()}
        self._new: dict[ir.Value, str] = {}
        self._proved: set[ir.Value] = set()
        self._failures = 0
        self._result = Comparison()

    def run(self) -> Comparison:
        self._hash_after(prove_on_the_way=False)
        left = self._unequal_outputs()
        verdict = self._prove(left, [self._inputs()]) if left and self._is_simple() else None
        if verdict is not None and verdict.status == "DIFFERENT":
            # At the models' own inputs that is the last word, but others may be equal still.
            verdicts = [self._prove([pair], [self._inputs()]) for pair in left]
            return self._finished(left, verdicts)
        if left and (verdict is None or verdict.status != "PROVED"):
            self._hash_after(prove_on_the_way=True)
            left = self._unequal_outputs()
            choices = (self._equal_values(), self._opaque_values(), self._inputs())
            verdict = self._prove(left, choices) if left else None
        return self._finished(left, [verdict] * len(left) if verdict is not None else [])

    def _finished(
        self, left: Sequence[tuple[ir.Value, ir.Value]], verdicts: Sequence[Verdict]
    ) -> Comparison:
        for value in self._before.graph.outputs:
            self._result.outputs[value.name or ""] = EQUAL_BY_HASH
        for (value, _), verdict in zip(left, verdicts, strict=True):
            self._result.outputs[value.name or ""] = verdict
        return self._result

    def _hash_after(self, *, prove_on_the_way: bool) -> None:
        """Hashes the second model; a pair of values that is proved equal gets one hash."""
        hashing = CanonicalHash(self._after, "second")
        self._new = hashing.leaves(self._after.graph)
        for node in self._after.graph:
            self._new.update(zip(node.outputs, hashing.node(node, self._new), strict=True))
            for value in node.outputs if prove_on_the_way else ():
                old = self._named.get(value.name)
                if old is not None and self._is_candidate(old, value):
                    self._try(old, value)

    def _unequal_outputs(self) -> list[tuple[ir.Value, ir.Value]]:
        pairs = zip(self._before.graph.outputs, self._after.graph.outputs, strict=True)
        return [(old, new) for old, new in pairs if self._old[old] != self._new[new]]

    def _is_simple(self) -> bool:
        """Whether proving the models whole, which needs no search, costs little and may do."""
        nodes = [*self._before.graph, *self._after.graph]
        sizes = [math.prod(static_shape(value) or ()) for node in nodes for value in node.outputs]
        return sum(sizes) < _SMALL and all(map(is_exact, nodes))

    def _is_candidate(self, old: ir.Value, new: ir.Value) -> bool:
        if self._failures >= _MOST_FAILURES or self._old[old] == self._new[new]:
            return False
        if new.is_graph_output() or self._new[new] in self._by_hash:
            return False
        shape = static_shape(new)
        return shape is not None and shape == static_shape(old) and old.dtype == new.dtype

    def _try(self, old: ir.Value, new: ir.Value) -> None:
        verdict = self._prove([(old, new)], (self._equal_values(), self._opaque_values()))
        if verdict.status == "PROVED":
            self._new[new] = self._old[old]
            self._proved.add(new)
            self._result.proved[old.name or ""] = verdict
        else:
            self._failures += 1

    def _prove(
        self, pairs: Sequence[tuple[ir.Value, ir.Value]], choices: Sequence[set[str]]
    ) -> Verdict:
        """With ever fewer unknowns: a relation between peeled values may be what equality needs."""
        verdict: Verdict | None = None
        tried: list[set[str]] = []
        for known in choices:
            if known in tried:
                continue
            tried.append(known)
            before = self._cut(self._before, [old for old, _ in pairs], self._old, known)
            after = self._cut(self._after, [new for _, new in pairs], self._new, known)
            verdict = prove(before, after, seed=self._seed)
            if verdict.status == "PROVED":
                return verdict
        assert verdict is not None, "at least one set of unknowns is tried"
        return verdict

    def _equal_values(self) -> set[str]:
        """Hashes of values found equal, by hash or by proof."""
        return set(self._new.values()) & set(self._old.values())

    def _opaque_values(self) -> set[str]:
        """Hashes of the equal values that the algebra knows nothing of but that they are equal."""
        opaque = {
            digest
            for value, digest in self._old.items()
            if (node := value.producer()) is not None and not is_exact(node)
        }
        return (opaque & self._equal_values()) | self._inputs()

    def _inputs(self) -> set[str]:
        return {self._old[value] for value in self._before.graph.inputs}

    def _cut(
        self,
        model: ir.Model,
        outputs: Sequence[ir.Value],
        hashes: Mapping[ir.Value, str],
        known: set[str],
    ) -> ir.Model:
        """The slice above the outputs down to values of known hashes, which become its inputs.

        Both models' inputs are called as the values of the first model are.
        """
        boundary = [
            value
            for value, digest in hashes.items()
            if digest in known and value not in outputs and _can_be_unknown(value)
        ]
        used = _reached(Region.between(boundary, outputs), boundary)
        piece = Region.between(used, outputs).to_model(model)
        for value, copy in zip(used, piece.graph.inputs, strict=True):
            copy.name = f"{self._by_hash[hashes[value]].name}/unknown"
        for value, copy in zip(used, piece.graph.inputs, strict=True):
            copy.name = self._by_hash[hashes[value]].name
        return piece


def _can_be_unknown(value: ir.Value) -> bool:
    if is_constant(value) or static_shape(value) is None or value.dtype is None:
        return False
    return value.is_graph_input() or value.dtype.is_floating_point()


def _reached(region: Region, boundary: Sequence[ir.Value]) -> list[ir.Value]:
    read = {value for node in region.nodes for value in operands(node)} | set(region.outputs)
    return [value for value in boundary if value in read]


def check_interfaces(before: ir.Model, after: ir.Model) -> None:
    """Raises `ValueError` unless inputs and outputs have the same names, order and types."""
    for what in ("inputs", "outputs"):
        old, new = getattr(before.graph, what), getattr(after.graph, what)
        if [v.name for v in old] != [v.name for v in new]:
            names = [", ".join(v.name or "" for v in values) for values in (old, new)]
            raise ValueError(f"the models' {what} differ: {names[0]} and {names[1]}")
        for a, b in zip(old, new, strict=True):
            if a.dtype != b.dtype:
                raise ValueError(
                    f"{what[:-1]} '{a.name}' is {a.dtype} in one model, {b.dtype} in the other"
                )
