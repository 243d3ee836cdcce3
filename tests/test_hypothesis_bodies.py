"""Every pass on random graphs with Loop, Scan and If: captures, nesting, names used twice, outputs
that are intermediates, inputs or constants."""

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from pass_checks import checked

import gdn_ir
from gdn_ir import pipeline, targets

PIPELINES = (
    *sorted(pipeline.registry()),
    "static-unroll{factor=2}",
    "static-unroll{factor=3:2 limit=1}",
    "static-unroll{factor=2},identity,fold-constants,cse,identity,fold-constants,cse,dce",
    targets.load("portable").pipeline,
)
VECTOR, ROWS = [2], [3, 2]
DEEPEST = 3
FEEDS = {
    "x": np.float32([0.5, -0.25]),
    "w": np.float32([-0.75, 0.5]),
    "z": np.float32([[0.1, 0.2], [-0.3, 0.4], [0.5, -0.6]]),
    "p": np.array(True),
}
UNARY = ("Neg", "Abs", "Identity", "Exp")
BINARY = ("Add", "Sub", "Mul")


@dataclass
class Scope:
    """A graph in the making: its vectors, integers and truths by name.

    Bodies of one depth use the same names, as ONNX allows where neither sees the other.
    """

    vectors: list[str]
    integers: list[str]
    truths: list[str]
    initializers: list[str]  # of the whole model: those are seen everywhere inside
    depth: int = 0
    count: int = 0
    own: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    infos: list[onnx.ValueInfoProto] = field(default_factory=list)

    def name(self) -> str:
        self.count += 1
        return f"v{self.depth}_{self.count}"

    def vector(self, op: str, *inputs: str, shape=VECTOR, **attributes) -> str:
        result = self.value(TensorProto.FLOAT, shape)
        self.nodes.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def value(self, kind: int, shape) -> str:
        name = self.name()
        self.infos.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, array) -> str:
        self.initializers.append(f"c{len(self.initializers)}")
        name = self.initializers[-1]
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def inner(self) -> "Scope":
        known = (list(self.vectors), list(self.integers), list(self.truths))
        return Scope(*known, self.initializers, depth=self.depth + 1)

    def graph(self, inputs, outputs) -> onnx.GraphProto:
        made = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs]
        results = {name for name, _, _ in outputs}
        infos = [info for info in self.infos if info.name not in results]
        return helper.make_graph(self.nodes, "body", inputs, made, self.constants, value_info=infos)


def results(scope: Scope, names: list[str]) -> list[tuple[str, int, list[int]]]:
    """Vectors as outputs; what the scope did not make, or returns twice, under a new name."""
    found: list[str] = []
    for name in names:
        is_own = name in scope.own and name not in found
        found.append(name if is_own else scope.vector("Identity", name))
    return [(name, TensorProto.FLOAT, VECTOR) for name in found]


