"""Why an edited graph still computes the same: where the edit's effect ends."""

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import evaluate


def why(right: ir.Model, mutant: ir.Model, feeds: dict[str, np.ndarray]) -> str:
    """The edited node's output is what it was, or a node downstream absorbs the difference.

    Raises:
        AssertionError: neither can be shown in the main graph.
    """
    before, after = _all_values(right, feeds), _all_values(mutant, feeds)
    alike = {name: _equal(before[name], after[name]) for name in before.keys() & after.keys()}
    if all(alike.values()):
        return "no value of the graph changes"
    absorbing = []
    for node in mutant.graph:
        changed = [v for v in node.inputs if v is not None and not alike.get(v.name, True)]
        if changed and all(alike.get(value.name, True) for value in node.outputs):
            zeros = [
                v.name for v in node.inputs
                if v is not None and v.name in after and not after[v.name].any()
            ]  # fmt: skip
            by = f", where '{zeros[0]}' is 0" if zeros and node.op_type in ("Mul", "MatMul") else ""
            absorbing.append(f"{node.op_type} '{node.outputs[0].name}'{by}")
    # A bypassed node is still there, with nobody to read it.
    unread = [n for n, same in alike.items() if not same and not _is_read(mutant, n)]
    assert absorbing or unread, "the outputs are equal, and nothing tells why"
    return "absorbed by " + ", ".join(absorbing) if absorbing else f"{unread[0]} is not read"


def _all_values(model: ir.Model, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    copy = model.clone()
    own = {value.name for value in copy.graph.outputs}
    inner = [v for node in copy.graph for v in node.outputs if v.name and v.name not in own]
    copy.graph.outputs.extend(inner)
    names = [value.name for value in copy.graph.outputs]
    found = dict(zip(names, evaluate(copy, feeds), strict=True))
    constants = {
        name: value.const_value.numpy()
        for name, value in copy.graph.initializers.items()
        if value.const_value is not None
    }
    return {**constants, **found}


def _is_read(model: ir.Model, name: str) -> bool:
    value = ir.convenience.create_value_mapping(model.graph)[name]
    return bool(value.uses()) or value.is_graph_output()


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-11, equal_nan=True)
