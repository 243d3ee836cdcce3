"""The command line as a user meets it: what it prints, what it writes, what it exits with."""

import json
import re
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import typer
from fixture_files import fixture_bytes
from onnx_text import model_of, ops_of, value_of

import gdn_ir
from gdn_ir import runtime
from gdn_ir.cli import app, demo, optimize, printing
from gdn_ir.models.baseline import build_loop, build_scan, build_unrolled
from gdn_ir.models.layer_model import build_layer
from gdn_ir.models.rule_form import RuleForm
from gdn_ir.region import Region

SIZE = {"seq": 24, "chunk": 8, "heads": 2, "head_dim": 8}
ADD = "g (float[2] x, float[2] w) => (float[2] y) { y = Add (x, w) }"
NEG = "g (float[2] x) => (float[2] y) { y = Neg (x) }"

LOOP = """g (int64 n, bool on, float[2] x) => (float[2] y) {
  y = Loop (n, on, x) <body = b (int64 i, bool go, float[2] v) => (bool go_on, float[2] u) {
    go_on = Identity (go)
    u = Neg (v)
  }>
}"""


@pytest.fixture(scope="module")
def baseline():
    return build_unrolled(**SIZE)


@pytest.fixture(scope="module")
def bare_inverse(baseline):
    """The inverse of a bare input: nothing above it says that it is strictly lower."""
    region = Region.between([value_of(baseline, "A")], [value_of(baseline, "inverse")])
    return region.to_model(baseline)


@pytest.fixture(scope="module")
def long_chunk():
    """A chunk in which the doubling series loses all digits in float32."""
    return build_unrolled(seq=64, chunk=64, heads=1, head_dim=8)


# --- The command itself ---------------------------------------------------------------------------


def test_without_a_command_it_prints_help(cli):
    for line in ("", "--help", "-h"):
        result = cli(line)
        assert result.code == 0
        for command in ("demo", "build", "inspect", "optimize", "run", "passes"):
            assert command in result.out


@pytest.mark.parametrize("command", ["demo", "build", "inspect", "optimize", "run", "passes"])
def test_every_command_has_help(cli, command):
    result = cli(f"{command} --help")
    assert result.code == 0
    assert "--json" in result.out


def test_every_option_says_what_it_means_in_one_line():
    for name, command in typer.main.get_command(app).commands.items():
        for parameter in command.params:
            text = parameter.help
            assert text, f"{name}: {parameter.name}"
            assert text[0].isupper(), f"{name}: {parameter.name}"
            assert text.endswith("."), f"{name}: {parameter.name}"
            assert "\n" not in text
            assert len(text) <= 150


def test_version(cli):
    assert cli("--version").out == f"gdn-ir {gdn_ir.__version__}\n"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("optimise m.onnx", "optimise"),
        ("optimize", "MODEL"),
        ("optimize m.onnx", "--output"),
        ("optimize m.onnx -o", "-o"),
        ("optimize m.onnx -o o.onnx --verify most", "most"),
        ("optimize m.onnx -o o.onnx --quick", "--quick"),
        ("inspect", "MODEL"),
        ("inspect a.onnx b.onnx", "b.onnx"),
        ("run", "MODEL"),
        ("run m.onnx --seed one", "--seed"),
        ("run m.onnx --seed -1", "--seed"),
        ("build -o b.onnx --chunk 2000", "--chunk"),
        ("build", "--output"),
        ("build -o b.onnx --mask zero", "zero"),
        ("build -o b.onnx --seq many", "--seq"),
    ],
)
def test_bad_usage(cli, write, tmp_path, line, word):
    write("m.onnx", NEG)
    cli(line).fails(2, word)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyError("lost"), 4, ["internal error (KeyError: 'lost')", "--debug before the command"]),
        (MemoryError(), 3, ["out of memory"]),
        (ValueError("two\nlines"), 2, ["error: two lines\n"]),
        (gdn_ir.VerificationFailed("pass 'p'"), 1, ["error: pass 'p'\n"]),
        (
            PermissionError(13, "Permission denied", "m.onnx"),
            2,
            ["m.onnx: Permission denied"],
        ),
    ],
)
def test_errors_have_codes_and_one_line(cli, monkeypatch, error, code, words):
    def load(path):
        raise error

    monkeypatch.setattr(gdn_ir.model_file, "load", load)
    cli("inspect m.onnx").fails(code, *words)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("inspect none.onnx --json", 2, "cannot read none.onnx: No such file"),
        ("inspect --json", 2, "Missing argument 'MODEL'"),
        ("optimise --json", 2, "No such command 'optimise'"),
        ("run m.onnx --json --inputs none.npz", 2, "cannot read none.npz"),
    ],
)
def test_errors_as_json(cli, write, line, code, words):
    write("m.onnx", NEG)
    result = cli(line)
    found = json.loads(result.out)
    assert (result.code, result.err, found.pop("exit_code")) == (code, "", code)
    assert words in found.pop("error")
    assert found == {}


