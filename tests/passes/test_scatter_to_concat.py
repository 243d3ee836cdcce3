"""scatter-to-concat: chains that write a whole constant."""

import itertools

import numpy as np
import pytest
from pass_checks import before_and_after, checked, declines
from small_graphs import SCOPES, Writer, build, info, main_and_loop, parse, scatters

import gdn_ir

OPS = ("ScatterElements", "ScatterND")
NOT_ONCE = "the scatters do not write each slice just once"


def rows_model(rows, *, size=4, shape=(2, 4, 3), axis=1, op="ScatterND", base=0.0, **options):
    """y: inputs u0, u1, ... written, in this order, into rows of an axis of a constant."""
    attributes = {"reduction": options.pop("reduction")} if "reduction" in options else {}
    shape = tuple(size if i == axis else n for i, n in enumerate(shape))
    inputs = {
        f"u{i}": tuple(len(these) if j == axis else n for j, n in enumerate(shape))
        for i, these in enumerate(rows)
    }

    def write(w, *names):
        constant = np.full(shape, base, options.get("dtype", np.float32))
        return scatters(
            w, constant, list(zip(names, rows, strict=True)), shape, axis, op, **attributes
        )

    return build(write, inputs, **options)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_axis_and_order(order, axis, op):
    slices = [[0], [1, 2], [3]]
    outcome = checked(
        "scatter-to-concat", rows_model([slices[i] for i in order], axis=axis, op=op), tolerance=0
    )
    (rewrite,) = outcome.rewrites
    assert rewrite.found == "3 scatters into a constant"
    (concat,) = rewrite.after.graph
    assert (concat.op_type, concat.attributes["axis"].as_int()) == ("Concat", axis)
    assert [v.name for v in concat.inputs] == [f"u{order.index(i)}" for i in range(3)]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("scope", SCOPES)
def test_every_scope(scope, op):
    outcome = checked("scatter-to-concat", rows_model([[1], [0], [2, 3]], op=op, scope=scope))
    assert len(outcome.rewrites) == 1
    assert op not in outcome.ops


@pytest.mark.parametrize("base", [7.0, np.nan, np.inf])
def test_what_the_constant_held_does_not_matter(base):
    assert checked("scatter-to-concat", rows_model([[0, 1], [2, 3]], base=base)).rewrites


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int64, np.int32])
def test_types(dtype, op):
    model = rows_model([[2, 3], [0, 1]], op=op, dtype=dtype)
    assert checked("scatter-to-concat", model, tolerance=0).rewrites


@pytest.mark.parametrize("op", OPS)
def test_one_scatter_and_rows_counted_from_the_end(op):
    assert checked("scatter-to-concat", rows_model([[0, 1, 2, 3]], op=op)).rewrites
    assert checked("scatter-to-concat", rows_model([[0, -3], [-2, -1]], op=op)).rewrites


def test_a_constant_update_and_one_value_behind_two():
    def write(w, u):
        first, again = w.op("Unsqueeze", u, [0]), w.op("Unsqueeze", u, [0])
        fixed = w.constant(np.float32([[5, 6, 7]]))
        updates = [(again, [2]), (fixed, [0]), (first, [1])]
        return scatters(w, np.zeros((3, 3), np.float32), updates, (3, 3), 0, "ScatterND")

    assert checked("scatter-to-concat", build(write, {"u": (3,)}), tolerance=0).rewrites


def test_the_chunks_of_an_export_are_joined_along_the_tokens():
    # [B, H, C, D] pieces get an axis, are written, and the axis is merged into the tokens.
    def write(w, u, v):
        pieces = [(w.op("Unsqueeze", x, [2]), [i]) for i, x in enumerate((u, v))]
        zeros = np.zeros((1, 2, 2, 3, 5), np.float32)
        whole = scatters(w, zeros, pieces, zeros.shape, 2, "ScatterElements")
        return w.op("Reshape", whole, [1, 2, -1, 5])

    outcome = checked("scatter-to-concat,dce", build(write, {"u": (1, 2, 3, 5), "v": (1, 2, 3, 5)}))
    assert outcome.ops == {"Concat": 1, "Identity": 1}


@pytest.mark.parametrize("shape", [[1, 2, 5, 6], [2, 2, 3, 5], [60]])
def test_another_reshape_stays(shape):
    def write(w, u, v):
        pieces = [(w.op("Unsqueeze", x, [2]), [i]) for i, x in enumerate((u, v))]
        zeros = np.zeros((1, 2, 2, 3, 5), np.float32)
        whole = scatters(w, zeros, pieces, zeros.shape, 2, "ScatterElements")
        return w.op("Reshape", whole, shape)

    outcome = checked("scatter-to-concat,dce", build(write, {"u": (1, 2, 3, 5), "v": (1, 2, 3, 5)}))
    assert outcome.ops == {"Unsqueeze": 2, "Concat": 1, "Reshape": 1, "Identity": 1}


# --- what it leaves alone, and why ---


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "rows",
    [
        [[0], [1], [3]],
        [[0, 1, 2], [2, 3]],
        [[0, 1], [1, 2]],
        [[0, 2], [1, 3]],
        [[1, 0], [2, 3]],
        [[0, 1], [0, 1], [2, 3]],
    ],
    ids=["missing", "twice", "twice and missing", "interleaved", "turned round", "overwritten"],
)
def test_slices_that_are_not_written_just_once(rows, op):
    model = rows_model(rows, op=op)
    assert declines("scatter-to-concat", model) == [NOT_ONCE]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("reduction", "base"), [("add", 0), ("mul", 1), ("max", 0), ("min", 1e9)])
def test_reductions(reduction, base, op):
    model = rows_model([[0, 1], [2, 3]], op=op, reduction=reduction, base=base)
    declines("scatter-to-concat", model)


