"""parallel-inverse: the row-by-row inverse of a chunk becomes a few MatMuls."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import Array
from gdn_ir.facts import open_shape, strictly_lower
from gdn_ir.graph_view import SCATTER_OPS, VIEW_OPS, captures, only_consumer, scopes
from gdn_ir.matching import Constant, Op, OpIndex, Var, is_identity
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point, random_seed, unknowns, value_at
from gdn_ir.open_shapes import has_square_matrices, shape_text, trial_shape
from gdn_ir.pass_base import Pass
from gdn_ir.passes import _inverse_methods as methods
from gdn_ir.passes._worst_inverses import worst_inverses
from gdn_ir.region import OpenRegion, Region, is_constant, replace
from gdn_ir.rewrite import Declined, Rewrite, Sample
from gdn_ir.structural_hash import model_digest
from gdn_ir.wording import counted

Method = Literal["block", "substitution", "doubling", "neumann"]

_UNSAFE = ("doubling", "neumann")
_ADD_IDENTITY = Op("Add", Var("chain"), Constant("eye", is_identity, "an identity"), commutes=True)
_LARGEST = 256


@dataclasses.dataclass(frozen=True)
class ParallelInverse(Pass):
    """The serial row loop T[i] = e_i + A[i, :i] T[:i] becomes MatMuls.

    Identity: for A [..., n, n] strictly lower triangular, n from 2 to 256, the loop computes
    (I - A)^-1, and so does every method below. Whether a chain of scatters, or a Loop, is that loop
    is decided by evaluating it in exact arithmetic; that A is strictly lower must follow from the
    graph, or be stated with `--assume A:strictly-lower`. Axes before the last two may be open.

    method=block (default): masked doubling inside diagonal leaves of at most `leaf`, then batched
      merges [[T11, 0], [T22 A21 T11, T22]]. 2 log2 n - 2 dependent MatMuls, .36 Mflop at n = 64,
      leaf 16. Stable: every intermediate is a block of an inverse.
    method=substitution: the row loop inside the leaves, then the same merges. leaf - 1 steps and
      two MatMuls a level.
    method=doubling: S <- S + P S, P <- P P. Unsafe: float32 loses every digit at n = 64 once keys
      correlate (cosine .5), since powers of A grow like binomial coefficients.
    method=neumann: I + A + A A + ..., n - 2 MatMuls. Unsafe in the same way. With `tol` above 0
      it is a Loop that ends once all entries of the power are below `tol`, which drops the rest.

    Source: block forward substitution of triangular systems; for the gated delta rule Yang et al.,
    "Gated Delta Networks", arXiv 2412.06464, and flash-linear-attention's solve_tril.
    """

    name: ClassVar[str] = "parallel-inverse"

    method: Method = "block"
    leaf: int = 16
    tol: float = 0.0

    def __post_init__(self) -> None:
        """Rejects options that mean nothing together."""
        if not 2 <= self.leaf <= _LARGEST:
            raise ValueError(f"option 'leaf' is between 2 and {_LARGEST}, not {self.leaf}")
        if self.tol < 0 or (self.tol > 0 and self.method != "neumann"):
            raise ValueError("option 'tol' is positive and goes with method=neumann")

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Every chain of scatters, and every Loop, that takes a square value and inverts it."""
        forms: dict[str, _Form | None] = {}
        for graph in scopes(model):
            for steps in (*_scatter_chains(graph), *_row_loops(graph)):
                # A rewrite for another of its outputs may have taken the Loop away.
                if steps.tail.graph is graph:
                    event = self._rewrite(model, steps, forms)
                    if event is not None:
                        yield event

    def _rewrite(
        self, model: ir.Model, steps: _RowSteps, forms: dict[str, _Form | None]
    ) -> Rewrite | Declined | None:
        A, tail = steps.A, steps.tail
        shape, where = trial_shape(A), tail.name or ""
        if is_constant(A):
            return None
        if A.shape is None or shape is None or not isinstance(A.shape[-1], int):
            start = "a Loop from" if steps.kind == "Loop" else "scatters into"
            reason = f"{start} '{A.name}': {open_shape([A])}"
            return Declined(str(self), where, reason)
        if not has_square_matrices(A) or shape[-1] < 2:
            return None
        n = shape[-1]
        if n > _LARGEST:
            return Declined(str(self), where, f"A is {n} by {n}; at most {_LARGEST} is supported")
        try:
            region = Region.between([A], [tail])
        except OpenRegion as error:
            if steps.kind == "Loop":
                return None  # of something else, such as a state
            return Declined(str(self), where, f"the scatters do not form an inverse: {error}")
        piece = region.to_model(model)
        digest = model_digest(piece)  # layers are alike
        if digest not in forms:
            forms[digest] = _recognise(piece, A.name or "", n)
        form = forms[digest]
        if form is None:
            who = "the Loop does" if steps.kind == "Loop" else "the scatters do"
            return Declined(str(self), where, f"{who} not compute (I - A)^-1")
        fact = strictly_lower(model, A)
        if fact is None:
            return Declined(
                str(self),
                where,
                f"{A.name} is not known to be strictly lower; if it is, say "
                f"--assume {A.name}:strictly-lower",
            )
        before, after = replace(
            model, region, lambda emit: [self._emit(emit, A, form)], tag=str(self)
        )
        unsafe = f"method={self.method} loses all digits on correlated keys"
        return Rewrite(
            pass_text=str(self),
            where=where,
            found=f"row-by-row inverse of {shape_text(A)}, {counted(n - 1, 'serial step')}",
            before=before,
            after=after,
            assumes=(fact,),
            samples=lambda: _samples(A.name or "", shape, form),
            warning=unsafe if self.method in _UNSAFE else "",
        )

    def _emit(self, emit: Emitter, A: ir.Value, form: _Form) -> ir.Value:
        assert A.dtype is not None and A.shape is not None
        *_, n = trial_shape(A) or ()
        dtype, rank = A.dtype.numpy(), len(A.shape)
        batched = A if rank == 3 else emit.op("Reshape", A, np.array([-1, n, n]))
        if form.negated:
            batched = emit.op("Neg", batched)
        match self.method:
            case "block":
                T = methods.block(emit, batched, n, self.leaf, dtype)
            case "substitution":
                T = methods.substitution(emit, batched, n, self.leaf, dtype)
            case "doubling":
                T = methods.doubling(emit, batched, n, dtype)
            case "neumann" if self.tol > 0:
                T = methods.neumann_until(emit, batched, n, self.tol, dtype, A.dtype)
            case "neumann":
                T = methods.neumann(emit, batched, n, dtype)
        if not form.with_identity:
            T = emit.op("Sub", T, np.eye(n, dtype=dtype))
        return T if rank == 3 else emit.op("Reshape", T, _shape_of(emit, A))


