"""A span store of a million spans that are realistic in kind and size, for benchmarks.

The spans of a few hundred real requests are recorded: searches, answers of a chat model, rerankings and ingests over
SciFact's abstracts, through the HTTP API, with statements and requests. Each is then written many times over with other
ids, times, durations, collections, models, keys and words of the question, evenly over DAYS days up to now, in batches
with all indexes in place, as the exporter writes them.
"""

from __future__ import annotations

import os
import pickle
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from tests.benchmarks.growth import vocabulary
from tests.benchmarks.scifact import load_scifact

DAYS = 30
ASKED, SEARCHED, RERANKED, INGESTED = 120, 80, 40, 40
DOCUMENTS = 400
COLLECTIONS = [f"handbook-{number}" for number in range(12)]
MODELS = ["gpt-4o-mini", "gpt-4o", "claude-sonnet-4", "mistral-large"]
KEYS = ["site", "intranet", "evaluation", "mobile", "support"]
FAILING = 0.03
BATCH = 5000
ANSWER = "{} This is stated in the first source [1], and the second one says under which conditions it holds [2]."
# what stands in the recorded spans for what each copy has of its own
COLLECTION, MODEL, KEY, WORDS = "zzcollection", "zzmodel", "zzkey", "zzwords"
RUN = re.compile(r'"ragd\.run\.id": "([0-9a-f-]{36})"')


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
    call_command("migrate", verbosity=0)
    return url


def load(url: str, total: int, *, until_s: float = float("inf")) -> bool:
    """Fill each day that is not full yet; False when `until_s` (of time.monotonic) came first. Prints what it does."""
    from evaluation_app.span_store import list_partitions, make_ahead

    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = [midnight - timedelta(days=number) for number in range(DAYS, 0, -1)]
    make_ahead(now, DAYS)
    recorded: list[Recorded] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for day in days:
            make_partition(day, {each.lower for each in list_partitions()})
            wanted = total // DAYS - count_of(connection, day)
            if wanted <= 0:
                continue
            if time.monotonic() > until_s:
                return False
            recorded = recorded or kept_record(Path(os.environ["RAGD_VAR"]) / "recorded.pickle")
            began = time.monotonic()
            written = write_day(connection, recorded, day, wanted)
            took = time.monotonic() - began
            print(f"  {day:%Y-%m-%d}: {written:,} spans, {written / took:,.0f} a second", flush=True)
        connection.execute("VACUUM ANALYZE spans")
    return True


def make_partition(day: datetime, known: set[datetime | None]) -> None:
    from evaluation_app import span_store

    if day not in known:
        span_store._add(day, day + timedelta(days=1))


def count_of(connection: psycopg.Connection[Any], day: datetime) -> int:
    sql = "SELECT count(*) FROM spans WHERE started_at >= %s AND started_at < %s"
    row = connection.execute(sql, (day, day + timedelta(days=1))).fetchone()
    return int(row[0]) if row else 0


def kept_record(path: Path) -> list[Recorded]:
    """What `record` gives, kept for the runs that go on."""
    if not path.exists():
        path.write_bytes(pickle.dumps(record()))
    return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]


def record() -> list[Recorded]:
    """Real requests through the HTTP API, their spans as rows. Leaves nothing but the collection behind."""
    from django.db import connection
    from django.test import Client
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

    from collections_app.models import Collection
    from collections_app.services.collections import create_collection
    from collections_app.services.documents import ingest_text
    from collections_app.services.keys import create_key
    from evaluation_app.exporter import span_row
    from ragd import telemetry
    from ragd.telemetry.pricing import Cost
    from ragd_site.telemetry import LIMITS, RagdSampler, build_resource, instrument

    class Recorder(SpanProcessor):
        spans: list[ReadableSpan] = []

        def on_end(self, span: ReadableSpan) -> None:
            self.spans.append(span)

    began = time.monotonic()
    recorder = Recorder()
    provider = TracerProvider(resource=build_resource("web"), sampler=RagdSampler(), span_limits=LIMITS)
    provider.add_span_processor(recorder)
    trace.set_tracer_provider(provider)
    telemetry.configure(
        pricer=lambda system, model, given, made, cached: Cost(given * 15e-8, made * 6e-7, "table", "bench")
    )
    instrument()
    data = load_scifact("train")
    if not Collection.objects.filter(name=COLLECTION).exists():
        collection = create_collection(name=COLLECTION, hybrid_enabled=True)
        for doc_id, title, text in data.documents[:DOCUMENTS]:
            ingest_text(collection, doc_id, text, title=title, metadata={"source": "scifact", "part": doc_id[-1]})
    _, secret = create_key(KEY)
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
        body = {"title": title, "content": text * 3}
        found.append(trace_of(f"{base}/documents/{doc_id}", body, "put"))
    connection.close()
    spans = sum(len(each.rows) for each in found)
    print(f"  {len(found)} requests recorded, {spans / len(found):.1f} spans each, in {time.monotonic() - began:.0f} s")
    return found


def write_day(connection: psycopg.Connection[Any], recorded: Sequence[Recorded], day: datetime, wanted: int) -> int:
    from evaluation_app.exporter import COPY_SPANS

    draw = random.Random(day.toordinal())
    rows: list[tuple[Any, ...]] = []
    written = 0
    while written < wanted:
        rows += copies(draw.choice(recorded), day, draw)
        if len(rows) >= BATCH or written + len(rows) >= wanted:
            with connection.cursor() as cursor, cursor.copy(COPY_SPANS) as copy:
                for row in rows:
                    copy.write_row(row)
            written, rows = written + len(rows), []
    return written


def copies(each: Recorded, day: datetime, draw: random.Random) -> Iterator[tuple[Any, ...]]:
    """One more trace like it, somewhere in the day."""
    words = vocabulary()
    own = " ".join(words[min(int(draw.paretovariate(0.5)), len(words)) - 1] for _ in range(4))
    run_id, collection = str(uuid4()), COLLECTIONS[min(int(draw.expovariate(0.4)), len(COLLECTIONS) - 1)]
    model, key = MODELS[min(int(draw.expovariate(1)), 3)], draw.choice(KEYS)
    trace_id = f"{draw.getrandbits(128):032x}"
    slower = draw.lognormvariate(0, 0.7)
    first = each.rows[0][7]
    start = day + timedelta(seconds=draw.random() * 86_300)
    fails = draw.random() < FAILING
    ids = {row[1]: f"{draw.getrandbits(64):016x}" for row in each.rows}

    def change(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        text = text.replace(COLLECTION, collection).replace(MODEL, model).replace(KEY, key).replace(WORDS, own)
        return text.replace(each.run_id, run_id) if each.run_id else text

    for number, row in enumerate(each.rows):
        values = [change(value) for value in row]
        begins = start + (row[7] - first) * slower
        values[0], values[1] = trace_id, ids[row[1]]
        values[2] = ids.get(row[2], row[2]) if row[2] else None
        values[7], values[8], values[9] = begins, begins + timedelta(milliseconds=row[9] * slower), row[9] * slower
        if fails and number < 2:
            values[10], values[11] = "ERROR", "EndpointError: the model did not answer within 60 s"
        values[-1] = f"{values[-1]} " + " ".join(f"'{word}'" for word in own.split())
        yield tuple(values)
