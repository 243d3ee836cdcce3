"""What `load` refuses and why, what it keeps, and that `save` writes a whole model or nothing."""

from __future__ import annotations

import io
import os
import pickle
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from gdn_ir import model_file
from gdn_ir.file_checks.functions import EXPANSION_LIMIT
from gdn_ir.file_checks.graphs import NESTING_LIMIT
from gdn_ir.model_file import BadModel, check_place, load, save, writing

HEADER = '<ir_version: 10, opset_import: ["": 17]>'

# A Loop whose body captures a value of the graph and holds a constant of its own.
LOOP = """g (float[2] x, float[2] w, int64 n, bool on) => (float[2] y) {
  s = Mul (x, w)
  r = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] v_next) {
    go_on = Identity (go)
    two = Constant <value = float[2] {2, 2}> ()
    t = Mul (v, two)
    v_next = Add (t, s)
  }>
  y = Relu (r)
}"""


def parse(text: str) -> ModelProto:
    """A model from ONNX text, under the usual header unless the text brings its own."""
    return parser.parse_model(text if text.startswith("<") else HEADER + text)


def add_model() -> ModelProto:
    """y = x + w, with w = [1, 2, 3, 4] in raw bytes."""
    model = parse("g (float[4] x) => (float[4] y) { y = Add (x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2, 3, 4]), "w"))
    return model


def external(
    location: str = "w.data", offset: str = "0", length: str | None = "16", **more: str
) -> ModelProto:
    """`add_model` with its weight in another file, which is not written here."""
    model = add_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": length, **more}
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    return model


WEIGHT = np.float32([1, 2, 3, 4]).tobytes()


def write(folder: Path, content: ModelProto | bytes, name: str = "m.onnx") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


def refusal(path: str | Path) -> str:
    """Why `load` refuses a file, in one line that names the file."""
    with pytest.raises(BadModel) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"cannot read {path}: ")
    assert "\n" not in message
    return message


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- Files that are no models ---------------------------------------------------------------------


