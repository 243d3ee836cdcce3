"""All clean-up passes on random graphs, and the canonical hash that watches over them."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_checks import checked
from small_graphs import SCOPES, build, parse

from gdn_ir import pass_manager
from gdn_ir.graph_view import scopes
from gdn_ir.pass_base import CleanUp
from gdn_ir.verify import VerificationFailed
from gdn_ir.verify.canonical import CanonicalCheck

# In the order in which each leaves nothing to those before it: folding makes equal what was not.
CLEAN_UPS = ("cse", "dce", "identity", "fold-constants", "identity,fold-constants,cse,dce")
SHAPE = (2, 3)

# Each makes a [2, 3] value of two others; a graph is a list of these and of what they take.
STEPS = {
    "add": lambda w, a, b: w.op("Add", a, b),
    "sub": lambda w, a, b: w.op("Sub", a, b),
    "mul": lambda w, a, b: w.op("Mul", a, b),
    "abs": lambda w, a, b: w.op("Abs", a),
    "negative": lambda w, a, b: w.op("Neg", a),
    "identity": lambda w, a, b: w.op("Identity", a),
    "constant": lambda w, a, b: w.constant(np.float32([[1, 2, 3], [4, 5, 6]])),
    "constant node": lambda w, a, b: w.op("Expand", w.op("Constant", value_float=0.5), [2, 3]),
    "ones like": lambda w, a, b: w.op("Exp", w.op("ConstantOfShape", w.op("Shape", a))),
    "turned twice": lambda w, a, b: w.op("Transpose", w.op("Transpose", a)),
    "reshaped": lambda w, a, b: w.op("Reshape", w.op("Reshape", a, [-1]), w.op("Shape", b)),
    "rows swapped": lambda w, a, b: w.op("Gather", a, [1, 0], axis=0),
    "rows mixed": lambda w, a, b: w.op(
        "Concat", w.op("Slice", a, [0], [1], [0]), w.op("Slice", b, [1], [2], [0]), axis=0
    ),
    "chosen": lambda w, a, b: w.op("Where", np.eye(2, 3, dtype=bool), a, b),
    "split": lambda w, a, b: w.op("Concat", *w.op("Split", a, outputs=2, num_outputs=2), axis=0),
}  # fmt: skip
steps = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)


def random_graph(recipe, outputs, scope):
    """Every value may be used again or not at all, and `outputs` of them leave the graph."""

    def write(w, p, q):
        values = [p, q]
        for step, a, b in recipe:
            values.append(STEPS[step](w, values[a % len(values)], values[b % len(values)]))
        if scope != "main":
            return values[-1]
        return {f"y{i}": values[index % len(values)] for i, index in enumerate(outputs)}

    return build(write, {"p": SHAPE, "q": SHAPE}, scope=scope)


@pytest.mark.parametrize("text", CLEAN_UPS)
@settings(deadline=None, max_examples=40)
@given(
    recipe=steps,
    outputs=st.lists(st.integers(0, 99), min_size=1, max_size=3),
    scope=st.sampled_from(SCOPES),
)
def test_random_graphs_compute_the_same_bits(text, recipe, outputs, scope):
    checked(text, random_graph(recipe, outputs, scope), tolerance=0)


@settings(deadline=None, max_examples=25)
@given(recipe=steps)
def test_a_graph_written_twice_is_merged_into_one(recipe):
    clean = "cse,identity,cse,dce"

    def write(w, p, q, copies):
        results = []
        for _ in range(copies):
            values = [p, q]
            for step, a, b in recipe:
                values.append(STEPS[step](w, values[a % len(values)], values[b % len(values)]))
            results.append(values[-1])
        return w.op("Sub", results[0], results[-1])

    inputs = {"p": SHAPE, "q": SHAPE}
    once = checked(clean, build(lambda w, p, q: write(w, p, q, 1), inputs), tolerance=0)
    twice = checked(clean, build(lambda w, p, q: write(w, p, q, 2), inputs), tolerance=0)
    assert twice.ops == once.ops


# --- the hash ---


@dataclasses.dataclass(frozen=True)
class Broken(CleanUp):
    """Takes one thing for another."""

    name: ClassVar[str] = "broken"

    what: str = ""

    def clean(self, model):
        for graph in scopes(model):
            for node in graph:
                self.spoil(graph, node)
        return True

    def spoil(self, graph, node):
        if self.what == "order" and node.op_type == "Sub":
            first, second = node.inputs
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
        elif self.what == "constant" and node.op_type == "Add":
            for value in graph.initializers.values():
                if value.const_value.numpy().tolist() == 3:
                    node.replace_input_with(1, value)
        elif self.what == "attribute" and node.op_type == "Gather":
            node.attributes.add(
                type(node.attributes["axis"])("axis", node.attributes["axis"].type, 1)
            )
        elif self.what == "output" and node.op_type == "Split":
            node.outputs[0].replace_all_uses_with(node.outputs[1])


def violated(pass_, model):
    with pytest.raises(VerificationFailed) as failure:
        pass_manager.run(model, [pass_], [CanonicalCheck()])
    return str(failure.value)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("what", ["order", "constant", "attribute", "output"])
def test_a_broken_clean_up_is_caught(what, scope):
    def write(w, p):
        a = w.op("Mul", w.op("Add", p, np.float32(2)), np.float32(3))
        b, _ = w.op("Split", w.op("Gather", a, [0, 1], axis=0), outputs=2, num_outputs=2)
        return w.op("Sub", a, b)

    model = build(write, {"p": (2, 2)}, scope=scope)
    assert violated(Broken(what), model) == (
        f"clean-up pass 'broken{{what={what}}}' changed what output 'y' computes"
    )


@dataclasses.dataclass(frozen=True)
class TakesTheCapture(CleanUp):
    """Replaces what a body carries by the value it started from."""

    name: ClassVar[str] = "takes-the-capture"

    def clean(self, model):
        (loop,) = model.graph
        body = loop.attributes["body"].as_graph()
        body.inputs[2].replace_all_uses_with(loop.inputs[2])
        return True


def test_the_input_of_a_body_is_not_that_of_the_model():
    text = """g (int64 n, bool on, float[2] x) => (float[2] y) {
      y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
        go_on = Identity (go)
        u = Exp (v)
      }>
    }"""
    assert violated(TakesTheCapture(), parse(text))


def test_two_draws_may_not_become_one():
    @dataclasses.dataclass(frozen=True)
    class Merges(CleanUp):
        name: ClassVar[str] = "merges"

        def clean(self, model):
            first, second = (node for node in model.graph if node.op_type == "Bernoulli")
            second.outputs[0].replace_all_uses_with(first.outputs[0])
            return True

    text = """g (float[2] x) => (float[2] y) {
      a = Bernoulli (x)
      b = Bernoulli (x)
      y = Sub (a, b)
    }"""
    assert "changed what output 'y' computes" in violated(Merges(), parse(text))
