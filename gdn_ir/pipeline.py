"""Pipeline text, as in MLIR, and the passes it may name.

    pipeline = pass ("," pass)*
    pass     = name [ "{" [ option (" " option)* ] "}" ]
    option   = key "=" value

`parse` and `to_text` are inverse to each other; no text stands for no pass at all.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import inspect
import math
import pkgutil
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from gdn_ir.pass_base import Pass
from gdn_ir.wording import did_you_mean, nearest

ENTRY_POINT_GROUP = "gdn_ir.passes"

_PASS = re.compile(r"\s*(?P<name>[A-Za-z0-9_-]+)\s*(?:\{(?P<options>[^{}]*)\})?\s*")


class BadPipeline(ValueError):
    """The text names a pass, an option or a value that does not exist."""


@functools.cache
def registry() -> Mapping[str, type[Pass]]:
    """All passes by name: those in the package `gdn_ir.passes`, then third-party entry points.

    Raises:
        BadPipeline: two passes have one name.
    """
    found: dict[str, type[Pass]] = {}
    package = importlib.import_module("gdn_ir.passes")
    for module in pkgutil.iter_modules(package.__path__):
        loaded = importlib.import_module(f"gdn_ir.passes.{module.name}")
        for _, cls in inspect.getmembers(loaded, _is_pass):
            if cls.__module__ == loaded.__name__:
                _register(found, cls)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        _register(found, _load(entry))
    return found


def _load(entry: importlib.metadata.EntryPoint) -> type[Pass]:
    try:
        loaded = entry.load()
    except Exception as error:
        raise BadPipeline(
            f"the third-party pass '{entry.name}' ({entry.value}) does not load: {error}; "
            "mend or uninstall it"
        ) from error
    if not _is_pass(loaded):
        raise BadPipeline(
            f"'{entry.name}' ({entry.value}) is registered as a pass and is no concrete "
            "subclass of gdn_ir.pass_base.Pass; mend or uninstall it"
        )
    return cast(type[Pass], loaded)


def _is_pass(member: object) -> bool:
    return inspect.isclass(member) and issubclass(member, Pass) and not inspect.isabstract(member)


def _register(found: dict[str, type[Pass]], cls: type[Pass]) -> None:
    known = found.setdefault(cls.name, cls)
    if known is not cls:
        raise BadPipeline(
            f"two passes are called '{cls.name}': {known.__module__} and {cls.__module__}; "
            "uninstall or rename one"
        )


def parse(text: str) -> tuple[Pass, ...]:
    """The passes that a pipeline text names.

    Raises:
        BadPipeline: with the nearest name that does exist.
    """
    if not text.strip():
        raise BadPipeline("the pipeline is empty; name a pass, or leave it out for the default")
    passes = []
    position = 0
    while position < len(text):
        match = _PASS.match(text, position)
        position = match.end() if match else position
        if match is None or (position < len(text) and text[position] != ","):
            raise BadPipeline(
                f"pipeline '{text}': expected a pass at '{text[position:]}'; "
                "write a,b{option=value option=value}"
            )
        passes.append(_make(match["name"], match["options"] or ""))
        if text[position:].strip() == ",":
            raise BadPipeline(f"pipeline '{text}' ends in a comma; remove it or name a pass")
        position += 1
    return tuple(passes)


def to_text(passes: Iterable[Pass]) -> str:
    """The text that `parse` reads back as these passes."""
    return ",".join(map(str, passes))


def find(name: str) -> type[Pass]:
    """The pass of this name.

    Raises:
        BadPipeline: with the nearest name that does exist.
    """
    if name not in registry():
        raise BadPipeline(f"no pass '{name}'{nearest(name, registry())}")
    return registry()[name]


def _make(name: str, options: str) -> Pass:
    cls = find(name)
    hints = get_type_hints(cls)
    fields = [field.name for field in dataclasses.fields(cls)]
    values: dict[str, Any] = {}
    for option in options.split():
        key, equals, value = option.partition("=")
        if key not in fields:
            raise BadPipeline(f"pass '{name}' has no option '{key}'{nearest(key, fields)}")
        if not equals or key in values:
            wrong = "is given twice" if key in values else "has no value; write key=value"
            raise BadPipeline(f"pass '{name}': option '{key}' {wrong}")
        values[key] = _convert(f"pass '{name}': option '{key}'", value, hints[key])
    for field in dataclasses.fields(cls):
        has_default = not (field.default is field.default_factory is dataclasses.MISSING)
        if not has_default and field.name not in values:
            raise BadPipeline(
                f"pass '{name}' needs option '{field.name}'; write {field.name}=value"
            )
    try:
        return cls(**values)
    except ValueError as error:
        raise BadPipeline(f"pass '{name}': {error}") from None


def _convert(what: str, value: str, hint: Any) -> object:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            near = did_you_mean(value, get_args(hint))
            raise BadPipeline(f"{what} is one of {', '.join(get_args(hint))}, not '{value}'{near}")
        return value
    if hint is bool:
        if value not in ("true", "false"):
            raise BadPipeline(f"{what} is true or false, not '{value}'")
        return value == "true"
    try:
        converted: object = hint(value)
    except ValueError:
        converted = None
    if converted is None or (isinstance(converted, float) and not math.isfinite(converted)):
        raise BadPipeline(f"{what} takes a value of type {hint.__name__}, not '{value}'")
    return converted
