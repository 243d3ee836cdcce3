"""parallel-inverse: the row-by-row inverse of a chunk becomes a few MatMuls."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import Array
from gdn_ir.facts import open_shape, static_shape, strictly_lower
from gdn_ir.graph_view import SCATTER_OPS, VIEW_OPS, only_consumer, scopes
from gdn_ir.matching import Constant, Op, OpIndex, Var, is_identity
from gdn_ir.modular.algebra import CannotDecide
from gdn_ir.modular.points import random_point, random_seed, unknowns, value_at
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
    (I - A)^-1, and so does every method below. Whether a chain of scatters is that loop is decided
    by evaluating it in exact arithmetic; that A is strictly lower must follow from the graph, or
    be stated with `--assume A:strictly-lower`.

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
        """Every chain of scatters that starts at a square value and inverts it."""
        forms: dict[str, _Form | None] = {}
        for graph in scopes(model):
            for chain in _scatter_chains(graph):
                event = self._rewrite(model, chain, forms)
                if event is not None:
                    yield event

    def _rewrite(
        self, model: ir.Model, chain: _Chain, forms: dict[str, _Form | None]
    ) -> Rewrite | Declined | None:
        A, tail = chain.A, chain.tail
        shape, tail_shape = static_shape(A), static_shape(tail)
        where = tail.name or ""
        if is_constant(A) or (len(chain.scatters) < 2 and not chain.with_identity):
            return None  # a lone scatter is the whole loop only at n = 2
        if shape is None or tail_shape is None:
            return Declined(str(self), where, f"scatters into '{A.name}': {open_shape([A, tail])}")
        if shape != tail_shape or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
            return None
        n = shape[-1]
        if n > _LARGEST:
            return Declined(str(self), where, f"A is {n} by {n}; at most {_LARGEST} is supported")
        try:
            region = Region.between([A], [tail])
        except OpenRegion as error:
            return Declined(str(self), where, f"the scatters do not form an inverse: {error}")
        piece = region.to_model(model)
        digest = model_digest(piece)  # layers are alike
        if digest not in forms:
            forms[digest] = _recognise(piece, A.name or "", n)
        form = forms[digest]
        if form is None:
            return Declined(str(self), where, "the scatters do not compute (I - A)^-1")
        fact = strictly_lower(model, A)
        if fact is None:
            return Declined(
                str(self),
                where,
                f"{A.name} is not known to be strictly lower; if it is, say "
                f"--assume {A.name}:strictly-lower",
            )
        before, after = replace(
            model, region, lambda emit: [self._emit(emit, A, shape, form)], tag=str(self)
        )
        unsafe = f"method={self.method} loses all digits on correlated keys"
        return Rewrite(
            pass_text=str(self),
            where=where,
            found=f"row-by-row inverse of {list(shape)}, {counted(n - 1, 'serial step')}",
            before=before,
            after=after,
            assumes=(fact,),
            samples=lambda: _samples(A.name or "", shape, form),
            warning=unsafe if self.method in _UNSAFE else "",
        )

    def _emit(self, emit: Emitter, A: ir.Value, shape: tuple[int, ...], form: _Form) -> ir.Value:
        assert A.dtype is not None
        dtype, n = A.dtype.numpy(), shape[-1]
        batched = A if len(shape) == 3 else emit.op("Reshape", A, np.array([-1, n, n]))
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
        return T if len(shape) == 3 else emit.op("Reshape", T, np.array(shape))


@dataclasses.dataclass(frozen=True)
class _Chain:
    """Scatters that write into one value in turn, and the value they end in."""

    A: ir.Value
    tail: ir.Value
    scatters: Sequence[ir.Node]

    @property
    def with_identity(self) -> bool:
        """Whether the tail is the sum with an identity."""
        return self.tail is not self.scatters[0].outputs[0]


@dataclasses.dataclass(frozen=True)
class _Form:
    """What a chain computes: (I - A)^-1 or (I + A)^-1, with the identity or without."""

    negated: bool
    with_identity: bool


def _scatter_chains(graph: ir.Graph) -> Iterator[_Chain]:
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
        if data is not None and last.graph is not None:
            yield _Chain(data, _with_identity(last.outputs[0]), scatters)


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


def _samples(name: str, shape: tuple[int, ...], form: _Form) -> Iterator[Sample]:
    for family, A in worst_inverses(shape):
        signed: Array = -A if form.negated else A
        yield Sample(family, {name: signed})