def test_missing_file_folder_and_pipe(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.onnx")
    assert "it is a folder" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    assert "not a regular file" in refusal(tmp_path / "pipe")


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", deny)  # file permissions do not stop root
    assert "Permission denied" in refusal(write(tmp_path, add_model()))


def test_over_two_gib(tmp_path: Path) -> None:
    path = write(tmp_path, b"\x08\x0a")
    os.truncate(path, 2**31)  # sparse: takes no space
    assert "over 2 GiB" in refusal(path)


def zip_archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", b"weights")
    return buffer.getvalue()


def nested(bodies: int) -> bytes:
    """An If in an If in ..., in wire format: protobuf does not build it as deep as 45."""

    def number(value: int) -> bytes:
        rest = value >> 7
        return bytes([value & 0x7F | 0x80]) + number(rest) if rest else bytes([value])

    def part(index: int, content: bytes) -> bytes:
        return number(index << 3 | 2) + number(len(content)) + content

    graph = b""
    for _ in range(bodies):
        body = part(1, b"then_branch") + part(6, graph) + number(20 << 3) + b"\x05"  # type: GRAPH
        graph = part(1, part(4, b"If") + part(5, body))
    return b"\x08\x0a" + part(7, graph) + part(8, b"\x10\x11")  # ir_version 10, opset 17


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "not an ONNX model (empty)", id="empty"),
        pytest.param(b"\x93\xfa\x07garbage\xff" * 9, "not an ONNX protobuf;", id="garbage"),
        pytest.param(b"\x93", "not an ONNX protobuf;", id="one byte"),
        pytest.param(b"# weights\nnone\n", "not an ONNX protobuf (text)", id="text"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull", id="lfs"),
        pytest.param(pickle.dumps({"w": [1, 2]}), "(a Python pickle", id="pickle"),
        pytest.param(zip_archive(), "(a zip archive", id="zip"),
        pytest.param(
            b"\x09" + b"\0" * 7 + b'{"w": {}}' + WEIGHT, "(a safetensors", id="safetensors"
        ),
        pytest.param(b"\x08\x0a", "not an ONNX protobuf with a graph", id="no graph"),
        pytest.param(add_model().SerializeToString()[:-9], "truncated or corrupt", id="truncated"),
        pytest.param(nested(NESTING_LIMIT + 1), "nested too deeply (limit 16", id="nested 17"),
        pytest.param(nested(45), "nested too deeply (limit 16", id="nested 45"),
    ],
)
def test_file_that_is_no_model(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refusal(write(tmp_path, content))


def test_nesting_up_to_the_limit(tmp_path: Path) -> None:
    assert len(list(load(write(tmp_path, nested(NESTING_LIMIT))).graphs())) == NESTING_LIMIT + 1


# --- Graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            "g (float[2] x) => (float[2] y) { a = Add (x, b)  b = Neg (a)  y = Neg (b) }",
            "cycle through 'a' -> 'b' -> 'a'",
            id="cycle",
        ),
        pytest.param(
            "g (bool c, float[2] x) => (float[2] y) { y = If (c) <"
            "then_branch = t () => (float[2] a) { a = Neg (y) },"
            "else_branch = e () => (float[2] b) { b = Neg (x) }> }",
            "cycle through 'y' -> 'y'",
            id="cycle through a body",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y) { y = Add (x, nope) }",
            "undefined value 'nope', read by the Add that makes 'y' in the graph",
            id="undefined input",
        ),
        pytest.param(
            LOOP.replace("Mul (v, two)", "Mul (v, nope)"),
            "undefined value 'nope', read by the Mul that makes 't'",
            id="undefined input in a body",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y, float[2] z) { y = Neg (x) }",
            "undefined output 'z'",
            id="undefined output",
        ),
        pytest.param(
            LOOP.replace("(bool go_on, float[2] v_next)", "(bool go_on, float[2] s)"),
            "undefined output 's': nothing in body of the Loop that makes 'r' makes it",
            id="body returns an outer value",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y) { y = Neg (x)  y = Abs (x) }",
            "value 'y' is defined twice, the second time by the Abs",
            id="output defined twice",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] x) { x = Neg (x) }",
            "value 'x' is defined twice",
            id="input defined again",
        ),
        pytest.param(
            LOOP.replace("t = Mul (v, two)", "s = Mul (v, two)").replace("Add (t,", "Add (s,"),
            "value 's' is defined twice: the Mul that makes 's' in body of the Loop",
            id="shadowing",
        ),
        pytest.param(
            "g (float[2] x, float[2] x) => (float[2] y) { y = Neg (x) }",
            "duplicate input 'x'",
            id="duplicate input",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["": 9999]> g (float x) => (float y) { y = Neg (x) }',
            "unsupported opset 9999 in the graph (supported: 11 to",
            id="opset 9999",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["": 10]> g (float x) => (float y) { y = Neg (x) }',
            "unsupported opset 10",
            id="opset 10",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["x.y": 1]> g (float x) => (float y) { y = Neg (x) }',
            "the graph imports no ONNX opset",
            id="no opset",
        ),
        pytest.param(
            '<ir_version: 99, opset_import: ["": 17]> g (float x) => (float y) { y = Neg (x) }',
            "unsupported ir_version 99 (supported: 3 to",
            id="ir_version 99",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["": 17, "f": 1]>'
            "g (float x) => (float y) { y = f.a (x) }"
            '<domain: "f", opset_import: ["f": 1]> a (p) => (q) { q = f.b (p) }'
            '<domain: "f", opset_import: ["f": 1]> b (p) => (q) { q = f.a (p) }',
            "recursive local function: 'a' -> 'b' -> 'a'",
            id="recursive function",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["": 17, "f": 1]>'
            "g (float x) => (float y) { y = f.a (x) }"
            '<domain: "f", opset_import: ["": 17]> a (p) => (q) { q = Add (p, x) }',
            "undefined value 'x', read by the Add that makes 'q' in function 'f::a'",
            id="function reads the graph",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["": 17, "f": 1]>'
            "g (float x) => (float y) { y = f.a (x) }"
            '<domain: "f", opset_import: ["": 17]> a (p) => (q) { q = Neg (p) }'
            '<domain: "f", opset_import: ["": 17]> a (p) => (q) { q = Abs (p) }',
            "duplicate function 'f::a'",
            id="duplicate function",
        ),
    ],
)
def test_bad_graph(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(write(tmp_path, parse(text)))


def no_opset(model: ModelProto) -> None:
    model.ClearField("opset_import")


def two_opsets(model: ModelProto) -> None:
    model.opset_import.add(domain="ai.onnx", version=18)


def duplicate_initializer(model: ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.float32([5, 6, 7, 8]), "w"))


