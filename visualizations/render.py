"""Draws one model, or two side by side, into a file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from gdn_ir import model_file, place
from gdn_ir.visualizations import engines
from gdn_ir.visualizations.build_scene import MOST_BOXES, build_scene
from gdn_ir.visualizations.counts import Counts, count, table
from gdn_ir.visualizations.dot import to_dot
from gdn_ir.visualizations.page import page

FORMATS = (".svg", ".png", ".dot", ".html")

Model = ir.Model | str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Picture:
    """What was drawn."""

    output: Path
    # None for DOT text, which nothing has laid out.
    engine: str | None
    # By the name of the model as the picture tells it.
    counts: dict[str, Counts]


def render(
    before: Model,
    after: Model | None = None,
    *,
    output: str | os.PathLike[str],
    dot: str | os.PathLike[str] | None = None,
    most: int = MOST_BOXES,
) -> Picture:
    """Draws the dataflow of a model, or of two side by side.

    Copies into pieces are green, copies out of pieces red; steps that repeat are folded.

    Args:
        before: a path or a model, which stays as it is.
        after: another, drawn to the right of it.
        output: the file to write: .svg, .png, .html (a page to pan and zoom in) or .dot.
        dot: a Graphviz `dot` to lay out with, instead of one that is found.
        most: boxes of a model; what has more is folded further.

    Raises:
        BadModel: a model cannot be read.
        BadPlace: the output cannot be written.
        NoPicture: nothing lays the picture out. Then its DOT text is written beside `output`.
        ValueError: the output is of no format above.
    """
    target = Path(output).absolute()
    if target.suffix.lower() not in FORMATS:
        raise ValueError(f"{output} is no picture; name a file {', '.join(FORMATS)}")
    given = [before] if after is None else [before, after]
    sources = [model for model in given if not isinstance(model, ir.Model)]
    with place.workspace(target, inputs=sources) as folder:
        models = {
            name: model if isinstance(model, ir.Model) else model_file.load(model)
            for name, model in zip(_names(given), given, strict=True)
        }
        counts = {name: count(model) for name, model in models.items()}
        text = picture_text(models, counts, most)
        new = folder / target.name
        if target.suffix.lower() == ".dot":
            engine = None
            new.write_text(text, encoding="utf-8", newline="\n")
        else:
            kind = "png" if target.suffix.lower() == ".png" else "svg"
            try:
                drawn, engine = engines.draw(text, kind, None if dot is None else Path(dot))
            except engines.NoPicture as failure:
                beside = target.with_suffix(".dot")
                new.write_text(text, encoding="utf-8", newline="\n")
                _move(new, beside, sources)
                raise engines.NoPicture(
                    f"{output} was not drawn: {failure}; wrote {beside.name} in its place, "
                    f"which any Graphviz draws: dot -T{kind}"
                ) from None
            if target.suffix.lower() == ".html":
                drawn = page(drawn.decode(), " -> ".join(models), table(counts)).encode()
            new.write_bytes(drawn)
        _move(new, target, sources)
    return Picture(Path(output), engine, counts)


def picture_text(
    models: Mapping[str, ir.Model], counts: Mapping[str, Counts], most: int = MOST_BOXES
) -> str:
    """The DOT text of models side by side, by their names."""
    scenes = [
        build_scene(model, name, prefix, most)
        for prefix, (name, model) in zip("ab", models.items(), strict=False)
    ]
    return to_dot(scenes, table(counts))


def _move(new: Path, to: Path, sources: Sequence[str | os.PathLike[str]]) -> None:
    with place.workspace(to, inputs=sources):
        place.flush(new)
        new.replace(to)


def _names(models: Sequence[Model]) -> list[str]:
    """File names; where they are alike or there is none, which of the two it is."""
    places = ("before", "after") if len(models) > 1 else ("model",)
    found = [
        words if isinstance(model, ir.Model) else Path(model).name
        for model, words in zip(models, places, strict=True)
    ]
    if len(set(found)) == len(found):
        return found
    return [f"{name} ({words})" for name, words in zip(found, places, strict=True)]
