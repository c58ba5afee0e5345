"""A request without the expected shape: what each wrong field must be, and what came instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import ValidationError, ValidationErrorContext
from ninja.operation import Operation
from pydantic import AwareDatetime, BeforeValidator, Strict

from ragd.errors import InvalidInput

SHOWN_MAX = 80
EXACT = 2**53  # above it a float stands for several whole numbers
PROBLEMS_MAX = 10
SENT = {"query": ("parameter", "GET"), "form": ("form field", "POST"), "file": ("file field", "FILES")}
# as Pydantic names the types of a union; a class of requests is named where `kind` tells which one it is
TYPE = re.compile(r"str|int|float|bool|none|constrained-\w+|[A-Z]\w*Request|.*\[.*\]")

# Pydantic's kinds of errors begin with what was expected.
EXPECTED = {
    "int": "a whole number", "float": "a number", "string": "a text", "bool": "true or false", "list": "a list",
    "dict": "an object", "model": "an object", "uuid": "a UUID", "datetime": "a time in ISO 8601",
    "timezone": "a time with a zone", "finite": "a finite number",
}  # fmt: skip
# What they say of a value that has the type and is out of bounds.
BOUNDS = {
    "greater_than_equal": "at least {ge}", "greater_than": "more than {gt}", "less_than_equal": "at most {le}",
    "less_than": "less than {lt}", "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters", "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}  # fmt: skip


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < EXACT else value


# A whole number as JSON means it: 3.0 is 3, and neither true nor "3" is one. Bounds stand before WHOLE.
WHOLE = BeforeValidator(_whole)
StrictInt = Annotated[int, Strict(), WHOLE]
# JSON writes these as texts, also where nothing else is read out of a text.
SomeUuid = Annotated[UUID, Strict(strict=False)]
Moment = Annotated[AwareDatetime, Strict(strict=False)]


def refuse_unknown_parameters(run: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the run method of an operation: a parameter of the address, a form field or a file that it does not have
    is an error (422), as an unknown field of a JSON body is. Who asks is checked first."""
    operation: Operation = run.__self__  # type: ignore[attr-defined]  # Ninja decorates bound methods
    known: dict[str, set[str]] = {"query": set()}
    for model in operation.models:
        names = getattr(model, "__ninja_flatten_map__", model.model_fields)  # files have none
        if model.__ninja_param_source__ in SENT:
            known.setdefault(model.__ninja_param_source__, set()).update(names)
    if "form" in known or "file" in known:
        known = {"form": set(), "file": set()} | known

    @wraps(run)
    def checked(request: HttpRequest, **values: Any) -> Any:
        request.parameters = known  # type: ignore[attr-defined]
        return run(request, **values)

    return checked


class Api(NinjaAPI):
    """NinjaAPI whose validation errors keep what came, so that a message can say it."""

    def create_temporal_response(self, request: HttpRequest) -> HttpResponse:
        """Ninja's first step once a request is known to be allowed."""
        known: Mapping[str, set[str]] = getattr(request, "parameters", {})
        for source, (kind, came) in SENT.items():
            if source in known and (unknown := sorted(set(getattr(request, came)) - known[source])):
                offered = f"the {kind}s are {', '.join(sorted(known[source]))}" if known[source] else "it takes none"
                raise InvalidInput(f"there is no {kind} {unknown[0]!r} here; {offered}", field=unknown[0])
        return super().create_temporal_response(request)

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
    statements = _merge([(_field_name(problem.get("loc", ())), problem) for problem in problems])
    message = "; ".join(_describe(field, *alike) for field, alike in statements[:PROBLEMS_MAX])
    field = statements[0][0] if statements else ""
    return message or "the request does not have the expected shape", field or None


def _merge(problems: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """(field, what is wrong with it), in order. A field that may have several types is refused once for each of them;
    where something inside of its value is wrong, that alone counts."""
    merged: dict[str, list[Mapping[str, Any]]] = {}
    for field, problem in problems:
        merged.setdefault(field, []).append(problem)
    inner = {field for field in merged if any(other.startswith(f"{field}.") for other in merged)}
    return [(field, alike) for field, alike in merged.items() if field not in inner]


def _describe(field: str, problem: Mapping[str, Any], *others: Mapping[str, Any]) -> str:
    kind = str(problem.get("type", ""))
    name = field or "the request"
    if kind == "missing":
        return f"{name} is missing, and it is required"
    if kind == "extra_forbidden":
        return f"there is no field {field!r} here; leave it out, or look its name up in /v1/docs"
    kinds = dict.fromkeys(EXPECTED.get(str(each.get("type", "")).split("_")[0]) for each in (problem, *others))
    expected = None if None in kinds else " or ".join(map(str, kinds))
    if kind == "literal_error":
        expected = f"one of {problem['ctx']['expected']}"
    if kind in BOUNDS and "ctx" in problem:
        expected = BOUNDS[kind].format(**problem["ctx"])
    if expected is None:
        return f"{name}: {problem.get('msg', '')}"
    return f"{name} must be {expected}, not {_shown(problem['input'])}" if "input" in problem else f"{name}: {expected}"


def _shown(value: object) -> str:
    """What came, as JSON in ASCII, cut to a readable length."""
    text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _field_name(location: Sequence[object]) -> str:
    """("body", "payload", "tags", 0) -> "tags.0": without where it was sent and what the code calls it, and without
    the types that Pydantic names of a field that may have several."""
    parts = [str(part) for part in location if not (isinstance(part, str) and TYPE.fullmatch(part))]
    if parts and parts[0] in ("body", "query", "path", "form", "header", "file"):
        parts = parts[1:]
    if parts and parts[0] in ("payload", "params"):
        parts = parts[1:]
    return ".".join(parts)
