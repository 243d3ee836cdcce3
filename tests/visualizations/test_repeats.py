"""Folding of steps that are written out."""

import numpy as np
import pytest
from fixture_files import load_fixture
from small_graphs import build, inverse_model

import gdn_ir
from gdn_ir.models.layer_model import build_layer
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.visualizations.elements import Op, Repeat, ops
from gdn_ir.visualizations.repeats import fold_repeats


def folded(model):
    return fold_repeats(node for node in model.graph if node.op_type != "Constant")


def repeats(model):
    return [element for element in folded(model) if isinstance(element, Repeat)]


def types(element):
    return [op.nodes[0].op_type for op in ops(element.body)]


def test_the_rows_of_an_exported_inverse_are_one_step_63_times():
    rows, chunks = repeats(load_fixture("hf_fill_inf"))
    assert (rows.count, chunks.count) == (63, 2)
    assert types(rows) == [
        "Gather", "Slice", "Slice", "Slice", "Unsqueeze", "Mul", "ReduceSum", "Add", "Transpose",
        "Transpose", "ScatterND", "Transpose", "Unsqueeze", "ScatterElements",
    ]  # fmt: skip
    assert all(len(op.nodes) == 63 for op in ops(rows.body))


def test_no_node_is_lost():
    model = load_fixture("hf_fill_zero")
    nodes = [node for op in ops(folded(model)) for node in op.nodes]
    assert len(nodes) == len(set(nodes)) == sum(n.op_type != "Constant" for n in model.graph)


def test_repeated_layers_hold_repeated_rows():
    model = build_layer(RuleForm("unrolled", chunk=16), layers=3, batch=1, seq=32, heads=2,
                        key_heads=None, head_dim=8, value_dim=None, state=False,
                        dtype="float32", hidden_size=None)  # fmt: skip
    (layers,) = repeats(model)
    assert layers.count == 3
    assert next(e.count for e in layers.body if isinstance(e, Repeat)) == 15


def test_a_step_that_is_wired_otherwise_ends_the_repeat():
    def rows(*steps):
        def write(w, x):
            state = x
            for step in range(12):
                first = w.op("Add", state, x)
                # The odd one squares what the others multiply by the state.
                inner = w.op("Mul", first, first if step in steps else state)
                state = w.op("Sub", inner, x)
            return state

        return [e.count for e in repeats(build(write, {"x": (4,)}))]

    assert rows() == [12]
    assert rows(5) == [5, 6]


def test_what_the_first_step_begins_with_is_free():
    def write(w, x):
        state = np.zeros(4, np.float32)
        for _ in range(6):
            state = w.op("Mul", w.op("Add", state, x), w.op("Exp", x))
        return state

    assert [e.count for e in repeats(build(write, {"x": (4,)}))] == [6]


def test_siblings_do_not_count_as_steps():
    def write(w, a, b, c, d, e):
        return w.op("Concat", *[w.op("Exp", w.op("Neg", x)) for x in (a, b, c, d, e)], axis=0)

    assert repeats(build(write, dict.fromkeys("abcde", (4,)))) == []


def test_other_ranks_are_other_steps():
    def write(w, x):
        for _ in range(4):
            x = w.op("Mul", w.op("Unsqueeze", w.op("Add", x, np.float32(1)), [0]), np.float32(2))
        return x

    assert repeats(build(write, {"x": (2,)})) == []


@pytest.mark.parametrize("n", [4, 9])
def test_rows_of_a_small_inverse(n):
    (rows,) = repeats(inverse_model((1, n, n)))
    assert rows.count == n - 1


def test_the_optimized_form_has_no_row_steps_left():
    model, _ = gdn_ir.optimize(load_fixture("hf_fill_inf"), verify="structure")
    assert all(repeat.count <= 3 for repeat in repeats(model))
    assert any(isinstance(element, Op) for element in folded(model))