def test_a_wrong_choice_is_told_once(cli, write):
    write("m.onnx", NEG)
    result = cli("optimize m.onnx -o o.onnx --verify foo")
    result.fails(2, "Invalid value for '--verify': 'foo' is not one of 'full', 'proof', ")
    assert result.err.count("'structure'") == 1


def test_debug_prints_the_traceback_of_a_bug(cli, monkeypatch):
    def load(path):
        raise KeyError("lost")

    monkeypatch.setattr(gdn_ir.model_file, "load", load)
    result = cli("--debug inspect m.onnx")
    assert result.code == 4
    assert "Traceback (most recent call last)" in result.err
    assert result.err.splitlines()[-1].startswith("error: internal error (KeyError")


def test_an_interrupt_ends_it_quietly(cli, monkeypatch):
    def load(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(gdn_ir.model_file, "load", load)
    result = cli("inspect m.onnx")
    assert (result.code, result.out, result.err.strip()) == (130, "", "")


def test_as_a_process(tmp_path):
    command = [sys.executable, "-m", "gdn_ir", "inspect", "none.onnx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == ""
    assert (
        done.stderr == "error: cannot read none.onnx: No such file or directory; check the path\n"
    )


# --- build ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("", {}),
        ("--form unrolled", {}),
        ("--mask fill-inf", {"mask": "fill-inf"}),
        ("--mask fill-zero", {"mask": "fill-zero"}),
        ("--batch 2", {"batch": 2}),
        ("--seq 11", {"seq": 11}),
        ("--heads 4", {"heads": 4}),
        ("--key-heads 1", {"key_heads": 1}),
        ("--head-dim 4", {"head_dim": 4}),
        ("--value-dim 4", {"value_dim": 4}),
        ("--chunk 6", {"chunk": 6}),
        ("--state", {"state": True}),
        ("--l2norm", {"l2norm": True}),
        ("--dtype float16", {"dtype": "float16"}),
        ("--inverse rows", {}),
        ("--inverse blocks --chunk 32", {"inverse": "blocks", "chunk": 32}),
    ],
)
def test_build(cli, tmp_path, options, arguments):
    result = cli(f"build -o b.onnx --seq 24 --chunk 8 --heads 2 --head-dim 8 {options}")
    expected = build_unrolled(**SIZE | arguments)
    assert result.code == 0, result.err
    assert result.out == f"wrote b.onnx: {len(expected.graph)} nodes\n"
    assert onnx.load(tmp_path / "b.onnx") == ir.to_proto(expected)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("", {}),
        ("--seq 11", {"seq": 11}),
        ("--mask fill-zero --chunk 6", {"mask": "fill-zero", "chunk": 6}),
        ("--inverse rows", {}),
        ("--inverse blocks --chunk 32", {"inverse": "blocks", "chunk": 32}),
        ("--state --l2norm --key-heads 1", {"state": True, "l2norm": True, "key_heads": 1}),
    ],
)
def test_build_loops(cli, tmp_path, options, arguments):
    result = cli(f"build -o b.onnx --form loop --chunk 8 --heads 2 --head-dim 8 {options}")
    assert result.code == 0, result.err
    expected = build_loop(**{"chunk": 8, "heads": 2, "head_dim": 8} | arguments)
    assert onnx.load(tmp_path / "b.onnx") == ir.to_proto(expected)
    assert cli("inspect b.onnx").code == 0


@pytest.mark.parametrize(
    ("options", "arguments"),
    [("", {}), ("--seq 11 --state", {"seq": 11, "state": True}), ("--l2norm", {"l2norm": True})],
)
def test_build_a_scan(cli, tmp_path, options, arguments):
    result = cli(f"build -o b.onnx --form scan --heads 2 --head-dim 8 {options}")
    assert result.code == 0, result.err
    expected = build_scan(**{"heads": 2, "head_dim": 8} | arguments)
    assert onnx.load(tmp_path / "b.onnx") == ir.to_proto(expected)


