"""Requests made from the API's own description by Schemathesis, and what its answers say against that description.

Half of the requests keep to the schema and half break it. Path parameters are those of things that are there two times
in three, so that requests get past the look-up. The same seed makes the same requests.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings, strategies
from hypothesis import seed as hypothesis_seed
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi import checks

SERVER_ERROR, AGAINST_SCHEMA, REFUSED = "5xx", "against the schema", "valid, and refused"
STATUS, CONTENT, ACCEPTED = "undocumented status", "undocumented content type", "invalid, and accepted"
CHECKS = {
    SERVER_ERROR: not_a_server_error,
    AGAINST_SCHEMA: checks.response_schema_conformance,
    REFUSED: checks.positive_data_acceptance,
    STATUS: checks.status_code_conformance,
    CONTENT: checks.content_type_conformance,
    ACCEPTED: checks.negative_data_rejection,
}
KNOWN_SHARE = 2 / 3
OWN_KEY = "DELETE /v1/api-keys/{key_id}"  # deleting the own one would end the requests
UNKNOWN_ID = 2_000_000_000
# what the description names by a format: values that any server takes
FORMATS = {
    "cursor": [""],
    "filter": ["", "tags = pump", "page > 3"],
    "span-filter": ["", "duration_ms > 5"],
    "columns": ["{}"],
    "json": ["{}", '{"team": "support"}'],
    "language": ["auto", "simple", "english", "german"],
}
REQUEST_FIELDS = ("method", "url", "headers", "params", "data", "json", "files", "cookies")


# Refusals that no schema can foresee, by the type of the error and its field ("" for any): what files hold, what the
# server has been set up with, fields that must agree with one another, and servers elsewhere that do not answer.
SEMANTIC = {
    ("invalid_export", "file"), ("unreadable_file", "file"), ("no_chat_model", ""), ("invalid_input", "doc_ids"),
    ("invalid_input", "embed_dims"), ("invalid_input", "overlap_tokens"), ("invalid_input", "filter"),
    ("invalid_input", "token_budget"), ("lexical_disabled", ""), ("unreachable", "bucket"), ("empty_content", ""),
    ("invalid_input", "until"), ("invalid_input", "chunk_overlap_tokens"), ("invalid_input", "type"), ("invalid_input", "key"), ("invalid_input", "access"), ("invalid_input", "primary_measure"), ("invalid_input", "columns"), ("unknown_host", ""),
    ("dimension_mismatch", ""), ("invalid_input", "expires_at"), ("invalid_input", "embed_model"), ("no_judge_model", ""), ("invalid_input", "file"),
    ("invalid_input", "as_of"), ("address_refused", ""), ("invalid_input", "settings"), ("invalid_input", "holder"), ("invalid_input", "job"),
    *(("invalid_input", name) for name in ("url", "path", "host", "username", "password", "bucket")),  # of a source's kind
}  # fmt: skip


BY_ACTION = "POST /v1/collections/{collection}/impact"  # which of its fields are needed follows from the action


def is_semantic(operation: str, content: bytes) -> bool:
    try:
        error = json.loads(content)["error"]
    except (ValueError, TypeError, KeyError):
        return False
    if operation == BY_ACTION and error.get("type") == "invalid_input":
        return True
    return bool({(error.get("type"), error.get("field", "")), (error.get("type"), "")} & SEMANTIC)


@dataclass
class Report:
    """semantic: refusals that no schema can foresee, by type and field. examples: of each check, by operation and status, the first request and answer."""

    requests: int = 0
    operations: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    semantic: Counter[str] = field(default_factory=Counter)
    examples: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def note(self, case: Case, response: Response) -> None:
        self.requests += 1
        self.operations.add(case.operation.label)
        self.statuses[response.status_code] += 1
        for name, check in CHECKS.items():
            try:
                case.validate_response(response, checks=[check])
            except (FailureGroup, AssertionError) as failure:
                if (
                    name in (REFUSED, SERVER_ERROR)
                    and response.status_code != 500
                    and is_semantic(case.operation.label, response.content)
                ):
                    error = json.loads(response.content)["error"]
                    self.semantic[f"{error['type']} {error.get('field', '')}"] += 1
                    continue
                self.failures[name] += 1
                shown = f"{response.content[:400]!r}\n  {case.as_curl_command()[:900]}\n  {str(failure)[:600]}"
                self.examples[name].setdefault(f"{case.operation.label} {response.status_code}", shown)


def examine(
    schema: BaseSchema,
    known: Mapping[str, list[Any]],
    *,
    headers: Mapping[str, str],
    requests: int,
    seed: int = 1,
    send: Callable[[Case, Mapping[str, str]], Response] = lambda case, headers: case.call(headers=dict(headers)),
) -> Report:
    """So many requests over all operations, deletions last. known: values of path parameters that are there."""
    load_all_checks()
    for name, values in FORMATS.items():
        schemathesis.openapi.format(name, strategies.sampled_from(values))
    report = Report()
    operations = sorted(read_operations(schema), key=lambda item: (item.method.upper() == "DELETE", item.label))
    chance, own = random.Random(seed), {name.lower() for name in headers}
    each = max(1, round(requests / len(operations) / 2))
    for number, operation in enumerate(operations):
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            for case in draw(operation, mode, each, seed + number):
                put_known(case, known, chance)
                if case.operation.label == OWN_KEY:
                    case.path_parameters["key_id"] = UNKNOWN_ID
                generated = {name: value for name, value in (case.headers or {}).items() if name.lower() not in own}
                case.headers = type(case.headers)(generated | dict(headers)) if case.headers else dict(headers)
                report.note(case, send(case, headers))
    return report


def read_operations(schema: BaseSchema) -> Iterator[Any]:
    for result in schema.get_all_operations():
        yield result.ok()


def draw(operation: Any, mode: GenerationMode, count: int, seed: int) -> list[Case]:
    """At most so many requests of one operation; fewer where there are no more, none where none can break it."""
    cases: list[Case] = []

    @hypothesis_seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def collect(case: Case) -> None:
        cases.append(case)

    try:
        collect()
    except Exception as error:
        if type(error).__name__ not in ("Unsatisfiable", "SkipTest", "Skipped"):
            raise
    return cases[:count]


def put_known(case: Case, known: Mapping[str, list[Any]], chance: random.Random) -> None:
    for name in case.path_parameters or {}:
        if known.get(name) and chance.random() < KNOWN_SHARE:
            case.path_parameters[name] = chance.choice(known[name])


def in_process(client: Client) -> Callable[[Case, Mapping[str, str]], Response]:
    """Sends by Django's test client, inside the transaction of a test."""

    def send(case: Case, headers: Mapping[str, str]) -> Response:
        kwargs = case.as_transport_kwargs(base_url="http://testserver", headers=dict(headers))
        kwargs = {name: kwargs[name] for name in REQUEST_FIELDS if name in kwargs}
        prepared = requests.Request(**kwargs).prepare()
        body = prepared.body or b""
        given = {
            name: value.decode("latin-1") if isinstance(value, bytes) else value
            for name, value in prepared.headers.items()
            if name.lower() != "content-length"
        }
        answer = client.generic(
            prepared.method or "GET",
            prepared.path_url,
            body if isinstance(body, bytes) else body.encode(),
            content_type=given.pop("Content-Type", ""),
            headers={
                name: value.decode("latin-1") if isinstance(value, bytes) else value for name, value in given.items()
            },
        )
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        fields = {name.lower(): [value] for name, value in answer.items()}
        return Response(answer.status_code, fields, content, prepared, elapsed=0.0, verify=False)

    return send


def show(report: Report) -> None:
    print(f"{report.requests} requests over {len(report.operations)} operations, by status: {dict(report.statuses)}")
    for name in CHECKS:
        print(f"{name}: {report.failures[name]}" + (" (target 0)" if name != ACCEPTED else ""))
        for label, shown in report.examples[name].items():
            print(f"  {label}\n    {shown[:700]}")
    print(f"valid, and refused for what no schema can foresee: {report.semantic.total()} {dict(report.semantic)}")
