"""no-ops: a node that hands its input on as it is goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import onnx_ir as ir

from gdn_ir.facts import static_shape
from gdn_ir.graph_view import scopes
from gdn_ir.matching import OpIndex, array_of
from gdn_ir.pass_base import Pass
from gdn_ir.region import OpenRegion, Region, replace
from gdn_ir.rewrite import Declined, Rewrite, random_samples

# These keep the order of the elements, so that an equal shape means equal content.
_SAME_ORDER = ("Expand", "Flatten", "Reshape", "Squeeze", "Tile", "Unsqueeze")


@dataclasses.dataclass(frozen=True)
class NoOps(Pass):
    """A Cast to its own type, a Reshape to its own shape and the like become their input.

    Identity: with equal type and static shape, Expand, Flatten, Reshape, Squeeze, Tile, Unsqueeze
    and a Slice of positive steps give back what they get; so do, whatever the shape, a Pad of
    zeros, a Cast to the same type, a Transpose that moves no axis and a Concat of one tensor.
    Each becomes an Identity, which `identity` removes where no output needs it.

    Cost: none. TorchScript exports cast, expand and slice at every indexed assignment.
    """

    name: ClassVar[str] = "no-ops"

    def rewrites(self, model: ir.Model) -> Iterator[Rewrite | Declined]:
        """One for each such node, in all scopes."""
        for graph in scopes(model):
            candidates = OpIndex(graph).of(
                *_SAME_ORDER, "Cast", "Concat", "Pad", "Slice", "Transpose"
            )
            for node in candidates:
                if _gives_its_input(node) and node.inputs[0] is not None:
                    yield from self._rewrite(model, node, node.inputs[0])

    def _rewrite(self, model: ir.Model, node: ir.Node, x: ir.Value) -> Iterator[Rewrite | Declined]:
        text, where = f"{node.op_type} that changes nothing", node.outputs[0].name or ""
        if x.shape is None or x.dtype is None:
            reason = f"{text}: the type or rank of '{x.name}' is not known; run infer-shapes first"
            yield Declined(str(self), where, reason)
            return
        try:
            region = Region.between([x], [node.outputs[0]])
        except OpenRegion:
            return  # its shape is computed, even if the result is known
        before, after = replace(model, region, lambda emit: [x], tag=str(self))
        yield Rewrite(
            pass_text=str(self),
            where=where,
            found=text,
            before=before,
            after=after,
            assumes=(),
            samples=lambda: random_samples(region.inputs),
        )


def _gives_its_input(node: ir.Node) -> bool:
    x, result = node.inputs[0], node.outputs[0]
    if x is None:
        return False
    is_same_shape = static_shape(x) is not None and static_shape(x) == static_shape(result)
    if node.op_type in _SAME_ORDER:
        return is_same_shape
    if node.op_type == "Slice":
        steps = node.inputs[4] if len(node.inputs) > 4 else None
        array = array_of(steps)
        return is_same_shape and (steps is None or (array is not None and bool((array > 0).all())))
    if node.op_type == "Cast":
        return x.dtype is not None and x.dtype.value == node.attributes["to"].as_int()
    if node.op_type == "Pad":
        pads = array_of(node.inputs[1])
        return pads is not None and not pads.any()
    if node.op_type == "Transpose":
        perm = node.attributes.get("perm")
        return perm is not None and list(perm.as_ints()) == sorted(perm.as_ints())
    return len(node.inputs) == 1  # Concat
