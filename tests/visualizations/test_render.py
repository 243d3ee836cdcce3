"""Pictures as files: figures, hostile names, engines, bodies, size."""

import random
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import onnx_ir as ir
import pytest
from fixture_files import load_fixture
from small_graphs import build, inverse_model, parse

import gdn_ir
from gdn_ir.place import BadPlace
from gdn_ir.visualizations import engines, kinds
from gdn_ir.visualizations.build_scene import build_scene
from gdn_ir.visualizations.counts import count
from gdn_ir.visualizations.render import picture_text
from gdn_ir.visualizations.scene import Box, Cluster, count_boxes

ENGINES = {engine.name: engine for engine in engines.engines()}
HOSTILE = [
    '"; node [shape=box]; x -> y; "',
    "back\\slash \\N \\G \\",
    "</svg><script>alert(1)</script>",
    "<B>bold</B> &amp; <TABLE>",
    "two\nlines\tand \x01 \x7f control",
    "--> ]]> <!-- <![CDATA[",
    "{a|<f0> b}",
    "名前 ünï \u202e rtl",
    "x" * 5000,
]


def dot_text(model, **options):
    return picture_text({"m": model}, {"m": count(model)}, **options)


def boxes(item):
    if isinstance(item, Box):
        return [item]
    return [box for child in item.children for box in boxes(child)]


def clusters(item):
    if isinstance(item, Box):
        return []
    return [item, *(inner for child in item.children for inner in clusters(child))]


def drawn_ops(item, times=1):
    """Pairs of an op's row and how often it stands in the graph."""
    if isinstance(item, Box):
        return [(row, times) for row in item.rows if row.detail not in ("input", "output")]
    inside = times * (item.count or 1)
    return [pair for child in item.children for pair in drawn_ops(child, inside)]


def small_baseline():
    """Rows 1 and 2 of a 3 by 3 inverse: four Slices and a ScatterElements each."""
    return inverse_model((1, 3, 3), eye=False)


def hostile_model():
    def write(w, x):
        for name in HOSTILE:
            x = w.op("Mul", x, w.op("Neg", x), name=name)
        return x

    model = build(write, {"x": (2, 3)})
    model.graph.inputs[0].name = HOSTILE[2]
    model.graph.inputs[0].shape = ir.Shape(["<&>", '"\\'])
    node = model.graph.node(3)
    node.domain, node.op_type, node.name = HOSTILE[0], HOSTILE[2], HOSTILE[3]
    node.metadata_props["pkg.torch.onnx.name_scopes"] = "[" * 10**5
    model.graph.outputs[0].name = HOSTILE[0]
    return model


def test_counts_of_a_small_baseline_by_hand():
    counts = count(small_baseline())
    # Trilu and Identity; 2 rows of 4 Slices, MatMul, Add, ScatterElements.
    assert (counts.nodes, counts.copies_in, counts.copies_out) == (16, 8, 2)
    # Trilu, and of each row two Slices, MatMul, Add, ScatterElements.
    assert counts.serial_steps == 11


@pytest.mark.parametrize("name", ["hf_fill_zero", "scan_tokens", "ts_loop_tokens"])
def test_colours_count_as_the_table_does(name):
    for model in (load_fixture(name), gdn_ir.optimize(load_fixture(name), verify="structure")[0]):
        rows = drawn_ops(build_scene(model, "m", "a").cluster)
        counts = count(model)
        for kind, expected in (
            (kinds.COPY_IN, counts.copies_in),
            (kinds.COPY_OUT, counts.copies_out),
        ):
            assert sum(times for row, times in rows if row.kind == kind) == expected


def test_inputs_are_green_outputs_red_and_views_neither():
    found = boxes(build_scene(load_fixture("hf_fill_inf"), "m", "a").cluster)
    rows = [row for box in found for row in box.rows]
    assert {row.kind for row in rows if row.detail == "input"} == {kinds.COPY_IN}
    assert {row.kind for row in rows if row.detail == "output"} == {kinds.COPY_OUT}
    assert {row.kind for row in rows if row.text in ("Reshape", "Unsqueeze")} == {kinds.VIEW}


def test_rows_are_a_badge_of_63_and_sizes_a_range():
    text = dot_text(load_fixture("hf_fill_inf"))
    assert ">x63</FONT>" in text
    assert "1x2x2x1..63" in text


def test_constants_are_badges():
    def write(w, x):
        x = w.op("Transpose", x, perm=[0, 2, 1])
        x = w.op("Add", x, np.zeros((64, 64), np.float32))
        return w.op("Slice", w.op("Mul", x, np.float32(0.5)), [0], [16], [2])

    text = dot_text(build(write, {"x": (1, 64, 64)}))
    for badge in ("[0,2,1]", "const 64x64", "0.5", ":16 axis 2"):
        assert f">{badge}</FONT>" in text
    assert len(re.findall(r"^a\d+ \[label", text, re.MULTILINE)) == 3  # x, a chain of ops, y


