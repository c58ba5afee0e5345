"""How long every page takes with little and with much data, how much it sends, how many statements it needs.

Much is 99,000 chunks of 5,000 documents, 10,000 query runs of 30 days with their spans, and 1,000 golden questions with
two evaluation runs that hold every measure. The query runs, spans and chunks are copies, made inside the database, of
real ones: questions asked and documents ingested through the services, with a model server that answers at once.

Per page, as an administrator and through Django's test client: the median and the longest of warm loads in
milliseconds, kB of the body as it is and compressed, and statements with little and with much. Where Chromium is there,
the main pages are opened in it and their layout shift (CLS) is read. Parts that a page loads later are pages here.

Run: python -m benchmarks.bench_pages [--loads 7] [--only TEXT] [--var FOLDER]

--only: addresses that hold the text. --var: keep the database there, and use what is there already.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCUMENTS, RUNS, QUESTIONS = 5_000, 10_000, 1_000
ASKED, LOADS = 12, 7
MEDIAN_MS, LONGEST_MS, SENT_KB = 100, 300, 250
FAILURE_MODES = ("low_completeness", "low_context_relevance", "wrong_answer", "low_context_utilization")
NAME = "handbook"
EMBEDDER, MODEL = "embedder", "gpt-4o-mini"
WORDS = [f"word{number}" for number in range(20_000)]
ANSWER = "{} This is stated in the first source [1], and the second one says under which conditions it holds [2]."
MAIN = ("/", "/collections/", "/activity/", "/traces/", "/activity/spans/", "/evaluation/", "/operations/")

COPY_DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id, title, tags, metadata, language, source, media_type, text, size_chars,
    token_count, chunk_count, content_hash, created_at, updated_at)
SELECT d.collection_id, 'copy/' || n || '-' || d.doc_id, d.title || ' ' || n, d.tags, d.metadata, d.language, d.source,
    d.media_type, d.text, d.size_chars, d.token_count, d.chunk_count, md5(d.content_hash || n),
    now() - n * interval '1 min', now() - n * interval '1 min'
FROM documents d, generate_series(1, %(copies)s) n
WHERE d.collection_id = %(collection)s AND d.doc_id NOT LIKE 'copy/%%'
"""
COPY_CHUNKS = """
INSERT INTO chunks_c{collection}_g1 (collection_id, doc_id, chunk_index, content, start_char, end_char, context, tags,
    metadata, attributes, token_count, revision, embedding, fts, lexical)
SELECT c.collection_id, 'copy/' || n || '-' || c.doc_id, c.chunk_index, c.content, c.start_char, c.end_char, c.context,
    c.tags, c.metadata, c.attributes, c.token_count, c.revision, c.embedding, c.fts, c.lexical
FROM chunks_c{collection}_g1 c, generate_series(1, %(copies)s) n WHERE c.doc_id NOT LIKE 'copy/%%'
"""
# a copy's id and trace are the run's with its number hashed in, so that its chunks and spans follow by the same rule
COPY_RUNS = """
INSERT INTO retrieval_app_queryrun ({columns})
SELECT {values} FROM retrieval_app_queryrun q, generate_series(1, %(copies)s) n WHERE q.id = ANY(%(ids)s)
"""
COPY_RETRIEVED = """
INSERT INTO retrieval_app_retrievedchunk (run_id, collection_id, doc_id, chunk_index, revision, rank, cited, created_at)
SELECT md5(r.run_id::text || n)::uuid, r.collection_id, r.doc_id, r.chunk_index, r.revision, r.rank, r.cited,
    r.created_at - n * interval '40 min' FROM retrieval_app_retrievedchunk r, generate_series(1, %(copies)s) n
WHERE r.run_id = ANY(%(ids)s)
"""
COPY_SPANS = """
INSERT INTO spans (trace_id, span_id, parent_span_id, name, kind, scope, service, started_at, ended_at, duration_ms,
    status_code, status_description, collection, run_id, attributes, events, links, type, oi_kind, model, api_key,
    input_tokens, output_tokens, cost_usd, risk_score, words, environment)
SELECT md5(s.trace_id || n), s.span_id, s.parent_span_id, s.name, s.kind, s.scope, s.service,
    s.started_at - n * interval '40 min', s.ended_at - n * interval '40 min', s.duration_ms, s.status_code,
    s.status_description, s.collection, md5(s.run_id::text || n)::uuid, s.attributes, s.events, s.links, s.type,
    s.oi_kind, s.model, s.api_key, s.input_tokens, s.output_tokens, s.cost_usd, s.risk_score, s.words, s.environment
FROM spans s, generate_series(1, %(copies)s) n WHERE s.trace_id = ANY(%(traces)s)
"""
OWN_VALUES = {
    "id": "md5(q.id::text || n)::uuid",
    "trace_id": "md5(q.trace_id || n)",
    "created_at": "q.created_at - n * interval '40 min'",
    "query": "q.query || ' ' || n",
}