@pytest.mark.parametrize(
    ("options", "form", "arguments"),
    [
        ("--layer --seq 11", RuleForm("unrolled", chunk=8), {"seq": 11}),
        ("--layer --l2norm --form loop", RuleForm("loop", chunk=8), {}),
        ("--layers 2 --form loop --state", RuleForm("loop", chunk=8), {"layers": 2, "state": True}),
        ("--layer --layers 1 --form loop", RuleForm("loop", chunk=8), {"layers": 1}),
        ("--layer --form loop --hidden-size 6", RuleForm("loop", chunk=8), {"hidden_size": 6}),
        (
            "--layer --form loop --dtype float16 --mask fill-zero",
            RuleForm("loop", mask="fill-zero", chunk=8),
            {"dtype": "float16"},
        ),
    ],
)
def test_build_layers(cli, tmp_path, options, form, arguments):
    result = cli(f"build -o b.onnx --heads 2 --head-dim 8 --chunk 8 {options}")
    assert result.code == 0, result.err
    expected = build_layer(form, heads=2, head_dim=8, **arguments)
    assert onnx.load(tmp_path / "b.onnx") == ir.to_proto(expected)


def test_build_as_json(cli):
    found = cli("build --output b.onnx --seq 8 --chunk 8 --heads 1 --head-dim 4 --json").json
    assert found["output"] == "b.onnx"
    assert found["nodes"] == len(ir.load("b.onnx").graph)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-o b.onnx --seq 0", ["seq is 0; it must be an integer >= 1"]),
        ("-o b.onnx --heads 3 --key-heads 2", ["multiple of", "2"]),
        ("-o b.onnx --chunk 1", ["chunk is 1"]),
        ("-o b.onnx --form scan --chunk 64", ["chunk is 64", "form scan", "leave chunk out"]),
        ("-o b.onnx --inverse blocks --chunk 48", ["chunk is 48", "16 times a power of two"]),
        ("-o b.onnx --form scan --inverse rows", ["inverse is 'rows'", "leave inverse out"]),
        ("-o b.onnx --form scan --mask fill-inf", ["mask is 'fill-inf'", "leave mask out"]),
        ("-o b.onnx --layers 0", ["layers is 0; it must be an integer >= 1"]),
        ("-o b.onnx --layer --hidden-size 0", ["hidden_size is 0"]),
        ("-o b.onnx --hidden-size 8", ["hidden_size is 8", "add --layer"]),
        ("-o none/b.onnx --seq 8", ["cannot write none/b.onnx: there is no folder"]),
        ("-o . --seq 8", ["is a folder"]),
    ],
)
def test_what_cannot_be_built(cli, tmp_path, options, words):
    cli(f"build {options}").fails(2, *words)
    assert list(tmp_path.iterdir()) == []


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_an_export(cli, write):
    write("m.onnx", fixture_bytes("hf_fill_inf"))
    result = cli("inspect m.onnx")
    assert result.code == 0
    first, *lines = result.out.splitlines()
    assert first.startswith("m.onnx: opset 20, 965 nodes, ")
    assert "  input q float[1,128,2,32]" in lines
    assert "  output final_state float[1,2,32,32]" in lines
    assert "row-by-row inverse of [1, 2, 2, 64, 64], 63 serial steps" in result.out
    assert "target portable: has every op" in lines


def test_inspect_as_json(cli, write, baseline):
    write("m.onnx", baseline)
    found = cli("inspect m.onnx --json").json
    assert (found["model"], found["opset"], found["nodes"]) == ("m.onnx", 20, len(baseline.graph))
    assert found["inputs"][0] == {"name": "q", "type": "float", "shape": "[1,24,2,8]"}
    assert [output["name"] for output in found["outputs"]] == ["o"]
    assert sum(found["ops"].values()) == found["nodes"]
    by_place = {region["where"]: region for region in found["regions"]}
    inverse = by_place["inverse"]
    assert inverse["pass"].startswith("parallel-inverse")
    assert inverse["nodes_before"] > inverse["nodes_after"]
    assert inverse["assumes"]
    assert found["targets"]["portable"] == []


def test_inspect_a_model_without_a_gdn(cli, write):
    write("m.onnx", NEG)
    result = cli("inspect m.onnx")
    assert "no region of a gated delta rule found" in result.out
    found = cli("inspect m.onnx --json").json
    assert (found["regions"], found["declined"], found["serial_steps"]) == ([], [], 1)


def test_inspect_says_what_a_target_lacks(cli, write):
    imports = '<ir_version: 10, opset_import: ["": 20, "c": 1]>'
    write("m.onnx", f"{imports} g (float[2] x) => (float[2] y) {{ y = c.Foo (x) }}")
    assert "target portable: lacks c::Foo" in cli("inspect m.onnx").out
    assert cli("inspect m.onnx --json").json["targets"]["portable"] == ["c::Foo"]


