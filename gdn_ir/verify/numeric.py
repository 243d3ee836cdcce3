"""The numeric gate: a rewritten region may not be less accurate than the one it replaces.

Equal algebra can lose every digit: a doubling series equals the row loop in exact arithmetic and
is off by 1e9 on identical keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from gdn_ir import runtime
from gdn_ir.evaluate import Array, CannotEvaluate, evaluate
from gdn_ir.pass_manager import Observer
from gdn_ir.rewrite import Rewrite, Sample
from gdn_ir.structural_hash import model_digest
from gdn_ir.verify import Evidence, VerificationFailed

# err(after) <= _FACTOR * err(before) + _FLOOR * eps * scale; in float32 the floor is 1e-6 of scale.
_FACTOR = 4.0
_FLOOR = 8.0
# A region that is wrong by more is no licence to be wrong.
_MOST_BEFORE = 0.05
# Whole models differ by what all their regions differ; in float32 1e-5 of scale.
_WHOLE_FLOOR = 84.0
_WHOLE_LIMIT = 2**30


@dataclass(frozen=True)
class RegionError:
    """Largest error of an output against float64 on one sample, relative to its largest value.

    Attributes:
        where: the output.
        pass_text: the pass that replaced the region.
        sample: the name of the inputs.
        before, after: the errors of the region and of its replacement.
        limit: the most that `after` may be.
        same_special_values: whether NaN and infinities stand in the same places.
    """

    where: str
    pass_text: str
    sample: str
    before: float
    after: float
    limit: float
    same_special_values: bool

    @property
    def is_accepted(self) -> bool:
        """Whether the replacement is accurate enough; an error of NaN is not."""
        return self.after <= self.limit and self.same_special_values


@dataclass(frozen=True)
class WholeModelError:
    """Largest difference of an output from the original's, relative to the output's largest."""

    output: str
    difference: float


@dataclass(frozen=True)
class NotRun:
    """A rewrite that the numeric gate has no opinion on."""

    rewrite: Rewrite
    reason: str

    def __str__(self) -> str:
        """For a report."""
        return f"not run: '{self.rewrite.where}' ({self.rewrite.pass_text}): {self.reason}"


class NumericGate(Observer):
    """Runs each distinct rewritten region, before and after, on its worst-case samples.

    Both run on ONNX Runtime; the truth is the region before in float64. Regions that are written
    alike (repeated layers) are run once.

    Attributes:
        errors: the errors of all regions that were run.
        not_run: rewrites of regions that cannot be run, and why.
        repeated: how many rewrites were equal to one that had been run.
        seconds: time spent.
    """

    def __init__(self) -> None:
        self.errors: list[RegionError] = []
        self.not_run: list[NotRun] = []
        self.repeated = 0
        self.seconds = 0.0
        self._passed: set[tuple[str, str]] = set()

    def rewrote(self, rewrite: Rewrite) -> None:
        """Raises `VerificationFailed` if the replacement is less accurate on any sample."""
        key = (model_digest(rewrite.before), model_digest(rewrite.after))
        if key in self._passed:
            self.repeated += 1
            return
        start = time.perf_counter()
        try:
            self._measure(rewrite)
        except (runtime.RunFailed, CannotEvaluate) as error:
            self.not_run.append(NotRun(rewrite, str(error)))
        except VerificationFailed as failure:
            if failure.evidence is None:  # it does not even start
                feeds = next(iter(rewrite.samples())).feeds
                failure.evidence = Evidence.of(rewrite, feeds=feeds)
            raise
        self._passed.add(key)
        self.seconds += time.perf_counter() - start

    def _measure(self, rewrite: Rewrite) -> None:
        measured = measure(rewrite.before, rewrite.after, rewrite.samples(), rewrite.pass_text)
        for sample, errors in measured:
            self.errors += errors
            for error in errors:
                if error.is_accepted:
                    continue
                raise VerificationFailed(
                    f"numeric gate: pass '{error.pass_text}' at '{error.where}': on "
                    f"{error.sample} {_complaint(error)}; use another method, or "
                    "--verify none to write it all the same",
                    Evidence.of(rewrite, feeds=sample.feeds),
                )


def _complaint(error: RegionError) -> str:
    if error.after <= error.limit:
        return "NaN or infinities stand in other places than before"
    return f"the error grows from {error.before:.1e} to {error.after:.1e} of scale"


def measure(
    before: ir.Model, after: ir.Model, samples: Iterable[Sample], pass_text: str
) -> Iterator[tuple[Sample, list[RegionError]]]:
    """Errors of a region and its replacement on each sample, in the models' own types.

    Yields:
        The sample as it was fed, and the error of each output.

    Raises:
        gdn_ir.runtime.RunFailed: ONNX Runtime does not run the region before.
        gdn_ir.evaluate.CannotEvaluate: it has no value in float64.
        VerificationFailed: ONNX Runtime does not run the replacement.
    """
    with runtime.session(before) as old_session, _opened(after, pass_text) as new_session:
        for sample in samples:
            fed = Sample(sample.name, _in_model_types(before, sample))
            truths = evaluate(before, fed.feeds)
            olds, news = (session.run(None, fed.feeds) for session in (old_session, new_session))
            outputs = zip(before.graph.outputs, truths, olds, news, strict=True)
            yield (
                fed,
                [
                    _region_error(value.name or "", pass_text, sample.name, true, old, new)
                    for value, true, old, new in outputs
                ],
            )


@contextmanager
def _opened(after: ir.Model, pass_text: str) -> Iterator[ort.InferenceSession]:
    """A session of the replacement; that it cannot be built is the pass's failure."""
    with ExitStack() as stack:
        try:
            session = stack.enter_context(runtime.session(after))
        except runtime.RunFailed as error:
            raise VerificationFailed(
                f"numeric gate: pass '{pass_text}': what it made does not run: {error}"
            ) from error
        yield session


