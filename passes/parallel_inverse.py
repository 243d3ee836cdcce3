"""parallel-inverse: the row-by-row inverse of a chunk becomes a few MatMuls."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import onnx_ir as ir

from gdn_ir.emitter import Emitter
from gdn_ir.evaluate import Array
from gdn_ir.graph_view import scopes
from gdn_ir.open_shapes import shape_text, trial_shape
from gdn_ir.pass_base import Pass
from gdn_ir.passes import _inverse_methods as methods
from gdn_ir.passes import _row_inverses as row_inverses
from gdn_ir.passes._row_inverses import LARGEST, Form, RowInverse
from gdn_ir.region import replace
from gdn_ir.rewrite import Declined, Rewrite
from gdn_ir.wording import counted

Method = Literal["block", "substitution", "doubling", "neumann"]

_UNSAFE = ("doubling", "neumann")


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
        if not 2 <= self.leaf <= LARGEST:
            raise ValueError(f"option 'leaf' is between 2 and {LARGEST}, not {self.leaf}")
        if self.tol < 0 or (self.tol > 0 and self.method != "neumann"):
            raise ValueError("option 'tol' is positive and goes with method=neumann")

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """Every chain of scatters, and every Loop, that takes a square value and inverts it."""
        forms: dict[str, Form | None] = {}
        for graph in scopes(model):
            # A list: a rewrite takes nodes away, for another output of a Loop the Loop itself.
            for steps in list(row_inverses.candidates(graph)):
                if steps.tail.graph is not graph:
                    continue
                found = row_inverses.recognise(model, steps, forms)
                if isinstance(found, RowInverse):
                    yield self._rewrite(model, found)
                elif found is not None:
                    yield Declined(str(self), steps.tail.name or "", found)

    def _rewrite(self, model: ir.Model, inverse: RowInverse) -> Rewrite:
        before, after = replace(
            model,
            inverse.region,
            lambda emit: [self._emit(emit, inverse.A, inverse.form)],
            tag=str(self),
        )
        unsafe = f"method={self.method} loses all digits on correlated keys"
        steps = counted(inverse.shape[-1] - 1, "serial step")
        return Rewrite(
            pass_text=str(self),
            where=before.graph.outputs[0].name or "",
            found=f"row-by-row inverse of {shape_text(inverse.A)}, {steps}",
            before=before,
            after=after,
            assumes=(inverse.fact,),
            samples=partial(row_inverses.samples, inverse),
            warning=unsafe if self.method in _UNSAFE else "",
        )

    def _emit(self, emit: Emitter, A: ir.Value, form: Form) -> ir.Value:
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


def _shape_of(emit: Emitter, value: ir.Value) -> ir.Value | Array:
    """The shape as a constant, where at most one dimension is open."""
    assert value.shape is not None
    sizes = [size if isinstance(size, int) else -1 for size in value.shape]
    return np.array(sizes) if sizes.count(-1) < 2 else emit.op("Shape", value)
