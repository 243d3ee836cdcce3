"""Models of one interface timed against each other on ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from gdn_ir import model_file, runtime
from gdn_ir.dimensions import bind_dimensions
from gdn_ir.evaluate import Array
from gdn_ir.observers import count_nodes
from gdn_ir.runtime import Provider, Timing
from gdn_ir.verify.equivalence import check_interfaces

Source = ir.Model | str | os.PathLike[str]


@dataclass(frozen=True)
class Measured:
    """What one model took.

    Attributes:
        name: of its file or graph.
        nodes: of all scopes, constants not counted.
        timing: milliseconds of a run.
        times_faster: than the first model, by the medians.
        apart: largest distance of its outputs from those of the first model, relative to the
            largest number of that output; NaN if one of the two has a NaN elsewhere.
    """

    name: str
    nodes: int
    timing: Timing
    times_faster: float
    apart: float


def bench(
    models: Sequence[Source],
    *,
    dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Array] | None = None,
    rounds: int = 7,
    runs: int = 3,
    provider: Provider = "cpu",
) -> list[Measured]:
    """Runs the models on the same inputs in interleaved rounds, one session alive at a time.

    Args:
        models: paths or models; the first one is what the others are compared with.
        dims: sizes of the inputs' symbolic dimensions, for random inputs; the models stay as they
            are.
        inputs: arrays by name; random ones, N(0, 1) / 8, if None.
        rounds: how often each model gets a session.
        runs: timed in each session, after one that warms it up.
        provider: where to run.

    Raises:
        ValueError: bad input, or an input or output that not all models have.
        gdn_ir.runtime.RunFailed: ONNX Runtime rejects a model.
    """
    if not models:
        raise ValueError("name at least one model to time")
    loaded = [m if isinstance(m, ir.Model) else model_file.load(m) for m in models]
    for other in loaded[1:]:
        check_interfaces(loaded[0], other)
    feeds = dict(_random(loaded[0], dims or {}) if inputs is None else inputs)
    outputs = [runtime.run(model, feeds, provider=provider) for model in models]
    timings = runtime.time_interleaved(
        models, [feeds] * len(models), rounds=rounds, runs=runs, provider=provider
    )
    return [
        Measured(
            name=_name(source),
            nodes=count_nodes(model),
            timing=timing,
            times_faster=timings[0].median_ms / timing.median_ms,
            apart=max(map(_apart, outputs[0], arrays), default=0.0),
        )
        for source, model, timing, arrays in zip(models, loaded, timings, outputs, strict=True)
    ]


def _random(model: ir.Model, dims: Mapping[str, int]) -> dict[str, Array]:
    bound = model.clone()
    bind_dimensions(bound, dims)
    try:
        return runtime.random_inputs(bound)
    except ValueError as error:
        raise ValueError(f"{error}; sizes of open dimensions are given as --dim S=512") from None


def _name(source: Source) -> str:
    return source.graph.name or "model" if isinstance(source, ir.Model) else Path(source).name


def _apart(first: Array, other: Array) -> float:
    if first.shape != other.shape:
        return float("inf")
    if first.dtype.kind not in "fiu" or not first.size:
        return 0.0 if np.array_equal(first, other) else float("inf")
    wide = first.astype(np.float64)
    scale = np.abs(wide).max() or 1.0
    return float(np.abs(wide - other.astype(np.float64)).max() / scale)
