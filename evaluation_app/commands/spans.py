"""`manage.py ragd check spans`."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.utils import timezone

from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError
from evaluation_app.models import Span
from evaluation_app.telemetry.store.span_store import SpanRecord, run_spans
from ragd.conventions import VOCABULARIES, Report, Tables, Violation, validate
from ragd.conventions.span_files import OPENINFERENCE, read_spans
from retrieval_app.models import QueryRun

CHOICES = {"aitf": VOCABULARIES[0], "openinference": VOCABULARIES[1], "otel": VOCABULARIES[2]}
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
SINCE = re.compile(r"(\d+)([mhd])")
FILE_MB_MAX = 500
TRACES_AT_ONCE = 50
LONGEST_TRACE = timedelta(days=1)  # a span that began so long before the time that is asked about may be a parent
LISTED_MAX = 10_000


def add_validate_arguments(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--run", help="the spans of one run, by its id")
    which.add_argument("--trace", help="the spans of one trace, by its 32 hex digits")
    which.add_argument("--since", default="24h", metavar="TIME", help="stored spans of the last 90m, 24h, 7d; 24h")
    which.add_argument(
        "--file", type=Path, metavar="PATH", help="spans of a file: as the API answers them, OTLP JSON, JSON Lines"
    )
    parser.add_argument("--vocabulary", choices=CHOICES, help="check one alone; all three when left out")


def run_validate(options: Options) -> Answer:
    """Each vocabulary's report, with the violations of a type that are alike counted together."""
    chosen = options["vocabulary"]
    if options["file"] is not None:
        result = read_spans(_read_file(options["file"]))
        chosen = chosen or ("openinference" if result.form == OPENINFERENCE else None)
        batches: Iterable[list[dict[str, Any]]] = [result.spans]
    else:
        batches = _stored(options)
    vocabularies = [CHOICES[chosen]] if chosen else list(VOCABULARIES)
    reports = {tables.name: Report() for tables in vocabularies}
    count = 0
    for spans in batches:
        count += len(spans)
        for tables in vocabularies:
            reports[tables.name].merge(validate(spans, tables))
    return {
        "passed": all(report.passed for report in reports.values()),
        "spans": count,
        "vocabularies": [_describe(tables, reports[tables.name]) for tables in vocabularies],
    }


def _read_file(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_MB_MAX * 1_000_000:
            raise UsageError(f"{path} is larger than {FILE_MB_MAX} MB; split it, each trace in one file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--file must name a text file that can be read: {error}") from None


def _stored(options: Options) -> Iterator[list[dict[str, Any]]]:
    if options["run"] is not None:
        yield [SpanRecord.from_orm(span).dict() for span in run_spans(_find_run(options["run"]))]
    elif options["trace"] is not None:
        spans = list(Span.objects.of_trace(options["trace"].lower()))
        if not spans:
            raise UsageError(f"no span of the trace {options['trace']!r} is stored")
        yield [SpanRecord.from_orm(span).dict() for span in spans]
    else:
        since = timezone.now() - _read_since(options["since"])
        ids = list(Span.objects.filter(started_at__gte=since).order_by().values_list("trace_id", flat=True).distinct())
        for start in range(0, len(ids), TRACES_AT_ONCE):
            group = ids[start : start + TRACES_AT_ONCE]
            rows = Span.objects.filter(trace_id__in=group, started_at__gte=since - LONGEST_TRACE)
            yield [SpanRecord.from_orm(span).dict() for span in rows]


def _find_run(text: str) -> QueryRun:
    try:
        return QueryRun.objects.get(pk=UUID(text))
    except (ValueError, QueryRun.DoesNotExist):
        raise UsageError(
            f"there is no run {text!r}; GET /v1/runs and the runs page list those that there are"
        ) from None


def _read_since(text: str) -> timedelta:
    match = SINCE.fullmatch(text)
    if match is None:
        raise UsageError(f"--since takes a number and m, h or d, such as 90m, 24h or 7d, not {text!r}")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def _describe(tables: Tables, report: Report) -> Answer:
    return {
        "name": tables.name,
        "spans": report.spans,
        "conformant": report.conformant,
        "not_governed": report.other,
        "rows_seen": len(report.rows),
        "rows": len(tables.rows),
        "rows_unseen": [[owner, field] for owner, field in tables.rows if (owner, field) not in report.rows],
        "types": [
            {
                "type": name,
                "spans": each.spans,
                "conformant": each.conformant,
                "share": round(each.share, 6),
                "violations": _group(each.violations),
            }
            for name, each in report.types.items()
        ],
    }


def _group(violations: Sequence[Violation]) -> list[Answer]:
    """Violations that say the same, most frequent first, ties by message; with one span as an example."""
    counts = Counter((each.rule, each.field, each.message) for each in violations)
    examples = {(each.rule, each.field, each.message): each for each in reversed(violations)}
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0][2]))
    return [examples[key].as_dict() | {"count": count} for key, count in ordered[:LISTED_MAX]]


COMMANDS = {
    "check spans": Subcommand(
        "check stored spans, or those of a file, against the span conventions; exit status 1 when one is wrong",
        add_validate_arguments,
        run_validate,
    )
}
