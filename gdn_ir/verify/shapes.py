"""Shapes to prove at: a verdict holds for numbers, so dimensions without one get several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import CannotEvaluate, evaluate
from gdn_ir.facts import Fact
from gdn_ir.graph_view import scopes
from gdn_ir.modular.points import LOG2_BOUND, random_seed
from gdn_ir.verify.proof import Verdict, prove

# Around the chunk of 64 that all published models use: one token, ragged, full, one over, several.
LENGTHS = (1, 63, 64, 65, 128)
# Of chunks, most often.
COUNTS = (1, 2, 3)
# onnx's inference names anew what it cannot follow, though it is one length most often.
_INFERRED = "unk__"

Sizes = Mapping[str, int]


def symbols(model: ir.Model) -> list[str]:
    """The dimensions of the model's inputs that have no number, by name, each once.

    A dimension without a name is called by its position: what is axis 1 of one input is most
    likely that of the others.
    """
    found: dict[str, None] = {}
    for value in model.graph.inputs:
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int):
                found[_symbol(size, axis)] = None
    return list(found)


def _symbol(size: ir.SymbolicDim, axis: int) -> str:
    return f"?{axis}" if size.value is None else size.value


def _counts(name: str) -> bool:
    """Whether the dimension counts chunks, as far as its name tells: (S + 63) // 64, or none."""
    return name.startswith(_INFERRED) or not (name.isidentifier() or name.startswith("?"))


def choices(names: Iterable[str]) -> Iterator[Sizes]:
    """Sizes for dimensions: each takes several in turn while the others are small."""
    small = {name: 2 + index for index, name in enumerate(names)}
    if not small:
        yield {}
    for name in small:
        for length in COUNTS if _counts(name) else LENGTHS:
            yield {**small, name: length}


def _fitting(model: ir.Model, names: Sequence[str]) -> list[Sizes]:
    """The sizes that the model can have; if not all that differ fit, also such as are alike."""
    tried = list(choices(names))
    fitting = [sizes for sizes in tried if _fits(bind(model, sizes))]
    if len(fitting) < len(tried):
        for sizes in _alike(names):
            if sizes not in fitting and _fits(bind(model, sizes)):
                fitting.append(sizes)
    # If no size fits, or an op has no value in float64, the proof says what is wrong.
    return fitting or tried


def _alike(names: Sequence[str]) -> Iterator[Sizes]:
    """One size for all dimensions that inference named, then one for all: two may be one length."""
    counts = [name for name in names if _counts(name)]
    named = [name for name in names if name not in counts]
    for sizes in choices([*named, *counts[:1]]):
        yield {name: sizes[counts[0] if name in counts else name] for name in names}
    for length in LENGTHS if named else COUNTS:
        yield dict.fromkeys(names, length)


def _fits(model: ir.Model) -> bool:
    feeds = {}
    for value in model.graph.inputs:
        if value.shape is None or not value.shape.is_static() or value.dtype is None:
            return False
        feeds[value.name or ""] = np.zeros(value.shape.numpy(), value.dtype.numpy())
    try:
        evaluate(model, feeds)
    except CannotEvaluate:
        return False
    return True


def bind(model: ir.Model, sizes: Sizes) -> ir.Model:
    """The model with inputs of these sizes; a copy, without the shapes that depend on them."""
    if not sizes:
        return model
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.shape is None or value.shape.is_static():
            continue
        value.shape = ir.Shape(
            size if isinstance(size, int) else sizes.get(_symbol(size, axis), size)
            for axis, size in enumerate(value.shape)
        )
    for graph in scopes(copy):
        for node in graph:
            for value in node.outputs:
                if value.shape is not None and not value.shape.is_static():
                    value.shape = None
    return copy


def prove_at_shapes(
    before: ir.Model, after: ir.Model, assumes: Iterable[Fact] = (), seed: int | None = None
) -> Verdict:
    """`prove` at the shapes that the models have, or at several where those can vary."""
    names = symbols(before)
    if not names:
        return prove(before, after, assumes, seed)
    assumes = tuple(assumes)
    seed = random_seed() if seed is None else seed
    proved: list[Verdict] = []
    tried = _fitting(before, names)
    # The chances add up.
    bound = LOG2_BOUND - math.log2(len(tried))
    for sizes in tried:
        verdict = prove(bind(before, sizes), bind(after, sizes), assumes, seed, bound)
        if verdict.status != "PROVED":
            return verdict
        proved.append(verdict)
    return replace(
        proved[0],
        shapes=tuple(shapes for verdict in proved for shapes in verdict.shapes),
        log2_bound=max(verdict.log2_bound for verdict in proved) + math.log2(len(proved)),
        unified=tuple(sorted({pair for verdict in proved for pair in verdict.unified})),
    )