def test_inspect_says_what_is_left_alone(cli, write, bare_inverse):
    write("m.onnx", bare_inverse)
    out = cli("inspect m.onnx").out
    assert "declined by parallel-inverse: 'inverse': A is not known to be strictly lower" in out
    assert "--assume A:strictly-lower" in out


# --- optimize -------------------------------------------------------------------------------------


def test_optimize_with_a_dimension(cli, write):
    write("m.onnx", "g (float[S,T] x) => (float[S,T] y) { y = Neg (x) }")
    result = cli("optimize m.onnx -o o.onnx --dim S=3 --dim T=5")
    assert (result.code, result.err) == (0, "")
    assert "  bound dimension S = 3\n  bound dimension T = 5\n" in result.out
    model = gdn_ir.load("o.onnx")
    assert [str(value.shape) for value in (*model.graph.inputs, *model.graph.outputs)] == [
        "[3,5]",
        "[3,5]",
    ]
    assert cli("optimize m.onnx -o p.onnx --dim T=5 --json").json["dims"] == {"T": 5}
    cli("optimize m.onnx -o o.onnx --dim t=5").fails(2, "no input has a dimension 't'", "'S', 'T'")


def test_optimize(cli, write, baseline):
    write("m.onnx", baseline)
    result = cli("optimize m.onnx -o o.onnx")
    assert (result.code, result.err) == (0, "")
    for words in (
        "parallel-inverse: row-by-row inverse of [1, 2, 3, 8, 8], 7 serial steps; ",
        "nodes ('inverse')",
        "  assumes 'A' strictly lower (whatever ",
        "numeric gate: passed on ",
        "whole model: outputs within ",
    ):
        assert words in result.out
    assert result.out.endswith("wrote o.onnx\n")
    feeds = runtime.random_inputs(baseline)
    (old,), (new,) = runtime.run("m.onnx", feeds), runtime.run("o.onnx", feeds)
    np.testing.assert_allclose(new, old, atol=1e-6 * np.abs(old).max())
    assert "ScatterND" not in ops_of(gdn_ir.load("o.onnx").graph)


def test_optimize_as_json(cli, write, baseline):
    write("m.onnx", baseline)
    found = cli(
        "optimize m.onnx -o o.onnx --passes exp-mask,parallel-inverse{leaf=4},dce --json"
    ).json
    assert found["output"] == "o.onnx"
    assert found["pipeline"] == "exp-mask,parallel-inverse{leaf=4},dce"
    assert [record["pass"] for record in found["passes"]] == found["pipeline"].split(",")
    assert found["passes"][1]["rewrites"][0]["where"] == "inverse"
    assert found["passes"][2]["nodes_after"] == len(gdn_ir.load("o.onnx").graph)
    assert found["whole_model"][0]["output"] == "o"
    assert found["warnings"] == []


