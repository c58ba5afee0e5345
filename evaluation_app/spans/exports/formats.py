"""The forms in which spans leave, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collections_app.errors import ServiceError
from evaluation_app.spans.exports.ocsf import write_ocsf
from evaluation_app.spans.exports.openinference import write_openinference
from evaluation_app.spans.exports.otlp import write_otlp, write_otlp_lines
from evaluation_app.spans.exports.records import SpanRecord

JSON, JSON_LINES = "application/json", "application/jsonl"


@dataclass(frozen=True, slots=True)
class Format:
    """title, use: for people. suffix: of a file's name. write turns batches of spans into pieces of the file."""

    name: str
    title: str
    use: str
    content_type: str
    suffix: str
    write: Callable[[Iterable[Sequence[SpanRecord]]], Iterator[str]]


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format(
            "otlp",
            "OTLP JSON",
            "One request as the OpenTelemetry protocol writes it, with every attribute: for any collector.",
            JSON,
            ".otlp.json",
            write_otlp,
        ),
        Format(
            "otlp-lines",
            "OTLP JSON Lines",
            "The same in one request per line, as collectors read files: for many spans.",
            JSON_LINES,
            ".otlp.jsonl",
            write_otlp_lines,
        ),
        Format(
            "openinference",
            "OpenInference JSON Lines",
            "One span per line with the attributes of OpenInference alone: for Phoenix and its kin.",
            JSON_LINES,
            ".openinference.jsonl",
            write_openinference,
        ),
        Format(
            "ocsf",
            "OCSF events",
            "Model calls (7001), retrieval (7004) and findings (7005), one event per line: for a SIEM.",
            JSON_LINES,
            ".ocsf.jsonl",
            write_ocsf,
        ),
    )
}


def find_format(name: str) -> Format:
    """Raises ServiceError 422 for a name that is none."""
    value = FORMATS.get(name)
    if value is None:
        raise ServiceError(
            f"format must be one of {', '.join(FORMATS)}; it is {name!r}",
            type="invalid_input",
            status=422,
            field="format",
        )
    return value