@dataclass(frozen=True)
class Load:
    """ms: of each warm load. body: the page. statements: of one load."""

    ms: list[float]
    body: bytes
    statements: int


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--loads", type=int, default=LOADS)
    parser.add_argument("--only", default="")
    parser.add_argument("--var", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        var = given.var or Path(folder)
        var.mkdir(exist_ok=True)
        var.chmod(0o755)  # PostgreSQL may run as another user
        prepare(var)
        from ragd_site import embedded

        try:
            measure(given.loads, given.only)
        finally:
            embedded.stop(var)


def prepare(var: Path) -> None:
    """A database under `var` with its schema, and Django set up over it with a fake model server."""
    from ragd_site import embedded
    from tests.fakes.openai_server import OpenAIServer

    server = OpenAIServer(dims=128, api_key="bench").start()
    server.models = [EMBEDDER, MODEL]
    server.chat_reply = lambda messages: ANSWER.format(messages[-1]["content"][-200:])
    url = embedded.ensure_running(var).url  # with the buffers of a server, which tests have not
    os.environ |= {
        "DATABASE_URL": url, "RAGD_VAR": str(var), "DJANGO_SETTINGS_MODULE": "ragd_site.settings",
        "RAGD_LOG_LEVEL": "ERROR", "EMBED_BASE_URL": server.base_url, "EMBED_API_KEY": "bench",
        "RAGD_EMBED_MODEL": EMBEDDER, "RAGD_EMBED_DIMS": "128", "LLM_BASE_URL": server.base_url,
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


def measure(loads: int, only: str) -> None:
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client()
    admin, _ = get_user_model()._default_manager.get_or_create(username="bench", is_superuser=True, is_staff=True)
    client.force_login(admin)
    few: dict[str, Load] = {}
    if make_little(client):
        few = {kind: load(client, address, 1) for kind, address in addresses() if only in address}
        make_much()
    shown = [(kind, address) for kind, address in addresses() if only in address]
    gc.freeze()  # as in ragd_site.wsgi
    gc.set_threshold(20_000, 20, 20)
    shell_kb = static_kb(client.get("/").content)
    print(f"{'page':44} {'median':>7} {'longest':>8} {'kB':>6} {'gzip':>6} {'few':>5} {'many':>5}")
    much = {kind: load(client, address, loads) for kind, address in shown}
    for kind, _ in shown:
        found = much[kind]
        medians = f"{statistics.median(found.ms):7.0f} {max(found.ms):8.0f}"
        sent = f"{len(found.body) / 1024:6.0f} {len(gzip.compress(found.body, 6)) / 1024:6.0f}"
        little = few[kind].statements if kind in few else "-"
        print(f"{kind:44} {medians} {sent} {little!s:>5} {found.statements:5}", flush=True)
    tell_targets(few, much, shell_kb)
    if not only:
        tell_shifts(client, [(kind, address) for kind, address in shown if address in MAIN])


def tell_targets(few: dict[str, Load], much: dict[str, Load], shell_kb: float) -> None:
    slow = [kind for kind, found in much.items() if statistics.median(found.ms) > MEDIAN_MS]
    longest = max(statistics.median(found.ms) for found in much.values())
    middle = statistics.median(statistics.median(found.ms) for found in much.values())
    heavy = {kind: len(found.body) / 1024 + shell_kb for kind, found in much.items()}
    grown = [kind for kind, found in much.items() if kind in few and found.statements > few[kind].statements]
    print(f"target median of a page under {MEDIAN_MS} ms: {len(slow)} of {len(much)} above, middle {middle:.0f} ms")
    print(f"target no page over {LONGEST_MS} ms: the slowest median is {longest:.0f} ms")
    over = sorted((kind for kind, kb in heavy.items() if kb > SENT_KB), key=lambda kind: -heavy[kind])
    print(f"target under {SENT_KB} kB with {shell_kb:.0f} kB of styles and scripts: {len(over)} above {over}")
    print(f"target as many statements with much data as with little: {len(grown)} more {grown}")


def load(client: Any, address: str, loads: int) -> Load:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client.get(address)  # opens templates and what is kept
    with CaptureQueriesContext(connection) as caught:
        response = client.get(address)
    statements = len(caught)  # before the next request, which clears the log
    assert response.status_code == 200, (address, response.status_code)
    took = []
    for _ in range(loads):
        began = time.perf_counter()
        client.get(address)
        took.append((time.perf_counter() - began) * 1000)
    return Load(took, response.content, statements)


def static_kb(page: bytes) -> float:
    """What a first visit loads besides the page: styles and scripts, compressed."""
    from django.contrib.staticfiles import finders

    names = re.findall(rb'(?:href|src)="/static/([^"?]+\.(?:css|js))"', page)
    paths = [finders.find(name.decode()) for name in names]
    return sum(len(gzip.compress(Path(str(path)).read_bytes())) for path in paths if path) / 1024


def make_little(client: Any) -> bool | None:
    """20 documents, ASKED questions with their spans, a small test set with two runs. None: they are there."""
    from collections_app.collections.services import create_collection
    from collections_app.documents.services import ingest_text
    from collections_app.models import Collection

    if Collection.objects.filter(name=NAME).exists():
        return None
    collection = create_collection(name=NAME)
    for number in range(20):
        parts = [
            " ".join(WORDS[(number * 977 + start * 131 + place) % len(WORDS)] for place in range(150))
            for start in range(40)
        ]
        text = "\n\n".join(f"## Part {place}\n\n{part}." for place, part in enumerate(parts))
        ingest_text(
            collection, f"page{number}.md", text, title=f"Page {number}", tags=["a"], metadata={"year": 2000 + number}
        )
    with recorded_spans():
        for number in range(ASKED):
            question = " ".join(WORDS[number * 977 % len(WORDS) :][:4])
            client.post(
                "/chat/", {"collection": NAME, "query": f"{question}?", "do": "ask" if number % 2 else "search"}
            )
    make_evaluation("small", 10)
    return True


@contextmanager
def recorded_spans() -> Iterator[None]:
    """Spans that end inside are written at the end."""
    from django.db import connection
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

    from evaluation_app.telemetry.store.exporter import COPY_SPANS as COPY_IN
    from evaluation_app.telemetry.store.exporter import span_row
    from ragd_site.observability.tracing import LIMITS, RagdSampler, build_resource, instrument

    class Recorder(SpanProcessor):
        spans: list[ReadableSpan] = []

        def on_end(self, span: ReadableSpan) -> None:
            self.spans.append(span)

    recorder = Recorder()
    provider = TracerProvider(resource=build_resource("web"), sampler=RagdSampler(), span_limits=LIMITS)
    provider.add_span_processor(recorder)
    trace.set_tracer_provider(provider)
    instrument()
    yield
    provider.shutdown()
    with connection.cursor() as cursor, cursor.copy(COPY_IN) as copy:
        for span in recorder.spans:
            copy.write_row(span_row(span, "full"))


def make_run_of(generator: Any, count: int, **values: Any) -> Any:
    """A stored run with everything that a question of a full run holds."""
    from evaluation_app.measures.catalogue import CUTS, MEASURES
    from tests.evaluation.made_runs import make_run

    names = [f"{name}@10" if name in CUTS else name for name in MEASURES] + [f"chunk_{name}@10" for name in CUTS]
    text = " ".join(f"word{number}" for number in range(20))
    context = [{"key": f"d{n}#0", "sentences": [[f"{n}.{s}", text] for s in range(8)]} for n in range(12)]
    scores = [{name: float(generator.random()) for name in names} for _ in range(count)]
    items = {
        place: {
            "context": context,
            "answer": f"{text} {text}",
            "retrieved_ids": [each["key"] for each in context],
            "details": {"store_state": {"chunks": 20_000}, "probabilities": dict.fromkeys(map(str, range(96)), 0.5)},
            "modes": [str(mode) for mode in generator.choice(FAILURE_MODES, 3, replace=False)],
            "golden": {"question": f"Question {place}?", "expected_doc_ids": ["d1"], "expected_answer": text},
        }
        for place in range(count)
    }
    return make_run(scores, items=items, **values)


def make_evaluation(name: str, count: int) -> None:
    """A test set of so many questions with two evaluation runs that hold every measure and their context."""
    import numpy as np

    from evaluation_app.models import GoldenQuestion, GoldenSet

    golden = GoldenSet.objects.create(name=name, collection_name=NAME)
    GoldenQuestion.objects.bulk_create(
        GoldenQuestion(
            golden_set=golden,
            position=place,
            question=f"Question {place}?",
            expected_doc_ids=["page1.md"],
            expected_answer="word1 word2",
            category=("factual", "procedural")[place % 2],
        )
        for place in range(count)
    )
    generator = np.random.default_rng(20240716)
    for _ in range(2):
        make_run_of(generator, count, golden_set=golden, set_name=name, collection_name=NAME)


def make_much() -> None:
    from django.db import connection

    from collections_app.models import Collection
    from evaluation_app.telemetry.overview.figures import roll_up
    from evaluation_app.telemetry.store import span_store
    from retrieval_app.models import QueryRun

    began = time.monotonic()
    collection = Collection.objects.get(name=NAME)
    runs = list(QueryRun.objects.filter(collection_name=NAME).exclude(trace_id=""))
    columns = [field.column for field in QueryRun._meta.concrete_fields]
    values = [OWN_VALUES.get(column, f"q.{column}") for column in columns]
    copies = {"copies": RUNS // len(runs), "ids": [run.pk for run in runs], "traces": [run.trace_id for run in runs]}
    from django.utils import timezone

    span_store.make_ahead(timezone.now(), 31)
    with connection.cursor() as cursor:
        there = {"copies": DOCUMENTS // 20, "collection": collection.pk}
        cursor.execute(COPY_DOCUMENTS, there)
        cursor.execute(COPY_CHUNKS.format(collection=collection.pk), there)
        cursor.execute(COPY_RUNS.format(columns=", ".join(columns), values=", ".join(values)), copies)
        cursor.execute(COPY_RETRIEVED, copies)
        cursor.execute(COPY_SPANS, copies)
        cursor.execute(
            "UPDATE retrieval_app_queryrun SET environment = 'evaluation', channel = 'worker' WHERE random() < 0.2"
        )
        cursor.execute(
            "UPDATE retrieval_app_queryrun SET status = 'error', error = 'It timed out.' WHERE random() < 0.03"
        )
        cursor.execute("VACUUM ANALYZE")
    make_evaluation("large", QUESTIONS)
    while roll_up(everything=True):
        pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute(
            f"SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM chunks_c{collection.pk}_g1), "
            "(SELECT count(*) FROM retrieval_app_queryrun), (SELECT count(*) FROM spans)"
        )
        documents, chunks, asked, spans = cursor.fetchone()
    print(
        f"{documents:,} documents, {chunks:,} chunks, {asked:,} query runs, {spans:,} spans, {QUESTIONS:,} golden"
        f" questions made in {time.monotonic() - began:.0f} s",
        flush=True,
    )


# of a collection, below its own address
OF_A_COLLECTION = (
    "", "upload/", "upload/?view=urls", "sources/", "sources/?view=new", "sources/?view=new&kind=website", "uploads/",
    "upload/?view=text", "uploads/?state=all", "settings/", "index-versions/", "?show=statistics", "playground/",
    "settings/?view=delete", "?view=change&doc_id={document}",
    *(f"documents/{{document}}/{query}" for query in (
        "", "?view=edit", "?view=edit-text", "?view=rename", "?view=new-version", "?view=formatted", "?view=history",
        "?view=revision&number=1", "?view=difference&before=1&after=1", "?flagged=1", "?view=preview", "?view=overlays",
    )), "?view=trash", "?state=archived&tag={name}", "chunks/0/{document}/", "chunks/0/{document}/?view=neighbours",
    "health/", "health/?view=gaps", "health/?view=findings", "health/?view=never-retrieved",
    "retrieved/chunk/0/{document}/",
    "retrieved/document/{document}/", "index-versions/1/gate/", "impact/?impact=delete&doc_id={document}",
    "golden-chunk/0/{document}/", "golden-document/{document}/",
)  # fmt: skip


def addresses() -> list[tuple[str, str]]:
    """(page, address) of every page that has something to show: those without arguments, and one of each other kind."""
    from evaluation_app.models import EvaluationRun, GoldenSet, Span
    from retrieval_app.models import ChatThread, QueryRun
    from tests.web.test_every_page import plain_addresses

    of_collection = f"/collections/{NAME}/"
    document = "page1.md"
    run = QueryRun.objects.filter(kind="ask", status="ok").exclude(trace_id="").order_by("created_at").first()
    newest = EvaluationRun.objects.order_by("-created_at").first()
    assert run is not None and newest is not None
    earlier = QueryRun.objects.exclude(pk=run.pk).exclude(trace_id="").order_by("created_at").first()
    assert earlier is not None
    other = EvaluationRun.objects.filter(set_name=newest.set_name).order_by("created_at").first()
    assert other is not None
    thread = ChatThread.objects.order_by("created_at").first()
    assert thread is not None
    golden = GoldenSet.objects.get(name=newest.set_name)
    question = golden.questions.first()
    span = Span.objects.filter(trace_id=run.trace_id, name__startswith="rag.retrieve").first()
    assert span is not None and question is not None
    evaluated, base = f"/evaluation/runs/{newest.pk}/", f"/evaluation/sets/{golden.pk}/"
    kinds = {
        "collection, filtered": f"{of_collection}?q=page&tag=a",
        "collection, plans": f"{of_collection}plans/",
        "document, ingests": f"{of_collection}ingests/{document}/",
        "thread": thread.get_absolute_url(),
        "conversation": f"/activity/conversations/?id={thread.pk}",
        "retention, counted": "/settings/server/?view=retention&count=on",
        "runs, filtered": "/activity/?kind=ask&text=a",
        "runs, all, page 100": "/activity/?environment=all&page=100",
        "run": f"/runs/{run.pk}/",
        "run, ranking": f"/runs/{run.pk}/?view=ranking",
        "run, trace": f"/runs/{run.pk}/?view=trace",
        "run, evaluation": f"/runs/{run.pk}/?view=evaluation",
        "runs compared": f"/runs/{run.pk}/compare/{earlier.pk}/",
        "run, validity": f"/runs/{run.pk}/?view=validity",
        "trace": f"/traces/{run.trace_id}/",
        "span": f"/traces/{run.trace_id}/?view=span&span_id={span.span_id}",
        **{f"traces, {period}": f"/traces/?period={period}" for period in ("1h", "7d", "30d")},
        "spans, expression": "/activity/spans/?kind=LLM&where=latency_ms+%3E+0",
        "spans, text": "/activity/spans/?text=a",
        "evaluation run": evaluated,
        "evaluation run, failing": f"{evaluated}?verdict=failing",
        "evaluation item": f"{evaluated}items/3/",
        "compare": f"/evaluation/compare/?base={other.pk}&other={newest.pk}",
        "compare, a question": f"/evaluation/compare/?view=question&position=3&base={other.pk}&other={newest.pk}",
        "failure analysis": f"/evaluation/board/?run={newest.pk}",
        "test set": base,
        "test set, versions": f"{base}?view=versions",
        "test set, suggestions": f"{base}?view=suggestions",
        "golden question": f"{base}?view=question&question_id={question.pk}",
        "online evaluation": f"/evaluation/live/{NAME}/",
        "palette, a word": "/go/?q=page",
    }  # fmt: skip
    filled = [of_collection + each.format(document=document, name=NAME) for each in OF_A_COLLECTION]
    return [(address, address) for address in (*plain_addresses(), *filled)] + list(kinds.items())


def tell_shifts(client: Any, pages: list[tuple[str, str]]) -> None:
    """The cumulative layout shift of the main pages in Chromium, from a server in this process."""
    chromium = os.environ.get("RAGD_CHROMIUM") or shutil.which("chromium") or ""
    if not chromium:
        print("layout shift: not measured, there is no Chromium")
        return
    from django.conf import settings
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.db import connections
    from django.test.testcases import LiveServerThread
    from playwright.sync_api import sync_playwright

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    thread = LiveServerThread("127.0.0.1", StaticFilesHandler)
    thread.daemon = True
    thread.start()
    thread.is_ready.wait()
    base = f"http://127.0.0.1:{thread.port}"
    worst = 0.0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1360, "height": 900})
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": base}])
        context.add_init_script(WATCH_SHIFTS)
        for kind, address in pages:
            page = context.new_page()
            page.goto(base + address, wait_until="networkidle")
            shift = float(page.evaluate("window.layoutShift"))
            worst = max(worst, shift)
            print(f"layout shift of {kind}: {shift:.3f}", flush=True)
            page.close()
        browser.close()
    thread.terminate()
    connections.close_all()
    print(f"target no layout shift on a main page: at most {worst:.3f}, under 0.01 wanted")


WATCH_SHIFTS = """
window.layoutShift = 0;
new PerformanceObserver((list) => list.getEntries().forEach((each) => { window.layoutShift += each.value; }))
  .observe({ type: "layout-shift", buffered: true });
"""

if __name__ == "__main__":
    main()