def test_optimize_for_a_target_and_dump(cli, write, baseline, tmp_path):
    write("m.onnx", baseline)
    assert (
        cli("optimize m.onnx -o o.onnx --target portable --dump d/e --verify structure").code == 0
    )
    dumps = sorted((tmp_path / "d/e").iterdir())
    assert dumps[0].name == "000-input.onnx"
    assert dumps[-1].name.endswith("-dce.onnx")
    assert ops_of(gdn_ir.load(dumps[-1]).graph) == ops_of(gdn_ir.load("o.onnx").graph)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("optimize none.onnx -o o.onnx", ["cannot read none.onnx: No such file"]),
        ("optimize text.onnx -o o.onnx", ["cannot read text.onnx: not an ONNX protobuf"]),
        ("optimize empty.onnx -o o.onnx", ["cannot read empty.onnx: not an ONNX model (empty)"]),
        ("optimize . -o o.onnx", ["cannot read .: it is a folder"]),
        ("optimize m.onnx -o o.onnx --passes ded", ["no pass 'ded'; did you mean 'dce'?"]),
        ("optimize m.onnx -o o.onnx --passes dce,", ["ends in a comma"]),
        (
            "optimize m.onnx -o o.onnx --passes parallel-inverse{leav=8}",
            ["pass 'parallel-inverse' has no option 'leav'; did you mean 'leaf'?"],
        ),
        ("optimize m.onnx -o o.onnx --target npu2", ["no target 'npu2'; there are: portable"]),
        ("optimize m.onnx -o o.onnx --target portable --passes dce", ["exclude each other"]),
        ("optimize m.onnx -o o.onnx --passes ''", ["the pipeline is empty; name a pass"]),
        ("optimize m.onnx -o o.onnx --assume x", ["--assume x: 'x' is no fact that can be stated"]),
        ("optimize m.onnx -o o.onnx --assume x:finite", ["write NAME:FACT", "strictly-lower"]),
        ("optimize m.onnx -o o.onnx --dim S", ["--dim S: write NAME=SIZE"]),
        ("optimize m.onnx -o o.onnx --dim S=-1", ["--dim S=-1: write NAME=SIZE"]),
        (
            "optimize m.onnx -o o.onnx --dim S=0",
            ["--dim S=0: the size must be a whole"],
        ),
        ("optimize m.onnx -o o.onnx --dim S=2 --dim S=2", ["'S' is given twice"]),
        ("optimize m.onnx -o o.onnx --dim S=2", ["no input has a dimension 'S'", ": none"]),
        ("optimize m.onnx -o o.onnx --assume q:strictly-lower", ["the model has no value 'q'"]),
        (
            "optimize m.onnx -o o.onnx --passes parallel-inverse{method=zzz}",
            ["is one of block, substitution, doubling, neumann, not 'zzz'\n"],
        ),
        ("optimize m.onnx -o m.onnx", ["cannot write m.onnx: ", "is an input"]),
        ("optimize m.onnx -o ./m.onnx", ["is an input"]),
        ("optimize m.onnx -o none/o.onnx", ["cannot write none/o.onnx: there is no folder"]),
        ("optimize m.onnx -o .", ["cannot write .: ", "is a folder"]),
        ("optimize m.onnx -o o.onnx --dump text.onnx", ["text.onnx is a file; name a folder"]),
    ],
)
def test_what_cannot_be_optimized(cli, write, tmp_path, line, words):
    write("m.onnx", NEG)
    write("text.onnx", b"hello\n")
    write("empty.onnx", b"")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    cli(line).fails(2, *words)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("place", [".", "none/o.onnx", "m.onnx", "m.onnx/o.onnx"])
def test_the_place_is_checked_before_the_work(cli, write, monkeypatch, place):
    def work(*_, **__):
        raise AssertionError("the work has begun")

    write("m.onnx", NEG)
    monkeypatch.setattr(optimize, "optimize_model", work)
    cli(f"optimize m.onnx -o {place}").fails(2, f"cannot write {place}: ")


DOUBLING = "optimize m.onnx -o o.onnx --passes parallel-inverse{method=doubling}"


def test_an_unsafe_inverse_is_rejected_and_nothing_written(cli, write, long_chunk, tmp_path):
    write("m.onnx", long_chunk)
    cli(DOUBLING).fails(
        1,
        "numeric gate: pass 'parallel-inverse{method=doubling}' at 'inverse': on ",
        "--verify none",
        "gdn-ir verify --replay o.onnx.reproducer",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "o.onnx.reproducer"]
    found = json.loads(cli(f"{DOUBLING} --json").out)
    assert (found["exit_code"], found["reproducer"]) == (1, "o.onnx.reproducer")
    assert found["error"].startswith("numeric gate: pass 'parallel-inverse")
    again = cli("verify --replay o.onnx.reproducer")
    assert again.code == 1
    assert "proof: PROVED at " in again.out
    assert ": rejected\n" in again.out
    assert again.err.startswith("error: o.onnx.reproducer still fails: numeric gate: pass 'para")


def test_an_unsafe_inverse_is_written_with_a_warning_on_demand(cli, write, long_chunk):
    write("m.onnx", long_chunk)
    result = cli(f"{DOUBLING} --verify none")
    assert result.code == 0
    assert result.err.splitlines() == [
        "warning: method=doubling loses all digits on correlated keys",
        "warning: not checked numerically: verify=none",
    ]
    assert "numeric gate" not in result.out
    assert "ScatterND" not in ops_of(gdn_ir.load("o.onnx").graph)
    found = cli(f"{DOUBLING} --verify none --json")
    assert found.json["warnings"] == [line[9:] for line in result.err.splitlines()]
    assert found.err == result.err


ASSUME = "optimize m.onnx -o o.onnx --assume A:strictly-lower"


def test_an_inverse_of_anything_is_declined(cli, write, bare_inverse):
    write("m.onnx", bare_inverse)
    result = cli("optimize m.onnx -o o.onnx")
    assert result.code == 0
    assert "parallel-inverse declined 'inverse': A is not known to be strictly lower" in result.out
    assert "--assume A:strictly-lower" in result.out
    assert "ScatterND" in ops_of(gdn_ir.load("o.onnx").graph)


