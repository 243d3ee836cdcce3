"""Folds steps that are written out one after another: rows, chunks, layers.

A step is a stretch of the graph's order. Two steps are alike when their ops are, whatever the
sizes, when these are wired alike among themselves, and when they take the same from the step
before. What the first step takes instead (a constant, an input) is free.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from gdn_ir.graph_view import operands
from gdn_ir.visualizations.elements import Element, Group, op_of, ops, repeat_of

# Fewer would save nothing that a box around them does not cost.
_LEAST_HIDDEN = 4
# Of steps that take nothing from each other: shorter ones are siblings (five inputs transposed).
_LEAST_UNLINKED = 12
# Elements of a step; a layer has about a thousand before its rows are folded.
_LONGEST = 4096
_PHASES = 16

# Nodes looked at before a search ends. Exports of many layers need about five for each of theirs,
# those of TorchScript twenty.
_EFFORT = 100_000
_EFFORT_PER_NODE = 40

# Of each node: which operand, who makes it, and which output of that it is.
_Makers: TypeAlias = Mapping[ir.Node, Sequence[tuple[int, ir.Node, int]]]


@dataclasses.dataclass(frozen=True)
class _Found:
    """Steps from `start` on, `count` of them, of `period` elements."""

    start: int
    period: int
    count: int
    carried: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count


def fold_repeats(nodes: Iterable[ir.Node]) -> list[Element]:
    """The nodes of a scope, in order, with repeats folded from the shortest on, and within them.

    Of graphs in which much looks alike but is wired at random, only what is found in time.
    """
    sequence: list[Element] = [op_of(node) for node in nodes]
    makers = {
        node: [
            (index, producer, value.index() or 0)
            for index, value in enumerate(operands(node))
            if (producer := value.producer()) is not None
        ]
        for op in ops(sequence)
        for node in op.nodes
    }
    search = _Search(sequence, makers, effort=_EFFORT + _EFFORT_PER_NODE * len(sequence))
    while found := search.shortest():
        search = _Search(_folded(search.sequence, found), makers, search.effort)
    return search.sequence


class _Search:
    """Looks for repeats in a sequence of elements until `effort`, in nodes looked at, is spent."""

    def __init__(self, sequence: list[Element], makers: _Makers, effort: int) -> None:
        self.sequence = sequence
        self.effort = effort - len(sequence)
        self._makers = makers
        # Of each node: its element, the op in that, the step of that.
        self._places = {
            node: (position, index, step)
            for position, element in enumerate(sequence)
            for index, op in enumerate(ops([element]))
            for step, node in enumerate(op.nodes)
        }

    def shortest(self) -> list[_Found]:
        """All repeats of the shortest period that has one."""
        known: dict[str, int] = {}
        numbers = [known.setdefault(_signature(e), len(known)) for e in self.sequence]
        names = np.array(numbers, np.int64)
        for period in range(1, min(len(numbers) // 2, _LONGEST) + 1):
            found: list[_Found] = []
            for start, stop in _runs(names[:-period] == names[period:]):
                start = max(start, found[-1].stop) if found else start
                steps = self._best_phase(start, stop + period, period)
                if steps is not None:
                    found.append(steps)
            if found or self.effort <= 0:
                return found
        return []

    def _best_phase(self, start: int, stop: int, period: int) -> _Found | None:
        """Most steps; of as many, those that hand least on to the next, which are whole ones."""

        def promise(phase: int) -> tuple[int, int, int]:
            carried = self._wiring(start + phase + period, period)[1]
            return -((stop - start - phase) // period), len(set(carried)), phase

        spare = stop - start - 2 * period
        if spare < 0 or self.effort <= 0:
            return None
        best: _Found | None = None
        # Most promising first: to look at all steps of all phases takes ten times as long.
        for count, _, phase in sorted(map(promise, range(min(spare, period - 1, _PHASES) + 1))):
            steps = self._alike(start + phase, period, -count)
            if steps is not None and (best is None or steps.count > best.count):
                best = steps
            if self.effort <= 0 or (best is not None and best.count >= -count):
                break
        return best if best is not None and self._is_worth_a_box(best) else None

    def _is_worth_a_box(self, found: _Found) -> bool:
        size = sum(1 for _ in ops(self.sequence[found.start : found.start + found.period]))
        hidden = size * (found.count - 1)
        return hidden >= _LEAST_HIDDEN and (found.carried > 0 or size >= _LEAST_UNLINKED)

    def _alike(self, start: int, period: int, count: int) -> _Found | None:
        """The longest stretch of steps that are wired alike."""
        wirings = [self._wiring(start + step * period, period) for step in range(count)]
        first, best = 0, (0, 0)
        for step in range(1, count + 1):
            goes_on = step < count and wirings[step][0] == wirings[first][0]
            if goes_on and step - first > 1:
                goes_on = wirings[step][1] == wirings[first + 1][1]
            if not goes_on:
                best = max(best, (step - first, -first))
                first = step
        length, first = best[0], -best[1]
        if length < 2:
            return None
        carried = len(set(wirings[first + 1][1]))
        return _Found(start + first * period, period, length, carried)

    def _wiring(self, start: int, period: int) -> tuple[list[Any], list[Any]]:
        """What the step at `start` takes from itself, and what from the step before."""
        inner: list[Any] = []
        carried: list[Any] = []
        for index, op in enumerate(ops(self.sequence[start : start + period])):
            self.effort -= len(op.nodes)
            for step, node in enumerate(op.nodes):
                for operand, producer, output in self._makers[node]:
                    place = self._places.get(producer)
                    if place is None:
                        continue
                    offset = place[0] - start
                    taken = (index, step, operand, offset, *place[1:], output)
                    if 0 <= offset < period:
                        inner.append(taken)
                    elif -period <= offset < 0:
                        carried.append(taken)
        return inner, carried


def _signature(element: Element) -> str:
    if isinstance(element, Group):
        raise TypeError("groups are made after repeats")
    return element.signature


def _runs(equal: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Where True begins and ends."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _folded(sequence: Sequence[Element], found: Sequence[_Found]) -> list[Element]:
    result: list[Element] = []
    position = 0
    for steps in found:
        result += sequence[position : steps.start]
        firsts = range(steps.start, steps.stop, steps.period)
        result.append(repeat_of([sequence[first : first + steps.period] for first in firsts]))
        position = steps.stop
    return result + list(sequence[position:])
