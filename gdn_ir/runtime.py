"""ONNX Runtime: sessions, random inputs, and timing that one session cannot spoil for another."""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from gdn_ir.evaluate import Array
from gdn_ir.graph_view import index_bound

# protobuf's limit is 2 GiB; beyond this much weight a model goes through a file.
_MOST_IN_MEMORY = 2**30
_ERRORS_ONLY = 3
# What stands before a message: "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : ".
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")


Provider = Literal["cpu", "cuda"]
_PROVIDERS: dict[Provider, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class RunFailed(RuntimeError):
    """ONNX Runtime cannot build or run the model; says what it said, in one line."""


@contextmanager
def session(
    model: ir.Model | str | os.PathLike[str],
    *,
    threads: int | None = None,
    provider: Provider = "cpu",
) -> Iterator[ort.InferenceSession]:
    """A session without spinning threads, released at the end of the block.

    Raises:
        RunFailed: ONNX Runtime has no such provider, rejects the model, or fails in the block.
    """
    wanted = _PROVIDERS[provider]
    if wanted not in ort.get_available_providers():
        raise RunFailed(
            f"this onnxruntime has no {wanted}; for cuda, install onnxruntime-gpu in its place"
        )
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    # Idle threads of one session spin on the cores that another one needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.intra_op_num_threads = threads or usable_cores()
    try:
        with _loadable(model) as source:
            opened = ort.InferenceSession(source, options, providers=[wanted])
        # What fails to start is left out by ONNX Runtime without an error.
        if opened.get_providers()[0] != wanted:
            raise RunFailed(f"{wanted} does not start; see that its libraries and driver are found")
        yield opened
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        message = _CODE.sub("", str(error).strip().splitlines()[0])
        raise RunFailed(f"ONNX Runtime: {message}") from error


def usable_cores() -> int:
    """Cores that this process may use; ONNX Runtime's own count ignores hyperthreads and limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _loadable(model: ir.Model | str | os.PathLike[str]) -> Iterator[str | bytes]:
    if not isinstance(model, ir.Model):
        yield str(Path(model).absolute())
        return
    # Weights outside would be looked for in the current folder.
    outside = any(isinstance(tensor, ir.ExternalTensor) for tensor in _weights(model))
    if not outside and weight_bytes(model) <= _MOST_IN_MEMORY:
        yield ir.to_proto(model).SerializeToString()
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ir.save(model, path, external_data="model.data")
        yield str(path)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers of the main graph."""
    return sum(tensor.nbytes for tensor in _weights(model))


def _weights(model: ir.Model) -> list[ir.TensorProtocol]:
    tensors = [value.const_value for value in model.graph.initializers.values()]
    return [tensor for tensor in tensors if tensor is not None]


def run(
    model: ir.Model | str | os.PathLike[str],
    feeds: Mapping[str, Array],
    *,
    provider: Provider = "cpu",
) -> list[Array]:
    """Runs the model once and returns its outputs in order.

    Raises:
        RunFailed: as `session`.
    """
    with session(model, provider=provider) as opened:
        outputs: list[Array] = opened.run(None, dict(feeds))
    return outputs


def random_inputs(model: ir.Model, seed: int = 0) -> dict[str, Array]:
    """Inputs that no part of a GDN explodes on: floats N(0, 1) / 8, indices inside what they index.

    Inputs that have a default keep it.

    Raises:
        ValueError: an input has a dimension without a number, or a type that is not a number.
    """
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in model.graph.inputs:
        name, dtype = value.name or "", value.dtype
        if value.const_value is not None:
            continue  # it has a default
        if value.shape is None or not value.shape.is_static():
            raise ValueError(
                f"input '{name}' has shape {value.shape or '?'}: "
                "pass its values, or fix its dimensions first"
            )
        shape = value.shape.numpy()
        if dtype is not None and dtype.is_floating_point():
            feeds[name] = np.asarray(rng.standard_normal(shape) / 8, dtype.numpy())
        elif dtype is not None and (dtype.is_integer() or dtype == ir.DataType.BOOL):
            indices = rng.integers(0, index_bound(value, otherwise=2), shape)
            feeds[name] = np.asarray(indices, dtype.numpy())
        else:
            raise ValueError(f"input '{name}' has type {dtype}: pass its values")
    return feeds


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one run: the median, and all of them."""

    median_ms: float
    all_ms: tuple[float, ...]


def time_interleaved(
    models: Sequence[ir.Model | str | os.PathLike[str]],
    feeds: Sequence[Mapping[str, Array]],
    *,
    rounds: int = 7,
    runs: int = 3,
    threads: int | None = None,
    provider: Provider = "cpu",
) -> list[Timing]:
    """Times models against each other on a machine that may be noisy.

    In every round each model gets a session of its own, alone; one run warms it up and `runs` are
    timed. What slows the machine down for a while so slows all models alike.
    """
    times: list[list[float]] = [[] for _ in models]
    for _ in range(rounds):
        for model, inputs, collected in zip(models, feeds, times, strict=True):
            with session(model, threads=threads, provider=provider) as opened:
                opened.run(None, dict(inputs))
                for _ in range(runs):
                    start = time.perf_counter()
                    opened.run(None, dict(inputs))
                    collected.append((time.perf_counter() - start) * 1e3)
    return [Timing(statistics.median(ms), tuple(ms)) for ms in times]
