"""A request without the expected shape: what each wrong field must be, and what came instead."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ninja import NinjaAPI
from ninja.errors import ValidationError, ValidationErrorContext
from pydantic import BeforeValidator, Strict

SHOWN_MAX = 80
EXACT = 2**53  # above it a float stands for several whole numbers
PROBLEMS_MAX = 10

# Pydantic's kinds of errors begin with what was expected.
EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "uuid": "a UUID",
}


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value


# A whole number as JSON means it: 3.0 is 3, and neither true nor "3" is one.
StrictInt = Annotated[int, Strict(), BeforeValidator(_whole)]


class Api(NinjaAPI):
    """NinjaAPI whose validation errors keep what came, so that a message can say it."""

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        came = [problem["input"] for context in error_contexts for problem in _problems(context)]
        problems = super().validation_error_from_error_contexts(error_contexts).errors
        return ValidationError([{**problem, "input": one} for problem, one in zip(problems, came, strict=True)])


def _problems(context: ValidationErrorContext[Any]) -> Sequence[Mapping[str, Any]]:
    return context.pydantic_validation_error.errors(include_url=False)


def describe_problems(problems: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """(message, the first wrong field) for pydantic's problems: type, loc, msg, and input where it is known."""
    statements = [(_field_name(problem.get("loc", ())), problem) for problem in problems]
    message = "; ".join(_describe(field, problem) for field, problem in statements[:PROBLEMS_MAX])
    field = statements[0][0] if statements else ""
    return message or "the request does not have the expected shape", field or None


def _describe(field: str, problem: Mapping[str, Any]) -> str:
    kind = str(problem.get("type", ""))
    name = field or "the request"
    if kind == "missing":
        return f"{name} is missing, and it is required"
    if kind == "extra_forbidden":
        return f"there is no field {field!r} here; leave it out, or look its name up in /v1/docs"
    expected = EXPECTED.get(kind.split("_")[0])
    if kind == "literal_error":
        expected = f"one of {problem['ctx']['expected']}"
    if expected is None:
        return f"{name}: {problem.get('msg', '')}"
    return f"{name} must be {expected}, not {_shown(problem['input'])}" if "input" in problem else f"{name}: {expected}"


def _shown(value: object) -> str:
    """What came, as JSON in ASCII, cut to a readable length."""
    text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _field_name(location: Sequence[object]) -> str:
    """("body", "payload", "tags", 0) -> "tags.0": without where it was sent and what the code calls it."""
    parts = [str(part) for part in location]
    if parts and parts[0] in ("body", "query", "path", "form", "header", "file"):
        parts = parts[1:]
    if parts and parts[0] in ("payload", "params"):
        parts = parts[1:]
    return ".".join(parts)
