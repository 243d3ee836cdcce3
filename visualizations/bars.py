"""A horizontal bar chart as SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

_WIDTH, _ROW, _TOP, _PLOT = 760, 30, 46, 300
_LABEL = 30
# Of the first, which the others are compared with, and of the others: grey and blue.
_COLOURS = ("#9e9e9e", "#4a7fb5")
# Control characters have no place in XML.
_PRINTABLE = dict.fromkeys(range(32), "?")


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """One bar for each row: a label, a length of at least 0, and what stands behind the bar.

    The same text for the same rows. Long labels are cut in the middle.
    """
    left = _WIDTH - _PLOT - 180
    longest = max((length for _, length, _ in rows), default=0) or 1.0
    height = _TOP + _ROW * len(rows) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="Helvetica, Arial, sans-serif" '
        'font-size="14">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="26" font-weight="bold">{_safe(title)}</text>',
    ]
    for index, (label, length, note) in enumerate(rows):
        y = _TOP + _ROW * index
        width = max(1.0, _PLOT * length / longest)
        parts += [
            f'<text x="{left - 8}" y="{y + 18}" text-anchor="end">{_safe(_cut(label))}</text>',
            f'<rect x="{left}" y="{y + 4}" width="{width:.1f}" height="{_ROW - 10}" '
            f'fill="{_COLOURS[index > 0]}"/>',
            f'<text x="{left + width + 8:.1f}" y="{y + 18}">{_safe(note)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cut(label: str) -> str:
    half = _LABEL // 2 - 1
    return label if len(label) <= _LABEL else f"{label[:half]}…{label[-half:]}"


def _safe(text: str) -> str:
    return escape(text.translate(_PRINTABLE))
