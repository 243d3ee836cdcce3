"""What all commands print with: tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, also of an error, and no text.")
]


def print_json(data: object) -> None:
    """One JSON document on standard output; NaN and infinities, which JSON lacks, are null."""
    print(json.dumps(_plain(data), indent=2, allow_nan=False))  # noqa: T201


def _plain(data: object) -> object:
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    return list(map(_plain, data)) if isinstance(data, list | tuple) else data


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; a column whose cells are all numbers is set to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    console().print(Text(title, "bold"), soft_wrap=True)
    table = Table()
    for index, column in enumerate(columns):
        numeric = all(_is_numeric(row[index]) for row in cells)
        table.add_column(Text(column), justify="right" if numeric else "left")
    for row in cells:
        table.add_row(*map(Text, row))
    console().print(table)


def print_line(text: str) -> None:
    """A line of plain text; names from models are never read as markup."""
    console().print(Text(text), soft_wrap=True)


def print_warning(text: str) -> None:
    """A line on standard error."""
    Console(stderr=True).print(Text.assemble(("warning:", "yellow"), " ", text), soft_wrap=True)


def console() -> Console:
    """Standard output; wide enough for tables where it is no terminal."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=120)


def _is_numeric(cell: str) -> bool:
    return (
        all(
            part.strip("x%").replace(".", "", 1).lstrip("-").replace("e-", "").isdigit()
            for part in cell.split()
        )
        if cell.split()
        else True
    )
