"""Tiny models for the passes: row loops, decays and scatters, also inside a body."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx_text import proto_of

SCOPES = ("main", "loop", "scan", "if")


def parse(text: str) -> ir.Model:
    """The model that ONNX text describes, with the types and shapes that onnx infers."""
    return annotated(proto_of(text))


def annotated(proto: onnx.ModelProto) -> ir.Model:
    """The model with the types and shapes that onnx infers, in bodies too."""
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def info(name: str, shape, dtype=np.float32) -> onnx.ValueInfoProto:
    """A value with a type and, unless it is None, a shape."""
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


class Writer:
    """Writes the nodes of one scope. Values are names; arrays become initializers."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, op_type: str, *inputs, name: str = "", outputs: int = 1, **attributes):
        """Appends a node and returns its output, or a list of them."""
        names = [v if isinstance(v, str) else self.constant(v) for v in inputs]
        name = name or f"{self.prefix}{op_type.lower()}_{len(self.nodes)}"
        results = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, names, results, name, **attributes))
        return name if outputs == 1 else results

    def constant(self, array) -> str:
        """An initializer; integers and lists become int64."""
        name = f"{self.prefix}const_{len(self.constants)}"
        array = np.array(array, np.int64) if isinstance(array, int | list) else np.asarray(array)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def graph(self, inputs, outputs) -> onnx.GraphProto:
        """The scope as a graph, from the infos of its inputs and outputs."""
        return helper.make_graph(self.nodes, f"{self.prefix}graph", inputs, outputs, self.constants)

    def model(self, inputs, outputs, opset: int = 20) -> ir.Model:
        """The scope as a model."""
        imports = [helper.make_opsetid("", opset)]
        return annotated(
            helper.make_model(self.graph(inputs, outputs), opset_imports=imports, ir_version=10)
        )


def build(
    write: Callable,
    inputs: dict[str, tuple[int, ...]],
    *,
    scope: str = "main",
    dtype=np.float32,
    opset: int = 20,
) -> ir.Model:
    """A model with the output `y` = `write(w, *inputs)`, or more where `write` returns a dict.

    In another scope `write` fills the body, and `y` comes from its one result:

    * `loop`: captures the inputs; two iterations add the result up.
    * `scan`: the inputs come in pairs that are scanned, and so does the result.
    * `if`: captures the inputs in the branch for `choose` = true; the other one gives zeros.
    """
    infos = [info(name, shape, dtype) for name, shape in inputs.items()]
    main = Writer()
    written = write(main, *inputs)
    results = written if isinstance(written, dict) else {"y": written}
    for name, value in results.items():
        main.op("Identity", value, name=name)
    model = main.model(infos, [info(name, None, dtype) for name in results], opset)
    if scope == "main":
        return model
    body = Writer("body/")
    result = write(body, *inputs)
    shape = model.graph.outputs[0].shape.numpy()
    return {"loop": _loop, "scan": _scan, "if": _if}[scope](
        body, result, infos, shape, dtype, opset
    )


def loop_body(body: Writer, result: str, shape, dtype=np.float32) -> onnx.GraphProto:
    """A Loop body that adds the result to `body/sum`, its one carried value."""
    body.op("Add", "body/sum", result, name="body/next_sum")
    body.op("Identity", "body/going", name="body/still_going")
    return body.graph(
        [info("body/step", [], np.int64), info("body/going", [], np.bool_),
         info("body/sum", shape, dtype)],
        [info("body/still_going", [], np.bool_), info("body/next_sum", shape, dtype)],
    )  # fmt: skip


def _loop(body: Writer, result: str, inputs, shape, dtype, opset: int) -> ir.Model:
    main = Writer()
    graph = loop_body(body, result, shape, dtype)
    main.op("Loop", 2, np.array(True), np.zeros(shape, dtype), name="y", body=graph)
    return main.model(inputs, [info("y", shape, dtype)], opset)


def _scan(body: Writer, result: str, inputs, shape, dtype, opset: int) -> ir.Model:
    body.op("Identity", result, name="body/slice")
    graph = body.graph(inputs, [info("body/slice", shape, dtype)])
    pairs = []
    for value in inputs:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        pairs.append(info(f"{value.name}_pair", [2, *dims], dtype))
    main = Writer()
    names = [value.name for value in pairs]
    main.op("Scan", *names, name="y", body=graph, num_scan_inputs=len(names))
    return main.model(pairs, [info("y", (2, *shape), dtype)], opset)


def _if(body: Writer, result: str, inputs, shape, dtype, opset: int) -> ir.Model:
    body.op("Identity", result, name="body/chosen")
    then_branch = body.graph([], [info("body/chosen", shape, dtype)])
    other = Writer("other/")
    other.op("Identity", np.zeros(shape, dtype), name="other/chosen")
    else_branch = other.graph([], [info("other/chosen", shape, dtype)])
    main = Writer()
    main.op("If", "choose", name="y", then_branch=then_branch, else_branch=else_branch)
    return main.model([*inputs, info("choose", [], np.bool_)], [info("y", shape, dtype)], opset)


