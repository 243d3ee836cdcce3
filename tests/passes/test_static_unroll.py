"""static-unroll: Loops and Scans as straight code, or as Loops of several steps a trip."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx_text import proto_of
from pass_checks import assert_close, before_and_after, checked, declines, to_text
from small_graphs import annotated, parse

import gdn_ir
from gdn_ir import pipeline, runtime
from gdn_ir.graph_view import scopes
from gdn_ir.observers import count_nodes
from gdn_ir.structural_hash import model_digest
from gdn_ir.verify.shapes import prove_at_shapes

TRIPS = (0, 1, 7, 16, 17, 64)

# A recurrence that captures w and s, is told its number, and collects a row before it adds.
BODY = """b (int64 i, bool go, float[2] v) => (bool go_on, float[2] v_next, float[2] row) {
  go_on = Identity (go)
  f = Cast <to = 1> (i)
  t = Mul (v, w)
  u = Mul (t, f)
  v_next = Add (u, s)
  row = Neg (v)
}"""


def loop(trips: int, body: str = BODY, on: str = "on") -> ir.Model:
    """A Loop of a constant number of trips."""
    return parse(f"""g (float[2] x, float[2] w) => (float[2] y, float[{trips},2] rows)
      <int64 n = {{{trips}}}, bool on = {{1}}> {{
      s = Mul (x, w)
      y, rows = Loop (n, {on}, x) <body = {body}>
    }}""")


def proved(outcome) -> None:
    """Every rewrite is proved."""
    assert outcome.rewrites
    for rewrite in outcome.rewrites:
        verdict = prove_at_shapes(rewrite.before, rewrite.after, rewrite.assumes)
        assert verdict.status == "PROVED", verdict


def names(model: ir.Model) -> list[str]:
    """The names of all values of all scopes."""
    found = []
    for graph in scopes(model):
        found += [value.name for value in (*graph.inputs, *graph.initializers.values())]
        found += [value.name for node in graph for value in node.outputs if value.name]
    return found


@pytest.mark.parametrize("trips", TRIPS)
def test_a_loop_of_known_length(trips):
    outcome = checked("static-unroll", loop(trips))
    (rewrite,) = outcome.rewrites
    assert rewrite.found == f"Loop of {trips} trips: 6 nodes become {6 * trips}"
    # All but the condition, which nothing needs any more; rows are raised and joined.
    joined = (trips > 1) + trips
    assert len(rewrite.after.graph) == (5 * trips + joined if trips else 2)
    assert "Loop" not in outcome.ops
    proved(outcome)


@pytest.mark.parametrize(
    ("directions", "axes"),
    [((0, 0), (0, 0)), ((1, 0), (0, 0)), ((0, 1), (1, 1)), ((1, 1), (-1, -1)), ((1, 1), (0, 1))],
)
@pytest.mark.parametrize("trips", [1, 7])
def test_a_scan_of_known_length(trips, directions, axes):
    shapes = {0: f"{trips},2", 1: f"2,{trips}"}
    read, written = (shapes[axis % 2] for axis in axes)
    outcome = checked(
        "static-unroll",
        parse(f"""g (float[2] x, float[{read}] z) => (float[2] y, float[{written}] rows) {{
          y, rows = Scan (x, z) <num_scan_inputs = 1,
            scan_input_axes = [{axes[0]}], scan_input_directions = [{directions[0]}],
            scan_output_axes = [{axes[1]}], scan_output_directions = [{directions[1]}],
            body = b (float[2] v, float[2] slice) => (float[2] v_next, float[2] row) {{
              t = Mul (v, slice)
              v_next = Add (t, x)
              row = Neg (v)
            }}>
        }}"""),
    )
    assert outcome.rewrites[0].found == f"Scan of {trips} steps: 3 nodes become {3 * trips}"
    assert "Scan" not in outcome.ops
    proved(outcome)


def test_a_scan_of_nothing():
    # ONNX Runtime refuses to run it, so that there is nothing to compare with.
    model = parse("""g (float[2] x, float[0,2] z) => (float[2] y, float[2,0] rows) {
      y, rows = Scan (x, z) <num_scan_inputs = 1, scan_output_axes = [1],
        body = b (float[2] v, float[2] s) => (float[2] u, float[2] r) { u = Neg (v) r = Neg (s) }>
    }""")
    outcome, report = gdn_ir.optimize(model, passes="static-unroll", verify="proof")
    assert report.proofs[0].verdict.status == "PROVED"
    assert [node.op_type for node in outcome.graph] == ["Identity", "Identity"]


# --- how a trip count and a condition may be known ---


def test_a_trip_count_that_follows_from_constants_and_static_shapes():
    outcome = checked(
        "static-unroll",
        parse("""g (float[3,2] x) => (float[3,2] y) <int64[1] one = {1}, int64 zero = {0}> {
          shape = Shape (x)
          rows = Gather (shape, zero)
          n = Sub (rows, one)
          y = Loop (n, , x) <body = b (int64 i, bool go, float[3,2] v) => (bool on, float[3,2] u) {
            on = Identity (go)
            u = Mul (v, v)
          }>
        }"""),
    )
    assert outcome.rewrites[0].found == "Loop of 2 trips: 2 nodes become 4"
    assert [value.name for value in outcome.rewrites[0].before.graph.inputs] == ["x"]
    proved(outcome)


STOPS = {
    "never, by a constant of its own": ("on", "go_on = Constant <value = bool {1}> ()", 5),
    "never, as an outer constant says": ("on", "go_on = Identity (on)", 5),
    "never, and none is given": ("", "go_on = Identity (go)", 5),
    "never, and the first is turned twice": ("on", "a = Not (off) go_on = Identity (a)", 5),
    "before the first step": ("off", "go_on = Identity (go)", 0),
    "before the first step whatever follows": ("off", "go_on = Less (i, n)", 0),
    "after one": ("on", "go_on = Constant <value = bool {0}> ()", 1),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_condition_that_is_known(name):
    start, body, trips = STOPS[name]
    outcome = checked(
        "static-unroll",
        parse(f"""g (float[2] x) => (float[2] y) <int64 n = {{5}}, bool on = {{1}}, bool off = {{0}}> {{
          y = Loop (n, {start}, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {{
            {body}
            u = Mul (v, x)
          }}>
        }}"""),  # noqa: E501
    )
    assert f"of {trips} trips" in outcome.rewrites[0].found
    proved(outcome)


def test_a_loop_without_a_trip_count_that_stops_after_one():
    outcome = checked(
        "static-unroll",
        parse("""g (float[2] x) => (float[2] y) <bool on = {1}> {
          y = Loop (, on, x) <body = b (int64 i, bool go, float[2] v) => (bool no, float[2] u) {
            no = Constant <value = bool {0}> ()
            u = Mul (v, x)
          }>
        }"""),
    )
    assert outcome.ops == {"Mul": 1}


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_number_and_a_condition_of_rank_1(trips):
    model = parse(f"""g (float[2] x) => (int64[{trips},1] r, bool[{trips},1] c)
      <int64[1] n = {{{trips}}}, bool[1] on = {{1}}> {{
      r, c = Loop (n, on) <body =
        b (int64[1] i, bool[1] go) => (bool[1] go_on, int64[1] row, bool[1] still) {{
          go_on = Identity (go)
          row = Identity (i)
          still = Identity (go)
        }}>
    }}""")
    checked("static-unroll", model, tolerance=0)


# --- what a body may hold ---

BODIES = {
    "outputs that are inputs": (
        "float[2] a, float[2] b",
        "float[2] b, float[2] a, float[2] a, float[2] b",
        "",
    ),
    "one value as two outputs": (
        "float[2] a, float[2] b",
        "float[2] t, float[2] t, float[2] t, float[2] t",
        "t = Mul (a, b)",
    ),
    "outputs that are constants": (
        "float[2] a, float[2] b",
        "float[2] k, float[2] a, float[2] k, float[2] t",
        "k = Constant <value = float[2] {1.5, 2.5}> () t = Mul (a, b)",
    ),
    "an initializer": (
        "float[2] a, float[2] b",
        "float[2] k, float[2] t, float[2] k, float[2] a",
        "t = Mul (b, k)",
    ),
    "outer values": (
        "float[2] a, float[2] b",
        "float[2] t, float[2] u, float[2] w2, float[2] t",
        "t = Add (a, x) u = Mul (b, s) w2 = Identity (s)",
    ),
    "a branch that captures": (
        "float[2] a, float[2] b",
        "float[2] t, float[2] a, float[2] t, float[2] u",
        """even = Constant <value = int64 {2}> () m = Mod (i, even) zero = Cast <to = 9> (m)
        u = Mul (b, s)
        t = If (zero) <
          then_branch = p () => (float[2] q) { r = Add (a, u) q = Mul (r, x) },
          else_branch = p () => (float[2] q) { r = Sub (a, u) q = Identity (r) }>""",
    ),
}


@pytest.mark.parametrize("trips", [1, 2, 5])
@pytest.mark.parametrize("name", BODIES)
def test_bodies(name, trips):
    inputs, outputs, nodes = BODIES[name]
    constants = "<float[2] k = {0.5, 0.25}>" if name == "an initializer" else ""
    proto = proto_of(f"""g (float[2] x, float[2] z) => (float[2] y, float[2] q, float[N,2] c, float[N,2] d, float[2] s)
      <int64 n = {{{trips}}}> {{
      s = Neg (z)
      y, q, c, d = Loop (n, , x, z) <body = b (int64 i, bool go, {inputs}) => (bool on, {outputs})
        {constants} {{ on = Identity (go) {nodes} }}>
    }}""")  # noqa: E501
    outcome = checked("static-unroll", annotated(proto))
    assert "Loop" not in outcome.ops
    assert len(names(outcome.model)) == len(set(names(outcome.model)))
    proved(outcome)


def test_weights_are_shared_by_all_copies():
    model = parse("""g (float[2] x) => (float[2] y) <int64 n = {9}, bool on = {1}> {
      y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u)
        <float[2,2] k = {1, 2, 3, 4}> {
        go_on = Identity (go)
        w = Constant <value = float[2,2] {4, 3, 2, 1}> ()
        a = MatMul (k, v)
        b = MatMul (w, a)
        u = If (on) <
          then_branch = p () => (float[2] q) <float[2] m = {0.1, 0.2}> { q = Mul (b, m) },
          else_branch = p () => (float[2] q) { q = Neg (b) }>
      }>
    }""")
    outcome = checked("static-unroll", model)
    held = [value for graph in scopes(outcome.model) for value in graph.initializers.values()]
    assert sum(value.const_value.size for value in held) == 4 + 4 + 2 + 1 + 1  # n and the condition
    assert outcome.ops["Constant"] == 0


def test_the_model_that_it_came_from_keeps_its_names():
    # Tensors are shared by copies of a model, and carry names: also one that a branch returns.
    proto = proto_of("""g (bool c, float[2] x) => (float[2] y) <int64 n = {2}> {
      y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {
        on = Identity (go)
        k = Constant <value = float[2] {1.5, 2.5}> ()
        t = Mul (v, k)
        r = If (c) <
          then_branch = p () => (float[2] m) <float[2] m = {0.1, 0.2}> { unused = Neg (t) },
          else_branch = p () => (float[2] q) { q = Neg (t) }>
        u = Add (r, t)
      }>
    }""")
    before = proto.SerializeToString()
    feeds = {"c": np.array(True), "x": np.float32([0.5, 2])}
    checked("static-unroll", ir.from_proto(proto), feeds)
    assert proto.SerializeToString() == before


def test_outputs_that_nothing_needs_leave_nothing_behind():
    model = parse("""g (float[2] x) => (float[2] y) <int64 n = {3}> {
      y, unused, rows = Loop (n, , x, x) <body =
        b (int64 i, bool go, float[2] v, float[2] w) =>
          (bool on, float[2] v2, float[2] w2, float[2] r) {
          on = Identity (go)
          v2 = Mul (v, x)
          w2 = Exp (w)
          r = Neg (v)
        }>
    }""")
    outcome = checked("static-unroll", model)
    assert outcome.ops == {"Mul": 3}


def test_a_dimension_that_grows():
    # N is another number in every step: no shape of a copy may say N.
    model = parse("""g (float[1] x) => (float[5] y) <int64 n = {4}> {
      y = Loop (n, , x) <body = b (int64 i, bool go, float[N] v) => (bool on, float[M] u) {
        on = Identity (go)
        e = Exp (v)
        u = Concat <axis = 0> (e, x)
      }>
    }""")
    outcome = checked("static-unroll", model)
    shapes = [list(node.outputs[0].shape) for node in outcome.model.graph]
    assert shapes == [[1], [2], [2], [3], [3], [4], [4], [5]]
    proved(outcome)


def test_open_dimensions_around_the_loop():
    model = parse("""g (float[B,2] x) => (float[B,2] y, float[3,B,2] rows) <int64 n = {3}> {
      y, rows = Loop (n, , x) <body =
        b (int64 i, bool go, float[B,2] v) => (bool on, float[B,2] u, float[B,2] r) {
          on = Identity (go)
          u = Mul (v, x)
          r = Neg (v)
        }>
    }""")
    _, report = gdn_ir.optimize(model, passes="static-unroll")
    assert report.proofs[0].verdict.status == "PROVED"
    assert len(report.proofs[0].verdict.shapes) > 1
    checked("static-unroll", model, {"x": np.ones((4, 2), np.float32)})


@pytest.mark.parametrize("trips", [1, 3])
def test_what_the_model_returns_may_be_an_intermediate(trips):
    model = parse(f"""g (float[2] x) => (float[2] s, float[2] y, float[2] z) <int64 n = {{{trips}}}> {{
      s = Neg (x)
      y = Loop (n, , s) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {{
        on = Identity (go)
        u = Mul (v, s)
      }}>
      z = Add (y, s)
    }}""")  # noqa: E501
    checked("static-unroll", model)


def test_integers_and_truths_are_carried_too():
    model = parse("""g (int64 k, bool p) => (int64 y, bool q) <int64 n = {4}> {
      y, q = Loop (n, , k, p) <body =
        b (int64 i, bool go, int64 v, bool t) => (bool on, int64 u, bool f) {
          on = Identity (go)
          u = Add (v, i)
          f = Not (t)
        }>
    }""")
    feeds = {"k": np.array(3), "p": np.array(True)}
    outcome = checked("static-unroll", model, feeds, tolerance=0)
    proved(outcome)


# --- nesting ---


def nested(inner_trips: str, outer: str = "two") -> ir.Model:
    """A Loop in a Loop; the inner one captures from both scopes around it."""
    return parse(f"""g (float[2] x, int64 k) => (float[2] y) <int64 two = {{2}}, int64 three = {{3}}> {{
      s = Neg (x)
      y = Loop ({outer}, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {{
        on = Identity (go)
        t = Mul (v, s)
        j = Add (i, two)
        u = Loop ({inner_trips}, , v) <body = c (int64 l, bool go2, float[2] a) => (bool on2, float[2] e) {{
          on2 = Identity (go2)
          d = Add (a, t)
          e = Mul (d, x)
        }}>
      }}>
    }}""")  # noqa: E501


def test_a_loop_in_a_loop():
    outcome = checked(
        "static-unroll", nested("three"), {"x": np.float32([0.5, 2]), "k": np.array(1)}
    )
    assert [rewrite.found for rewrite in outcome.rewrites] == [
        "Loop of 3 trips: 3 nodes become 9",
        "Loop of 2 trips: 9 nodes become 18",
    ]
    assert len(names(outcome.model)) == len(set(names(outcome.model)))
    proved(outcome)


@pytest.mark.parametrize("trips", ["i", "j"])
def test_a_loop_whose_length_the_outer_step_decides(trips):
    feeds = {"x": np.float32([0.5, 2]), "k": np.array(1)}
    outcome = checked("static-unroll", nested(trips), feeds)
    found = [rewrite.found for rewrite in outcome.rewrites]
    first = 0 if trips == "i" else 2
    assert found[1:] == [f"Loop of {n} trips: 3 nodes become {3 * n}" for n in (first, first + 1)]
    assert "Loop" not in outcome.ops
    proved(outcome)


@pytest.mark.parametrize("factor", [1, 2])
def test_a_loop_of_unknown_length_in_one_of_known_length(factor):
    feeds = {"x": np.float32([0.5, 2]), "k": np.array(3)}
    outcome = checked(f"static-unroll{{factor={factor}}}", nested("k"), feeds)
    assert outcome.ops["Loop"] == 2 * factor
    assert len(names(outcome.model)) == len(set(names(outcome.model)))
    proved(outcome)


def test_in_a_branch_and_in_a_scan():
    model = parse("""g (bool c, float[2] x, float[3,2] z) => (float[2] y, float[3,2] w)
      <int64 n = {2}> {
      y = If (c) <
        then_branch = a () => (float[2] p) {
          p = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] p) {
            on = Identity (go)
            p = Mul (v, x)
          }>
        },
        else_branch = d () => (float[2] p) {
          p = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] p) {
            on = Identity (go)
            p = Sub (v, x)
          }>
        }>
      w = Scan (z) <num_scan_inputs = 1, body = e (float[2] s) => (float[2] r) {
        r = Loop (n, , s) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] p) {
          on = Identity (go)
          p = Mul (v, x)
        }>
      }>
    }""")
    outcome = checked("static-unroll", model)
    assert len(outcome.rewrites) == 4
    proved(outcome)


@pytest.mark.parametrize("factor", [1, 2])
def test_a_loop_of_known_length_in_one_of_unknown_length(factor):
    for k in (0, 1, 5):
        feeds = {"x": np.float32([0.5, 2]), "k": np.array(k)}
        outcome = checked(f"static-unroll{{factor={factor}}}", nested("three", outer="k"), feeds)
    assert outcome.ops["Loop"] == factor
    proved(outcome)


# --- unknown lengths ---

FACTORS = ("1", "4", "16", "16:4:1")
STEADY = "go_on = Identity (go)"
STOPPING = "last = Constant <value = int64 {9}> () go_on = Less (i, last)"


def open_loop(condition: str = STEADY, start: str = "", rank: str = "") -> ir.Model:
    """A Loop whose trip count is an input."""
    body = BODY.replace("go_on = Identity (go)", condition)
    return parse(f"""g (int64{rank} n, bool on, float[2] x, float[2] w) => (float[2] y, float[R,2] rows) {{
      s = Mul (x, w)
      y, rows = Loop (n, {start}, x) <body = {body}>
    }}""")  # noqa: E501


def run_of(n: int, on: bool = True, rank: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    x, w = np.float32([0.5, 2]), np.float32([-0.3, 0.25])
    return {"n": np.full(rank, n), "on": np.array(on), "x": x, "w": w}


@pytest.mark.parametrize("condition", [STEADY, STOPPING], ids=["steady", "stopping"])
@pytest.mark.parametrize("factor", FACTORS)
def test_a_loop_of_unknown_length(factor, condition):
    text, model = f"static-unroll{{factor={factor}}}", open_loop(condition)
    if factor == "1":
        assert declines(text, model) == ["its number of trips is not known; give a factor above 1"]
        return
    outcome = checked(text, model, run_of(7))
    loops = [node for node in outcome.model.graph if node.op_type == "Loop"]
    assert len(loops) == (3 if factor == "16:4:1" else 2)
    sizes = {"4": "24 + 6", "16": "96 + 6", "16:4:1": "96 + 24 + 6"}
    (rewrite,) = outcome.rewrites
    assert rewrite.found == f"Loop of unknown trips: 6 nodes become {sizes[factor]}"
    with runtime.session(model) as old, runtime.session(outcome.model) as new:
        for trips in (*TRIPS, -3, 8, 9, 10, 33):
            for a, b in zip(
                old.run(None, run_of(trips)), new.run(None, run_of(trips)), strict=True
            ):
                assert_close(b, a, 1e-6, f"{trips} trips")
    proved(outcome)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("condition", [STEADY, STOPPING, "go_on = Constant <value = bool {1}> ()"])
def test_a_first_condition_that_is_an_input(condition, on):
    for trips in (0, 1, 2, 7, 12):
        model = open_loop(condition, start="on")
        outcome = checked("static-unroll{factor=2}", model, run_of(trips, on))
    assert len(outcome.rewrites) == 1
    proved(outcome)


def test_a_condition_that_depends_on_what_is_computed():
    # Exact arithmetic knows no order, so that only the numeric gate has a word here.
    model = parse("""g (int64 n, float[2] x, float limit) => (float[2] y, float[R,2] rows) {
      y, rows = Loop (n, , x) <body =
        b (int64 i, bool go, float[2] v) => (bool more, float[2] u, float[2] row) {
          u = Add (v, x)
          total = ReduceSum <keepdims = 0> (u)
          more = Less (total, limit)
          row = Neg (u)
        }>
    }""")
    for limit in (0, 1, 2.5, 3, 99):
        feeds = {
            "n": np.array(9),
            "x": np.float32([0.5, 0.25]),
            "limit": np.array(limit, np.float32),
        }
        checked("static-unroll{factor=4}", model, feeds)
    _, report = gdn_ir.optimize(model, passes="static-unroll{factor=4}")
    assert report.proofs[0].verdict.status == "UNSUPPORTED"
    assert "condition that depends on data" in report.proofs[0].verdict.reason
    assert report.region_errors


def test_a_known_trip_count_with_a_condition_that_is_not():
    model = loop(7, BODY.replace("go_on = Identity (go)", STOPPING.replace("9", "3")))
    outcome = checked("static-unroll{factor=2}", model)
    assert outcome.ops["Loop"] == 2
    proved(outcome)


@pytest.mark.parametrize("rank", [(), (1,)])
@pytest.mark.parametrize("trips", [0, 1, 4, 5])
def test_a_trip_count_and_a_number_of_rank_1(trips, rank):
    model = parse(f"""g (int64{"[1]" * len(rank)} n) => (int64[R,1] r, bool[Q,1] c) {{
      on = Constant <value = bool[1] {{1}}> ()
      r, c = Loop (n, on) <body =
        b (int64[1] i, bool[1] go) => (bool[1] more, int64[1] row, bool[1] still) {{
          more = Identity (go)
          row = Identity (i)
          still = Identity (go)
        }}>
    }}""")
    text = "static-unroll{factor=2}"
    outcome = checked(text, model, {"n": np.full(rank, trips)}, tolerance=0)
    assert outcome.rewrites


def test_samples_are_at_all_lengths_that_matter():
    (rewrite,) = checked("static-unroll{factor=4}", open_loop(), run_of(7)).rewrites
    lengths = [int(sample.feeds["n"]) for sample in rewrite.samples()]
    assert lengths == [0, 1, 3, 4, 9]


def test_lengths_that_index_beyond_an_end_are_no_samples():
    model = parse("""g (int64 n, float[6,2] x, float[2] y0) => (float[2] y) {
      y = Loop (n, , y0) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] u) {
        more = Identity (go)
        row = Gather (x, i)
        u = Add (v, row)
      }>
    }""")
    feeds = {"n": np.array(5), "x": np.ones((6, 2), np.float32), "y0": np.zeros(2, np.float32)}
    (rewrite,) = checked("static-unroll{factor=4}", model, feeds).rewrites
    assert [int(sample.feeds["n"]) for sample in rewrite.samples()] == [0, 1, 3, 4]


def test_a_trip_count_that_is_the_size_of_an_open_dimension():
    model = parse("""g (float[S,2] x, float[2] y0) => (float[2] y) <int64 zero = {0}> {
      sizes = Shape (x)
      n = Gather (sizes, zero)
      y = Loop (n, , y0) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] u) {
        more = Identity (go)
        row = Gather (x, i)
        u = Mul (v, row)
      }>
    }""")
    feeds = {"x": np.ones((5, 2), np.float32), "y0": np.float32([0.5, 2])}
    outcome = checked("static-unroll{factor=4}", model, feeds)
    (rewrite,) = outcome.rewrites
    assert [value.name for value in rewrite.before.graph.inputs] == ["x", "y0"]
    assert [len(sample.feeds["x"]) for sample in rewrite.samples()] == [1, 3, 4, 9]
    proved(outcome)


@pytest.mark.parametrize(
    ("directions", "axes"),
    [((0, 0), (0, 0)), ((1, 0), (0, 1)), ((0, 1), (1, 0)), ((1, 1), (-1, -1))],
)
@pytest.mark.parametrize("factor", ["4:2"])
def test_a_scan_of_unknown_length(factor, directions, axes):
    shapes = {0: "S,2", 1: "2,S"}
    read, written = (shapes[axis % 2] for axis in axes)
    model = parse(f"""g (float[2] x, float[{read}] z) => (float[2] y, float[{written}] rows) {{
      y, rows = Scan (x, z) <num_scan_inputs = 1,
        scan_input_axes = [{axes[0]}], scan_input_directions = [{directions[0]}],
        scan_output_axes = [{axes[1]}], scan_output_directions = [{directions[1]}],
        body = b (float[2] v, float[2] slice) => (float[2] v_next, float[2] row) {{
          t = Mul (v, slice)
          v_next = Add (t, x)
          row = Neg (v_next)
        }}>
    }}""")
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 4, 7, 9):
        z = rng.standard_normal((length, 2) if axes[0] == 0 else (2, length)).astype(np.float32)
        feeds = {"x": np.float32([0.5, 2]), "z": z}
        outcome = checked(f"static-unroll{{factor={factor}}}", model, feeds)
    assert outcome.rewrites[0].found.startswith("Scan of unknown steps: 3 nodes become ")
    assert "Scan" not in outcome.ops
    proved(outcome)


def test_two_scanned_values_and_no_carried_one():
    model = parse("""g (float[S] a, float[S] b, float w) => (float[S] y, float[S] z) {
      y, z = Scan (a, b) <num_scan_inputs = 2, scan_input_directions = [0, 1],
        body = b (float p, float q) => (float r, float s) { r = Mul (p, q) s = Sub (p, w) }>
    }""")
    rng = np.random.default_rng(0)
    for length in (1, 2, 5):
        a, b = rng.standard_normal((2, length)).astype(np.float32)
        feeds = {"a": a, "b": b, "w": np.array(3, np.float32)}
        outcome = checked("static-unroll{factor=2}", model, feeds)
    proved(outcome)


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize("name", BODIES)
def test_bodies_in_stages(name, trips):
    inputs, outputs, nodes = BODIES[name]
    constants = "<float[2] k = {0.5, 0.25}>" if name == "an initializer" else ""
    for condition in ("Identity (go)", "Less (i, two)"):
        proto = proto_of(f"""g (int64 n, float[2] x, float[2] z) =>
          (float[2] y, float[2] q, float[N,2] c, float[N,2] d, float[2] s) <int64 two = {{2}}> {{
          s = Neg (z)
          y, q, c, d = Loop (n, , x, z) <body = b (int64 i, bool go, {inputs}) => (bool on, {outputs})
            {constants} {{ on = {condition} {nodes} }}>
        }}""")  # noqa: E501
        x, z = np.float32([[0.5, 2], [3, -0.25]])
        model, feeds = annotated(proto), {"n": np.array(trips), "x": x, "z": z}
        outcome = checked("static-unroll{factor=2}", model, feeds)
        assert outcome.rewrites
        assert len(names(outcome.model)) == len(set(names(outcome.model)))
    if trips == 5:
        proved(outcome)


@pytest.mark.parametrize("condition", ["Identity (go)", "Less (i, two)"])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
def test_rows_of_open_shape(trips, condition):
    model = parse(f"""g (int64 n, float[B,2] x) => (float[R,B,2] rows) <int64 two = {{2}}, bool on = {{1}}> {{
      rows = Loop (n, on) <body = b (int64 i, bool go) => (bool more, float[B,2] row) {{
        more = {condition}
        f = Cast <to = 1> (i)
        row = Mul (x, f)
      }}>
    }}""")  # noqa: E501
    feeds = {"n": np.array(trips), "x": np.ones((3, 2), np.float32)}
    (rewrite,) = checked("static-unroll{factor=2}", model, feeds).rewrites
    assert any(node.op_type == "Shape" for node in rewrite.after.graph)


def test_a_carried_value_that_grows():
    model = parse("""g (int64 n, float[K] x) => (float[M] y) {
      y = Loop (n, , x) <body = b (int64 i, bool go, float[N] v) => (bool on, float[P] u) {
        last = Constant <value = int64 {3}> ()
        on = Less (i, last)
        e = Neg (v)
        u = Concat <axis = 0> (e, x)
      }>
    }""")
    for trips in (0, 1, 3, 9):
        feeds = {"n": np.array(trips), "x": np.ones(2, np.float32)}
        assert checked("static-unroll{factor=4}", model, feeds).rewrites


# --- what it leaves alone, and why ---


def test_more_trips_than_the_limit():
    assert declines("static-unroll", loop(65)) == [
        "it has 65 trips; at most limit=64 are written out"
    ]
    assert checked("static-unroll{limit=65}", loop(65)).rewrites
    assert declines("static-unroll{limit=6}", loop(7))


def test_more_nodes_than_runtimes_bear():
    model = parse("""g (float[2] x) => (float[2] y) <int64 n = {10001}> {
      y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {
        on = Identity (go)
        u = Mul (v, x)
      }>
    }""")
    assert declines("static-unroll{limit=100000}", model) == [
        "10001 trips of 2 nodes would be 20002 nodes; at most 20000 are made"
    ]


LEFT_ALONE = {
    "random numbers": ("u = RandomNormalLike (v)", "draws random numbers (RandomNormalLike)"),
    "a foreign op": ("u = my.Op (v)", "the op my.Op, whose meaning is not known"),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_no_gate_could_check(name):
    node, reason = LEFT_ALONE[name]
    text = f"""<ir_version: 10, opset_import: ["": 20, "my": 1]>
    g (float[2] x) => (float[2] y) <int64 n = {{2}}> {{
      y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {{
        on = Identity (go)
        {node}
      }}>
    }}"""
    (given,) = declines("static-unroll", ir.from_proto(proto_of(text)))
    assert reason in given


@pytest.mark.parametrize("rank", ["unknown", "and type unknown"])
def test_a_captured_value_of_which_too_little_is_known(rank):
    model = parse("""g (float[2] x) => (float[2] y) <int64 n = {2}> {
      s = Neg (x)
      y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {
        on = Identity (go)
        u = Mul (v, s)
      }>
    }""")
    (source,) = (node.outputs[0] for node in model.graph if node.op_type == "Neg")
    source.shape = None
    if rank != "unknown":
        source.type = None
    (reason,) = declines("static-unroll", model)
    assert "'s'" in reason and "infer" in reason


def test_nothing_collected_of_unknown_shape():
    model = parse("""g (float[K] x) => (float[A,B] y) <int64 n = {0}, bool go = {1}> {
      y = Loop (n, go) <body = b (int64 i, bool going) => (bool on, float[K] u) {
        on = Identity (going)
        u = Neg (x)
      }>
    }""")
    assert declines("static-unroll", model) == ["'y' collects nothing, and its shape is not known"]


def test_a_loop_that_nothing_needs():
    model = parse("""g (float[2] x) => (float[2] y) <int64 n = {2}> {
      y = Neg (x)
      z = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {
        on = Identity (go)
        u = Mul (v, x)
      }>
    }""")
    assert declines("static-unroll", model) == []


def test_no_trip_count_at_all():
    text = """g (float[2] x) => (float[2] y) <bool on = {1}, int64 five = {5}> {
      y = Loop (, on, x) <body = b (int64 i, bool go, float[2] v) => (bool more, float[2] u) {
        more = CONDITION
        u = Mul (v, x)
      }>
    }"""
    for condition in ("Identity (go)", "Less (i, five)"):
        (reason,) = declines("static-unroll", parse(text.replace("CONDITION", condition)))
        assert "it has no trip count" in reason


def test_rows_that_may_be_empty_before_opset_14():
    text = """<ir_version: 10, opset_import: ["": 13]> g (int64 n, float[B] x) => (float[R,B] y) {
      on = Constant <value = bool {1}> ()
      y = Loop (n, on) <body = b (int64 i, bool go) => (bool more, float[B] u) {
        more = Identity (go)
        u = Neg (x)
      }>
    }"""
    (reason,) = declines("static-unroll", parse(text))
    assert reason == "'u', which it collects, may be empty, for which it needs opset 14"
    feeds = {"n": np.array(19), "x": np.ones(3, np.float32)}
    assert checked("static-unroll", parse(text.replace("float[B]", "float[3]")), feeds).rewrites


@pytest.mark.parametrize(
    ("options", "word"),
    [("limit=-1", "limit"), ("limit=many", "limit"), ("factor=0", "factor"), ("factor=x", "factor"),
     ("factor=4:16", "factor"), ("factor=4:4", "factor"), ("factor=", "factor"),
     ("factor=4:", "factor"), ("factor=-4", "factor"), ("factor=2000", "factor")],
)  # fmt: skip
def test_bad_options(options, word):
    with pytest.raises(pipeline.BadPipeline, match=word):
        pipeline.parse(f"static-unroll{{{options}}}")


@pytest.mark.parametrize(
    ("text", "factors"), [("16", [16, 1]), ("16:4:1", [16, 4, 1]), ("16:4", [16, 4, 1]), ("1", [1])]
)
def test_options_round_trip(text, factors):
    (unroll,) = pipeline.parse(f"static-unroll{{factor={text}}}")
    assert unroll.factors == factors
    assert pipeline.parse(str(unroll)) == (unroll,)


# --- the result as a whole ---


def test_layers_that_are_alike_are_proved_once():
    model = parse("""g (float[2] x) => (float[2] z) <int64 n = {2}> {
      y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {
        on = Identity (go)
        u = Exp (v)
      }>
      z = Loop (n, , y) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] u) {
        on = Identity (go)
        u = Exp (v)
      }>
    }""")
    optimized, report = gdn_ir.optimize(model, passes="static-unroll")
    assert (len(report.proofs), report.repeated) == (1, 1)
    assert count_nodes(optimized) == 4
    first, second = report.passes[0].rewrites
    assert model_digest(first.after) == model_digest(second.after)


def test_the_result_folds():
    outcome = checked("static-unroll,fold-constants,cse,dce", loop(3))
    assert outcome.ops["Cast"] == 0


def test_equal_text_from_equal_models():
    assert to_text(checked("static-unroll", loop(7)).model) == to_text(
        checked("static-unroll", loop(7)).model
    )


def test_golden(golden):
    golden("static-unroll.txt").check(before_and_after("static-unroll", loop(2)))


@pytest.mark.parametrize("condition", [STEADY, STOPPING], ids=["steady", "stopping"])
def test_golden_of_unknown_length(golden, condition):
    name = "steady" if condition == STEADY else "stopping"
    text = before_and_after("static-unroll{factor=2}", open_loop(condition))
    golden(f"static-unroll-{name}.txt").check(text)
