"""Names that hide no other, under one name of the standard domain."""

import onnx_ir as ir
from onnx_text import model_of, proto_of, value_of

from gdn_ir.graph_view import bodies
from gdn_ir.normal_form import normalise
from gdn_ir.verify.structure import defects


def test_a_new_name_is_not_one_that_the_body_has_already():
    """The body's input x hides the outer one, and b/x is what it would be called."""
    model = model_of("""g (int64 n, bool on, float[2] x) => (float[2] y) {
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] x) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        t = Neg (x)
        u = Add (t, x)
      }>
    }""")
    (body,) = bodies(value_of(model, "y").producer())
    t = next(node.outputs[0] for node in body if node.op_type == "Neg")
    t.name = "b/x"
    normalise(model)
    assert defects(model) == []
    assert body.inputs[2].name not in ("x", "b/x")


def test_a_new_name_is_not_written_on_a_tensor_of_the_original():
    proto = proto_of("""g (int64 n, float[2] x, float[2] k) => (float[2] y) {
      y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u)
        <float[2] k = {1, 2}> {
        go_on = Identity (go)
        u = Add (v, k)
      }>
    }""")
    before = proto.SerializeToString()
    model = ir.from_proto(proto).clone()
    normalise(model)
    assert defects(model) == []
    assert b"b/k" in ir.to_proto(model).SerializeToString()
    assert proto.SerializeToString() == before
