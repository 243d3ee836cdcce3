"""The form with Loops: right for any number of tokens, with the structure of a scripted export."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rule_error import assert_is_the_rule, rule_errors

from gdn_ir import runtime
from gdn_ir.graph_view import scopes
from gdn_ir.models.baseline import build_loop
from gdn_ir.models.reference import adversarial_inputs
from gdn_ir.verify.structure import defects

MASKS = ("fill-inf", "fill-zero")
CASES = {
    "default": {},
    "state": {"state": True},
    "gqa-batch-narrow": {"batch": 2, "heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8},
    "l2norm-wide": {"l2norm": True, "value_dim": 48, "state": True},
    "chunk-2": {"chunk": 2, "state": True},
    "chunk-16-gqa": {"chunk": 16, "key_heads": 1, "state": True, "l2norm": True},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", CASES)
def test_any_length_equals_the_recurrence(name, mask):
    case = CASES[name]
    model = build_loop(mask=mask, **case)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert defects(model) == []
    for seq in (1, 64, 130):
        assert_is_the_rule(model, case, seq)


@pytest.mark.parametrize("mask", MASKS)
def test_constant_extreme_decay(mask):
    inputs = adversarial_inputs(seq=70, state=True)["random"]
    inputs["g"] = np.full_like(inputs["g"], -167.0)
    errors = rule_errors(build_loop(mask=mask, state=True), {"extreme": inputs})
    assert errors["extreme"] < 1e-5


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("seq", [1, 50, 128])
def test_a_given_length_equals_the_recurrence(seq, mask):
    case = {"chunk": 32, "key_heads": 1, "state": True}
    model = build_loop(mask=mask, seq=seq, **case)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert_is_the_rule(model, case, seq)


@pytest.mark.parametrize("mask", MASKS)
def test_float16(mask):
    case = {"key_heads": 1, "state": True}
    model = build_loop(mask=mask, dtype="float16", **case)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    types = {v.name: v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    assert {n for n, t in types.items() if t == ir.DataType.FLOAT16} == set("qkvgo") | {"beta"}
    for seq in (1, 100):
        assert_is_the_rule(model, case, seq, limit=2e-3)


@pytest.mark.parametrize("seq", [None, 100])
@pytest.mark.parametrize("mask", MASKS)
def test_two_loops_and_what_they_capture(mask, seq):
    model = build_loop(mask=mask, seq=seq, chunk=16)
    rows, chunks = [node for node in model.graph if node.op_type == "Loop"]
    ops = Counter(node.op_type for node in rows.attributes["body"].value)
    assert (ops["Slice"], ops["ScatterND"], ops["ScatterElements"]) == (3, 1, 1)
    # Captured: the operands of the chunks, and for the rows at most the shape of one.
    captures = [captured(loop) for loop in (rows, chunks)]
    assert len(captures[0]) == 1
    assert len(captures[1]) >= 6
    assert len(model.graph.outputs) == 1


def captured(loop):
    body = loop.attributes["body"].value
    inside = {*body.inputs, *body.initializers.values()}
    inside |= {value for node in body for value in node.outputs}
    return {value for node in body for value in node.inputs} - inside


def test_the_length_is_symbolic_and_the_rest_is_not():
    graph = build_loop(state=True).graph
    shapes = {v.name: [str(d) for d in v.shape] for v in (*graph.inputs, *graph.outputs)}
    assert shapes == {
        "q": ["1", "S", "2", "32"],
        "k": ["1", "S", "2", "32"],
        "v": ["1", "S", "2", "32"],
        "g": ["1", "S", "2"],
        "beta": ["1", "S", "2"],
        "state": ["1", "2", "32", "32"],
        "o": ["1", "S", "2", "32"],
        "final_state": ["1", "2", "32", "32"],
    }


def test_a_given_length_leaves_nothing_to_measure():
    model = build_loop(seq=100, l2norm=True, key_heads=1)
    assert "Shape" not in {node.op_type for node in model.graph.all_nodes()}
    for node in model.graph:
        for value in node.outputs:
            assert value.shape.is_static(), value.name
    rows, chunks = [node for node in model.graph if node.op_type == "Loop"]
    trips = [loop.inputs[0].const_value.numpy() for loop in (rows, chunks)]
    assert trips == [63, 2]


@pytest.mark.parametrize("mask", MASKS)
def test_every_value_has_a_type_a_rank_and_a_name_of_its_own(mask):
    model = build_loop(mask=mask, key_heads=1, l2norm=True, dtype="float16", state=True)
    names = []
    for graph in scopes(model):
        made = [value for node in graph for value in node.outputs]
        for value in (*graph.inputs, *graph.initializers.values(), *made):
            assert value.dtype is not None and value.shape is not None, value.name
            names.append(value.name)
    assert len(names) == len(set(names))


def test_it_runs_with_the_package_s_own_sessions():
    model = build_loop(seq=20, chunk=8, head_dim=4)
    (o,) = runtime.run(model, runtime.random_inputs(model))
    assert o.shape == (1, 20, 2, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seq": 0}, "seq is 0; it must be an integer >= 1"),
        ({"chunk": 1}, "chunk is 1; it must be an integer >= 2"),
        ({"mask": "tril"}, "mask is 'tril'; it must be one of fill-zero, fill-inf"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_loop(**arguments)
