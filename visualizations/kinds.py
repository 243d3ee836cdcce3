"""What an op is in a picture, and its colour."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from gdn_ir.graph_view import COPY_IN_OPS, COPY_OUT_OPS, VIEW_OPS, bodies, is_onnx


class Kind(NamedTuple):
    """A sort of box and how it is painted."""

    name: str
    fill: str
    ink: str


COPY_IN = Kind("copy-in", "#c9efcf", "#0b4d1a")
COPY_OUT = Kind("copy-out", "#ffc9c4", "#7a0f08")
VIEW = Kind("view", "#eeeeee", "#777777")
WORK = Kind("work", "#ffffff", "#111111")
# The op that most of a chip is built for; a reader looks for it first.
MATMUL = Kind("matrix product", "#cfe3ff", "#0a2f6b")
CONTROL = Kind("control flow", "#fff1c2", "#5c4300")

_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Conv"})


def kind_of(node: ir.Node) -> Kind:
    """The kind of a node; copies and views are those that `graph_view` counts."""
    if any(True for _ in bodies(node)):
        return CONTROL
    if not is_onnx(node):
        return WORK
    if node.op_type in COPY_IN_OPS:
        return COPY_IN
    if node.op_type in COPY_OUT_OPS:
        return COPY_OUT
    if node.op_type in VIEW_OPS:
        return VIEW
    return MATMUL if node.op_type in _PRODUCTS else WORK
