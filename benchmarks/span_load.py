"""A span store of a million spans that are realistic in kind and size, for benchmarks.

The spans of real requests are recorded: answers of a chat model, searches, rerankings and ingests over SciFact's
abstracts, through the HTTP API, with their statements. Of each trace VARIANTS are made with other collections, models,
keys and words of the question. These are copied inside the database, each copy with its own ids, time, duration and
words, evenly over DAYS days up to now; indexes are built day by day, when a day's partition is full.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from benchmarks.scifact import load_scifact

DAYS = 30
ASKED, SEARCHED, RERANKED, INGESTED = 60, 50, 10, 20
VARIANTS = 16
DOCUMENTS = 400
COLLECTIONS = [f"handbook-{number}" for number in range(12)]
MODELS = ["gpt-4o-mini", "gpt-4o", "claude-sonnet-4", "mistral-large"]
KEYS = ["site", "intranet", "evaluation", "mobile", "support"]
FAILING = 0.03
VOCABULARY = 200_000
RARE_WORDS = 50_000  # w1, a common word, to w50000
ANSWER = "{} This is stated in the first source [1], and the second one says under which conditions it holds [2]."
# what stands in the recorded spans for what each copy has of its own
COLLECTION, MODEL, KEY, WORDS = "zzcollection", "zzmodel", "zzkey", "zzwords"
RUN = re.compile(r'"ragd\.run\.id": "([0-9a-f-]{36})"')

MAKE_BASE = """
CREATE UNLOGGED TABLE span_base (LIKE spans INCLUDING DEFAULTS);
ALTER TABLE span_base ALTER COLUMN id DROP NOT NULL, ADD COLUMN trace integer, ADD COLUMN trace_start timestamptz;
"""
NUMBER_BASE = """
UPDATE span_base b SET trace = t.number, trace_start = t.first
FROM (SELECT trace_id, (row_number() OVER (ORDER BY trace_id))::int AS number, min(started_at) AS first
      FROM span_base GROUP BY trace_id) t
WHERE t.trace_id = b.trace_id
"""
COUNT_BASE = "SELECT max(trace), count(*) FROM span_base"
MAKE_DAY = "CREATE TABLE {name} (LIKE spans INCLUDING DEFAULTS)"
FILL_DAY = """
INSERT INTO {name} (id, trace_id, span_id, parent_span_id, name, kind, scope, service, started_at, ended_at,
    duration_ms, status_code, status_description, collection, run_id, attributes, events, links, dropped_count, type,
    oi_kind, model, api_key, input_tokens, output_tokens, cost_usd, risk_score, words)
WITH picked AS MATERIALIZED (
    SELECT 1 + floor(random() * %(traces)s)::int AS trace, md5(random()::text || number) AS trace_id,
           %(day)s::timestamptz + random() * interval '86300 s' AS start, exp(0.7 * random_normal()) AS slower,
           random() < %(failing)s AS fails, gen_random_uuid() AS run_id,
           array_to_tsvector(ARRAY(
               SELECT 'w' || least(%(rare)s, floor(power(1 - random(), -2)))::int FROM generate_series(1, 4)
               WHERE number > 0)) AS words
    FROM generate_series(1, %(picks)s) number)
SELECT nextval(pg_get_serial_sequence('spans', 'id')), p.trace_id, substr(md5(p.trace_id || b.span_id), 1, 16),
    substr(md5(p.trace_id || b.parent_span_id), 1, 16), b.name, b.kind, b.scope, b.service,
    p.start + (b.started_at - b.trace_start) * p.slower,
    p.start + (b.started_at - b.trace_start) * p.slower + b.duration_ms * p.slower * interval '1 ms',
    b.duration_ms * p.slower, CASE WHEN p.fails THEN 'ERROR' ELSE b.status_code END,
    CASE WHEN p.fails THEN 'EndpointError: the model did not answer within 60 s' ELSE b.status_description END,
    b.collection, CASE WHEN b.run_id IS NULL THEN NULL ELSE p.run_id END, b.attributes, b.events, b.links,
    b.dropped_count, b.type, b.oi_kind, b.model, b.api_key, b.input_tokens, b.output_tokens, b.cost_usd, b.risk_score,
    b.words || p.words
