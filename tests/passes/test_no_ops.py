"""no-ops: nodes that hand their input on, and those that only look so."""

import numpy as np
import pytest
from pass_checks import before_and_after, checked, declines
from small_graphs import SCOPES, build, parse

import gdn_ir

NO_OPS = {
    "cast": lambda w, x: w.op("Cast", x, to=1),
    "concat": lambda w, x: w.op("Concat", x, axis=0),
    "expand": lambda w, x: w.op("Expand", x, [2, 3]),
    "expand by ones": lambda w, x: w.op("Expand", x, [1, 1]),
    "flatten": lambda w, x: w.op("Flatten", x, axis=1),
    "pad": lambda w, x: w.op("Pad", x, [0, 0, 0, 0]),
    "pad with a value": lambda w, x: w.op("Pad", x, [0, 0, 0, 0], np.float32(9)),
    "pad an axis": lambda w, x: w.op("Pad", x, [0, 0], "", [-2]),
    "pad by reflection": lambda w, x: w.op("Pad", x, [0, 0, 0, 0], mode="reflect"),
    "reshape": lambda w, x: w.op("Reshape", x, [2, -1]),
    "slice": lambda w, x: w.op("Slice", x, [0], [2**63 - 1], [1], [1]),
    "slice without steps": lambda w, x: w.op("Slice", x, [0, 0], [2, 3]),
    "tile": lambda w, x: w.op("Tile", x, [1, 1]),
    "transpose": lambda w, x: w.op("Transpose", x, perm=[0, 1]),
}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("write", NO_OPS.values(), ids=list(NO_OPS))
def test_it_goes(write, scope):
    def wrapped(w, x):
        return w.op("Neg", write(w, w.op("Exp", x)))

    outcome = checked("no-ops,identity", build(wrapped, {"x": (2, 3)}, scope=scope), tolerance=0)
    (rewrite,) = outcome.rewrites
    assert rewrite.found.endswith("that changes nothing")
    assert not outcome.ops[rewrite.before.graph[-1].op_type]


@pytest.mark.parametrize(
    "write",
    [
        lambda w, x: w.op("Cast", x, to=10),
        lambda w, x: w.op("Concat", x, x, axis=0),
        lambda w, x: w.op("Expand", x, [1, 2, 3]),
        lambda w, x: w.op("Pad", x, [0, 0, 0, 1]),
        lambda w, x: w.op("Pad", x, [1, 0, -1, 0]),
        lambda w, x: w.op("Reshape", x, [3, 2]),
        lambda w, x: w.op("Slice", x, [-1], [-(2**63)], [1], [-1]),
        lambda w, x: w.op("Slice", x, [1], [3], [1]),
        lambda w, x: w.op("Transpose", x, perm=[1, 0]),
        lambda w, x: w.op("Transpose", x),
    ],
    ids=[
        "cast", "concat", "expand", "pad", "pad and cut", "reshape", "reversing slice", "slice",
        "transpose", "transpose by default",
    ],
)  # fmt: skip
def test_it_stays(write):
    assert declines("no-ops", build(write, {"x": (2, 3)})) == []


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x, int64[2] pads) => (float[N] y) { y = Pad (x, pads) }",
        "g (float[2] x, int64[1] step) => (float[N] y) <int64[1] o = {0}, int64[1] e = {9}> "
        "{ y = Slice (x, o, e, o, step) }",
        "g (float[N] x) => (float[M] y) <int64[1] s = {2}> { y = Reshape (x, s) }",
        "g (float[N] x) => (float[M] y) <int64[1] s = {2}> { y = Expand (x, s) }",
    ],
    ids=["pads", "steps", "reshape", "expand"],
)
def test_what_depends_on_more_than_is_known_stays(text):
    assert declines("no-ops", parse(text)) == []


def test_any_length():
    text = """g (float[N] x) => (float[N] y) <int64[2] pads = {0, 0}> {
      p = Pad (x, pads) c = Cast <to = 1> (p) t = Transpose <perm = [0]> (c) y = Neg (t)
    }"""
    feeds = {"x": np.ones(5, np.float32)}
    assert checked("no-ops,identity", parse(text), feeds).ops == {"Neg": 1}


def test_between_the_models_own_input_and_output():
    text = "g (float[2] x) => (float[2] y) { y = Cast <to = 1> (x) }"
    assert checked("no-ops,identity", parse(text)).ops == {"Identity": 1}


def test_an_unknown_type_is_named():
    model = parse("""<ir_version: 10, opset_import: ["": 20, "c": 1]>
    g (float[2] x) => (float[2] y) <int64[2] pads = {0, 0}> { a = c.Foo (x) y = Pad (a, pads) }""")
    model.graph[0].outputs[0].type = None
    model.graph[0].outputs[0].shape = None
    (reason,) = declines("no-ops", model)
    assert "the type or rank of 'a' is not known" in reason


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float16])
def test_gates_on_other_types(dtype):
    model = build(lambda w, x: w.op("Reshape", x, [2, 3]), {"x": (2, 3)}, dtype=dtype)
    _, report = gdn_ir.optimize(model, passes="no-ops")
    assert len(report.passes[0].rewrites) == 1


def test_golden(golden):
    def write(w, x):
        return w.op("Expand", w.op("Slice", w.op("Cast", x, to=1), [0], [9], [0]), [2, 1])

    golden("no-ops.txt").check(before_and_after("no-ops", build(write, {"x": (2, 3)})))