@st.composite
def graphs(draw):
    """A model of vectors of two, its weights small enough that few of them overflow."""
    scope = Scope(["x", "w"], ["n"], ["p"], [])
    fill(draw, scope, draw(st.integers(1, 5)))
    outputs = results(scope, draw(st.lists(st.sampled_from(scope.vectors), min_size=1, max_size=3)))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, VECTOR),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, VECTOR),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ROWS),
        helper.make_tensor_value_info("n", TensorProto.INT64, []),
        helper.make_tensor_value_info("p", TensorProto.BOOL, []),
    ]
    proto = helper.make_model(
        scope.graph(inputs, outputs), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    if draw(st.booleans()):
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    return proto


def fill(draw, scope: Scope, steps: int) -> None:
    """Writes some nodes, each of which gives one more vector or two."""
    kinds = ["unary", "binary", "constant", "integer"]
    if scope.depth < DEEPEST:
        kinds += ["loop", "loop", "scan", "if"]
    for _ in range(steps):
        kind = draw(st.sampled_from(kinds))
        made = WRITERS[kind](draw, scope)
        scope.vectors += made
        scope.own += made


def unary(draw, scope: Scope) -> list[str]:
    return [scope.vector(draw(st.sampled_from(UNARY)), draw(st.sampled_from(scope.vectors)))]


def binary(draw, scope: Scope) -> list[str]:
    operands = (draw(st.sampled_from(scope.vectors)) for _ in range(2))
    return [scope.vector(draw(st.sampled_from(BINARY)), *operands)]


def constant(draw, scope: Scope) -> list[str]:
    array = np.float32([0.5, draw(st.sampled_from((-1, 0.25)))])
    if draw(st.booleans()):
        return [scope.constant(array)]
    return [scope.vector("Constant", value=numpy_helper.from_array(array))]


def integer(draw, scope: Scope) -> list[str]:
    """A vector that an integer scales."""
    number = scope.vector("Cast", draw(st.sampled_from(scope.integers)), shape=[], to=1)
    return [scope.vector("Mul", number, draw(st.sampled_from(scope.vectors)))]


def loop(draw, scope: Scope) -> list[str]:
    carried = draw(st.lists(st.sampled_from(scope.vectors), max_size=2))
    rows = draw(st.integers(0 if carried else 1, 1))
    trips = draw(st.sampled_from([0, 1, 2, 3, *scope.integers]))
    trips = trips if isinstance(trips, str) else scope.constant(np.int64(trips))
    start = draw(st.sampled_from(["", *scope.truths]))
    body = scope.inner()
    number = helper.make_tensor_value_info(body.name(), TensorProto.INT64, [])
    going = helper.make_tensor_value_info(body.name(), TensorProto.BOOL, [])
    inputs = [
        helper.make_tensor_value_info(body.name(), TensorProto.FLOAT, VECTOR) for _ in carried
    ]
    body.integers.append(number.name)
    body.truths.append(going.name)
    body.vectors += [info.name for info in inputs]
    body.own += [info.name for info in inputs]
    fill(draw, body, draw(st.integers(1, 3)))
    match draw(st.sampled_from(["steady", "true", "stops", "is the input"])):
        case "steady":
            condition = body.value(TensorProto.BOOL, [])
            body.nodes.append(helper.make_node("Identity", [going.name], [condition]))
        case "true":
            condition = body.constant(np.array(True))
        case "stops":
            condition = body.value(TensorProto.BOOL, [])
            limit = body.constant(np.int64(1))
            body.nodes.append(helper.make_node("Less", [number.name, limit], [condition]))
        case "is the input":
            condition = going.name
    picked = [draw(st.sampled_from(body.vectors)) for _ in range(len(carried) + rows)]
    outputs = [(condition, TensorProto.BOOL, []), *results(body, picked)]
    graph = body.graph([number, going, *inputs], outputs)
    made = [scope.value(TensorProto.FLOAT, VECTOR) for _ in carried]
    collected = [scope.value(TensorProto.FLOAT, [None, 2]) for _ in range(rows)]
    inputs = [trips, start, *carried]
    scope.nodes.append(helper.make_node("Loop", inputs, [*made, *collected], body=graph))
    return [*made, *(summed(scope, name) for name in collected)]


def scan(draw, scope: Scope) -> list[str]:
    carried = draw(st.lists(st.sampled_from(scope.vectors), max_size=2))
    body = scope.inner()
    inputs = [
        helper.make_tensor_value_info(body.name(), TensorProto.FLOAT, VECTOR)
        for _ in range(len(carried) + 1)
    ]
    # They are not its own: of a body that returns its input ONNX Runtime's Scan leaves garbage.
    body.vectors += [info.name for info in inputs]
    fill(draw, body, draw(st.integers(1, 3)))
    picked = [draw(st.sampled_from(body.vectors)) for _ in range(len(carried) + 1)]
    graph = body.graph(inputs, results(body, picked))
    made = [scope.value(TensorProto.FLOAT, VECTOR) for _ in carried]
    collected = scope.value(TensorProto.FLOAT, ROWS)
    directions = {
        f"scan_{side}_directions": [draw(st.integers(0, 1))] for side in ("input", "output")
    }
    scope.nodes.append(
        helper.make_node(
            "Scan", [*carried, "z"], [*made, collected], body=graph, num_scan_inputs=1, **directions
        )
    )
    return [*made, summed(scope, collected)]


def branches(draw, scope: Scope) -> list[str]:
    count = draw(st.integers(1, 2))
    graphs = {}
    for branch in ("then_branch", "else_branch"):
        body = scope.inner()
        fill(draw, body, draw(st.integers(1, 3)))
        picked = [draw(st.sampled_from(body.vectors)) for _ in range(count)]
        graphs[branch] = body.graph([], results(body, picked))
    made = [scope.value(TensorProto.FLOAT, VECTOR) for _ in range(count)]
    condition = draw(st.sampled_from(scope.truths))
    scope.nodes.append(helper.make_node("If", [condition], made, **graphs))
    return made


def summed(scope: Scope, rows: str) -> str:
    """A vector of rows, of none too."""
    return scope.vector("ReduceSum", rows, scope.constant(np.int64([0])), keepdims=0)


WRITERS = {
    "unary": unary,
    "binary": binary,
    "constant": constant,
    "integer": integer,
    "loop": loop,
    "scan": scan,
    "if": branches,
}
SETTINGS = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@pytest.mark.parametrize("text", PIPELINES)
@settings(max_examples=6, **SETTINGS)
@given(proto=graphs(), n=st.integers(0, 5))
def test_every_pass_leaves_what_a_graph_computes(text, proto, n):
    checked(text, ir.from_proto(proto), {**FEEDS, "n": np.array(n)})


@settings(max_examples=4, **SETTINGS)
@given(proto=graphs())
def test_unrolling_passes_both_gates(proto):
    model = ir.from_proto(proto)
    gdn_ir.optimize(model, passes="static-unroll{factor=2},cse,identity,dce")


@settings(max_examples=12, **SETTINGS)
@given(proto=graphs())
def test_hoisting_passes_both_gates(proto):
    gdn_ir.optimize(ir.from_proto(proto), passes="infer-shapes,hoist-chunk-work,cse,identity,dce")