FROM picked p JOIN span_base b USING (trace) ORDER BY 9
"""


@lru_cache
def vocabulary() -> list[str]:
    """Distinct made-up words, the commonest first."""
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou"]
    draw = random.Random(1)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words["".join(draw.choices(syllables, k=draw.randint(2, 4)))] = None
    return list(words)


@dataclass(frozen=True)
class Recorded:
    """The rows of one trace as the exporter makes them, by start, and the run's id; "" for an ingest."""

    rows: list[tuple[Any, ...]]
    run_id: str


def prepare(var: Path) -> str:
    """A database under `var` with its schema, and Django set up over it with a fake model server; its address."""
    from ragd_site import embedded
    from tests.fakes.openai_server import OpenAIServer

    server = OpenAIServer(dims=128, api_key="bench").start()
    server.models = ["zzembedder", MODEL]
    server.chat_reply = lambda messages: ANSWER.format(messages[-1]["content"][-200:])
    url = embedded.ensure_running(var, fsync=False).url
    os.environ |= {
        "DATABASE_URL": url, "RAGD_VAR": str(var), "DJANGO_SETTINGS_MODULE": "ragd_site.settings",
        "RAGD_LOG_LEVEL": "ERROR", "EMBED_BASE_URL": server.base_url, "EMBED_API_KEY": "bench",
        "RAGD_EMBED_MODEL": "zzembedder", "RAGD_EMBED_DIMS": "128", "LLM_BASE_URL": server.base_url,
        "OPENAI_API_KEY": "bench", "RAGD_LLM_MODEL": MODEL, "RAGD_SECRET_KEY": "bench", "RAGD_SPAN_MAX_MB": "0",
    }  # fmt: skip
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    settings.CELERY_TASK_ALWAYS_EAGER = True
    settings.ALLOWED_HOSTS = ["*"]
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}
    call_command("migrate", verbosity=0)
    return url


