"""`gdn-ir verify`: two models, several shapes, a reproducer."""

import json

import pytest

from gdn_ir.models.baseline import build_unrolled

SIZE = {"seq": 24, "chunk": 8, "heads": 2, "head_dim": 8}
NEG = "g (float[2,3] x) => (float[2,3] y) { y = Neg (x) }"
TWICE = "g (float[2,3] x) => (float[2,3] y) { a = Neg (x) b = Neg (a) y = Neg (b) }"
ABS = "g (float[2,3] x) => (float[2,3] y) { y = Abs (x) }"
SQUARE = "g (float[2,3] x) => (float[2,3] y) { y = Mul (x, x) }"


@pytest.fixture
def pair(write):
    """Writes two models as a.onnx and b.onnx."""

    def to(a, b):
        write("a.onnx", a)
        write("b.onnx", b)

    return to


def test_an_optimized_model_is_its_original(cli, write):
    write("a.onnx", build_unrolled(**SIZE))
    assert cli("optimize a.onnx -o b.onnx").code == 0
    result = cli("verify a.onnx b.onnx")
    assert (result.code, result.err) == (0, "")
    assert "output 'o': PROVED at {q [1, 24, 2, 8], " in result.out
    assert "wrong with a chance below 2^-4" in result.out
    assert "equal tokens" in result.out


def test_as_json(cli, pair):
    pair(NEG, TWICE)
    found = cli("verify a.onnx b.onnx --json --seed 3").json
    (at,) = found["shapes"]
    assert (at["outputs"]["y"]["status"], at["outputs"]["y"]["seed"]) == ("PROVED", 3)
    assert all(error["accepted"] for error in at["errors"])
    pair(NEG, NEG)
    assert cli("verify a.onnx b.onnx --json").json["shapes"][0]["outputs"] == {"y": "equal by hash"}


def test_models_that_differ(cli, pair):
    pair(NEG, SQUARE)
    result = cli("verify a.onnx b.onnx --seed 3")
    assert result.code == 1
    assert result.err.startswith("error: b.onnx is not a.onnx: output 'y' is DIFFERENT: ")
    assert result.err.endswith("--seed 3\n")
    lines = [line.strip("┃│ ") for line in result.out.splitlines() if line[:1] in ("┃", "│")]
    header, *rows = [line.split()[-1] for line in lines]
    assert header == "accepted"
    assert set(rows) <= {"yes", "no"}
    assert "no" in rows
    failed = cli("verify a.onnx b.onnx --seed 3 --json")
    document = json.loads(failed.out)
    assert (failed.code, failed.err, document["exit_code"]) == (1, "", 1)
    assert document["error"] == result.err.removeprefix("error: ").strip()
    assert document["shapes"][0]["outputs"]["y"]["status"] == "DIFFERENT"
    numbers = cli("verify a.onnx b.onnx --verify numeric")
    assert numbers.code == 1
    assert "'y' on random inputs: an error of " in numbers.err
    assert "DIFFERENT" not in numbers.out


def test_what_cannot_be_decided_passes_only_if_it_runs_alike(cli, pair):
    relu = "g (float[2,3] x) => (float[2,3] y) { %s }"
    pair(relu % "a = Relu (x) y = Add (a, a)", relu % "a = Add (x, x) y = Relu (a)")
    result = cli("verify a.onnx b.onnx")
    assert result.code == 0
    assert "output 'y': not proved: UNDECIDED: " in result.out
    assert "Relu" in result.out
    strict = cli("verify a.onnx b.onnx --verify proof")
    assert strict.code == 1
    assert "UNDECIDED" in strict.err
    pair(NEG, ABS)
    assert cli("verify a.onnx b.onnx").code == 1


def test_open_dimensions(cli, pair):
    pair(NEG.replace("2,3", "N,3"), TWICE.replace("2,3", "N,3"))
    result = cli("verify a.onnx b.onnx")
    assert result.code == 0
    for size in (1, 63, 64, 65, 128):
        assert f"with N={size}\n" in result.out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("verify", ["name two models, or a folder with --replay"]),
        ("verify a.onnx", ["name two models"]),
        ("verify a.onnx b.onnx --replay r", ["--replay takes no models"]),
        ("verify a.onnx none.onnx", ["none.onnx"]),
        ("verify --replay none", ["none is no reproducer folder"]),
        ("verify a.onnx c.onnx", ["the models' inputs differ: x and w"]),
    ],
)
def test_what_cannot_be_checked(cli, pair, write, line, words):
    pair(NEG, NEG)
    write("c.onnx", NEG.replace("x", "w"))
    cli(line).fails(2, *words)


def test_a_reproducer_as_json(cli, write):
    write("m.onnx", build_unrolled(seq=64, chunk=64, heads=1, head_dim=8))
    cli("optimize m.onnx -o o.onnx --passes parallel-inverse{method=doubling}").fails(
        1, "nothing written but a reproducer: gdn-ir verify --replay o.onnx.reproducer"
    )
    result = cli("verify --replay o.onnx.reproducer --json")
    assert result.code == 1
    assert '"status": "PROVED"' in result.out
    assert '"accepted": false' in result.out


def test_a_strict_proof_only(cli, write):
    write("m.onnx", build_unrolled(**SIZE))
    result = cli("optimize m.onnx -o o.onnx --verify proof")
    assert result.code == 0
    assert "rewrites PROVED at their shapes" in result.out
    assert result.err == "warning: not checked numerically: verify=proof\n"
    report = cli("optimize m.onnx -o o.onnx --json").json
    assert report["verify"] == "full"
    assert {proof["status"] for proof in report["proofs"]} == {"PROVED"}
    assert all(proof["log2_bound"] <= -40 for proof in report["proofs"])
