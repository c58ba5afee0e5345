"""Spans of a file in the form that the validator takes: as the API answers them, OTLP JSON, or JSON Lines of either."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ragd.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUS_CODES = ("UNSET", "OK", "ERROR")
FORMS = "spans as GET /v1/runs/{run_id}/spans answers them, OTLP JSON, or JSON Lines of spans"
OWN, OTLP, OPENINFERENCE = "ragd", "otlp", "openinference"

SpanDict = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadSpans:
    """form: ragd, otlp or openinference; the last holds the attributes of that vocabulary alone."""

    spans: list[SpanDict]
    form: str


def read_spans(text: str) -> ReadSpans:
    """The spans of one file, in its order. Raises InvalidInput for what holds no span, with the line where one is bad.

    One JSON object or array, or one object per line; blank lines are passed over. The forms must not be mixed.
    """
    spans: list[SpanDict] = []
    forms: set[str] = set()
    for number, document in _documents(text):
        for item, form in _items(document, number):
            spans.append(READERS[form](item))
            forms.add(form)
    if not spans:
        raise InvalidInput(f"the file holds no span; it must hold {FORMS}", field="file")
    if len(forms) > 1:
        raise InvalidInput(f"the file mixes {' and '.join(sorted(forms))}; check one form at a time", field="file")
    return ReadSpans(spans, forms.pop())


def _documents(text: str) -> Iterator[tuple[int, Any]]:
    """(number of the line, what stands there); the whole text where it is one document."""
    try:
        yield 1, json.loads(text)
        return
    except ValueError:
        pass
    except RecursionError:
        raise InvalidInput("the file nests too deeply", field="file") from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(
                    f"line {number} is not JSON ({error}); the file must hold {FORMS}", field="file"
                ) from None


def _items(document: Any, line: int) -> Iterator[tuple[Mapping[str, Any], str]]:
    if isinstance(document, list):
        for item in document:
            yield from _items(item, line)
    elif isinstance(document, Mapping) and isinstance(document.get("resourceSpans"), list):
        for resource in _maps(document["resourceSpans"]):
            for scope in _maps(resource.get("scopeSpans")):
                for span in _maps(scope.get("spans")):
                    yield span, OTLP
    elif isinstance(document, Mapping) and isinstance(document.get("spans"), list):
        yield from _items(document["spans"], line)
    elif isinstance(document, Mapping) and "spanId" in document:
        yield document, OTLP
    elif isinstance(document, Mapping) and "span_id" in document:
        yield document, OWN
    elif isinstance(document, Mapping) and isinstance(document.get("context"), Mapping):
        yield document, OPENINFERENCE
    else:
        raise InvalidInput(f"line {line} holds no span; the file must hold {FORMS}", field="file")


def _maps(results: Any) -> Sequence[Mapping[str, Any]]:
    return [item for item in results if isinstance(item, Mapping)] if isinstance(results, list) else []


def _read_own(item: Mapping[str, Any]) -> SpanDict:
    return dict(item)


def _read_otlp(item: Mapping[str, Any]) -> SpanDict:
    status = item.get("status")
    details = status if isinstance(status, Mapping) else {}
    return {
        "trace_id": _hex(item.get("traceId")),
        "span_id": _hex(item.get("spanId")),
        "parent_span_id": _hex(item.get("parentSpanId")) or None,
        "name": item.get("name", ""),
        "kind": _code(item.get("kind", 0), KINDS, "SPAN_KIND_"),
        "start": _moment(item.get("startTimeUnixNano")),
        "end": _moment(item.get("endTimeUnixNano")),
        "status": {
            "code": _code(details.get("code", 0), STATUS_CODES, "STATUS_CODE_"),
            "description": details.get("message", ""),
        },
        "attributes": _attributes(item.get("attributes")),
        "events": [
            {
                "name": event.get("name", ""),
                "time": _moment(event.get("timeUnixNano")),
                "attributes": _attributes(event.get("attributes")),
            }
            for event in _maps(item.get("events"))
        ],
        "links": [
            {
                "trace_id": _hex(link.get("traceId")),
                "span_id": _hex(link.get("spanId")),
                "attributes": _attributes(link.get("attributes")),
            }
            for link in _maps(item.get("links"))
        ],
    }


def _read_openinference(item: Mapping[str, Any]) -> SpanDict:
    context = item["context"]
    return {
        "trace_id": str(context.get("trace_id", "")),
        "span_id": str(context.get("span_id", "")),
        "parent_span_id": item.get("parent_id") or None,
        "name": item.get("name", ""),
        "kind": "",
        "start": item.get("start_time", ""),
        "end": item.get("end_time", ""),
        "status": {"code": item.get("status_code", "UNSET"), "description": item.get("status_message", "")},
        "attributes": _flatten(item.get("attributes")),
        "events": [
            {
                "name": event.get("name", ""),
                "time": event.get("timestamp", ""),
                "attributes": _flatten(event.get("attributes")),
            }
            for event in _maps(item.get("events"))
        ],
        "links": _maps(item.get("links")),
    }


READERS = {OWN: _read_own, OTLP: _read_otlp, OPENINFERENCE: _read_openinference}


def _hex(value: Any) -> str:
    """An id in hex digits; one in Base64, as protobuf's own JSON writes it, is turned into them."""
    text = str(value or "")
    if len(text) in (0, 16, 32):
        return text.lower()
    try:
        return base64.b64decode(text, validate=True).hex()
    except (ValueError, binascii.Error):
        return text


def _code(value: Any, names: Sequence[str], prefix: str) -> str:
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return str(value).removeprefix(prefix)


def _moment(nanoseconds: Any) -> str:
    """ISO 8601 with microseconds; "" for what is no time."""
    try:
        return (EPOCH + timedelta(microseconds=int(nanoseconds) // 1000)).isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError):
        return ""


def _attributes(results: Any) -> dict[str, Any]:
    return {str(item.get("key")): _value(item.get("value")) for item in _maps(results)}


def _value(results: Any) -> Any:
    """One AnyValue; None for one that is none."""
    if not isinstance(results, Mapping) or not results:
        return None
    kind: str
    value: Any
    kind, value = next(iter(results.items()))
    try:
        if kind == "intValue":
            return int(value)
        if kind == "doubleValue":
            return float(value)
    except (TypeError, ValueError):
        return None
    if kind == "arrayValue" and isinstance(value, Mapping):
        return [_value(item) for item in value.get("values") or ()]
    if kind == "kvlistValue" and isinstance(value, Mapping):
        return _attributes(value.get("values"))
    return value


def _flatten(results: Any, prefix: str = "") -> dict[str, Any]:
    """Nested attributes under dotted names; the items of a list of objects by their number."""
    flat: dict[str, Any] = {}
    if not isinstance(results, Mapping):
        return flat
    for key, value in results.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                flat |= _flatten(item, f"{name}.{number}.")
        else:
            flat[name] = value
    return flat