def load(url: str, total: int, *, until_s: float = float("inf")) -> bool:
    """Fill each day that is not there yet; False when `until_s` (of time.monotonic) came first. Prints what it does."""
    from evaluation_app.telemetry.store import span_store

    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    span_store.drop_leftovers()
    span_store.make_ahead(now, DAYS)
    known = {each.lower for each in span_store.list_partitions()}
    days = [midnight - timedelta(days=number) for number in range(DAYS, 0, -1)]
    missing = [day for day in days if day not in known]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '512MB'")
        if missing:
            make_base(connection)
        for day in missing:
            if time.monotonic() > until_s:
                return False
            began = time.monotonic()
            written = make_day(connection, day, total // DAYS)
            print(f"  {day:%Y-%m-%d}: {written:,} spans in {time.monotonic() - began:.1f} s", flush=True)
        if missing:
            connection.execute("VACUUM ANALYZE spans")
    return True


def make_day(connection: psycopg.Connection[Any], day: datetime, wanted: int) -> int:
    """One partition, filled, then attached, which builds its indexes."""
    from evaluation_app.telemetry.store import span_store

    given = {
        "name": span_store._name(day), "lower": day.isoformat(), "upper": (day + timedelta(days=1)).isoformat()
    }  # fmt: skip
    traces, spans = connection.execute(COUNT_BASE).fetchone() or (1, 1)
    params = {
        "traces": traces, "day": day, "failing": FAILING, "rare": RARE_WORDS, "picks": round(wanted * traces / spans)
    }  # fmt: skip
    connection.execute(MAKE_DAY.format(**given))
    written = connection.execute(FILL_DAY.format(**given), params).rowcount
    connection.execute(span_store.ATTACH.format(**given))
    return written


def make_base(connection: psycopg.Connection[Any]) -> None:
    """The variants of the recorded traces, in a table of their own; once."""
    from evaluation_app.telemetry.store.exporter import COPY_SPANS

    row = connection.execute("SELECT to_regclass('span_base') IS NOT NULL").fetchone()
    if row and row[0]:
        return
    recorded, draw, began = record(), random.Random(4), time.monotonic()
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(MAKE_BASE)
        with cursor.copy(COPY_SPANS.replace("COPY spans", "COPY span_base")) as copy:
            for each in recorded:
                for _ in range(VARIANTS):
                    for values in variant(each, draw):
                        copy.write_row(values)
        cursor.execute(NUMBER_BASE)
    connection.execute("VACUUM ANALYZE span_base")
    print(f"  {len(recorded) * VARIANTS} traces written in {time.monotonic() - began:.0f} s", flush=True)


def record() -> list[Recorded]:
    """Real requests through the HTTP API, their spans as rows. Leaves nothing but the collection behind."""
    from django.db import connection
    from django.test import Client
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

    from collections_app.access.api_keys import NewKey, create_key
    from collections_app.collections.services import create_collection
    from collections_app.documents.services import ingest_text
    from evaluation_app.telemetry.store.exporter import span_row
    from ragd import telemetry
    from ragd.telemetry.pricing import Cost
    from ragd_site.observability.tracing import LIMITS, RagdSampler, build_resource, instrument

    class Recorder(SpanProcessor):
        spans: list[ReadableSpan] = []

        def on_end(self, span: ReadableSpan) -> None:
            self.spans.append(span)

    began = time.monotonic()
    data = load_scifact("train")
    collection = create_collection(name=COLLECTION, hybrid_enabled=True)
    for doc_id, title, text in data.documents[:DOCUMENTS]:
        ingest_text(collection, doc_id, text, title=title, metadata={"source": "scifact", "part": doc_id[-1]})
    recorder = Recorder()
    provider = TracerProvider(resource=build_resource("web"), sampler=RagdSampler(), span_limits=LIMITS)
    provider.add_span_processor(recorder)
    trace.set_tracer_provider(provider)
    telemetry.configure(
        pricer=lambda system, model, given, made, cached: Cost(given * 15e-8, made * 6e-7, "table", "bench")
    )
    instrument()
    connection.close()  # the next one is traced
    _, secret = create_key(NewKey(KEY))
    client = Client(headers={"Authorization": f"Bearer {secret}"})
    draw = random.Random(4)
    claims = list(data.queries.values())

    def trace_of(path: str, body: dict[str, Any], method: str = "post") -> Recorded:
        recorder.spans.clear()
        answer = getattr(client, method)(path, body, content_type="application/json")
        assert answer.status_code in (200, 201), answer.content
        rows = [span_row(span, "full") for span in sorted(recorder.spans, key=lambda span: span.start_time or 0)]
        found = RUN.search(" ".join(str(row[14]) for row in rows))
        return Recorded(rows, found[1] if found else "")

    def question() -> str:
        return f"{WORDS} {draw.choice(claims)}"

    base = f"/v1/collections/{COLLECTION}"
    found = [trace_of(f"{base}/ask", {"query": question()}) for _ in range(ASKED)]
    found += [trace_of(f"{base}/search", {"query": question()}) for _ in range(SEARCHED)]
    found += [trace_of(f"{base}/search", {"query": question(), "rerank": "builtin"}) for _ in range(RERANKED)]
    for doc_id, title, text in data.documents[DOCUMENTS : DOCUMENTS + INGESTED]:
        found.append(trace_of(f"{base}/documents/{doc_id}", {"title": title, "content": text * 3}, "put"))
    spans = sum(len(each.rows) for each in found)
    print(f"  {len(found)} requests recorded, {spans / len(found):.1f} spans each, in {time.monotonic() - began:.0f} s")
    return found


def variant(each: Recorded, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """The trace with another id, collection, model, key and question."""
    words = vocabulary()
    own = " ".join(words[min(int(draw.paretovariate(0.5)), len(words)) - 1] for _ in range(4))
    changes = {
        COLLECTION: COLLECTIONS[min(int(draw.expovariate(0.4)), len(COLLECTIONS) - 1)],
        MODEL: MODELS[min(int(draw.expovariate(1)), 3)],
        KEY: draw.choice(KEYS),
        WORDS: own,
    }
    if each.run_id:
        changes[each.run_id] = str(uuid4())
    trace_id = f"{draw.getrandbits(128):032x}"
    for row in each.rows:
        values = list(row)
        for place, value in enumerate(values):
            for old, new in changes.items():
                if isinstance(value, str):
                    value = value.replace(old, new)
            values[place] = value
        values[0] = trace_id
        values[-1] = f"{values[-1]} " + " ".join(f"'{word}'" for word in own.split())
        yield tuple(values)
