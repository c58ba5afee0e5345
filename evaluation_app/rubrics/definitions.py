"""What a rubric is: a check of the answer that a team adds to a test set, scored as the measure "rubric:NAME"."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import entry_points
from typing import Any, Literal, get_args

import regex
from jsonschema import Draft202012Validator, SchemaError

from collections_app.domain.identity import can_be_stored
from evaluation_app.measures.catalogue import RUBRIC, RUBRIC_NAME
from ragd.errors import InvalidInput

Kind = Literal["regex", "json", "prompt", "code"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ENTRY_POINTS = "ragd.rubrics"
RUBRICS_MAX = 20
DEFINITION_CHARS = 8_000
PATTERN_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Rubric:
    """name: lower-case letters, digits, "_" and "-". definition, by kind: a regular expression; a JSON schema, "" for
    any JSON; instructions to a chat model; the name of an entry point of the group "ragd.rubrics".

    must_match: of a regular expression, whether it has to occur in the answer or must not.
    """

    name: str
    kind: Kind
    definition: str = ""
    must_match: bool = True

    @property
    def measure(self) -> str:
        return f"{RUBRIC}{self.name}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_rubrics(values: Sequence[Mapping[str, Any]]) -> list[Rubric]:
    """As they are stored; see `clean_rubrics`, by which they were checked."""
    return [Rubric(**value) for value in values]


def clean_rubrics(values: Any, *, installed: bool = True) -> list[dict[str, Any]]:
    """Checked, in their order, as plain JSON. installed: whether an entry point has to be there, which another server's
    export need not have here. Raises InvalidInput (field rubrics) that names the rubric."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) > RUBRICS_MAX:
        raise _refused(
            f'rubrics must be a list of at most {RUBRICS_MAX} objects such as {{"name": "polite", "kind": "regex", '
            f'"definition": "please|thank"}}, not {str(values)[:80]!r}'
        )
    cleaned = [_clean(value, installed) for value in values]
    names = [rubric.name for rubric in cleaned]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _refused(f"two rubrics have the name {twice!r}; give one another name")
    return [rubric.as_dict() for rubric in cleaned]


def installed_names() -> list[str]:
    """The entry points that this server has, by name."""
    return sorted(entry_points(group=ENTRY_POINTS).names)


def _refused(message: str) -> InvalidInput:
    return InvalidInput(message, field="rubrics")


def _clean(value: Any, installed: bool) -> Rubric:
    known = {item.name for item in fields(Rubric)}
    if not isinstance(value, Mapping) or set(value) - known or not {"name", "kind"} <= set(value):
        raise _refused(f"a rubric has the fields {', '.join(sorted(known))}, not {str(value)[:80]!r}")
    name, kind, definition = value["name"], value["kind"], value.get("definition", "")
    must_match = value.get("must_match", True)
    if not isinstance(name, str) or not re.fullmatch(RUBRIC_NAME, name):
        raise _refused(
            f"the name of a rubric must be 1 to 40 lower-case letters, digits, _ and -, a letter first, not {name!r}"
        )
    if kind not in KINDS:
        raise _refused(f"{name}: kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if not isinstance(definition, str) or len(definition) > DEFINITION_CHARS or not can_be_stored(definition):
        raise _refused(f"{name}: definition must be a text of at most {DEFINITION_CHARS:,} characters")
    if not isinstance(must_match, bool):
        raise _refused(f"{name}: must_match must be true or false, not {must_match!r}")
    definition = definition if kind == "regex" else definition.strip()
    _CHECKS[kind](name, definition, installed)
    return Rubric(name, kind, definition, must_match if kind == "regex" else True)


def _check_regex(name: str, definition: str, _: bool) -> None:
    if not definition or len(definition) > PATTERN_CHARS:
        raise _refused(f"{name}: the regular expression must have 1 to {PATTERN_CHARS:,} characters")
    try:
        regex.compile(definition)
    except (regex.error, RecursionError, OverflowError) as error:
        raise _refused(f"{name}: the regular expression is none: {error}") from None


def _check_json(name: str, definition: str, _: bool) -> None:
    if not definition:
        return
    try:
        schema = json.loads(definition)
        Draft202012Validator.check_schema(schema)
        is_schema = isinstance(schema, dict | bool)
    except SchemaError as error:
        raise _refused(f"{name}: the JSON schema is none: {error.message}") from None
    except (ValueError, RecursionError) as error:
        raise _refused(f"{name}: the JSON schema is no JSON: {error}") from None
    if not is_schema:
        raise _refused(f"{name}: the JSON schema must be an object, not {definition[:40]!r}")


def _check_prompt(name: str, definition: str, _: bool) -> None:
    if not definition:
        raise _refused(f"{name}: the instructions to the chat model are empty; say what a good answer does")


def _check_code(name: str, definition: str, installed: bool) -> None:
    if not definition:
        raise _refused(f"{name}: name an entry point of the group {ENTRY_POINTS}")
    if installed and definition not in installed_names():
        known = ", ".join(installed_names()) or "none is installed"
        raise _refused(f"{name}: there is no entry point {definition!r} in the group {ENTRY_POINTS}; known: {known}")


_CHECKS = {"regex": _check_regex, "json": _check_json, "prompt": _check_prompt, "code": _check_code}
