"""The inverse from 16 by 16 blocks: a chain for each, then merges; in every chunk form."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from rule_error import assert_is_the_rule, session_for

from gdn_ir.models.baseline import build_loop, build_unrolled
from gdn_ir.models.block_inverse import invert_blocks, splits_into_blocks
from gdn_ir.models.graph_writer import GraphWriter
from gdn_ir.models.reference import unit_lower_inverse
from gdn_ir.models.row_inverse import invert_rows_looped, invert_rows_unrolled
from gdn_ir.verify.structure import defects

ROWS = {"unrolled": invert_rows_unrolled, "loop": invert_rows_looped}


def ops_of(model):
    return Counter(node.op_type for node in model.graph.all_nodes())


def inverse_model(n, rows):
    w = GraphWriter("inverse")
    a = w.input("A", ir.DataType.FLOAT, (1, 2, 1, n, n))
    w.output(invert_blocks(w, a, (1, 2, 1, n, n), invert_rows=ROWS[rows]))
    return w.model()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("n", [16, 32, 64])
def test_inverts(n, rows):
    model = inverse_model(n, rows)
    noise = np.random.default_rng(n).standard_normal((1, 2, 1, n, n))
    a = np.tril(noise / (2 * np.sqrt(n)), -1).astype(np.float32)
    (actual,) = session_for(model).run(None, {"A": a})
    np.testing.assert_allclose(actual, unit_lower_inverse(a), rtol=0, atol=1e-5)


def test_the_sign_of_a_merge():
    # One entry a below the diagonal blocks: (I - A)^-1 has it there, unchanged.
    a = np.zeros((1, 2, 1, 32, 32), np.float32)
    a[..., 20, 3] = 0.75
    (actual,) = session_for(inverse_model(32, "unrolled")).run(None, {"A": a})
    np.testing.assert_array_equal(actual, np.eye(32) + a)


def test_eight_chains_in_a_chunk_of_128():
    ops = ops_of(build_unrolled(seq=128, chunk=128, inverse="blocks", head_dim=8))
    assert ops["ScatterND"] == 8 * 15
    assert ops["Concat"] == 2 * (4 + 2 + 1)
    looped = ops_of(build_loop(chunk=128, inverse="blocks", head_dim=8))
    assert looped["Loop"] == 8 + 1
    assert looped["ScatterND"] == 8


@pytest.mark.parametrize("mask", ["fill-inf", "fill-zero"])
@pytest.mark.parametrize("form", ["unrolled", "loop", "loop-given-length"])
def test_equals_the_recurrence(form, mask):
    case = {"chunk": 128, "key_heads": 1, "state": True, "l2norm": True}
    seq = 130
    if form == "unrolled":
        model = build_unrolled(seq=seq, mask=mask, inverse="blocks", **case)
    else:
        given = seq if form == "loop-given-length" else None
        model = build_loop(seq=given, mask=mask, inverse="blocks", **case)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert defects(model) == []
    for tokens in (1, seq) if form == "loop" else (seq,):
        assert_is_the_rule(model, case, tokens)
    values = [v for node in model.graph.all_nodes() for v in node.outputs]
    assert len({v.name for v in values}) == len(values)
    assert all(v.dtype is not None and v.shape is not None for v in values)


def test_float16():
    case = {"chunk": 32, "state": True}
    model = build_unrolled(seq=40, inverse="blocks", dtype="float16", **case)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert_is_the_rule(model, case, 40, limit=2e-3)


def test_one_block_is_not_merged():
    model = build_unrolled(seq=16, chunk=16, inverse="blocks")
    assert ops_of(model)["Concat"] == 0
    assert_is_the_rule(model, {}, 16)


@pytest.mark.parametrize("build", [build_unrolled, build_loop])
@pytest.mark.parametrize("chunk", [8, 24, 48, 96])
def test_which_chunks_split(build, chunk):
    assert not splits_into_blocks(chunk)
    with pytest.raises(ValueError, match=f"chunk is {chunk}; with inverse blocks it must be 16"):
        build(chunk=chunk, inverse="blocks")


def test_inverses_are_checked():
    with pytest.raises(ValueError, match="inverse is 'lu'; it must be one of rows, blocks"):
        build_loop(inverse="lu")
