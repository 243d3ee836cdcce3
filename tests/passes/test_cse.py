"""cse: what is the same and what only looks so."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from pass_checks import checked, optimized, whole_before_and_after
from small_graphs import SCOPES, Writer, build, parse

from gdn_ir.structural_hash import SMALL, operator_key


@pytest.mark.parametrize("scope", SCOPES)
def test_merges_whole_chains_in_every_scope(scope):
    def write(w, x):
        first, second = (w.op("Exp", w.op("Neg", x)) for _ in range(2))
        return w.op("Sub", w.op("Mul", first, second), second)

    outcome = checked("cse", build(write, {"x": (2, 3)}, scope=scope), tolerance=0)
    assert (outcome.ops["Neg"], outcome.ops["Exp"]) == (1, 1)


def test_small_constants_count_by_content():
    def write(w, x):
        one, same, other = (w.op("Add", x, np.float32([n, 2, 3])) for n in (1, 1, 4))
        return w.op("Sum", one, same, other)

    assert checked("cse", build(write, {"x": (2, 3)}), tolerance=0).ops["Add"] == 2


def test_large_constants_count_by_identity():
    ones = np.ones(SMALL // 4 + 1, np.float32)

    def write(w, x):
        kept = w.constant(ones)
        return w.op("Sum", *(w.op("Add", x, c) for c in (kept, kept, w.constant(ones))))

    assert checked("cse", build(write, {"x": (1,)}), tolerance=0).ops["Add"] == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Softmax <axis = 0> (x)", "Softmax <axis = 1> (x)"),
        ("Sub (x, z)", "Sub (z, x)"),
        ("Clip (x, one)", "Clip (x, , one)"),
        ("Add (x, one)", "Add (x, one_of_rank_1)"),
        ("Cast <to = 1> (x)", "Cast <to = 10> (x)"),
        ("Abs (x)", "Neg (x)"),
        ("Sign (x)", "custom.Sign (x)"),
    ],
)
def test_not_the_same(first, second):
    text = f"""<ir_version: 10, opset_import: ["": 20, "custom": 1]>
    g (float[2,2] x, float[2,2] z) => (float[2,2] y)
      <float one = {{1}}, float[1] one_of_rank_1 = {{1}}> {{
      a = {first}
      b = {second}
      y = custom.Use (a, b)
    }}"""
    assert len(optimized("cse", parse(text)).model.graph) == 3


@pytest.mark.parametrize(
    "node",
    [
        "Bernoulli (x)",
        "Multinomial (x)",
        "RandomNormalLike (x)",
        "RandomUniformLike (x)",
        "RandomNormal <shape = [2, 2]> ()",
        "RandomUniform <shape = [2, 2]> ()",
        "Dropout (x, half, yes)",
    ],
)
def test_two_draws_are_two_draws(node):
    text = f"""g (float[2,2] x) => (float[2,2] y) <float half = {{0.5}}, bool yes = {{1}}> {{
      a = {node}
      b = {node}
      c = Cast <to = 1> (a)
      d = Cast <to = 1> (b)
      y = Sub (c, d)
    }}"""
    assert len(optimized("cse", parse(text)).model.graph) == 5


def test_dropout_outside_of_training_is_no_draw():
    text = """g (float[2,2] x) => (float[2,2] y) {
      a = Dropout (x)
      b = Dropout (x)
      y = Add (a, b)
    }"""
    assert checked("cse", parse(text), tolerance=0).ops["Dropout"] == 1


def test_attributes_count_with_their_type():
    # onnx_ir's own pass merges these two.
    whole = ir.node("Op", [], {"k": 1}, domain="custom")
    real = ir.node("Op", [], {"k": 1.0}, domain="custom")
    assert operator_key(whole) != operator_key(real)
    text = """<ir_version: 10, opset_import: ["": 20, "custom": 1]>
    g (float[2] x) => (float[2] y) {
      a = custom.Op <k: int = 1> (x)
      b = custom.Op <k: float = 1.0> (x)
      y = Add (a, b)
    }"""
    assert len(optimized("cse", parse(text)).model.graph) == 3


def test_calls_and_control_flow_stay():
    text = """<ir_version: 10, opset_import: ["": 20, "local": 1]>
    g (float[2] x, bool c) => (float[2] y) {
      a = local.f (x)
      b = local.f (x)
      d = If (c) <then_branch = t () => (float[2] p) { p = Exp (x) },
                  else_branch = e () => (float[2] q) { q = Neg (x) }>
      f = If (c) <then_branch = t () => (float[2] r) { r = Exp (x) },
                  else_branch = e () => (float[2] s) { s = Neg (x) }>
      y = Sum (a, b, d, f)
    }
    <domain: "local", opset_import: ["": 20]>
    f (u) => (v) { t = Neg (u) w = Neg (u) v = Add (t, w) }"""
    outcome = checked("cse", parse(text), tolerance=0)
    assert len(outcome.model.graph) == 5
    (function,) = outcome.model.functions.values()
    assert [node.op_type for node in function] == ["Neg", "Add"]


def test_two_outputs_that_are_the_same_keep_their_names():
    text = """g (float[2] x) => (float[2] y, float[2] z, float[2] w) {
      y = Exp (x)
      z = Exp (x)
      e = Exp (x)
      w = Neg (e)
    }"""
    outcome = checked("cse", parse(text), tolerance=0)
    assert [v.name for v in outcome.model.graph.outputs] == ["y", "z", "w"]
    assert outcome.ops == {"Exp": 2, "Neg": 1}


def test_each_scope_for_itself():
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) {
      e = Exp (x)
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] w) {
        go_on = Identity (go)
        again = Exp (x)
        s = Add (v, again)
        t = Add (v, again)
        u = Mul (s, t)
        w = Add (u, e)
      }>
    }"""
    feeds = {"n": np.array(2), "on": np.array(True), "x": np.ones(2, np.float32)}
    outcome = checked("cse", parse(text), feeds, tolerance=0)
    assert (outcome.ops["Exp"], outcome.ops["Add"]) == (2, 2)