def _region_error(
    where: str, pass_text: str, sample: str, true: Array, old: Array, new: Array
) -> RegionError:
    # What overflows where it stood is compared by place alone; it would drown all else.
    judged = np.where(np.isfinite(old), true, np.inf) if old.shape == true.shape else true
    scale = _scale(judged)
    error_before = _largest(old, judged) / scale
    eps = float(np.finfo(old.dtype).eps) if old.dtype.kind == "f" else 0.0
    return RegionError(
        where=where,
        pass_text=pass_text,
        sample=sample,
        before=error_before,
        after=_largest(new, judged) / scale,
        limit=_FACTOR * min(error_before, _MOST_BEFORE) + _FLOOR * eps,
        same_special_values=_same_special_values(old, new),
    )


def compare_models(
    original: ir.Model, optimized: ir.Model, feeds: dict[str, Array]
) -> list[WholeModelError]:
    """Runs both models whole and compares each output.

    Raises:
        VerificationFailed: an output differs by more than 84 eps of its scale (float32: 1e-5), or
            has NaN or infinities elsewhere.
        gdn_ir.runtime.RunFailed: ONNX Runtime does not run the original.
    """
    errors = []
    names = [value.name or "" for value in original.graph.outputs]
    olds = runtime.run(original, feeds)
    try:
        news = runtime.run(optimized, feeds)
    except runtime.RunFailed as error:
        raise VerificationFailed(
            f"numeric gate: the whole model does not run any more: {error}",
            Evidence("", original, optimized, feeds=feeds),
        ) from error
    results = zip(names, olds, news, strict=True)
    for name, old, new in results:
        if old.dtype.kind != "f":
            equal = np.array_equal(old, new)
            errors.append(WholeModelError(name, 0.0 if equal else float("inf")))
            tolerance = 0.0
        else:
            errors.append(WholeModelError(name, _largest(new, old) / _scale(old)))
            tolerance = _WHOLE_FLOOR * float(np.finfo(old.dtype).eps)
        if not errors[-1].difference <= tolerance or not _same_special_values(old, new):
            raise VerificationFailed(
                f"numeric gate: output '{name}' of the whole model differs by "
                f"{errors[-1].difference:.1e} of its scale; at most {tolerance:.1e} is allowed",
                Evidence("", original, optimized, feeds=feeds),
            )
    return errors


def is_small_enough(model: ir.Model) -> bool:
    """Whether a model is run whole: up to 1 GiB of weights."""
    return runtime.weight_bytes(model) <= _WHOLE_LIMIT


def _in_model_types(model: ir.Model, sample: Sample) -> dict[str, Array]:
    types = {value.name: value.dtype for value in model.graph.inputs}
    feeds = {}
    for name, array in sample.feeds.items():
        dtype = types[name]
        feeds[name] = array if dtype is None else array.astype(dtype.numpy())
    return feeds


def _scale(true: Array) -> float:
    finite = np.abs(true[np.isfinite(true)])
    return max(float(finite.max(initial=0)), float(np.finfo(np.float32).tiny))


def _largest(values: Array, true: Array) -> float:
    """The largest difference where the truth is finite; NaN and another shape count as infinite."""
    if values.shape != true.shape:
        return float("inf")
    where = np.isfinite(true)
    with np.errstate(all="ignore"):
        difference = np.abs(values[where].astype(np.float64) - true[where])
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0))


def _same_special_values(old: Array, new: Array) -> bool:
    if old.dtype.kind != "f":
        return True
    if old.shape != new.shape:
        return False
    special = ~np.isfinite(old)
    same = np.array_equal(special, ~np.isfinite(new))
    return same and np.array_equal(old[special], new[special], equal_nan=True)
