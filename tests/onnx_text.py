"""Models written as ONNX text."""

import onnx.parser
import onnx_ir as ir

HEADER = '<ir_version: 10, opset_import: ["": 20]>'

# A Loop whose body captures s, which the graph computes, and w, one of its inputs.
LOOP = """g (int64 n, bool on, float[2] x, float[2] w) => (float[2] y) {
  s = Mul (x, w)
  y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] v_next) {
    go_on = Identity (go)
    t = Mul (v, w)
    v_next = Add (t, s)
  }>
}"""

# A Loop in an If, whose inner body captures x and s from two levels up and t from one.
NESTED = """g (bool c, int64 n, float[2] x) => (float[2] y) {
  s = Neg (x)
  y = If (c) <
    then_branch = a () => (float[2] p) {
      t = Exp (s)
      on = Cast <to = 9> (n)
      p = Loop (n, on, t) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        r = Mul (v, x)
        q = Add (r, s)
        u = Add (q, t)
      }>
    },
    else_branch = d () => (float[2] e) { e = Abs (x) }
  >
}"""

# A local function, called once.
FUNCTION = """<ir_version: 10, opset_import: ["": 20, "l": 1]>
g (float[2] x) => (float[2] y) { y = l.f (x) }
<domain: "l", opset_import: ["": 20]>
f (a) => (b) { t = Neg (a) b = Exp (t) }"""


def proto_of(text: str) -> onnx.ModelProto:
    """The parsed model, under the usual header unless the text brings its own."""
    return onnx.parser.parse_model(text if text.startswith("<") else HEADER + text)


def model_of(text: str) -> ir.Model:
    """The model that the text describes."""
    return ir.from_proto(proto_of(text))


def value_of(model: ir.Model, name: str) -> ir.Value:
    """A value by name, also of a body."""
    return ir.convenience.create_value_mapping(model.graph)[name]


def values_of(model: ir.Model, names: str) -> list[ir.Value]:
    """Several values, their names separated by spaces."""
    known = ir.convenience.create_value_mapping(model.graph)
    return [known[name] for name in names.split()]


def ops_of(graph: ir.Graph) -> list[str]:
    """The op types of a scope, in order."""
    return [node.op_type for node in graph]
