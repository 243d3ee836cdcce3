"""Rewrite: the record of one replacement. Gates, reports and pictures all hang on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gdn_ir.evaluate import Array
from gdn_ir.facts import Fact
from gdn_ir.open_shapes import trial_shape


@dataclass(frozen=True)
class Sample:
    """Boundary inputs of a region, by value name, under which its identity is hardest."""

    name: str
    feeds: Mapping[str, Array]


def random_samples(inputs: Sequence[ir.Value]) -> Iterator[Sample]:
    """N(0, 1), once: for an identity that no input is hard for. Open dimensions are 2."""
    rng = np.random.default_rng(0)
    feeds = {}
    for value in inputs:
        feeds[value.name or ""] = rng.standard_normal(trial_shape(value) or ())
    yield Sample("random", feeds)


@dataclass(frozen=True)
class Rewrite:
    """One region replaced by another that computes the same.

    Attributes:
        pass_text: the pass as it stands in a pipeline, options included.
        where: name of the region's first output, which its replacement keeps.
        found: what stood there, in the field's words.
        before: the region as a model; its inputs are the boundary values.
        after: the replacement as a model with the same inputs and outputs.
        assumes: facts about boundary inputs without which the two differ.
        samples: makes the worst-case boundary inputs of this identity.
        warning: why the replacement should not be trusted with real inputs, or "".
    """

    pass_text: str
    where: str
    found: str
    before: ir.Model
    after: ir.Model
    assumes: tuple[Fact, ...]
    samples: Callable[[], Iterable[Sample]]
    warning: str = ""


@dataclass(frozen=True)
class Declined:
    """A candidate that a pass left alone.

    Attributes:
        pass_text: the pass as it stands in a pipeline.
        where: name of the value at which the candidate was found.
        reason: what is missing, and what a user can do about it.
    """

    pass_text: str
    where: str
    reason: str
