"""Scenes as Graphviz text. The same scenes give the same text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence

from gdn_ir.visualizations import kinds
from gdn_ir.visualizations.scene import Box, Edge, Item, Row, Scene, count_boxes

# Labels on edges cost more layout time than all else, and past this they hide what they label.
_MOST_LABELLED = 40
# One whose widths every engine knows; a list of fonts is taken for a name it does not know.
_FONT = "Helvetica"
_REPEAT = "#b07400"
_REPEAT_LEGEND = "<B>x9</B> a step that stands there 9 times; dashed: to the next step"
_LEGEND = (
    (kinds.COPY_IN, "copy in: inputs, Slice, Gather, Split"),
    (kinds.COPY_OUT, "copy out: outputs, Scatter, Concat"),
    (kinds.MATMUL, "matrix product"),
    (kinds.WORK, "other arithmetic"),
    (kinds.VIEW, "view: moves nothing"),
)


def to_dot(scenes: Sequence[Scene], counts: Sequence[Sequence[str]]) -> str:
    """One digraph with a cluster a scene, side by side.

    Args:
        scenes: what to draw, from left to right.
        counts: rows of a table that stands above them; the first is its head.
    """
    labelled = sum(count_boxes(scene.cluster) for scene in scenes) <= _MOST_LABELLED
    lines = [
        "digraph gdn_ir {",
        f'graph [fontname="{_FONT}", fontsize=11, labelloc=t, labeljust=l, nodesep=0.12, '
        'ranksep=0.13, margin=0.1, pad=0.1, bgcolor=white, tooltip=" "];',
        f'node [shape=plain, fontname="{_FONT}", fontsize=10];',
        f'edge [fontname="{_FONT}", fontsize=8, fontcolor="#666666", color="#8a8a8a", '
        "arrowsize=0.5];",
        f"label=<{_heading(counts)}>;",
    ]
    for scene in scenes:
        lines += _item(scene.cluster, 0, labelled)
        lines += [_edge(edge, labelled) for edge in scene.edges]
    return "\n".join([*lines, "}", ""])


def _item(item: Item, depth: int, labelled: bool) -> Iterator[str]:
    if isinstance(item, Box):
        hint = f", tooltip={_quoted(item.hint)}" if item.hint else ""
        yield f"{item.name} [label=<{_box(item, labelled)}>{hint}];"
        return
    colour = _REPEAT if item.count else "#999999"
    title = _text(item.title)
    if item.count:
        badge = f'<B><FONT POINT-SIZE="15" COLOR="{colour}">x{item.count}</FONT></B>'
        title = f'{badge} <FONT POINT-SIZE="8" COLOR="{colour}">{title}</FONT>'
    yield f"subgraph cluster_{item.name} {{"
    style = "rounded,bold" if item.count else "rounded"
    fill = "#fffaf0" if item.count else ("#fafafa" if depth == 0 else "#f3f6fb")
    yield f'graph [label=<{title}>, style="{style},filled", color="{colour}", '
    yield f'fillcolor="{fill}", tooltip=" ", margin=6];'
    for child in item.children:
        yield from _item(child, depth + 1, labelled)
    yield "}"


def _box(box: Box, labelled: bool) -> str:
    rows = [_row(row, "") for row in box.rows[:-1]]
    # Where edges have labels, they tell the shapes.
    rows.append(_row(box.rows[-1], "" if labelled else box.shape))
    if box.title:
        rows.insert(0, f'<TR><TD COLSPAN="2"><B>{_text(box.title)}</B></TD></TR>')
    return (
        '<TABLE BORDER="1" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1" COLOR="#777777" '
        f'BGCOLOR="#ffffff">{"".join(rows)}</TABLE>'
    )


def _row(row: Row, shape: str) -> str:
    size = 8 if row.kind.name == "view" else 10
    text = f'<FONT POINT-SIZE="{size}" COLOR="{row.kind.ink}">{_text(row.text)}</FONT>'
    if row.detail:
        text += f' <FONT POINT-SIZE="7" COLOR="#777777">{_text(row.detail)}</FONT>'
    fill = row.kind.fill
    if not shape:
        return f'<TR><TD ALIGN="LEFT" COLSPAN="2" BGCOLOR="{fill}">{text}</TD></TR>'
    told = f'<FONT POINT-SIZE="7" COLOR="#777777">{_text(shape)}</FONT>'
    return (
        f'<TR><TD ALIGN="LEFT" BGCOLOR="{fill}">{text}</TD>'
        f'<TD ALIGN="RIGHT" BGCOLOR="{fill}">{told}</TD></TR>'
    )


def _edge(edge: Edge, labelled: bool) -> str:
    settings = []
    if edge.carried:
        settings.append(f'style=dashed, color="{_REPEAT}", constraint=false')
    if edge.shape and labelled:
        settings.append(f"label={_quoted(edge.shape)}")
    if edge.hint:
        settings.append(f"edgetooltip={_quoted(edge.hint)}")
    return f"{edge.tail} -> {edge.head} [{', '.join(settings)}];"


def _heading(counts: Iterable[Sequence[str]]) -> str:
    rows = []
    for index, cells in enumerate(counts):
        bold = "<B>{}</B>" if index else '<FONT COLOR="#666666">{}</FONT>'
        texts = [bold.format(_text(cell)) if cell else "" for cell in cells]
        name, *figures = [f'<TD ALIGN="LEFT">{text}</TD>' for text in texts]
        rows.append(f"<TR>{name}{''.join(figures).replace('LEFT', 'RIGHT')}</TR>")
    table = f'<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="3">{"".join(rows)}</TABLE>'
    legend = "".join(
        f'<TD BGCOLOR="{kind.fill}"><FONT COLOR="{kind.ink}">{_text(text)}</FONT></TD>'
        for kind, text in _LEGEND
    )
    legend += f'<TD><FONT COLOR="{_REPEAT}">{_REPEAT_LEGEND}</FONT></TD>'
    return (
        f'<TABLE BORDER="0" CELLSPACING="2"><TR><TD ALIGN="LEFT">{table}</TD></TR><TR><TD>'
        '<TABLE BORDER="0" CELLBORDER="1" COLOR="#bbbbbb" CELLSPACING="3" CELLPADDING="3">'
        f"<TR>{legend}</TR></TABLE></TD></TR></TABLE>"
    )


def _text(text: str) -> str:
    """For HTML-like labels."""
    return html.escape(text, quote=True)


def _quoted(text: str) -> str:
    """For quoted attributes: no escape of Graphviz's own, and no entity but ours."""
    return '"' + html.escape(text.replace("\\", "\\\\"), quote=True) + '"'
