"""JSON and JSON lines as indented "key: value" lines, so that each record reads as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ragd.readers import signatures as types
from ragd.readers.assembly import Assembly
from ragd.readers.text.plain import decode_into
from ragd.readers.types import ParseError, Source

DEPTH_LIMIT = 200
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
TITLE_KEYS = ("title", "name", "headline", "subject")


def read(source: Source, assembly: Assembly) -> None:
    """Add the values; the top level's records are set apart by blank lines. What is not valid JSON is kept as text."""
    text = decode_into(source.data, assembly).lstrip("\ufeff")
    if source.media_type == types.JSONL:
        _read_lines(text, assembly)
        return
    check_depth(text)
    try:
        value = _load(text)
    except ValueError as error:
        if "\n" in text.strip() and _read_lines(text, assembly, strict=True):
            return
        if source.name.lower().endswith((".json", ".geojson", ".ipynb")):
            assembly.warn(f"The file is not valid JSON ({error}); it was kept as plain text.")
        assembly.add(text)
        return
    _entitle(value, assembly)
    records = value if isinstance(value, list) else [value]
    for record in records:
        assembly.add("\n".join(lines_of(record)))


def _read_lines(text: str, assembly: Assembly, *, strict: bool = False) -> bool:
    """Read JSON lines. strict: False, adding nothing, unless every line is a value."""
    values: list[Any] = []
    bad = 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        check_depth(line)
        try:
            values.append(_load(line))
        except ValueError:
            if strict:
                return False
            bad += 1
            values.append(line.strip())
    if bad:
        assembly.warn(f"{bad} of {len(values)} lines are not valid JSON; they were kept as plain text.")
    for value in values:
        assembly.add("\n".join(lines_of(value)))
    return True


class Repeated(list[Any]):
    """The values of a key that one object names several times."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        known = result.get(key)
        if isinstance(known, Repeated):
            known.append(value)
        else:
            result[key] = Repeated([known, value]) if key in result else value
    return result


def _load(text: str) -> Any:
    """JSON with numbers as they are written and every value of a repeated key: no rounding, no limit on digits."""
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=str, strict=False, object_pairs_hook=_object)


def check_depth(text: str) -> None:
    """ParseError "bomb" when brackets are nested deeper than any record made by people."""
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", STRINGS.sub("", text) if '"' in text else text):
        depth += 1 if bracket in "[{" else -1
        if depth > DEPTH_LIMIT:
            raise ParseError("bomb", f"The JSON is nested deeper than {DEPTH_LIMIT} levels. Flatten it.")


def lines_of(value: Any, indent: int = 0) -> Iterator[str]:
    """A value as indented lines. Empty strings, lists and objects, and nulls, give none."""
    pad = "  " * indent
    if isinstance(value, dict):
        for key, inner in value.items():
            for each in inner if isinstance(inner, Repeated) else (inner,):
                yield from _entry_lines(f"{pad}{key}:", each, indent)
    elif isinstance(value, list):
        for inner in value:
            yield from _entry_lines(f"{pad}-", inner, indent)
    elif (text := _show(value)) != "":
        yield pad + text


def _entry_lines(start: str, value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, dict | list):
        inner = list(lines_of(value, indent + 1))
        if inner:
            yield start
            yield from inner
        return
    text = _show(value)
    if text == "":
        return
    if "\n" in text:
        yield start
        for line in text.split("\n"):
            yield "  " * (indent + 1) + line
    else:
        yield f"{start} {text}"


def _show(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()


def _entitle(value: Any, assembly: Assembly) -> None:
    if isinstance(value, dict):
        for key in TITLE_KEYS:
            if isinstance(value.get(key), str):
                assembly.entitle(value[key])
