"""Sessions, random inputs and timing (of which only the bookkeeping can be tested)."""

import statistics

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx_text import model_of, value_of

import gdn_ir
from gdn_ir import runtime
from gdn_ir.runtime import RunFailed, random_inputs, run, session, time_interleaved, weight_bytes

ADD = "g (float[2] x, float[2] w) => (float[2] y, float[2] z) { y = Add (x, w) z = Sub (x, w) }"
FEEDS = {"x": np.float32([1, 2]), "w": np.float32([3, 5])}
BROKEN = "g (float[2] x, float[3] w) => (float[2] y) { y = Add (x, w) }"
FOREIGN = """<ir_version: 10, opset_import: ["": 20, "c": 1]>
g (float[2] x) => (float[2] y) { y = c.Foo (x) }"""


def inputs_of(signature, nodes="y = Neg (x)", constants="", **options):
    return random_inputs(
        model_of(f"g ({signature}) => (float[a] y) <{constants}> {{ {nodes} }}"), **options
    )


# --- Running --------------------------------------------------------------------------------------


def test_run_gives_outputs_in_order(tmp_path):
    model = model_of(ADD)
    path = tmp_path / "m.onnx"
    ir.save(model, path)
    for source in (model, path, str(path)):
        y, z = run(source, FEEDS)
        np.testing.assert_array_equal(y, [4, 7])
        np.testing.assert_array_equal(z, [-2, -3])


def test_a_relative_path_to_a_model_with_external_weights(tmp_path, monkeypatch):
    model = model_of("g (float[300] x) => (float[300] y) { y = Add (x, w) }".replace(
        "{ y", "<float[300] w = {" + ", ".join(["1"] * 300) + "}> { y"))  # fmt: skip
    ir.save(model, tmp_path / "m.onnx", external_data="m.data")
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(run("m.onnx", {"x": np.zeros(300, np.float32)})[0], np.ones(300))


def test_a_model_of_much_weight_goes_through_a_file(monkeypatch):
    model = model_of("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }")
    assert weight_bytes(model) == 8
    monkeypatch.setattr(runtime, "_MOST_IN_MEMORY", 7)
    np.testing.assert_array_equal(run(model, {"x": np.float32([1, 1])})[0], [2, 3])


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        pytest.param(BROKEN, {}, id="invalid"),
        pytest.param(FOREIGN, {}, id="unknown op"),
        pytest.param(ADD, FEEDS | {"x": np.zeros(3, np.float32)}, id="shape of a feed"),
        pytest.param(ADD, FEEDS | {"x": np.zeros(2)}, id="type of a feed"),
        pytest.param(ADD, FEEDS | {"q": np.zeros(2)}, id="unknown feed"),
    ],
)
def test_what_onnx_runtime_rejects_is_one_line(text, feeds):
    with pytest.raises(RunFailed, match=r"^ONNX Runtime: ") as caught:
        run(model_of(text), feeds)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(RunFailed, match=r"ONNX Runtime: .*m\.onnx"):
        run(tmp_path / "m.onnx", {})


def test_other_errors_in_a_session_s_block_are_not_onnx_runtime_s():
    with pytest.raises(ZeroDivisionError), session(model_of(ADD)):
        raise ZeroDivisionError


def test_a_session_uses_the_threads_that_it_is_given():
    with session(model_of(ADD), threads=3) as opened:
        assert isinstance(opened, onnxruntime.InferenceSession)
        assert opened.get_session_options().intra_op_num_threads == 3
        assert opened.get_providers() == ["CPUExecutionProvider"]


# --- Random inputs --------------------------------------------------------------------------------


def test_floats_are_small_and_of_the_input_s_type():
    for name, dtype in {"float": np.float32, "float16": np.float16, "double": np.float64}.items():
        x = inputs_of(f"{name}[100,100] x")["x"]
        assert (x.dtype, x.shape) == (dtype, (100, 100))
        assert x.std() == pytest.approx(1 / 8, rel=0.05)


def test_a_seed_makes_the_same_inputs_again():
    one, other, again = (inputs_of("float[9] x", seed=seed)["x"] for seed in (0, 1, 0))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_scalars_and_empty_inputs():
    feeds = inputs_of("float x, float[0,3] e")
    assert (feeds["x"].shape, feeds["e"].shape) == ((), (0, 3))


