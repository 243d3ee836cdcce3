"""Runs a pipeline on a model and checks all that must hold whatever the passes do."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from gdn_ir import pass_manager, pipeline, runtime
from gdn_ir.observers import Record, count_ops
from gdn_ir.rewrite import Rewrite
from gdn_ir.verify.canonical import CanonicalCheck
from gdn_ir.verify.structure import StructureCheck, defects, interface


@dataclass
class Outcome:
    """A model after a pipeline, and what the passes reported: rewrites, and why not more."""

    model: ir.Model
    rewrites: list[Rewrite]
    reasons: list[str]

    @property
    def ops(self) -> Counter[str]:
        """Ops of all scopes."""
        return count_ops(self.model)


def optimized(text: str, model: ir.Model) -> Outcome:
    """What a pipeline makes of a copy of the model; each pass is followed by its own checks."""
    record, copy = Record(), model.clone()
    pass_manager.run(copy, pipeline.parse(text), [record, StructureCheck(), CanonicalCheck()])
    rewrites = [rewrite for done in record.passes for rewrite in done.rewrites]
    reasons = [declined.reason for done in record.passes for declined in done.declined]
    return Outcome(copy, rewrites, reasons)


def checked(
    text: str,
    model: ir.Model,
    feeds: Mapping[str, np.ndarray] | None = None,
    *,
    tolerance: float = 1e-6,
) -> Outcome:
    """`optimized`, having checked that the result

    * is valid for onnx and for us, and has the interface that the model had;
    * gives the same outputs on ONNX Runtime, within `tolerance` of each one's largest number;
    * is left alone, to the letter, by the same pipeline.
    """
    outcome = optimized(text, model)
    after = outcome.model
    assert defects(after) == []
    onnx.checker.check_model(ir.to_proto(after), full_check=True)
    assert interface(after.graph.inputs) == interface(model.graph.inputs)
    assert interface(after.graph.outputs) == interface(model.graph.outputs)

    feeds = runtime.random_inputs(model) if feeds is None else dict(feeds)
    pairs = zip(runtime.run(model, feeds), runtime.run(after, feeds), strict=True)
    for index, (old, new) in enumerate(pairs):
        assert_close(new, old, tolerance, f"output {index}")

    again = optimized(text, after)
    assert not again.rewrites
    assert to_text(again.model) == to_text(after)
    return outcome


def assert_close(
    actual: np.ndarray, expected: np.ndarray, tolerance: float, what: str = ""
) -> None:
    """Same type and shape, NaN and infinities in the same places, the rest within tolerance."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
    if expected.dtype.kind != "f" or tolerance == 0:
        np.testing.assert_array_equal(actual, expected, what)
        return
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
    np.testing.assert_allclose(
        actual.astype(np.float64), expected, rtol=0, atol=tolerance * scale, err_msg=what
    )


def error(actual: np.ndarray, exact: np.ndarray) -> float:
    """The largest error relative to the largest exact value; NaN counts as infinite."""
    difference = np.abs(actual.astype(np.float64) - exact)
    return float(np.nan_to_num(difference, nan=np.inf).max() / np.abs(exact).max())


def to_text(model: ir.Model) -> str:
    """The model as ONNX text, constants included."""
    return onnx.printer.to_text(ir.to_proto(model))


def before_and_after(text: str, model: ir.Model) -> str:
    """The regions that a pipeline of one pass replaced, and by what, for a golden file.

    New names, all of them `output/pass/number`, are cut down to `%number`.
    """
    rewrites = optimized(text, model).rewrites
    assert rewrites, "the pass does not fire"
    parts = []
    for rewrite in rewrites:
        before, after = listing(rewrite.before.graph), listing(rewrite.after.graph)
        prefix = f"{rewrite.after.graph.outputs[0].name}/{text.split('{')[0]}/"
        parts.append(f"{rewrite.pass_text} at {rewrite.where}: {rewrite.found}\n")
        parts += [f"before {before}", f"after {after.replace(prefix, '%')}"]
    return "\n".join(parts)


def whole_before_and_after(text: str, model: ir.Model) -> str:
    """The whole model before and after a clean-up, for a golden file."""
    after = optimized(text, model).model
    return f"before {listing(model.graph)}\nafter {listing(after.graph)}"


def listing(graph: ir.Graph, indent: str = "") -> str:
    """One line a node, constants in their places: shorter to read than ONNX's own text."""

    def show(value: ir.Value | None) -> str:
        if value is None:
            return "-"
        constant = value.const_value
        return value.name if constant is None else str(constant.numpy().tolist())

    def typed(value: ir.Value) -> str:
        return f"{value.name} {value.dtype}{value.shape}"

    lines = [f"{indent}({', '.join(map(typed, graph.inputs))}):"]
    for node in graph:
        inner = [attr for attr in node.attributes.values() if attr.type == ir.AttributeType.GRAPH]
        options = "".join(
            f" {a.name}={a.value}" for a in node.attributes.values() if a not in inner
        )
        results, operands = ", ".join(map(typed, node.outputs)), ", ".join(map(show, node.inputs))
        lines.append(f"{indent}  {results} = {node.op_type}{options} ({operands})")
        lines += [listing(attr.as_graph(), indent + "    ") for attr in inner]
    lines.append(f"{indent}  return {', '.join(value.name for value in graph.outputs)}\n")
    return "\n".join(lines)


def declines(text: str, model: ir.Model) -> list[str]:
    """Why a pipeline leaves the model as it is, having checked that it does."""
    outcome = optimized(text, model)
    assert not outcome.rewrites
    assert to_text(outcome.model) == to_text(model)
    return outcome.reasons