def test_an_inverse_is_rewritten_on_the_user_s_word(cli, write, bare_inverse):
    write("m.onnx", bare_inverse)
    result = cli(f"{ASSUME} --verify structure")
    assert "  assumes 'A' strictly lower (stated by the user)\n" in result.out
    assert "declined" not in result.out
    found = cli(f"{ASSUME} --verify structure --json").json
    assert found["assumes"] == ["'A' strictly lower (stated by the user)"]
    assert "ScatterND" not in ops_of(gdn_ir.load("o.onnx").graph)


def test_an_inverse_is_rewritten_on_the_user_s_word_under_the_gate(cli, write, bare_inverse):
    write("m.onnx", bare_inverse)
    result = cli(ASSUME)
    assert (result.code, result.err) == (0, "")
    assert "  assumes 'A' strictly lower (stated by the user)\n" in result.out


def test_what_was_passed_over_is_said(cli, write):
    write("m.onnx", LOOP)
    left = "left alone: 1 Loop, whose steps need one another (static-unroll writes them out)\n"
    assert cli("optimize m.onnx -o o.onnx").out.endswith(f"{left}wrote o.onnx\n")
    assert left in cli("inspect m.onnx").out
    assert cli("optimize m.onnx -o o.onnx --json").json["left_alone"] == {"Loop": 1}
    write("m.onnx", NEG.replace("[2]", "[2,2]"))
    result = cli("optimize m.onnx -o o.onnx --assume x:strictly-lower")
    assert "left alone" not in result.out
    assert result.err == (
        "warning: --assume x:strictly-lower was not used: no rewrite relied on it\n"
    )


# --- run ------------------------------------------------------------------------------------------


def test_run_on_random_inputs(cli, write):
    write("m.onnx", NEG)
    result = cli("run m.onnx")
    assert result.code == 0
    assert "m.onnx on small random inputs" in result.out
    found = cli("run m.onnx --json --seed 3").json
    expected = runtime.random_inputs(model_of(NEG), seed=3)["x"]
    assert found["random_inputs"] is True
    assert found["outputs"] == [
        {
            "output": "y",
            "shape": [2],
            "type": "float32",
            "largest": float(np.abs(expected).max()),
            "finite": True,
        }
    ]


def test_run_on_given_inputs(cli, write):
    write("m.onnx", ADD)
    np.savez("i.npz", x=np.float32([1, 2]), w=np.float32([3, 5]))
    result = cli("run m.onnx --inputs i.npz --outputs o.npz")
    assert result.code == 0
    assert "m.onnx on i.npz" in result.out
    assert "wrote o.npz" in result.out
    with np.load("o.npz") as outputs:
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], [4, 7])
    found = cli("run m.onnx --inputs i.npz --json").json
    assert (found["random_inputs"], found["outputs"][0]["largest"]) == (False, 7)


def test_run_says_which_outputs_are_not_finite(cli, write):
    write(
        "m.onnx", "g (float[2] x) => (float[2] y, int64[2] z) { y = Log (x) z = Cast <to = 7> (x) }"
    )
    np.savez("i.npz", x=np.float32([-1, 4]))
    found = {
        row.split()[1]: row.split()
        for row in cli("run m.onnx --inputs i.npz").out.splitlines()[4:6]
    }
    assert found["y"][-2] == "False"
    assert found["z"][-2] == "True"


def test_run_as_json_when_an_output_is_nan(cli, write):
    write("m.onnx", "g (float[2] x) => (float[2] y) { y = Log (x) }")
    np.savez("i.npz", x=np.float32([-1, 4]))
    (output,) = cli("run m.onnx --inputs i.npz --json").json["outputs"]
    assert output["finite"] is False


def one_array(folder):
    np.save(folder / "i.npy", np.zeros(2))
    (folder / "i.npy").rename(folder / "i.npz")


def broken_archive(folder):
    np.savez(folder / "i.npz", x=np.float32([1, 2]))
    (folder / "i.npz").write_bytes((folder / "i.npz").read_bytes()[:60])


def broken_array(folder):
    np.savez(folder / "i.npz", x=np.float32([1, 2]), w=np.float32([1, 2]))
    content = (folder / "i.npz").read_bytes()
    (folder / "i.npz").write_bytes(content.replace(np.float32([1, 2]).tobytes(), b"damaged.", 1))


