"""`manage.py ragd export-spans`, `evidence` and `validate-spans`."""

from __future__ import annotations

import contextlib
import os
import re
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.utils import timezone

from collections_app.http.downloads import Reading
from evaluation_app.commands.progress import Bar, StoppedError
from evaluation_app.commands.query import split_pair
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.models import Span
from evaluation_app.spans.evidence.pages import ALWAYS, DEFAULT_SINCE, read_range
from evaluation_app.spans.evidence.report import build_report
from evaluation_app.spans.evidence.schemas import EvidenceOut
from evaluation_app.spans.exports.downloads import STORED, SpanExport, choose_capture, export_matching
from evaluation_app.spans.exports.formats import FORMATS
from evaluation_app.spans.search.search import SpanFilter, parse_filter
from evaluation_app.spans.store.span_reads import SpanRecord, run_spans
from ragd.conventions import VOCABULARIES, Report, Tables, Violation, validate
from ragd.conventions.span_files import OPENINFERENCE, read_spans
from retrieval_app.models import QueryRun

SEVERAL = ("type", "collection", "model", "status")
ONE = ("since", "until", "where")
CHOICES = {"aitf": VOCABULARIES[0], "openinference": VOCABULARIES[1], "otel": VOCABULARIES[2]}
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
SINCE = re.compile(r"(\d+)([mhd])")
FILE_MB_MAX = 500
TRACES_AT_ONCE = 50
LONGEST_TRACE = timedelta(days=1)  # a span that began so long before the time that is asked about may be a parent
LISTED_MAX = 10_000
SHOWN_PER_TYPE = 10


def add_export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help="where the spans are written")
    parser.add_argument("--format", choices=tuple(FORMATS), default="otlp", help="otlp when left out")
    parser.add_argument("--content", choices=(STORED,), help="texts as they are stored; else as RAGD_OTLP_CONTENT says")
    parser.add_argument("--run", metavar="ID", help="the spans of this run")
    parser.add_argument("--trace", metavar="ID", help="the spans of this trace")
    for name in SEVERAL:
        parser.add_argument(f"--{name}", action="append", default=[], help="repeatable: any of these")
    parser.add_argument("--since", help="a time, or an age such as 24h")
    parser.add_argument("--until", help="a time, or an age such as 1h")
    parser.add_argument("--where", help="an expression such as \"kind == 'RETRIEVER' and latency_ms > 500\"")
    parser.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other filter of GET /v1/spans; repeatable",
    )
    parser.add_argument("--limit", type=int, help="at most so many spans, the newest")
    parser.add_argument("--force", action="store_true", help="take the place of a file that is there")


