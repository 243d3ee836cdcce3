"""UnsupportedOp: an op that the interpreter has no meaning for."""

from __future__ import annotations

import onnx_ir as ir

from gdn_ir.graph_view import is_onnx
from gdn_ir.modular.algebra import CannotDecide


class UnsupportedOp(CannotDecide):
    """Names the op and where it stands."""

    def __init__(self, node: ir.Node, why: str = "") -> None:
        op = node.op_type if is_onnx(node) else f"{node.domain}::{node.op_type}"
        super().__init__(f"{op} at '{node.outputs[0].name}'" + (f": {why}" if why else ""))
