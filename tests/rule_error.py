"""How far a model of the gated delta rule is from the recurrence, on ONNX Runtime."""

import numpy as np
import onnx_ir as ir
import onnxruntime

from gdn_ir.models.reference import adversarial_inputs, recurrence
from gdn_ir.models.reference import l2norm as normalise

# beta 2 makes every write a reflection, which adds rounding errors up instead of damping them.
# Strong decay sums g to -5000 before it subtracts: 4 of float32's 7 digits go there.
LIMITS = {"beta_two": 1e-4, "strong_decay": 1e-4}
_SHAPE_ARGUMENTS = ("batch", "heads", "key_heads", "head_dim", "value_dim", "state")


def session_for(model: ir.Model) -> onnxruntime.InferenceSession:
    """A session on the CPU with one thread: the models here are tiny."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def rule_errors(model: ir.Model, families: dict, *, l2norm: bool = False) -> dict[str, float]:
    """The largest error of each family's outputs, relative to the largest expected value.

    The model's inputs are named as in `gdn_ir.models.reference`, its outputs `o` and perhaps
    `final_state`. The recurrence gets the numbers that the model gets, after their rounding.
    """
    session = session_for(model)
    names = [v.name for v in model.graph.outputs]
    errors = {}
    for family, x in families.items():
        fed = {v.name: x[v.name].astype(v.dtype.numpy()) for v in model.graph.inputs}
        exact = {name: array.astype(np.float64) for name, array in fed.items()}
        if l2norm:
            exact |= {name: normalise(exact[name]) for name in ("q", "k")}
        expected = dict(zip(("o", "final_state"), recurrence(**exact), strict=True))
        actual = dict(zip(names, session.run(names, fed), strict=True))
        errors[family] = max(
            float(np.max(np.abs(actual[n] - expected[n])) / np.max(np.abs(expected[n])))
            for n in names
        )
    return errors


def assert_is_the_rule(model: ir.Model, case: dict, seq: int, *, limit: float = 1e-5) -> None:
    """Compares a model built with the arguments `case` with the recurrence, at `seq` tokens.

    `limit` bounds the error of every family of inputs but those of `LIMITS`, which may have more.
    """
    shape = {name: case[name] for name in _SHAPE_ARGUMENTS if name in case}
    families = adversarial_inputs(seq=seq, **shape)
    errors = rule_errors(model, families, l2norm=case.get("l2norm", False))
    for family, error in errors.items():
        assert error < max(limit, LIMITS.get(family, 0)), (family, seq)