def run_export(options: Options) -> Answer:
    """Write the file; it appears when it is complete."""
    path = Path(options["file"])
    if path.exists() and not options["force"]:
        raise UsageError(f"{path} is there already; --force writes over it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}; make it first")
    if options["limit"] is not None and options["limit"] < 1:
        raise UsageError(f"--limit must be at least 1; it is {options['limit']}")
    capture = choose_capture(options["content"], may_read_stored=True)
    export = export_matching(_read_filter(options), options["format"], capture, limit=options["limit"])
    began = time.monotonic()
    part = path.with_name(f"{path.name}.part")
    try:
        size = _write(export, part, quiet=bool(options.get("as_json")))
        texts = {"format": options["format"], "texts": options["content"] or capture}
        Reading(
            "span.export", f"wrote spans into {path.name}", subject_kind="span", rows=export.spans, details=texts
        ).note()
        os.replace(part, path)
    except KeyboardInterrupt:
        raise StoppedError("Stopped: nothing was written.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        export.close()
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
    took = round(time.monotonic() - began, 3)
    return {"file": str(path), "format": options["format"], "spans": export.spans, "bytes": size, "seconds": took}


def show_export(answer: Answer) -> str:
    return (
        f"{answer['file']}: {answer['spans']:,} spans as {answer['format']}, {answer['bytes'] / 1_000_000:,.1f} MB, "
        f"{answer['seconds']:.1f} s"
    )


def _read_filter(options: Options) -> SpanFilter:
    provided: dict[str, list[str]] = {name: list(options[name]) for name in SEVERAL}
    provided |= {name: [options[name]] for name in ONE if options[name]}
    provided |= {field: [options[name]] for name, field in (("run", "run_id"), ("trace", "trace_id")) if options[name]}
    for pair in options["filter"]:
        name, value = split_pair("filter", pair)
        provided.setdefault(name, []).append(value)
    return parse_filter(provided)


def _write(export: SpanExport, path: Path, *, quiet: bool) -> int:
    size = 0
    with path.open("wb") as file, Bar("spans", "spans", 0, quiet=quiet) as bar:
        for piece in export:
            size += file.write(piece)
            bar.show(export.spans, export.spans)
    return size


def add_evidence_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--since", default=DEFAULT_SINCE, help=f"a time, or an age such as 7d; {DEFAULT_SINCE}")
    parser.add_argument("--until", default="", help="a time, or an age; now when left out")
    parser.add_argument("--collection", action="append", default=[], help="spans of these alone; repeatable")
    parser.add_argument("--newest", type=int, help="look at so many spans of each type instead of at all")


def run_evidence(options: Options) -> Answer:
    within = tuple((name, ALWAYS) for name in options["collection"]) or None
    requested = read_range({"since": options["since"], "until": options["until"]}, within)
    return EvidenceOut.from_orm(build_report(requested, limit=options["newest"])).dict()


def show_evidence(answer: Answer) -> str:
    """A line per control, then each gap with its reason."""
    looked_at, spans = sum(answer["looked_at"].values()), sum(answer["spans"].values())
    lines = [f"{answer['since']} to {answer['until']}: {looked_at:,} of {spans:,} spans looked at", ""]
    for framework in answer["frameworks"]:
        lines.append(
            f"{framework['framework']}: {framework['complete']} controls complete, {framework['lacking']} lacking, "
            f"{framework['idle']} without a span to apply to"
        )
        lines += [f"  {each['control']:<15} {each['state']:<9} {each['title']}" for each in framework["controls"]]
    lines += ["", f"{len(answer['gaps'])} gaps"]
    lines += [
        f"  {each['span_type']} {each['name']}: {each['recorded']:,} of {each['applies']:,}. {each['reason']}"
        for each in answer["gaps"]
    ]
    return "\n".join(lines)


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


def show_validate(answer: Answer) -> str:
    lines: list[str] = []
    for vocabulary in answer["vocabularies"]:
        width = max([len(each["type"]) for each in vocabulary["types"]] + [len(vocabulary["name"])])
        lines += [f"{vocabulary['name']:{width}}  {'spans':>9}  {'conformant':>10}  {'share':>7}"]
        for each in vocabulary["types"]:
            lines.append(
                f"{each['type']:{width}}  {each['spans']:>9,}  {each['conformant']:>10,}  {100 * each['share']:>6.1f}%"
            )
            lines += _show_violations(each["violations"])
        seen, rows = vocabulary["rows_seen"], vocabulary["rows"]
        lines += [f"{seen} of {rows} rows seen, {vocabulary['not_governed']:,} spans not governed by these tables", ""]
    verdict = "all conformant" if answer["passed"] else "not all conformant"
    return "\n".join([*lines, f"{answer['spans']:,} spans: {verdict}"])


def _show_violations(violations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in violations[:SHOWN_PER_TYPE]:
        where = f"trace {each['trace_id']} span {each['span_id']}"
        yield f"  {each['count']:>6,} x {each['message']}"
        yield f"           {each['span_name']}, {where}"
    if len(violations) > SHOWN_PER_TYPE:
        yield f"  and {len(violations) - SHOWN_PER_TYPE} other violations; --json lists them"


def has_valid_spans(answer: Answer) -> bool:
    return bool(answer["passed"])
