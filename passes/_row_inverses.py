"""Row-by-row inverses of I - A in a graph: chains of scatters and Loops, known by what they do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.facts import Fact, open_shape, strictly_lower
from gdn_ir.graph_view import SCATTER_OPS, VIEW_OPS, captures, only_consumer
from gdn_ir.matching import Constant, Op, OpIndex, Var, is_identity
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point, random_seed, unknowns, value_at
from gdn_ir.open_shapes import has_square_matrices, trial_shape
from gdn_ir.passes._worst_inverses import worst_inverses
from gdn_ir.region import OpenRegion, Region, is_constant
from gdn_ir.rewrite import Sample
from gdn_ir.structural_hash import model_digest

LARGEST = 256
_ADD_IDENTITY = Op("Add", Var("chain"), Constant("eye", is_identity, "an identity"), commutes=True)


@dataclasses.dataclass(frozen=True)
class Form:
    """What a chain computes: (I - A)^-1 or (I + A)^-1, with the identity or without."""

    negated: bool
    with_identity: bool


@dataclasses.dataclass(frozen=True)
class RowSteps:
    """Scatters that write into one value in turn, or a Loop, and the value they end in."""

    A: ir.Value
    tail: ir.Value
    kind: Literal["scatters", "Loop"]


@dataclasses.dataclass(frozen=True)
class RowInverse:
    """A row-by-row inverse of a strictly lower A [..., n, n].

    Attributes:
        A: what is inverted.
        region: the nodes from A to the inverse.
        form: what exactly they compute.
        fact: why A is strictly lower.
    """

    A: ir.Value
    region: Region
    form: Form
    fact: Fact

    @property
    def tail(self) -> ir.Value:
        """The inverse."""
        return self.region.outputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of A and of the inverse; open dimensions are 2."""
        return trial_shape(self.A) or ()


def candidates(graph: ir.Graph) -> Iterator[RowSteps]:
    """What may be a row loop, in this scope."""
    yield from _scatter_chains(graph)
    yield from _row_loops(graph)


def recognise(
    model: ir.Model, steps: RowSteps, forms: dict[str, Form | None]
) -> RowInverse | str | None:
    """The inverse that the steps compute, or why they are none; None if nobody would think so.

    Whether they compute (I - A)^-1 is decided by evaluating them in exact arithmetic. `forms`
    remembers that by structure: layers are alike.
    """
    A, tail = steps.A, steps.tail
    shape = trial_shape(A)
    if is_constant(A):
        return None
    if A.shape is None or shape is None or not isinstance(A.shape[-1], int):
        start = "a Loop from" if steps.kind == "Loop" else "scatters into"
        return f"{start} '{A.name}': {open_shape([A])}"
    if not has_square_matrices(A) or shape[-1] < 2:
        return None
    n = shape[-1]
    if n > LARGEST:
        return f"A is {n} by {n}; at most {LARGEST} is supported"
    try:
        region = Region.between([A], [tail])
    except OpenRegion as error:
        if steps.kind == "Loop":
            return None  # of something else, such as a state
        return f"the scatters do not form an inverse: {error}"
    piece = region.to_model(model)
    digest = model_digest(piece)
    if digest not in forms:
        forms[digest] = _form(piece, A.name or "", n)
    form = forms[digest]
    if form is None:
        who = "the Loop does" if steps.kind == "Loop" else "the scatters do"
        return f"{who} not compute (I - A)^-1"
    fact = strictly_lower(model, A)
    if fact is None:
        return (
            f"{A.name} is not known to be strictly lower; if it is, say "
            f"--assume {A.name}:strictly-lower"
        )
    return RowInverse(A, region, form, fact)


def samples(inverse: RowInverse) -> Iterator[Sample]:
    """The matrices on which ways to invert part."""
    for family, A in worst_inverses(inverse.shape):
        yield Sample(family, {inverse.A.name or "": -A if inverse.form.negated else A})


def _scatter_chains(graph: ir.Graph) -> Iterator[RowSteps]:
    """Each maximal chain of scatters, through views of the data they write into."""
    inner: set[ir.Node] = set()
    for last in reversed(list(OpIndex(graph).of(*SCATTER_OPS))):
        if last in inner:
            continue
        scatters = [last]
        data = last.inputs[0]
        while (above := _scatter_above(data)) is not None:
            scatters.append(above)
            data = above.inputs[0]
        inner.update(scatters)
        tail = _with_identity(last.outputs[0])
        # A lone scatter is the whole loop only at n = 2, and then the identity follows.
        if data is not None and (len(scatters) > 1 or tail is not last.outputs[0]):
            yield RowSteps(data, tail, "scatters")


def _row_loops(graph: ir.Graph) -> Iterator[RowSteps]:
    """Each square result of a Loop with each square value it starts from or captures."""
    for loop in OpIndex(graph).of("Loop"):
        starts = loop.inputs[2:]
        for start, result in zip(starts, loop.outputs[: len(starts)], strict=True):
            sources = dict.fromkeys([start, *captures(loop)])
            for A in sources:
                if (
                    A is not None
                    and has_square_matrices(A)
                    and (A is start or has_square_matrices(result))
                ):
                    yield RowSteps(A, _with_identity(result), "Loop")


def _scatter_above(value: ir.Value | None) -> ir.Node | None:
    """The scatter that the value is a view of, in the value's own scope."""
    node = value.producer() if value is not None else None
    scope = None if node is None else node.graph
    while node is not None and node.op_type in VIEW_OPS and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if node is None or node.graph is not scope or node.op_type not in SCATTER_OPS:
        return None
    return node


def _with_identity(value: ir.Value) -> ir.Value:
    """What adds the identity to the value, if that is all that happens to it, else the value."""
    consumer = only_consumer(value)
    return consumer.outputs[0] if consumer and _ADD_IDENTITY.match(consumer) else value


def _form(piece: ir.Model, name: str, n: int) -> Form | None:
    """The form in which the piece is the inverse of I - A or I + A, at a random point."""
    point = random_point(random_seed())
    feeds = unknowns(piece.graph.inputs, point, {name})
    A = point.lift(feeds[name])
    try:
        result = value_at(piece, point, feeds)
    except CannotDecide:
        return None
    if result.shape != A.shape or result.is_minus_inf.any():
        return None
    eye = np.eye(n, dtype=np.int64)
    for form in (
        Form(negated, with_eye) for negated in (False, True) for with_eye in (True, False)
    ):
        matrix = (eye + (A.residue if form.negated else -A.residue)) % point.field.p
        inverse = (result.residue + (0 if form.with_identity else eye)) % point.field.p
        if (point.field.matmul(matrix, inverse) == eye).all():
            return form
    return None