def negative_input_dim(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -4


def negative_weight_dim(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [-2, -2]


def huge_dim(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**40]


def overflowing_dims(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**33, 2**31, 4]  # 4 modulo 2^64, in 16 bytes


def huge_empty_shape(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [0, 2**62]
    model.graph.initializer[0].ClearField("raw_data")


def million_dims(model: ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**62] * 1_000_000


def no_data(model: ModelProto) -> None:
    model.graph.initializer[0].ClearField("raw_data")


def wrong_field(model: ModelProto) -> None:
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].int32_data.extend([1, 2, 3, 4])


def unknown_type(model: ModelProto) -> None:
    model.graph.initializer[0].data_type = 99


def short_constant(model: ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("value", model.graph.initializer[0]))
    model.graph.node[0].attribute[0].t.raw_data = b"\0" * 12


def sparse_initializer(model: ModelProto) -> None:
    model.graph.sparse_initializer.add().values.name = "sparse_w"


def map_input(model: ModelProto) -> None:
    model.graph.input.add(name="m").type.map_type.key_type = TensorProto.INT64


def untyped_attribute(model: ModelProto) -> None:
    model.graph.node[0].attribute.add(name="axis", i=1)


def graph_by_reference(model: ModelProto) -> None:
    model.graph.node[0].attribute.add(
        name="body", ref_attr_name="b", type=onnx.AttributeProto.GRAPH
    )


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (no_opset, "the graph imports no ONNX opset"),
        (two_opsets, "imports 2 versions of opset domain ''"),
        (duplicate_initializer, "duplicate initializer 'w'"),
        (negative_input_dim, "negative dimension -4 in the shape of 'x'"),
        (negative_weight_dim, "tensor 'w': negative dimension -2"),
        (huge_dim, "tensor 'w': its shape needs 4,398,046,511,104 bytes, but has 16"),
        (overflowing_dims, "but has 16"),
        (huge_empty_shape, "shape [0, 4611686018427387904] is out of range"),
        (million_dims, "1,000,000 dimensions are too many"),
        (no_data, "tensor 'w': its shape needs 4 entries of float_data, but has 0"),
        (wrong_field, "tensor 'w': data in int32_data, expected in float_data"),
        (unknown_type, "tensor 'w': cannot hold data of type 99"),
        (short_constant, "tensor 'w': its shape needs 16 bytes, but has 12"),
        (sparse_initializer, "sparse tensor in 'g' is not supported"),
        (map_input, "onnx_ir cannot represent it: 'Map types are not supported"),
        (graph_by_reference, "attribute 'body' of the Add that makes 'y' refers to a graph"),
        (untyped_attribute, "attribute 'axis' of the Add that makes 'y' has no type"),
    ],
)
def test_bad_part(tmp_path: Path, spoil: Callable[[ModelProto], None], words: str) -> None:
    model = add_model()
    spoil(model)
    assert words in refusal(write(tmp_path, model))


@pytest.mark.parametrize("part", ["value", "node", "doc", "metadata"])
def test_text_that_is_not_utf8(tmp_path: Path, part: str) -> None:
    model = parse("g (float x) => (float y) { here = Neg (x)  y = Abs (here) }")
    if part != "value":
        model.graph.node[0].output[0] = model.graph.node[1].input[0] = "a"
    if part == "node":
        model.graph.node[0].name = "here"
    elif part == "doc":
        model.graph.doc_string = "here"
    elif part == "metadata":
        model.metadata_props.add(key="k", value="here")
    content = model.SerializeToString().replace(b"here", b"\xff\xfe\xfd\xfc")
    assert "is not UTF-8" in refusal(write(tmp_path, content))


def test_messages_stay_short_and_escaped(tmp_path: Path) -> None:
    model = add_model()
    model.graph.node[0].input[1] = "\n\x1b[31m" + "w" * 10_000
    message = refusal(write(tmp_path, model))
    assert "undefined value '\\n\\x1b[31mwww" in message
    assert len(message) < 400


def test_odd_names_are_kept(tmp_path: Path) -> None:
    name = "a\n\"'</svg><script>alert(1)</script>"
    model = add_model()
    model.graph.node[0].output[0] = model.graph.output[0].name = name
    assert load(write(tmp_path, model)).graph.outputs[0].name == name