def test_indices_that_are_no_constant():
    text = """g (float[1,3] u, float[1,3] v, int64[1,1] i) => (float[2,3] y)
      <float[2,3] zeros = {0, 0, 0, 0, 0, 0}, int64[1,1] one = {1}> {
      a = ScatterND (zeros, i, u)
      y = ScatterND (a, one, v)
    }"""
    assert declines("scatter-to-concat", parse(text)) == [
        "the scatters have no constant indices: it also depends on 'i'"
    ]


def test_a_shape_that_is_not_static():
    text = """g (float[N,3] u, float[1,3] v) => (float[2,3] y)
      <float[2,3] zeros = {0, 0, 0, 0, 0, 0}, int64[1,1] zero = {0}, int64[1,1] one = {1}> {
      a = ScatterND (zeros, zero, u)
      y = ScatterND (a, one, v)
    }"""
    assert declines("scatter-to-concat", parse(text)) == [
        "the shape [N,3] of 'u' is not static; "
        "bind it with --dim, or export the model at fixed sizes"
    ]


def test_a_shape_that_is_not_known():
    text = """<ir_version: 10, opset_import: ["": 20, "c": 1]>
      g (float[1,3] u, float[1,3] v) => (float[2,3] y)
      <float[2,3] zeros = {0, 0, 0, 0, 0, 0}, int64[1,1] zero = {0}, int64[1,1] one = {1}> {
      w = c.Foo (u)
      a = ScatterND (zeros, zero, w)
      y = ScatterND (a, one, v)
    }"""
    assert declines("scatter-to-concat", parse(text)) == [
        "the shape of 'w' is not known; put infer-shapes before this pass"
    ]


def test_no_constant_to_write_into():
    def write(w, x, u, v):
        return scatters(w, x, [(u, [0]), (v, [1])], (2, 3), 0, "ScatterND")

    model = build(write, {"x": (2, 3), "u": (1, 3), "v": (1, 3)})
    assert declines("scatter-to-concat", model) == []


def test_an_initializer_that_callers_may_override():
    w = Writer()
    zeros = w.constant(np.zeros((2, 3), np.float32))
    result = scatters(w, zeros, [("u", [0]), ("v", [1])], (2, 3), 0, "ScatterND")
    inputs = [info("u", (1, 3)), info("v", (1, 3)), info(zeros, (2, 3))]
    model = w.model(inputs, [info(result, (2, 3))])
    assert declines("scatter-to-concat", model) == []


@pytest.mark.parametrize("use", ["output", "node", "body"])
def test_an_intermediate_that_something_else_reads(use):
    zeros = np.zeros((2, 3), np.float32)

    def write(w, u, v):
        first = scatters(w, zeros, [(u, [0])], (2, 3), 0, "ScatterND")
        y = scatters(w, first, [(v, [1])], (2, 3), 0, "ScatterND")
        if use == "body":
            branch = Writer("branch/")
            branch.op("Neg", first, name="branch/result")
            graph = branch.graph([], [info("branch/result", (2, 3))])
            always = np.array(True)
            return {"y": y, "z": w.op("If", always, then_branch=graph, else_branch=graph)}
        return {"y": y, "z": first if use == "output" else w.op("Neg", first)}

    outcome = checked("scatter-to-concat", build(write, {"u": (1, 3), "v": (1, 3)}), tolerance=0)
    assert not outcome.rewrites


def test_both_scatters_in_one_chain():
    def write(w, u, v):
        first = scatters(w, np.zeros((2, 3), np.float32), [(u, [0])], (2, 3), 0, "ScatterND")
        return scatters(w, first, [(v, [1])], (2, 3), 0, "ScatterElements")

    outcome = checked("scatter-to-concat", build(write, {"u": (1, 3), "v": (1, 3)}))
    assert len(outcome.rewrites) == 1
    assert outcome.reasons == []


def test_a_chain_that_goes_on_in_a_body():
    model = main_and_loop(
        lambda w, u: [u, scatters(w, np.zeros((2, 3), np.float32), [(u, [0])], (2, 3), 0, OPS[1])],
        lambda w, total, u, half: scatters(w, half, [(w.op("Neg", u), [1])], (2, 3), 0, OPS[1]),
        {"u": (1, 3)},
        (2, 3),
    )
    checked("scatter-to-concat", model)


def test_a_reshape_in_a_body():
    def outside(w, u):
        pieces = [(w.op("Unsqueeze", x, [0]), [i]) for i, x in enumerate((u, w.op("Neg", u)))]
        return [scatters(w, np.zeros((2, 3, 4), np.float32), pieces, (2, 3, 4), 0, OPS[1])]

    model = main_and_loop(
        outside, lambda w, total, whole: w.op("Reshape", whole, [6, 4]), {"u": (3, 4)}, (6, 4)
    )
    assert checked("scatter-to-concat", model).rewrites


@pytest.mark.parametrize("dtype", [np.int64, np.float16])
def test_gate_on_other_types(dtype):
    _, report = gdn_ir.optimize(
        rows_model([[0, 1], [2, 3]], dtype=dtype), passes="scatter-to-concat"
    )
    assert report.passes[0].rewrites


def test_golden(golden):
    def write(w, u, v):
        pieces = [(w.op("Unsqueeze", x, [0]), [i]) for i, x in ((1, u), (0, v))]
        whole = scatters(w, np.zeros((2, 3), np.float32), pieces, (2, 3), 0, "ScatterElements")
        return w.op("Reshape", whole, [6])

    golden("scatter-to-concat.txt").check(
        before_and_after("scatter-to-concat", build(write, {"u": (3,), "v": (3,)}))
    )