@dataclasses.dataclass(frozen=True)
class _RowSteps:
    """Scatters that write into one value in turn, or a Loop, and the value they end in."""

    A: ir.Value
    tail: ir.Value
    kind: Literal["scatters", "Loop"]


@dataclasses.dataclass(frozen=True)
class _Form:
    """What a chain computes: (I - A)^-1 or (I + A)^-1, with the identity or without."""

    negated: bool
    with_identity: bool


def _scatter_chains(graph: ir.Graph) -> Iterator[_RowSteps]:
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
            yield _RowSteps(data, tail, "scatters")


def _row_loops(graph: ir.Graph) -> Iterator[_RowSteps]:
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
                    yield _RowSteps(A, _with_identity(result), "Loop")


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


def _recognise(piece: ir.Model, name: str, n: int) -> _Form | None:
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
        _Form(negated, with_eye) for negated in (False, True) for with_eye in (True, False)
    ):
        matrix = (eye + (A.residue if form.negated else -A.residue)) % point.field.p
        inverse = (result.residue + (0 if form.with_identity else eye)) % point.field.p
        if (point.field.matmul(matrix, inverse) == eye).all():
            return form
    return None


def _shape_of(emit: Emitter, value: ir.Value) -> ir.Value | Array:
    """The shape as a constant, where at most one dimension is open."""
    assert value.shape is not None
    sizes = [size if isinstance(size, int) else -1 for size in value.shape]
    return np.array(sizes) if sizes.count(-1) < 2 else emit.op("Shape", value)


def _samples(name: str, shape: tuple[int, ...], form: _Form) -> Iterator[Sample]:
    for family, A in worst_inverses(shape):
        signed: Array = -A if form.negated else A
        yield Sample(family, {name: signed})