def other_archive(folder):
    with zipfile.ZipFile(folder / "i.npz", "w") as archive:
        archive.writestr("x", "hello")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda to: None, ["cannot read i.npz: No such file"], id="missing"),
        pytest.param(
            lambda to: (to / "i.npz").mkdir(), ["cannot read i.npz: Is a directory"], id="folder"),
        pytest.param(
            lambda to: np.savez(to / "i.npz", x=np.float32([1, 2])),
            ["i.npz does not fit m.onnx: it lacks 'w'; add an array for each\n"], id="lacking"),
        pytest.param(
            lambda to: np.savez(to / "i.npz", x=np.float32([1, 2]), w=np.float32([1, 2]), q=1, r=2),
            ["'q', 'r' is no input; there are: x, w\n"], id="unknown names"),
        pytest.param(
            lambda to: np.savez(to / "i.npz", x=np.float32([1, 2]), v=0),
            ["it lacks 'w'; add an array for each; 'v' is no input"], id="both"),
        pytest.param(
            lambda to: np.savez(to / "i.npz", x=np.zeros(2), w=np.zeros(2, np.float32)),
            [": 'x' is float64, not float32; convert it with .astype\n"], id="type"),
        pytest.param(
            lambda to: np.savez(to / "i.npz", x=np.float32([1, 2, 3]), w=np.float32(1)),
            [": 'x' has shape [3], not [2]; 'w' has shape [], not [2]\n"], id="shape"),
        pytest.param(
            lambda to: (to / "i.npz").write_text("hello"),
            ["cannot read i.npz: it is no .npz file, or a damaged one"], id="text"),
        pytest.param(
            lambda to: np.savez(to / "i.npz", x=np.array([{}]), w=0),
            ["cannot read i.npz: 'x' holds Python objects; save numbers"], id="pickled"),
        pytest.param(one_array, ["it is no .npz file, or a damaged one"], id="one array"),
        pytest.param(
            lambda to: (to / "i.npz").touch(), ["it is no .npz file, or a"], id="empty"),
        pytest.param(broken_archive, ["it is no .npz file, or a damaged one"], id="truncated"),
        pytest.param(broken_array, ["cannot read i.npz: 'x' is damaged"], id="broken array"),
        pytest.param(other_archive, ["cannot read i.npz: 'x' is no array"], id="other archive"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit(cli, write, tmp_path, make, words):
    write("m.onnx", ADD)
    make(tmp_path)
    cli("run m.onnx --inputs i.npz --outputs o.npz").fails(2, *words)
    assert not (tmp_path / "o.npz").exists()


def test_symbolic_dimensions_take_any_size(cli, write):
    write("m.onnx", "g (float[n, 2] x) => (float[n, 2] y) { y = Neg (x) }")
    np.savez("i.npz", x=np.zeros((3, 2), np.float32))
    assert cli("run m.onnx --inputs i.npz").code == 0
    np.savez("i.npz", x=np.zeros((3, 1), np.float32))
    cli("run m.onnx --inputs i.npz").fails(2, ": 'x' has shape [3, 1], not [n,2]\n")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("none/o.npz", "there is no folder"),
        (".", "is a folder; name a file"),
        ("m.onnx", "is an input; choose another name"),
        ("i.npz", "is an input; choose another name"),
    ],
)
def test_outputs_that_cannot_be_written(cli, write, monkeypatch, place, words):
    write("m.onnx", NEG)
    np.savez("i.npz", x=np.float32([1, 2]))
    monkeypatch.setattr(runtime, "session", None)  # the place is checked before the run
    cli(f"run m.onnx --inputs i.npz --outputs {place}").fails(2, f"cannot write {place}: ", words)


def test_outputs_are_where_it_says(cli, write, tmp_path):
    write("m.onnx", NEG)
    result = cli("run m.onnx --outputs o")
    (written,) = [line for line in result.out.splitlines() if line.startswith("wrote ")]
    assert (tmp_path / written.removeprefix("wrote ")).exists()


def test_an_output_may_be_called_file(cli, write):
    write("m.onnx", NEG.replace("y", "file"))
    assert cli("run m.onnx --outputs o.npz").code == 0


def test_run_a_model_whose_inputs_have_defaults(cli, write):
    write(
        "m.onnx",
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }",
    )
    assert cli("run m.onnx --json").json["outputs"][0]["largest"] == pytest.approx(2, abs=0.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g (float[n] x) => (float[n] y) { y = Neg (x) }", ["input 'x' has shape [n]"]),
        ("g (string[2] x) => (string[2] y) { y = Identity (x) }", ["input 'x' has type STRING"]),
        ("g (float[2] x, float[3] w) => (float[2] y) { y = Add (x, w) }", ["ONNX Runtime: "]),
    ],
)
def test_what_cannot_be_run(cli, write, text, words):
    write("m.onnx", text)
    cli("run m.onnx").fails(2, *words)


