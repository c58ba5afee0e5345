"""Rubrics that need no model: a regular expression, JSON, and code of the team's own. None raises for an answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

import regex
from jsonschema import Draft202012Validator, ValidationError, validators
from referencing import Registry
from referencing.exceptions import Unresolvable

from evaluation_app.measures.catalogue import is_share
from evaluation_app.measures.scores import Score, failed, scored, unscorable
from evaluation_app.rubrics.definitions import ENTRY_POINTS, Rubric

log = logging.getLogger(__name__)

REGEX_TIMEOUT_S = 0.5
FENCE = regex.compile(r"(?s)\A```(?:json)?\s*\n(.*)\n```\Z")
NO_VALUE = "the rubric gave no value"
Check = Callable[[str, str, Sequence[str], str], float | bool | None]


def _finds(pattern: str, text: str) -> bool:
    """Raises TimeoutError after REGEX_TIMEOUT_S: an expression may need time that doubles with every character."""
    return regex.search(pattern, text, timeout=REGEX_TIMEOUT_S) is not None


def check_regex(rubric: Rubric, answer: str) -> Score:
    """1 where the expression occurs as it must, or does not as it must not; an error of kind "regex_timeout"."""
    try:
        return scored(float(_finds(rubric.definition, answer) == rubric.must_match))
    except TimeoutError:
        return failed("regex_timeout")


def check_json(rubric: Rubric, answer: str) -> Score:
    """1 for an answer that is JSON (a code fence around it is forgiven) and valid against the schema, where there is
    one; else 0. A schema's references lead nowhere outside of it: an error of kind "bad_schema"."""
    text = answer.strip()
    fenced = FENCE.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return scored(0.0)
    if not rubric.definition:
        return scored(1.0)
    try:
        return scored(float(_validator(rubric.definition).is_valid(value)))
    except TimeoutError:
        return failed("regex_timeout")
    except (Unresolvable, RecursionError):
        return failed("bad_schema")


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _finds(pattern, instance):
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if _finds(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


# Their expressions too end in time.
_SafeValidator = validators.extend(
    Draft202012Validator, {"pattern": _pattern, "patternProperties": _pattern_properties}
)


@lru_cache(maxsize=64)
def _validator(definition: str) -> Any:
    return _SafeValidator(json.loads(definition), registry=Registry())


def check_code(rubric: Rubric, question: str, answer: str, context: Sequence[str], expected: str) -> Score:
    """What the entry point returns: a number from 0 to 1, a truth, or None for unscorable.

    Errors of the kinds "unknown_rubric" (it is not installed here), "rubric_failed" (it cannot be loaded or raised; the
    log says how) and "bad_value".
    """
    try:
        call = _load(rubric.definition)
    except KeyError:
        return failed("unknown_rubric")
    except Exception:  # a team's own module may raise anything while it is imported; one rubric fails, not the run
        log.exception("the entry point %r of rubric %s cannot be loaded", rubric.definition, rubric.name)
        return failed("rubric_failed")
    try:
        value = call(question, answer, list(context), expected)
    except Exception:  # a team's own code: as above
        log.exception("rubric %s raised", rubric.name)
        return failed("rubric_failed")
    if value is None:
        return unscorable(NO_VALUE)
    if not isinstance(value, bool) and not is_share(value):
        return failed("bad_value")
    return scored(float(value))


@lru_cache(maxsize=64)
def _load(name: str) -> Check:
    call: Check = entry_points(group=ENTRY_POINTS)[name].load()
    return call
