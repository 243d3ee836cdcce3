"""Whole layers: equal to the float64 reference in every form, and node for node the export."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from fixture_files import load_fixture
from rule_error import session_for

from gdn_ir.models.layer_model import build_layer
from gdn_ir.models.layer_reference import layer, residual_layers
from gdn_ir.models.layer_weights import LayerWeights, random_weights
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.verify.structure import defects

FORMS = {
    "unrolled": RuleForm("unrolled", chunk=16),
    "unrolled-blocks": RuleForm("unrolled", mask="fill-zero", inverse="blocks", chunk=32),
    "loop": RuleForm("loop", mask="fill-zero"),
    "loop-blocks": RuleForm("loop", inverse="blocks", chunk=32),
    "scan": RuleForm("scan"),
}
SIZES = {"heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 8}
HIDDEN = 24


def hidden_states(seq, batch=1):
    """One token throughout makes all keys equal after the convolution's start; large numbers make
    beta nearly 0 or 1 and the decay strong."""
    rng = np.random.default_rng(seq)
    one, noise = rng.standard_normal((batch, 1, HIDDEN)), rng.standard_normal((batch, seq, HIDDEN))
    same = np.repeat(one, seq, axis=1)
    four = noise[:, np.arange(seq) % min(4, seq)]
    return {"random": noise, "one token": same, "four tokens": four, "large": 20 * noise}


def weights_of(count=1, **changed):
    sizes = RuleForm("scan").sizes(batch=1, seq=None, **SIZES | changed)
    return [random_weights(sizes, HIDDEN, seed) for seed in range(count)]


def assert_equals_the_reference(model, seq, *, limit=1e-5, layers=None, batch=1, state=False):
    session = session_for(model)
    weights = weights_of(layers or 1)
    for family, x in hidden_states(seq, batch).items():
        feeds = {"hidden": x.astype(model.graph.inputs[0].dtype.numpy())}
        states = None
        if state:
            shape = (len(weights), batch, SIZES["heads"], SIZES["head_dim"], SIZES["value_dim"])
            states = list(np.random.default_rng(1).standard_normal(shape).astype(np.float32))
            feeds |= {f"layer{i}_state": s for i, s in enumerate(states)}
        if layers is None:
            first = states[0] if states else None
            expected = list(layer(feeds["hidden"], weights[0], SIZES["head_dim"], first))
        else:
            y, last = residual_layers(feeds["hidden"], weights, SIZES["head_dim"], states)
            expected = [y, *last]
        actual = session.run(None, feeds)
        assert len(actual) == (len(expected) if state else 1)
        # Under strong decay a head may read next to nothing, and the norm divides by that.
        most = max(limit, 1e-4) if family == "large" else limit
        for ours, exact in zip(actual, expected, strict=False):
            assert np.max(np.abs(ours - exact)) < most * np.max(np.abs(exact)), (family, seq)


@pytest.mark.parametrize("layers", [None, 2])
@pytest.mark.parametrize("name", FORMS)
def test_equals_the_reference(name, layers):
    form = FORMS[name]
    seq = 40 if form.form == "unrolled" else None
    model = build_layer(form, layers=layers, hidden_size=HIDDEN, seq=seq, state=True, **SIZES)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert defects(model) == []
    for tokens in [seq] if seq else [1, 3, 70]:
        assert_equals_the_reference(model, tokens, layers=layers, state=True)


def test_batches_and_no_state():
    form = RuleForm("loop", chunk=16)
    model = build_layer(form, batch=3, hidden_size=HIDDEN, seq=20, **SIZES)
    assert [v.name for v in model.graph.inputs] == ["hidden"]
    assert [v.name for v in model.graph.outputs] == ["output"]
    assert_equals_the_reference(model, 20, batch=3)


@pytest.mark.parametrize(
    "form", [RuleForm("loop"), RuleForm("loop", mask="fill-zero"), FORMS["scan"]]
)
def test_float16(form):
    model = build_layer(form, layers=2, hidden_size=HIDDEN, state=True, dtype="float16", **SIZES)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    types = {v.name: v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    assert types["hidden"] == types["output"] == ir.DataType.FLOAT16
    assert types["layer0_state"] == types["layer1_final_state"] == ir.DataType.FLOAT
    assert_equals_the_reference(model, 70, limit=1e-2, layers=2, state=True)


def test_names_and_symbolic_length():
    model = build_layer(RuleForm("loop"), layers=2, hidden_size=HIDDEN, state=True, **SIZES)
    graph = model.graph
    assert [v.name for v in graph.inputs] == ["hidden", "layer0_state", "layer1_state"]
    outputs = ["output", "layer0_final_state", "layer1_final_state"]
    assert [v.name for v in graph.outputs] == outputs
    assert str(graph.inputs[0].shape) == str(graph.outputs[0].shape) == f"[1,S,{HIDDEN}]"
    values = [v for node in graph.all_nodes() for v in node.outputs]
    assert len({v.name for v in values}) == len(values)
    assert all(v.dtype is not None and v.shape is not None for v in values)
    per_layer = Counter(v.name.split("_")[0] for v in values)
    assert abs(per_layer["layer0"] - per_layer["layer1"]) <= 1  # `output` is the last layer's


def test_static_lengths_are_known_everywhere():
    model = build_layer(RuleForm("unrolled", chunk=8), layers=1, seq=11, **SIZES)
    assert all(v.shape.is_static() for node in model.graph for v in node.outputs)


def test_is_the_export_node_for_node():
    # In the exported language model the first layer begins after the embedding and its masks.
    exported = list(load_fixture("qwen3_5_tiny").graph)
    embedded, start = exported[0].outputs[0], [node.op_type for node in exported].index("Pow")
    model = build_layer(
        RuleForm("unrolled"), layers=1, seq=128, heads=2, key_heads=1, hidden_size=64
    )
    built = list(model.graph)
    theirs = described(exported[start : start + len(built)], embedded)
    for ours, wanted in zip(described(built, model.graph.inputs[0]), theirs, strict=True):
        assert ours == wanted


def described(nodes, hidden):
    """Each node without names: operator, attributes, where its inputs come from, its shapes."""
    made, found = {hidden: "hidden"}, []
    for index, node in enumerate(nodes):
        sources = [made.get(v, "constant") for v in node.inputs]
        attributes = {name: a.value for name, a in node.attributes.items()}
        found.append((node.op_type, attributes, sources, [str(v.shape) for v in node.outputs]))
        made |= {v: (index, port) for port, v in enumerate(node.outputs)}
    return found


def test_the_reference_is_causal():
    (weights,) = weights_of()
    x = hidden_states(12)["random"]
    whole, last = layer(x, weights, SIZES["head_dim"])
    assert whole.shape == x.shape
    assert last.shape == (1, SIZES["heads"], SIZES["head_dim"], SIZES["value_dim"])
    start, _ = layer(x[:, :7], weights, SIZES["head_dim"])
    np.testing.assert_allclose(start, whole[:, :7], rtol=0, atol=1e-12)


def test_the_reference_equals_the_export():
    # The weights of the exported language model, found by where the layer uses them.
    model = load_fixture("qwen3_5_tiny")
    nodes = list(model.graph)
    start = [node.op_type for node in nodes].index("Pow")
    end = next(i for i, n in enumerate(nodes) if n.op_type == "Pow" and i > 900)
    constants = [
        v.const_value.numpy()
        for node in (*nodes[start:40], *nodes[end:])
        for v in node.inputs
        if v is not None and v.const_value is not None and v.dtype == ir.DataType.FLOAT
    ]
    weights = [c for c in constants if c.size > 1]
    input_norm, qkv, z, b, a, conv, dt_bias, minus_decay, norm, out = weights[:10]
    found = LayerWeights(
        input_norm=input_norm, qkv=qkv, z=z, b=b, a=a, conv=conv, dt_bias=dt_bias,
        A_log=np.log(-minus_decay), norm=norm, out=out,
    )  # fmt: skip
    embedded = nodes[0].outputs[0]
    (residual,) = [n for n in nodes[end:] if n.op_type == "Add" and embedded in n.inputs]
    model.graph.outputs.extend([embedded, residual.outputs[0]])
    ids = np.random.default_rng(0).integers(0, 128, (1, 128))
    names = [v.name for v in model.graph.outputs[-2:]]
    x, actual = session_for(model).run(names, {"input_ids": ids})
    expected, _ = residual_layers(x, [found], head_dim=32)
    assert np.max(np.abs(actual - expected)) < 1e-5 * np.max(np.abs(expected))
    assert np.max(np.abs(expected - x)) > 1e-3  # the layer adds something


def test_weights_show_a_broken_inverse():
    # Slow heads beside fast ones: with fast decay alone, A would be nearly zero.
    (weights,) = weights_of(heads=2)
    decays = -np.exp(weights.A_log) * np.logaddexp(0, 1)
    assert decays.max() > -0.02
    assert decays.min() < -1
    np.testing.assert_array_equal(weights.qkv, weights_of(heads=2)[0].qkv)
    assert not np.array_equal(weights.qkv, weights_of(2, heads=2)[1].qkv)


@pytest.mark.parametrize(
    ("form", "arguments", "message"),
    [
        ("loop", {"layers": 0}, "layers is 0; it must be an integer >= 1"),
        ("loop", {"layers": True}, "layers is True"),
        ("loop", {"hidden_size": 0}, "hidden_size is 0"),
        ("loop", {"heads": 3, "key_heads": 2}, "heads is 3; it must be a multiple of key_heads, 2"),
        ("loop", {"dtype": "int8"}, "dtype is 'int8'; it must be one of float32, float16"),
        ("unrolled", {}, "seq is None; form unrolled needs a number"),
    ],
)
def test_arguments_are_checked(form, arguments, message):
    with pytest.raises(ValueError, match=message):
        build_layer(RuleForm(form), **arguments)
