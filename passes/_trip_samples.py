"""Inputs on which to try a repetition: all the lengths that matter; for static-unroll."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from gdn_ir import runtime
from gdn_ir.evaluate import CannotEvaluate, evaluate
from gdn_ir.graph_view import trip_counts
from gdn_ir.rewrite import Sample
from gdn_ir.verify.shapes import bind, symbols


def small_sample(before: ir.Model) -> Iterator[Sample]:
    """Small random inputs: the identity is hard for none, and recurrences of large ones explode."""
    yield Sample("random", runtime.random_inputs(bind(before, _small(before))))


def samples_of_lengths(before: ir.Model, lengths: Sequence[int]) -> Iterator[Sample]:
    """The same at each length: of the trip count, or of each open dimension in turn.

    Lengths that the repetition itself cannot have, as it would index beyond an end, are left out.
    """
    counts, small = trip_counts(before), _small(before)
    tried: list[Sample] = []
    # What has no elements, as a dimension of 0 would make it, shows little.
    for length in lengths if counts else filter(None, lengths):
        for name in [""] if counts else small:
            bound = bind(before, {**small, name: length})
            feeds = runtime.random_inputs(bound)
            feeds.update((count, np.full_like(feeds[count], length)) for count in counts)
            tried.append(Sample(f"random, length {length}", feeds))
    runs = [sample for sample in tried if _runs(before, sample)]
    yield from runs or tried[:1] or small_sample(before)


def _small(before: ir.Model) -> dict[str, int]:
    return {name: 2 + index for index, name in enumerate(symbols(before))}


def _runs(before: ir.Model, sample: Sample) -> bool:
    try:
        evaluate(before, sample.feeds)
    except CannotEvaluate:
        return False
    return True