@pytest.mark.parametrize("name", ["float", "int64", "bool"])
def test_scalars_are_run(name):
    model = model_of(f"g ({name} x) => ({name} y) {{ y = Identity (x) }}")
    feeds = random_inputs(model)
    assert run(model, feeds) == [feeds["x"]]


@pytest.mark.parametrize(
    ("nodes", "bound"),
    [
        pytest.param("y = Cast <to = 1> (x)", 2, id="no table"),
        pytest.param("y = Gather (seven, x)", 7, id="table"),
        pytest.param("y = Gather <axis = 1> (wide, x)", 5, id="axis"),
        pytest.param("a = Gather (seven, x) y = Gather <axis = 1> (wide, x)", 5, id="two tables"),
        pytest.param("y = Gather (x, two)", 2, id="as the table"),
    ],
)
def test_indices_lie_inside_what_they_index(nodes, bound):
    sevens = ", ".join("1234567")
    constants = (
        f"float[7] seven = {{{sevens}}}, float[1,5] wide = {{1, 2, 3, 4, 5}}, int64[1] two = {{0}}"
    )
    x = inputs_of("int64[400] x", nodes, constants)["x"]
    assert x.dtype == np.int64
    assert sorted(set(x.tolist())) == list(range(bound))


def test_booleans_are_both():
    x = inputs_of("bool[50] x")["x"]
    assert x.dtype == np.bool_
    assert 0 < x.sum() < 50


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("float[2,n] x", "input 'x' has shape [2,n]: pass its values, or fix its dimensions first"),
        ("string[2] x", "input 'x' has type STRING: pass its values"),
    ],
)
def test_inputs_that_cannot_be_made(signature, message):
    with pytest.raises(ValueError, match="input 'x'") as caught:
        inputs_of(signature)
    assert str(caught.value) == message


def test_an_input_without_a_shape_cannot_be_made():
    model = model_of("g (float[2] x) => (float[2] y) { y = Neg (x) }")
    value_of(model, "x").shape = None
    with pytest.raises(ValueError, match=r"input 'x' has shape \?"):
        random_inputs(model)


def test_an_input_with_a_default_keeps_it():
    model = model_of("""<ir_version: 3, opset_import: ["": 13]>
      g (float[4] x, int64[2] shape) => (float[2,2] y) <int64[2] shape = {2, 2}>
      { y = Reshape (x, shape) }""")
    (y,) = run(model, random_inputs(model))
    assert y.shape == (2, 2)


# --- Timing ---------------------------------------------------------------------------------------


def test_timing_interleaves_the_models(monkeypatch):
    models = [model_of(ADD), model_of(ADD)]
    order = []
    opened = runtime.session

    def watched(model, **options):
        order.append(models.index(model))
        assert options == {"threads": 1, "provider": "cpu"}
        return opened(model, **options)

    monkeypatch.setattr(runtime, "session", watched)
    timings = time_interleaved(models, [FEEDS, FEEDS], rounds=3, runs=2, threads=1)
    assert order == [0, 1, 0, 1, 0, 1]
    for timing in timings:
        assert len(timing.all_ms) == 6
        assert timing.median_ms == statistics.median(timing.all_ms)


def test_models_and_feeds_to_time_go_together():
    with pytest.raises(ValueError, match="zip"):
        time_interleaved([model_of(ADD)], [FEEDS, FEEDS], rounds=1)


def test_the_broken_model_of_these_tests_is_invalid():
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.shape_inference.infer_shapes(ir.to_proto(model_of(BROKEN)), strict_mode=True)


def test_weights_in_a_file_are_found_from_anywhere(tmp_path, monkeypatch):
    weights = np.arange(40_000, dtype=np.float32).reshape(200, 200)
    w = onnx.numpy_helper.from_array(weights, "w")
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> g (float[2,200] x) => (float[2,200] y) '
        "{ y = MatMul (x, w) }"
    )
    proto.graph.initializer.append(w)
    (tmp_path / "models").mkdir()
    path = tmp_path / "models/m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.data", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    x = np.ones((2, 200), np.float32)
    (y,) = run(gdn_ir.load(path), {"x": x})
    np.testing.assert_allclose(y, x @ weights, rtol=1e-5)