def test_bodies_are_clusters():
    titles = [c.title for c in clusters(build_scene(load_fixture("scan_tokens"), "m", "a").cluster)]
    assert titles == ["m", "body of a Scan"]
    model = build(lambda w, x: w.op("Exp", x), {"x": (2,)}, scope="if")
    assert {"then_branch", "else_branch"} <= {
        c.title for c in clusters(build_scene(model, "m", "a").cluster)
    }
    loop = build(lambda w, x: w.op("Exp", x), {"x": (2,)}, scope="loop")
    scene = build_scene(loop, "m", "a")
    assert [edge for edge in scene.edges if edge.carried]
    exp = next(b for b in boxes(scene.cluster) if b.rows[0].text == "Exp")
    assert any(edge.head == exp.name for edge in scene.edges), "a capture is an edge"


@pytest.mark.parametrize("name", ["ts_fill_zero", "qwen3_5_tiny"])
def test_no_picture_has_more_boxes_than_allowed(name):
    model = load_fixture(name)
    for most in (300, 20):
        assert count_boxes(build_scene(model, "m", "a", most).cluster) <= most


def test_many_inputs_share_a_box():
    model = build(lambda w, *xs: w.op("Sum", *xs), {f"x{i}": (2,) for i in range(40)})
    first, *_ = boxes(build_scene(model, "m", "a").cluster)
    assert first.rows[0].text == "40 inputs"


def test_what_is_too_much_is_grouped_by_the_scopes_of_the_source():
    choose = random.Random(0)

    def write(w, x):
        for layer in range(20):
            for step in range(40):
                op = choose.choice(["Exp", "Neg", "Abs", "Sin"])
                x = w.op("Mul", w.op(op, x), x, name=f"/layers.{layer}/mlp/step_{step}")
        return x

    model = build(write, {"x": (2,)})
    for node in model.graph:
        reader = next(iter(node.outputs[0].uses()), None)
        if node.op_type != "Mul" and reader is not None:
            node.name = reader.node.outputs[0].name
    titles = [box.title for box in boxes(build_scene(model, "m", "a").cluster) if box.title]
    assert titles == [f"layers.{layer}/mlp" for layer in range(20)]


def test_a_chain_without_end_is_parts():
    choose = random.Random(0)

    def write(w, x):
        # Each step reads x too, and the order of ops never repeats.
        for _ in range(1200):
            x = w.op("Mul", w.op(choose.choice(["Exp", "Neg", "Abs", "Sin"]), x), x)
        return x

    scene = build_scene(build(write, {"x": (2,)}), "m", "a")
    assert 20 < count_boxes(scene.cluster) <= 300
    hidden = sum(
        int(row.text.split()[0]) for box in boxes(scene.cluster) if box.title for row in box.rows
    )
    assert hidden > 1200


@pytest.mark.parametrize("suffix", [".dot", ".svg", ".html"])
def test_the_same_bytes_twice(tmp_path, suffix):
    model = load_fixture("scan_tokens")
    for name in ("a", "b"):
        gdn_ir.render(model, output=tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_the_same_text_in_another_process():
    script = (
        "import hashlib; from fixture_files import load_fixture;"
        "from test_render import dot_text;"
        "print(hashlib.sha256(dot_text(load_fixture('ts_loop_tokens')).encode()).hexdigest())"
    )
    path = [folder for folder in sys.path if folder]
    found = {
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {script}"],
            env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_hostile_names_are_text(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(engines, "engines", lambda: [ENGINES[engine]])
    model = hostile_model()
    picture = gdn_ir.render(model, model, output=tmp_path / "x.svg")
    assert picture.engine == engine
    svg = (tmp_path / "x.svg").read_text()
    root = ElementTree.fromstring(svg)  # noqa: S314
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "g", "a", "title", "text", "polygon", "polyline", "path", "ellipse",
    }  # fmt: skip
    words = "".join(root.itertext())
    assert "</svg><script>alert" in words.replace("\N{NO-BREAK SPACE}", " ")
    gdn_ir.render(model, output=tmp_path / "x.html")
    html = (tmp_path / "x.html").read_text()
    assert html.count("<script>") == html.count("</script>") == html.count("</svg>") == 1
    assert "http" not in re.sub(
        r'xmlns(:xlink)?="[^"]*"|http-equiv|"http://www.w3.org[^"]*"', "", html
    )


def test_hostile_file_names_are_text(tmp_path):
    name = '"><script>&\\.onnx'
    gdn_ir.save(small_baseline(), tmp_path / name)
    gdn_ir.render(tmp_path / name, output=tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text().count("<script>") == 1


def test_png(tmp_path):
    gdn_ir.render(small_baseline(), output=tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_places_that_cannot_be_written(tmp_path):
    gdn_ir.save(small_baseline(), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"m.onnx is no picture; name a file .svg"):
        gdn_ir.render(small_baseline(), output="m.onnx")
    (tmp_path / "m.svg").symlink_to("m.onnx")
    with pytest.raises(BadPlace, match="is an input"):
        gdn_ir.render(tmp_path / "m.onnx", output=tmp_path / "m.svg")


def test_models_stay_as_they_are(tmp_path):
    model = load_fixture("hf_fill_inf")
    before = ir.to_proto(model).SerializeToString()
    gdn_ir.render(model, output=tmp_path / "x.dot")
    assert ir.to_proto(model).SerializeToString() == before


def test_graphs_with_nothing_to_draw():
    model = parse('<ir_version: 10, opset_import: ["": 20]> g (float[2] x) => (float[2] x) { }')
    scene = build_scene(model, "m", "a")
    assert isinstance(scene.cluster, Cluster)
    assert len(scene.edges) == 1