def laughs(levels: int) -> ModelProto:
    """Every function calls the next one twice."""
    functions = "".join(
        f'<domain: "f", opset_import: ["f": 1]> f{i} (p) => (q)'
        f"{{ r = f.f{i + 1} (p)  q = f.f{i + 1} (r) }}"
        for i in range(levels - 1)
    )
    return parse(
        '<ir_version: 10, opset_import: ["": 17, "f": 1]>'
        "g (float x) => (float y) { y = f.f0 (x) }"
        f'{functions}<domain: "f", opset_import: ["": 17]> f{levels - 1} (p) => (q)'
        "{ r = Neg (p)  q = Neg (r) }"
    )


def test_billion_laughs(tmp_path: Path) -> None:
    path = write(tmp_path, laughs(30))
    start = time.monotonic()
    assert f"expand to more than {EXPANSION_LIMIT:,} nodes" in refusal(path)
    assert time.monotonic() - start < 1
    assert len(load(write(tmp_path, laughs(18))).functions) == 18  # 2^19 - 1 nodes


def test_cycle_of_many_nodes_is_fast_and_short(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", [f"v{(i + 1) % 5000}"], [f"v{i}"]) for i in range(5000)]
    model = add_model()
    model.graph.node.extend(nodes)
    start = time.monotonic()
    message = refusal(write(tmp_path, model))
    assert "cycle through 'v" in message
    assert len(message) < 400
    assert time.monotonic() - start < 2


# --- External data --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    ["../w.data", "a/../../w.data", "a/../w.data", "/dev/zero", "..\\w.data", "C:\\w.data", "C:w"],
)
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.data").write_bytes(WEIGHT)
    (tmp_path / "model" / "a").mkdir(parents=True)
    message = refusal(write(tmp_path / "model", external(location)))
    assert f"tensor 'w': external data {location!r} escapes the model's folder" in message


def test_external_data_outside_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnx_ir itself checks nothing when the model has a bare file name."""
    (tmp_path / "w.data").write_bytes(WEIGHT)
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", external("../w.data"))
    monkeypatch.chdir(tmp_path / "model")
    assert "escapes the model's folder" in refusal("m.onnx")


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "w.data").write_bytes(WEIGHT)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "soft").symlink_to("../w.data")
    (folder / "up").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    os.link(tmp_path / "w.data", folder / "hard")
    path = write(folder, external("soft"))
    assert f"escapes the model's folder through a symbolic link to {tmp_path}" in refusal(path)
    assert "through a symbolic link" in refusal(write(folder, external("up/w.data")))
    assert "external data missing: 'loop'" in refusal(write(folder, external("loop")))
    message = refusal(write(folder, external("hard")))
    assert "escapes the model's folder: it has 2 hard links" in message


def test_hugging_face_cache(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write(blobs, external(), "1f0d")
    (blobs / "2f0d").write_bytes(WEIGHT)
    (snapshot / "m.onnx").symlink_to("../../blobs/1f0d")
    (snapshot / "w.data").symlink_to("../../blobs/2f0d")
    assert "HF_HUB_DISABLE_SYMLINKS=1" in refusal(snapshot / "m.onnx")


def test_link_within_the_folder(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(WEIGHT)
    (tmp_path / "w.data").symlink_to("real")
    load(write(tmp_path, external()))


def test_all_missing_files_are_listed(tmp_path: Path) -> None:
    model = external("b.data")
    for location in ("a.data", "c.data"):
        tensor = external(location).graph.initializer[0]
        tensor.name = location
        model.graph.initializer.append(tensor)
    (tmp_path / "a.data").write_bytes(WEIGHT)
    message = refusal(write(tmp_path, model))
    assert (
        f"external data missing: 'b.data', 'c.data'; put it beside the model in {tmp_path}"
        in message
    )


@pytest.mark.parametrize(
    ("extent", "words"),
    [
        ({"length": str(2**50)}, "needs 16 bytes, but declares 1,125,899,906,842,624 in 'w.data'"),
        ({"length": "8"}, "needs 16 bytes, but declares 8"),
        ({"length": "9" * 5000}, "length '9999"),
        ({"length": "1_6"}, "length '1_6' of its external data is no size"),
        ({"offset": "-1"}, "offset '-1' of its external data is no size"),
        ({"offset": "8"}, "needs 16 bytes, but 'w.data' has 12 from 8 on"),
        ({"offset": "8", "length": None}, "needs 16 bytes, but 'w.data' has 12 from 8 on"),
        ({"offset": str(2**62)}, "'w.data' has 0 from 4,611,686,018,427,387,904 on"),
        ({"location": ""}, "external data needs one location"),
        ({"location": "folder"}, "external data 'folder' is not a regular file"),
    ],
)
def test_extent_of_external_data(tmp_path: Path, extent: dict[str, str], words: str) -> None:
    (tmp_path / "w.data").write_bytes(WEIGHT + b"1234")
    (tmp_path / "folder").mkdir()
    assert words in refusal(write(tmp_path, external(**extent)))


def test_data_in_two_places(tmp_path: Path) -> None:
    (tmp_path / "w.data").write_bytes(WEIGHT)
    model = external()
    model.graph.initializer[0].raw_data = WEIGHT
    assert "data both in the model and in 'w.data'" in refusal(write(tmp_path, model))


def test_external_weight_is_read_when_used(tmp_path: Path) -> None:
    (tmp_path / "w.data").write_bytes(b"1234" + WEIGHT)
    # ONNX Runtime adds keys of its own; onnx warns of them.
    model = load(write(tmp_path, external(offset="4", prepacked_0="x|0|16")))
    weight = model.graph.initializers["w"].const_value
    assert isinstance(weight, ir.ExternalTensor)
    assert weight.raw is None
    np.testing.assert_array_equal(weight.numpy(), [1, 2, 3, 4])


def test_external_constant_of_a_function_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnx_ir would look for it in the current folder, wherever the model is."""
    model = parse(
        '<ir_version: 10, opset_import: ["": 17, "f": 1]>'
        "g (float[4] x) => (float[4] y) { y = f.a (x) }"
        '<domain: "f", opset_import: ["": 17]> a (p) => (q)'
        "{ w = Constant <value = float[1] {0}> ()  q = Add (p, w) }"
    )
    model.functions[0].node[0].attribute[0].t.CopyFrom(external().graph.initializer[0])
    (tmp_path / "w.data").write_bytes(WEIGHT)
    monkeypatch.chdir("/")
    function = next(iter(load(write(tmp_path, model)).functions.values()))
    np.testing.assert_array_equal(function[0].attributes["value"].as_tensor().numpy(), [1, 2, 3, 4])