def test_a_value_read_in_a_body():
    branch = Writer("branch/")

    def write(w, x):
        first, second = w.op("Exp", x), w.op("Exp", x)
        branch.op("Sub", first, second, name="branch/result")
        graph = branch.graph([], [ir.to_proto(ir.val("branch/result", ir.DataType.FLOAT, [2]))])
        return w.op("If", np.array(True), then_branch=graph, else_branch=graph)

    assert checked("cse", build(write, {"x": (2,)}), tolerance=0).ops["Exp"] == 1


def test_ops_with_several_outputs():
    text = """g (float[4] x) => (float[2] y) {
      a, b = Split <num_outputs = 2> (x)
      c, d = Split <num_outputs = 2> (x)
      e, f, g, h = Split <num_outputs = 4> (x)
      y = Sum (a, d, e)
    }"""
    assert checked("cse", parse(text), tolerance=0).ops["Split"] == 2


@pytest.mark.parametrize(
    ("one", "other", "opset"),
    [
        (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, 20),
        (ml_dtypes.int4, ml_dtypes.uint4, 21),
    ],
)
def test_equal_bytes_of_different_types(one, other, opset):
    codes = np.array([0x0F, 0x0E], np.uint8)
    a, b = (
        ir.Value(name=name, const_value=(tensor := ir.tensor(codes.view(dtype), name=name)),
                 type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        for name, dtype in (("a", one), ("b", other))
    )  # fmt: skip
    casts = [ir.node("Cast", [value], {"to": ir.DataType.FLOAT.value}) for value in (a, b)]
    total = ir.node("Sub", [cast.outputs[0] for cast in casts])
    y = total.outputs[0]
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape([2])
    graph = ir.Graph([], [y], nodes=[*casts, total], initializers=[a, b],
                     opset_imports={"": opset}, name="g")  # fmt: skip
    assert checked("cse", ir.Model(graph, ir_version=10), {}).ops["Cast"] == 2


def test_golden(golden):
    text = """g (float[2] x) => (float[2] y) <float[2] one = {1, 2}, float[2] same = {1, 2}> {
      a = Add (x, one)
      b = Add (x, same)
      c = Exp (a)
      d = Exp (b)
      y = Sub (c, d)
    }"""
    golden("cse.txt").check(whole_before_and_after("cse", parse(text)))
