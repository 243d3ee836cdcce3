"""Ways to invert I - A, A strictly lower triangular [L, n, n], each as ONNX nodes.

With A = 0 on and above the diagonal, A^n = 0 and (I - A)^-1 = I + A + ... + A^(n-1).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from gdn_ir.emitter import Emitter

DType = np.dtype[np.floating]
LeafMethod = Callable[[Emitter, ir.Value, int, DType], ir.Value]


def block(emit: Emitter, A: ir.Value, n: int, leaf: int, dtype: DType) -> ir.Value:
    """Masked doubling inside diagonal leaves, then batched merges of neighbouring blocks."""
    return _merge_leaves(emit, A, n, leaf, dtype, masked_doubling)


def substitution(emit: Emitter, A: ir.Value, n: int, leaf: int, dtype: DType) -> ir.Value:
    """Forward substitution row by row inside diagonal leaves, then the same merges."""
    return _merge_leaves(emit, A, n, leaf, dtype, rows)


def masked_doubling(emit: Emitter, A: ir.Value, n: int, dtype: DType) -> ir.Value:
    """T <- T + T (M_s * A) T for s = 1, 2, 4, ...: blocks of s become blocks of 2s.

    M_s selects, in each diagonal block of 2s, its lower left quarter: there T is block diagonal,
    so the product is exactly T22 A21 T11. Every intermediate is a block of an inverse, which for
    unit keys and beta in [0, 2] is bounded by 2; powers of A are not.
    """
    T = emit.op("Add", emit.op("Mul", A, _quarter(n, 1, dtype)), np.eye(n, dtype=dtype))
    size = 2
    while size < n:
        lower = emit.op("Mul", A, _quarter(n, size, dtype))
        T = emit.op("Add", T, emit.op("MatMul", emit.op("MatMul", T, lower), T))
        size *= 2
    return T


def rows(emit: Emitter, A: ir.Value, n: int, dtype: DType) -> ir.Value:
    """T[i] = e_i + A[i, :i] T[:i], one row after the other."""
    eye = np.eye(n, dtype=dtype)
    # Row 0 is e_0 for every matrix: 0 * A[0] takes the batch size along, A being finite.
    first = emit.op("Mul", _cut(emit, A, (0, 1), (0, n)), np.zeros((), dtype))
    T = emit.op("Add", first, eye[:1])
    for i in range(1, n):
        row = emit.op("MatMul", _cut(emit, A, (i, i + 1), (0, i)), T)
        T = emit.op("Concat", T, emit.op("Add", row, eye[i : i + 1]), axis=1)
    return T


def doubling(emit: Emitter, A: ir.Value, n: int, dtype: DType) -> ir.Value:
    """S <- S + P S, P <- P P, from S = I + A: the powers double every round. Unsafe."""
    S = emit.op("Add", A, np.eye(n, dtype=dtype))
    P, terms = A, 2
    while terms < n:
        P = emit.op("MatMul", P, P)
        S = emit.op("Add", S, emit.op("MatMul", P, S))
        terms *= 2
    return S


def neumann(emit: Emitter, A: ir.Value, n: int, dtype: DType) -> ir.Value:
    """I + A + A A + ..., n - 2 products. Unsafe."""
    S = emit.op("Add", A, np.eye(n, dtype=dtype))
    P = A
    for _ in range(n - 2):
        P = emit.op("MatMul", P, A)
        S = emit.op("Add", S, P)
    return S


def neumann_until(
    emit: Emitter, A: ir.Value, n: int, tol: float, dtype: DType, element: ir.DataType
) -> ir.Value:
    """The series as a Loop that stops once every entry of the power is below `tol`. Unsafe."""
    body = Emitter(prefix=f"{emit.prefix}/loop", tag=emit.tag, opset=emit.opset)
    matrix = ir.TensorType(element)
    step = ir.Value(
        name=f"{body.prefix}/step", shape=ir.Shape([]), type=ir.TensorType(ir.DataType.INT64)
    )
    going = ir.Value(
        name=f"{body.prefix}/going", shape=ir.Shape([]), type=ir.TensorType(ir.DataType.BOOL)
    )
    S_in = ir.Value(name=f"{body.prefix}/S", type=matrix)
    P_in = ir.Value(name=f"{body.prefix}/P", type=matrix)
    S = body.op("Add", S_in, P_in)
    P = body.op("MatMul", P_in, A)
    largest = body.op("ReduceMax", body.op("Abs", P), keepdims=0)
    more = body.op("Not", body.op("Less", largest, np.array(tol, dtype)))
    graph = ir.Graph([step, going, S_in, P_in], [more, S, P], nodes=[], name=f"{body.prefix}/body")
    body.insert_into(graph, [more, S, P])
    zero = emit.op("Mul", A, np.zeros((), dtype))
    start = emit.op("Add", zero, np.eye(n, dtype=dtype))
    S_out, _ = emit.ops("Loop", np.array(n - 1), np.array(True), start, A, outputs=2, body=graph)
    return S_out


def _merge_leaves(
    emit: Emitter, A: ir.Value, n: int, leaf: int, dtype: DType, invert_leaf: LeafMethod
) -> ir.Value:
    count = 1
    while -(-n // count) > leaf:
        count *= 2
    size = -(-n // count)
    if count * size > n:
        # Padding with zeros: the inverse of the padded matrix is diag(T, I).
        A = _pad(emit, A, count * size - n, count * size - n)
    order = _bit_reversed(count)
    spans = [(i * size, (i + 1) * size) for i in order]
    diagonal = [A] if count == 1 else [_cut(emit, A, span, span) for span in spans]
    T = invert_leaf(emit, _stack(emit, diagonal), size, dtype)
    while count > 1:
        # The order puts all left neighbours in the first half and the right ones in the second.
        T11, T22 = emit.halves(T, axis=0)
        count //= 2
        below = [
            _cut(
                emit,
                A,
                ((2 * i + 1) * size, (2 * i + 2) * size),
                (2 * i * size, (2 * i + 1) * size),
            )
            for i in _bit_reversed(count)
        ]
        # [[I - A11, 0], [-A21, I - A22]]^-1 = [[T11, 0], [T22 A21 T11, T22]]
        T21 = emit.op("MatMul", emit.op("MatMul", T22, _stack(emit, below)), T11)
        top = _pad(emit, T11, 0, size)
        T = emit.op("Concat", top, emit.op("Concat", T21, T22, axis=2), axis=1)
        size *= 2
    return T if size == n else _cut(emit, T, (0, n), (0, n))


def _quarter(n: int, size: int, dtype: DType) -> npt.NDArray[np.floating]:
    i, j = np.indices((n, n)) // size
    quarter: npt.NDArray[np.floating] = ((i % 2 == 1) & (j == i - 1)).astype(dtype)
    return quarter


def _cut(emit: Emitter, A: ir.Value, row: tuple[int, int], column: tuple[int, int]) -> ir.Value:
    starts, ends = np.array([row[0], column[0]]), np.array([row[1], column[1]])
    return emit.op("Slice", A, starts, ends, np.array([1, 2]))


def _pad(emit: Emitter, A: ir.Value, bottom: int, right: int) -> ir.Value:
    return emit.op("Pad", A, np.array([0, 0, 0, 0, bottom, right]))


def _stack(emit: Emitter, blocks: list[ir.Value]) -> ir.Value:
    return blocks[0] if len(blocks) == 1 else emit.op("Concat", *blocks, axis=0)


def _bit_reversed(count: int) -> list[int]:
    order = [0]
    while len(order) < count:
        order = [2 * i for i in order] + [2 * i + 1 for i in order]
    return order
