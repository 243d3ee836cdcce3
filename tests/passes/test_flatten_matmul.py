"""flatten-matmul: products with a transposed operand beyond rank 4."""

import numpy as np
import pytest
from pass_checks import before_and_after, checked, declines
from small_graphs import SCOPES, build, main_and_loop, parse

SWAPPED = {5: [0, 1, 2, 4, 3], 6: [0, 1, 2, 3, 5, 4]}


def transpose(w, x, rank=5):
    return w.op("Transpose", x, perm=SWAPPED[rank])


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("leading", [(2, 3, 2), (1, 1, 1), (1, 2, 1, 3)])
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_a_transposed_operand(side, leading, scope):
    rank = len(leading) + 2

    def write(w, a, b):
        left = transpose(w, a, rank) if side != "right" else a
        return w.op("MatMul", left, transpose(w, b, rank) if side != "left" else b)

    a = (5, 4) if side != "right" else (4, 5)
    b = (6, 5) if side != "left" else (5, 6)
    model = build(write, {"a": (*leading, *a), "b": (*leading, *b)}, scope=scope)
    outcome = checked("flatten-matmul", model)
    (rewrite,) = outcome.rewrites
    assert rewrite.found == f"product with a transposed operand at rank {rank}"
    ranks = [len(n.outputs[0].shape) for n in rewrite.after.graph if n.op_type == "MatMul"]
    assert ranks == [3]


def test_a_matrix_with_its_own_transpose():
    model = build(lambda w, x: w.op("MatMul", x, transpose(w, x)), {"x": (1, 2, 3, 4, 5)})
    (rewrite,) = checked("flatten-matmul", model).rewrites
    assert [value.name for value in rewrite.before.graph.inputs] == ["x"]


def test_a_transpose_that_others_need_stays():
    def write(w, a, b):
        a_t = transpose(w, a)
        return {"y": w.op("MatMul", a_t, b), "z": w.op("MatMul", b, a_t), "t": a_t}

    shapes = {"a": (1, 2, 2, 3, 3), "b": (1, 2, 2, 3, 3)}
    outcome = checked("flatten-matmul", build(write, shapes))
    assert len(outcome.rewrites) == 2
    assert outcome.ops["Transpose"] == 3


def test_float16_and_rows_of_one():
    shapes = {"a": (1, 2, 2, 1, 3), "b": (1, 2, 2, 1, 3)}
    model = build(lambda w, a, b: w.op("MatMul", a, transpose(w, b)), shapes, dtype=np.float16)
    assert checked("flatten-matmul", model, tolerance=1e-3).rewrites


LEFT_ALONE = {
    "rank 4": lambda w, a, b: w.op(
        "MatMul",
        w.op("Squeeze", a, [0]),
        w.op("Transpose", w.op("Squeeze", b, [0]), perm=[0, 1, 3, 2]),
    ),
    "nothing transposed": lambda w, a, b: w.op("MatMul", a, b),
    "other axes": lambda w, a, b: w.op("MatMul", a, w.op("Transpose", b, perm=[0, 2, 1, 3, 4])),
    "all axes turned": lambda w, a, b: w.op("MatMul", a, w.op("Transpose", b)),
    "broadcast rank": lambda w, a, b: w.op(
        "MatMul", a, w.op("Transpose", w.op("Squeeze", b, [0]), perm=[0, 1, 3, 2])
    ),
    "broadcast axis": lambda w, a, b: w.op(
        "MatMul", a, transpose(w, w.op("Slice", b, [0], [1], [2]))
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_alone(name):
    shape = (1, 3, 3, 3, 3) if name == "other axes" else (1, 2, 2, 3, 3)
    if name == "all axes turned":
        shape = (3, 3, 3, 3, 3)
    assert declines("flatten-matmul", build(LEFT_ALONE[name], {"a": shape, "b": shape})) == []


OPEN = """g (float[{x}] x, float[{y}] y) => (float[{z}] z) {{
  t = Transpose <perm = [0, 1, 2, 4, 3]> (y)
  z = MatMul (x, t)
}}"""


@pytest.mark.parametrize("size", [0, 1, 3])
def test_one_open_axis_of_one_name(size):
    model = parse(OPEN.format(x="2,N,1,3,4", y="2,N,1,5,4", z="2,N,1,3,5"))
    rng = np.random.default_rng(size)
    shapes = {"x": (2, size, 1, 3, 4), "y": (2, size, 1, 5, 4)}
    feeds = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    outcome = checked("flatten-matmul", model, feeds)
    assert len(outcome.rewrites) == 1


@pytest.mark.parametrize(
    ("x", "y", "z"),
    [
        ("N,1,1,3,4", "M,1,1,3,4", "K,1,1,3,3"),
        ("N,M,1,3,4", "N,M,1,3,4", "N,M,1,3,3"),
        ("N,1,1,R,4", "N,1,1,3,4", "N,1,1,R,3"),
        ("N,0,1,3,4", "N,0,1,3,4", "N,0,1,3,3"),
    ],
    ids=["two names", "two open axes", "open rows", "nothing to tell the open axis from"],
)
def test_other_open_shapes_are_left_alone(x, y, z):
    assert declines("flatten-matmul", parse(OPEN.format(x=x, y=y, z=z))) == []


def test_transposed_twice():
    def write(w, a, b):
        return w.op("MatMul", a, transpose(w, transpose(w, b)))

    checked("flatten-matmul", build(write, {"a": (1, 2, 2, 3, 4), "b": (1, 2, 2, 4, 5)}))


def test_an_unknown_shape_above_the_transpose():
    def write(w, a, b):
        return w.op("MatMul", a, transpose(w, w.op("Neg", b)))

    model = build(write, {"a": (1, 2, 2, 3, 4), "b": (1, 2, 2, 5, 4)})
    (source,) = (node.outputs[0] for node in model.graph if node.op_type == "Neg")
    source.shape = None
    checked("flatten-matmul", model)


def test_a_transpose_outside_the_body():
    model = main_and_loop(
        lambda w, x: [transpose(w, x)],
        lambda w, total, x_t: w.op("MatMul", total, x_t),
        {"x": (1, 2, 2, 3, 3)},
        (1, 2, 2, 3, 3),
    )
    checked("flatten-matmul", model)


def test_golden(golden):
    model = build(lambda w, a, b: w.op("MatMul", a, transpose(w, b)),
                  {"a": (1, 1, 2, 3, 4), "b": (1, 1, 2, 3, 4)})  # fmt: skip
    golden("flatten-matmul.txt").check(before_and_after("flatten-matmul", model))
