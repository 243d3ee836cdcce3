"""Loop and Scan in float64 and in the proof's interpreter, against ONNX Runtime."""

import numpy as np
import pytest
from onnx_text import model_of

from gdn_ir import runtime
from gdn_ir.evaluate import evaluate
from gdn_ir.modular.interpreter import Interpreter
from gdn_ir.modular.one_node import OneNode
from gdn_ir.modular.points import random_point

RNG = np.random.default_rng(0)
Z = RNG.standard_normal((3, 4)).astype(np.float32)

LOOPS = {
    "no condition": "Loop (n, , x)",
    "no trip count": "Loop (, on, x)",
    "both": "Loop (n, on, x)",
}


def agrees(text, **feeds):
    """The evaluator gives what ONNX Runtime gives, and the interpreter something of its shape."""
    model = model_of(text)
    expected = runtime.run(model, feeds)
    point = random_point(1)
    exact = Interpreter(model, point, OneNode(model.opset_imports)).run(feeds)
    for found, shaped, wanted in zip(evaluate(model, feeds), exact, expected, strict=True):
        assert found.shape == shaped.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("trips", [0, 1, 3])
@pytest.mark.parametrize("form", LOOPS)
@pytest.mark.parametrize("row", ["float", "float[2]", "float[2,2]"])
def test_loops(row, form, trips):
    value = {"float": "t = ReduceSum <keepdims = 0> (v)", "float[2]": "t = Neg (v)"}
    write = value.get(row, "two = Constant <value = int64[2] {2, 2}> () t = Expand (v, two)")
    rows = row.replace("float", "float[k]") if row == "float" else row.replace("[", "[k,")
    agrees(
        f"""g (int64 n, bool on, float[2] x) => (float[2] y, {rows} r) {{
          y, r = {LOOPS[form]} <body = b (int64 i, bool go, float[2] v) =>
            (bool more, float[2] u, {row} t) {{
            three = Constant <value = int64 {{2}}> ()
            more = Less (i, three)
            u = Add (v, x)
            {write}
          }}>
        }}""",
        n=np.array(trips), on=np.array(trips > 0), x=Z[0, :2],
    )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("backward", [0, 1])
def test_scans(axis, backward):
    size, rows = (4, "3,4") if axis == 0 else (3, "3,4")
    agrees(
        f"""g (float[{size}] x, float[3,4] z) => (float[{size}] y, float[{rows}] r) {{
          y, r = Scan (x, z) <num_scan_inputs = 1, scan_input_axes = [{axis}],
            scan_input_directions = [{backward}], scan_output_axes = [{axis}],
            scan_output_directions = [{1 - backward}],
            body = b (float[{size}] v, float[{size}] s) => (float[{size}] u, float[{size}] t) {{
              a = Mul (v, x)
              u = Add (a, s)
              t = Neg (u)
            }}>
        }}""",
        x=Z[0] if axis == 0 else Z[:, 0], z=Z,
    )  # fmt: skip
