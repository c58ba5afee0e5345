"""run(): every rule in turn, each in a savepoint of its own, and what came of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from ragd.conformance import fusion_rules, golden, ingest_rules, interface_rules, search_rules, store_rules
from ragd.conformance.channel_rules import Channels, make_rules
from ragd.conformance.golden import Bench, Rule, rules_of, scratch
from ragd.conformance.report import Cases, Failure, Report, RuleResult
from ragd.errors import InvalidInput
from ragd.store.store import Connection, execute, fetch_all
from ragd.types import SPEC_VERSION

VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""

MODULES = (ingest_rules, store_rules, interface_rules, search_rules, fusion_rules, golden)


def run(
    connection: Connection,
    *,
    channels: Channels | None = None,
    only: Sequence[str] = (),
    on_rule: Callable[[int, int], None] | None = None,
    placement: str | None = None,
) -> Report:
    """Try every rule on the database of `connection`, a psycopg connection or Django's, inside a transaction.

    Everything happens in a scratch schema that is rolled back; the caller's transaction stands as it was. channels:
    name -> callable that answers (query, plan) over the fixed corpus with results {doc_id, chunk_index, content, score,
    tags, metadata}, best first; section 6 compares each with the library. only: sections ("4" means all of 4).
    on_rule(done, total) is called after each rule. placement: of the collections that the rules make, as
    `create_collection` takes it. A rule whose check breaks has failed; the others go on.
    What the rules search and index leaves no spans. Raises UnsupportedDatabase, InvalidInput for an unknown section.
    """
    with _untraced():
        return _run(connection, channels or {}, only, on_rule, placement)


def _run(
    connection: Connection,
    channels: Channels,
    only: Sequence[str],
    on_rule: Callable[[int, int], None] | None,
    placement: str | None,
) -> Report:
    began = time.perf_counter()
    chosen = [item for item in all_rules(channels) if not only or _is_within(item.section, only)]
    if not chosen:
        raise InvalidInput(f"only must name sections that have rules, such as 4 or 4.3, not {list(only)}", field="only")
    with scratch(connection, placement) as bench:
        ((server, vector),) = fetch_all(connection, VERSIONS)
        loading = _load(bench) if any(item.needs_corpus for item in chosen) else None
        results = []
        for done, item in enumerate(chosen, start=1):
            results.append(_try(item, bench, loading))
            if on_rule is not None:
                on_rule(done, len(chosen))
    return Report(SPEC_VERSION, server, vector, _since(began), tuple(results))


def run_on(database: str, **options: Any) -> Report:
    """run() over a connection of its own to `postgresql://...`; nothing is ever committed."""
    with psycopg.connect(database, autocommit=False) as connection:
        try:
            return run(connection, **options)
        finally:
            connection.rollback()


def all_rules(channels: Channels) -> list[Rule]:
    """Every rule, in the order of the specification."""
    result = [item for module in MODULES for item in rules_of(module)]
    result += make_rules(channels)
    return sorted(result, key=lambda item: [int(part) for part in item.section.split(".")])


@contextmanager
def _untraced() -> Iterator[None]:
    """Under a parent that is not sampled no span is recorded."""
    trace_id, span_id = secrets.randbits(127) + 1, secrets.randbits(63) + 1
    with use_span(NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(0)))):
        yield


def _is_within(section: str, only: Sequence[str]) -> bool:
    return any(section == expected or section.startswith(f"{expected}.") for expected in only)


def _load(bench: Bench) -> Failure | None:
    """Load the corpus; what went wrong is the failure of every rule that needs it."""
    execute(bench.connection, "SAVEPOINT ragd_corpus")
    try:
        bench.load_golden()
    except Exception as error:
        execute(bench.connection, "ROLLBACK TO SAVEPOINT ragd_corpus")
        return _broken("loading the corpus", error)
    return None


def _try(item: Rule, bench: Bench, loading: Failure | None) -> RuleResult:
    began = time.perf_counter()
    cases = Cases()
    if item.needs_corpus and loading is not None:
        return RuleResult(item.section, item.title, 1, (loading,), _since(began))
    try:
        with bench.undone():
            item.check(bench, cases)
    except Exception as error:
        cases.count += 1
        cases.failures.append(_broken("the check itself", error))
    return RuleResult(item.section, item.title, cases.count, tuple(cases.failures), _since(began))


def _broken(case: str, error: Exception) -> Failure:
    return Failure(case, "no error", f"{type(error).__name__}: {error}"[:300])


def _since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