def main_and_loop(write_main: Callable, write_body: Callable, inputs, shape) -> ir.Model:
    """A Loop whose body captures what `write_main(w, *inputs)` makes, a list of values.

    `y` starts from ones [shape]; each of two iterations adds `write_body(w, y, *values)`.
    """
    main, body = Writer(), Writer("body/")
    values = write_main(main, *inputs)
    result = write_body(body, "body/sum", *values)
    ones = np.ones(shape, np.float32)
    main.op("Loop", 2, np.array(True), ones, name="y", body=loop_body(body, result, shape))
    return main.model([info(n, s) for n, s in inputs.items()], [info("y", shape)])


# --- what the passes look for ---


def strictly_lower(w: Writer, x: str) -> str:
    """x with zeros on and above the diagonal."""
    return w.op("Trilu", x, np.array(-1), upper=0)


def row_loop(
    w: Writer,
    A: str,
    shape: tuple[int, ...],
    *,
    eye: bool = True,
    negated: bool = False,
    scatter: str = "ScatterElements",
    wrong_row: int = 0,
    dtype=np.float32,
) -> str:
    """(I - A)^-1 of a strictly lower A [..., n, n]: row i becomes A_i + A_i (rows above it).

    Args:
        w, A, shape, dtype: where to write; the matrix, its shape and its type.
        eye: whether the identity is added in the end.
        negated: (I + A)^-1 instead.
        scatter: the op that writes a row back.
        wrong_row: a row that leaves out the last of the rows above it.
    """
    *leading, n = shape[:-1]
    T = A
    for i in range(1, n):
        row = w.op("Slice", T, [i], [i + 1], [-2])
        known = w.op("Slice", row, [0], [i], [-1])
        rows = i - 1 if i == wrong_row else i
        factors = w.op("Slice", row, [0], [rows], [-1])
        above = w.op("Slice", T, [0, 0], [rows, i], [-2, -1])
        solved = w.op("Add", known, w.op("MatMul", factors, above))
        if negated:
            solved = w.op("Neg", solved)
        where = np.indices((*leading, 1, i))
        where[-2] = i
        if scatter == "ScatterElements":
            T = w.op("ScatterElements", T, where[-2], solved, axis=len(shape) - 2)
        else:
            T = w.op("ScatterND", T, np.moveaxis(where, 0, -1), solved)
    return w.op("Add", T, np.eye(n, dtype=dtype)) if eye else T


def inverse_model(
    shape: tuple[int, ...],
    *,
    lower: Callable | None = strictly_lower,
    scope: str = "main",
    dtype=np.float32,
    opset: int = 20,
    **options,
) -> ir.Model:
    """A model that inverts I - A row by row: A = lower(X), or X itself; options of `row_loop`."""

    def write(w: Writer, X: str) -> str:
        return row_loop(w, lower(w, X) if lower else X, shape, dtype=dtype, **options)

    return build(write, {"X": shape}, scope=scope, dtype=dtype, opset=opset)


def decay(w: Writer, g: str, shape: tuple[int, ...], before_exp: str, dtype=np.float32) -> str:
    """exp(G_i - G_j) [..., C, C] of log-decays g [..., C], cut above the diagonal before the exp.

    `before_exp` is how: `trilu`, `where` (fills -inf), `add` (adds -inf) or `nothing`. A trilu
    leaves ones above the diagonal; nothing, numbers that may overflow.
    """
    rank, C = len(shape), shape[-1]
    causal, minus_inf = np.tri(C, dtype=bool), np.array(-np.inf, dtype)
    G = w.op("CumSum", g, np.array(rank - 1))
    D = w.op("Sub", w.op("Unsqueeze", G, [rank]), w.op("Unsqueeze", G, [rank - 1]))
    if before_exp == "trilu":
        D = w.op("Trilu", D, np.array(0), upper=0)
    elif before_exp == "where":
        D = w.op("Where", causal, D, minus_inf)
    elif before_exp == "add":
        D = w.op("Add", D, np.where(causal, 0, minus_inf))
    return w.op("Exp", D)


def scatters(
    w: Writer, base, updates: list[tuple[str, list[int]]], shape, axis: int, op: str, **attributes
) -> str:
    """Scatters into a constant (or a value) [shape]: each update fills rows of the axis."""
    for update, rows in updates:
        where = np.indices([len(rows) if i == axis else size for i, size in enumerate(shape)])
        where[axis] = np.array(rows).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        if op == "ScatterElements":
            base = w.op(op, base, where[axis], update, axis=axis, **attributes)
        else:
            base = w.op(op, base, np.moveaxis(where, 0, -1), update, **attributes)
    return base