# --- What is kept ---------------------------------------------------------------------------------


def test_round_trip_is_byte_equal(tmp_path: Path) -> None:
    model = parse(LOOP)
    for node in (*model.graph.node, *model.graph.node[1].attribute[0].g.node):
        node.ClearField("domain")  # the parser writes an empty one, exporters do not
    source = write(tmp_path, model)
    save(load(source), tmp_path / "out.onnx", inputs=[source])
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()
    assert set(files(tmp_path)) == {"m.onnx", "out.onnx"}


def test_unsorted_nodes_are_sorted(tmp_path: Path) -> None:
    model = parse(LOOP)
    nodes = list(model.graph.node)
    inner = model.graph.node[1].attribute[0].g
    for graph, order in ((inner, (3, 2, 0, 1)), (model.graph, (2, 1, 0))):
        nodes = [graph.node[i] for i in order]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        graph.ClearField("node")
        graph.node.extend(copies)
    loaded = load(write(tmp_path, model))
    assert [node.op_type for node in loaded.graph] == ["Mul", "Loop", "Relu"]
    save(loaded, tmp_path / "out.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))


def test_unknown_ops_and_inputs_that_shadow_are_kept(tmp_path: Path) -> None:
    text = LOOP.replace("float[2] v)", "float[2] x)").replace("Mul (v, two)", "my.Op (x, two)")
    loaded = load(write(tmp_path, parse(text)))
    assert any(node.domain == "my" for node in loaded.graph.all_nodes())


def test_long_spelling_of_the_default_domain(tmp_path: Path) -> None:
    model = add_model()
    model.opset_import[0].domain = "ai.onnx"
    assert load(write(tmp_path, model)).opset_imports == {"": 17}


ALL_TYPES = [t for t in TensorProto.DataType.values() if t != TensorProto.UNDEFINED]


@pytest.mark.parametrize("data_type", ALL_TYPES, ids=TensorProto.DataType.Name)
def test_every_type_of_data(tmp_path: Path, data_type: int) -> None:
    """Five elements, so that packed types end within a byte; in typed fields and in raw_data."""
    values = ["a", "b", "", "d", "e"] if data_type == TensorProto.STRING else [1, 0, 1, 1, 0]
    tensors = [helper.make_tensor("typed", data_type, [5], values)]
    if data_type != TensorProto.STRING:
        array = numpy_helper.to_array(tensors[0])
        tensors.append(numpy_helper.from_array(array, "raw"))
    model = add_model()
    model.graph.initializer.extend(tensors)
    loaded = load(write(tmp_path, model)).graph.initializers
    for tensor in tensors:
        assert loaded[tensor.name].const_value.numpy().shape == (5,)
    for tensor in tensors:
        tensor.dims[:] = [9]
        model = add_model()
        model.graph.initializer.append(tensor)
        assert f"tensor '{tensor.name}': its shape needs" in refusal(write(tmp_path, model))


# --- Saving ---------------------------------------------------------------------------------------


def no_save(model: ir.Model, path: str | Path, **options: list[Path]) -> str:
    """Why `save` refuses, in one line that names the file."""
    with pytest.raises(BadModel) as caught:
        save(model, path, **options)
    message = str(caught.value)
    assert message.startswith(f"cannot write {path}: ")
    assert "\n" not in message
    return message


def no_place(model: ir.Model, path: str | Path, **options: list[Path]) -> str:
    """The same, where `check_place` foresees it."""
    with pytest.raises(BadModel) as caught:
        check_place(model, path, **options)
    message = no_save(model, path, **options)
    assert str(caught.value) == message
    return message


def lazy_model(folder: Path, name: str = "m.onnx") -> ir.Model:
    """A model whose only weight is still in `w.data`."""
    (folder / "w.data").write_bytes(WEIGHT)
    return load(write(folder, external(), name))


def test_external_data_round_trip(tmp_path: Path) -> None:
    model = lazy_model(tmp_path)
    model.graph.initializers["w"].const_value.metadata_props["origin"] = "here"
    (tmp_path / "out").mkdir()
    save(model, tmp_path / "out" / "n.onnx")
    assert set(files(tmp_path / "out")) == {"n.onnx", "n.onnx.data"}
    assert (tmp_path / "out" / "n.onnx.data").read_bytes() == WEIGHT
    assert model.graph.initializers["w"].const_value.location == "w.data"  # unchanged
    (tmp_path / "w.data").unlink()
    weight = load(tmp_path / "out" / "n.onnx").graph.initializers["w"].const_value
    np.testing.assert_array_equal(weight.numpy(), [1, 2, 3, 4])
    assert weight.metadata_props == {"origin": "here"}


def test_large_weights_leave_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also out of a body; strings, which ONNX keeps in the model, and small tensors stay."""
    model = parse(LOOP)
    body = model.graph.node[1].attribute[0].g
    large = np.arange(1000, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(large, "in_graph"))
    body.initializer.append(numpy_helper.from_array(large + 1, "in_body"))
    model.graph.initializer.append(numpy_helper.from_array(large[:4], "small"))
    model.graph.initializer.append(
        helper.make_tensor("text", TensorProto.STRING, [99], ["a" * 99] * 99)
    )
    loaded = load(write(tmp_path, model))
    monkeypatch.setattr(writing, "INLINE_LIMIT", 5000)
    save(loaded, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size == 8000
    again = load(tmp_path / "out.onnx")
    for graph, name, value in zip(
        again.graphs(), ["in_graph", "in_body"], [large, large + 1], strict=True
    ):
        tensor = graph.initializers[name].const_value
        assert isinstance(tensor, ir.ExternalTensor)
        np.testing.assert_array_equal(tensor.numpy(), value)
    assert not isinstance(again.graph.initializers["small"].const_value, ir.ExternalTensor)
    assert not isinstance(loaded.graph.initializers["in_graph"].const_value, ir.ExternalTensor)


def test_older_pair_is_replaced(tmp_path: Path) -> None:
    model = lazy_model(tmp_path)
    for _ in range(2):
        save(model, tmp_path / "out.onnx")
    assert set(files(tmp_path)) == {"m.onnx", "w.data", "out.onnx", "out.onnx.data"}


def test_bare_name_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lazy_model(tmp_path)
    save(load("m.onnx"), "out.onnx", inputs=["m.onnx"])
    np.testing.assert_array_equal(
        load("out.onnx").graph.initializers["w"].const_value.numpy(), [1, 2, 3, 4]
    )


def test_refuses_to_write_over_what_is_read(tmp_path: Path) -> None:
    model = lazy_model(tmp_path)
    source = tmp_path / "m.onnx"
    (tmp_path / "link.onnx").symlink_to(source)
    os.link(source, tmp_path / "hard.onnx")
    before = files(tmp_path)
    for name in ("m.onnx", "link.onnx", "hard.onnx"):
        assert "is an input; choose another name" in no_place(
            model, tmp_path / name, inputs=[source]
        )
    assert "still reads weights from" in no_place(model, tmp_path / "w.data")
    assert files(tmp_path) == before


def test_refuses_to_write_over_the_data_it_reads(tmp_path: Path) -> None:
    (tmp_path / "m.onnx.data").write_bytes(WEIGHT)
    model = load(write(tmp_path, external("m.onnx.data"), "old.onnx"))
    assert "still reads weights from" in no_place(model, tmp_path / "m.onnx")


def test_refuses_data_of_an_unknown_owner(tmp_path: Path) -> None:
    model = lazy_model(tmp_path)
    (tmp_path / "out.onnx.data").write_bytes(b"someone's")
    before = files(tmp_path)
    assert "exists without its model" in no_save(model, tmp_path / "out.onnx")
    assert files(tmp_path) == before


def test_refuses_external_data_that_it_cannot_move(tmp_path: Path) -> None:
    model = lazy_model(tmp_path)
    weight = model.graph.initializers["w"].const_value
    model.graph[0].attributes["bias"] = ir.AttrTensor("bias", weight)
    assert "tensor 'w' of an attribute" in no_save(model, tmp_path / "out.onnx")


def test_a_good_place_is_left_as_it_is(tmp_path: Path) -> None:
    model = load(write(tmp_path, add_model()))
    before = files(tmp_path)
    check_place(model, tmp_path / "out.onnx", inputs=[tmp_path / "m.onnx"])
    assert files(tmp_path) == before
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    model = load(write(tmp_path, add_model()))
    (tmp_path / "folder").mkdir()
    before = files(tmp_path)
    assert "there is no folder" in no_place(model, tmp_path / "none" / "out.onnx")
    assert "there is no folder" in no_place(model, tmp_path / "m.onnx" / "out.onnx")
    assert "is a folder; name a file" in no_place(model, tmp_path / "folder")
    assert "File name too long" in no_place(model, tmp_path / ("n" * 300))
    assert files(tmp_path) == before


def test_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    model = load(write(tmp_path, add_model()))
    monkeypatch.setattr("tempfile.mkdtemp", deny)  # permissions do not stop root
    assert "Permission denied" in no_place(model, tmp_path / "out.onnx")


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write_bytes", "replace"])
@pytest.mark.parametrize("is_pair", [False, True])
@pytest.mark.parametrize("is_older_there", [False, True])
def test_failure_leaves_nothing_new(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    step: str,
    is_pair: bool,
    is_older_there: bool,
) -> None:
    model = lazy_model(tmp_path) if is_pair else load(write(tmp_path, add_model()))
    if is_older_there:
        write(tmp_path, b"an older model", "out.onnx")
        write(tmp_path, b"its data", "out.onnx.data")
    before = files(tmp_path)
    original = getattr(Path, step)

    def fail_on_the_model(path: Path, *args: object) -> object:
        if path.name == "out.onnx" and path.parent != tmp_path:  # the new one
            raise failure
        return original(path, *args)

    monkeypatch.setattr(Path, step, fail_on_the_model)
    if isinstance(failure, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            save(model, tmp_path / "out.onnx")
    else:
        assert "No space left" in no_save(model, tmp_path / "out.onnx")
    assert files(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []
    if is_pair:  # the weight is where it was
        assert model.graph.initializers["w"].const_value.location == "w.data"


@pytest.mark.parametrize("name", ["m.onnx", "m.onnx.data"])
def test_a_device_or_pipe_is_never_replaced(tmp_path, name):
    os.mkfifo(tmp_path / name)
    model = ir.from_onnx_text("<ir_version: 10> g (float[2] x) => (float[2] y) { y = Neg (x) }")
    with pytest.raises(model_file.BadModel, match="is no regular file; choose another name"):
        model_file.save(model, tmp_path / "m.onnx")
    assert (tmp_path / name).is_fifo()
