"""BadModel: what is wrong with a file, in one line; and how its parts are called there."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import FunctionProto, NodeProto, OperatorSetIdProto


class BadModel(ValueError):
    """A model that cannot be used. The message is one line: the object, the fault, the remedy."""


def quote(name: object) -> str:
    """A name from the file, escaped and cut to fit a one-line message."""
    text = repr(name)
    return text if len(text) <= 100 else f"{text[:80]}...{text[-1]}"


def bare(name: str) -> str:
    """`quote` without the quotation marks, for what is a word: ops and attributes."""
    return quote(name)[1:-1]


def domain(named: NodeProto | FunctionProto | OperatorSetIdProto) -> str:
    """The domain, with the default one in its short spelling."""
    return "" if named.domain == "ai.onnx" else str(named.domain)


def label(node: NodeProto) -> str:
    """A node as messages call it; many exporters leave the names of nodes empty."""
    if node.name:
        return f"node {quote(node.name)} ({bare(node.op_type)})"
    return f"the {bare(node.op_type)} that makes {quote(next(filter(None, node.output), ''))}"


def chain(names: Iterable[str]) -> str:
    """Names joined by arrows, the middle of a long chain left out."""
    shown = [quote(name) for name in names]
    return " -> ".join(shown if len(shown) <= 6 else [*shown[:5], "...", shown[-1]])


def span(versions: range) -> str:
    """The first and last version of a range."""
    return f"{versions[0]} to {versions[-1]}"