# --- passes ---------------------------------------------------------------------------------------


def test_passes_are_listed(cli):
    result = cli("passes")
    assert result.code == 0
    found = cli("passes --json").json
    assert {"cse", "dce", "exp-mask", "parallel-inverse"} <= set(found)
    for name, summary in found.items():
        assert name in result.out
        assert summary
        assert "\n" not in summary


def test_a_pass_is_documented_with_its_options(cli):
    result = cli("passes parallel-inverse")
    assert result.out.startswith("parallel-inverse\n\nThe serial row loop ")
    assert "Source: " in result.out
    rows = [line.split()[1::2][:3] for line in result.out.splitlines() if line.startswith("│")]
    assert ["leaf", "int", "16"] in rows
    found = cli("passes parallel-inverse --json").json
    assert found["name"] == "parallel-inverse"
    assert {"name": "leaf", "type": "int", "default": 16} in found["options"]
    assert found["doc"] in result.out


def test_a_pass_without_options(cli):
    assert "Options" not in cli("passes dce").out
    assert cli("passes dce --json").json["options"] == []


def test_an_unknown_pass_is_not_documented(cli):
    cli("passes ded").fails(2, "no pass 'ded'; did you mean 'dce'?")


@pytest.mark.parametrize("name", ["dce,cse", ""])
def test_one_pass_is_documented_at_a_time(cli, name):
    result = cli("passes", name)
    result.fails(2)
    assert "unpack" not in result.err


# --- demo -----------------------------------------------------------------------------------------


def test_demo_as_json(cli, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "_SIZE", {"batch": 1, "seq": 64, "heads": 1, "head_dim": 16})
    found = cli("demo --out d/e --json").json
    assert found["size"]["seq"] == 64
    baseline, optimized = found["baseline"], found["optimized"]
    assert optimized["nodes"] < baseline["nodes"]
    assert optimized["serial steps"] < baseline["serial steps"]
    errors = [key for key in baseline if key.startswith("error, ")]
    assert len(errors) >= 5
    assert all(optimized[key] < 1e-3 for key in errors)
    assert found["report"]["whole_model"]
    for name in ("baseline", "optimized"):
        model = gdn_ir.load(tmp_path / "d/e" / f"{name}.onnx")
        assert len(model.graph) == found[name]["nodes"]


@pytest.mark.slow
def test_demo(cli, tmp_path):
    result = cli("demo")
    assert (result.code, result.err) == (0, "")
    for words in (
        "Gated delta rule, ",
        "serial steps",
        "times less",
        "error, cosine",
        "pipeline: ",
    ):
        assert words in result.out
    written = {path.name for path in (tmp_path / "demo").iterdir()}
    pictures = {
        "dataflow.svg", "no-ops.svg", "exp-mask.svg", "exp-mask-2.svg", "parallel-inverse.svg",
        "scatter-to-concat.svg", "flatten-matmul.svg",
    }  # fmt: skip
    assert pictures | {"baseline.onnx", "optimized.onnx", "README.md"} <= written
    page = (tmp_path / "demo" / "README.md").read_text()
    shown = re.findall(r"!\[[^]]*(?:\[[^]]*\])?[^]]*\]\(([^)]+)\)", page)
    assert set(shown) == {name for name in written if name.endswith(".svg")}
    assert "63 serial steps; 883 -> 37 nodes, PROVED (2^-" in page


# --- Printing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "[red]x[/red]",
        "a[0]",
        "back\\slash",
        "end\\",
        "a:x:0",
    ],
)
def test_names_from_models_are_printed_as_they_are(name, capsys):
    printing.print_line(f"value {name} here")
    printing.print_table("Table", ["name"], [[name]])
    printing.print_warning(f"about {name} there")
    out, err = capsys.readouterr()
    assert f"value {name} here\n" in out
    assert f"│ {name} " in out
    assert err == f"warning: about {name} there\n"


def test_long_lines_are_not_broken(capsys):
    printing.print_line("word " * 100)
    assert capsys.readouterr().out.count("\n") == 1


def test_columns_of_numbers_are_set_to_the_right(capsys):
    printing.print_table("Table", ["n", "text"], [["1", "a"], ["1000", "bbb"], ["1.5e-07", "c"]])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert rows == ["│       1 │ a    │", "│    1000 │ bbb  │", "│ 1.5e-07 │ c    │"]
