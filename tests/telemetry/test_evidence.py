"""The evidence report: what it counts, what it calls a gap, and who sees it.
Downloads of spans through the API, the pages and the shell: who gets what, and in whose words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key
from collections_app.models import AuditEvent, Status
from evaluation_app.models import Span
from evaluation_app.telemetry.evidence import report as kept_reports
from evaluation_app.telemetry.evidence.pages import ALWAYS, EvidenceOut
from evaluation_app.telemetry.evidence.report import (
    REFRESHED,
    EvidenceReport,
    FieldEvidence,
    Range,
    build_report,
    controls_of_tables,
    refresh_usual,
)
from evaluation_app.telemetry.exports import downloads
from evaluation_app.telemetry.exports.ocsf import field_controls
from evaluation_app.telemetry.exports.records import make_record
from evaluation_app.telemetry.store.exporter import PostgresSpanExporter
from ragd import telemetry
from ragd_site.observability import tracing as site_telemetry
from retrieval_app.models import QueryRun
from tests.retrieval.corpus import make_collection_row
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import QUERY, SECRET, make_candidates, make_query_spans
from tests.web.pages import client_of

PAGE = "/operations/?view=field-coverage"

LOSE_PROVENANCE = """
UPDATE spans SET events = (
    SELECT jsonb_agg(CASE WHEN event ->> 'name' = 'rag.doc.retrieved' AND number = 2
                          THEN event #- '{attributes,aitf.rag.doc.provenance}' ELSE event END ORDER BY number)
    FROM jsonb_array_elements(events) WITH ORDINALITY AS e(event, number))
WHERE id = %s
"""


@pytest.fixture
def stored(span_table: None, recorder: Recorder) -> Iterator[None]:
    """Two whole queries, one of them without the switch's texts, and a search by words that found nothing."""
    make_query_spans(make_candidates(2))
    telemetry.configure(capture="hash")
    make_query_spans(make_candidates(1))
    telemetry.configure(capture="full")
    with telemetry.pipeline_span("cellar", QUERY):
        with telemetry.query_span("cellar", QUERY):
            pass
        with telemetry.retrieve_span(query=QUERY, top_k=5, index="cellar") as span:
            telemetry.record_results(span, [])
    exporter = PostgresSpanExporter(site_telemetry.connect, name="web@test")
    exporter.export(recorder.spans)
    exporter.shutdown()
    yield


def last_hour(*within: str) -> Range:
    opened = tuple((name, ALWAYS) for name in within) or None
    return Range(timezone.now() - timedelta(hours=1), timezone.now() + timedelta(minutes=1), opened)


def field(report: EvidenceReport, span_type: str, name: str, event: str = "") -> FieldEvidence:
    found = {
        each
        for framework in report.frameworks
        for control in framework.controls
        for each in control.fields
        if (each.span_type, each.name, each.event) == (span_type, name, event)
    }
    assert len(found) == 1, (span_type, name, found)
    return found.pop()


def test_what_is_counted(stored: None) -> None:
    report = build_report(last_hour())
    assert report.counts | {"aitf.rag.pipeline": 3, "aitf.rag.rerank": 2, "gen_ai.inference": 2} == report.counts
    assert (report.is_whole, report.spans, report.truncated) == (True, report.looked_at, 0)
    query = field(report, "aitf.rag.retrieve", "aitf.rag.query")
    assert (query.applies, query.recorded, query.hidden, query.state) == (3, 3, 1, "complete")
    score = field(report, "aitf.rag.retrieve", "aitf.rag.retrieve.max_score")
    assert (score.spans, score.applies, score.recorded) == (3, 2, 2)  # not where nothing was found
    model = field(report, "aitf.rag.query", "aitf.rag.query.embedding_model")
    assert (model.spans, model.applies, model.state) == (3, 2, "complete")  # not where words alone were searched
    source = field(report, "aitf.rag.retrieve", "aitf.rag.doc.provenance", "rag.doc.retrieved")
    assert (source.applies, source.recorded, source.percent) == (2, 2, 100)
    quality = field(report, "aitf.rag.evaluate", "aitf.rag.quality.groundedness")
    assert (quality.state, quality.applies) == ("idle", 0) and "never given" in quality.reason
    assert field(report, "gen_ai.inference", "gen_ai.request.seed").recorded == 2
    assert report.gaps == []


def test_every_control_of_the_tables_is_in_it(db: None) -> None:
    report = build_report(last_hour())
    listed = [(framework.name, each.control.number) for framework in report.frameworks for each in framework.controls]
    assert sorted(listed) == sorted((each.framework, each.number) for each in controls_of_tables())
    assert {each.state for framework in report.frameworks for each in framework.controls} == {"idle"}
    assert all(each.reason and each.advice for each in report.idle) and report.spans == 0


def test_a_gap_is_named_with_its_spans(stored: None) -> None:
    chat = Span.objects.filter(type="gen_ai.inference")[0]
    retrieve = max(Span.objects.filter(type="aitf.rag.retrieve"), key=lambda span: len(span.events))
    Span.objects.filter(pk=chat.pk).update(
        attributes={name: value for name, value in chat.attributes.items() if name != "gen_ai.request.model"}
    )
    with connection.cursor() as cursor:
        cursor.execute(LOSE_PROVENANCE, [retrieve.pk])
    report = build_report(last_hour())
    lacking = {(each.name, each.recorded, each.applies): each for each in report.gaps}
    model = lacking["gen_ai.request.model", 1, 2]
    assert (model.state, model.percent, list(model.examples)) == ("partly", 50, [(chat.trace_id, chat.span_id)])
    assert "check spans" in model.advice
    assert ("aitf.rag.doc.provenance", 1, 2) in lacking  # one of two documents without it is a span without it
    controls = {each.control.number: each for each in report.frameworks[0].controls}
    assert (controls["Art.13"].state, report.frameworks[0].lacking >= 1) == ("partly", True)


def test_the_newest_of_each_type_and_all_of_them(stored: None, monkeypatch: pytest.MonkeyPatch) -> None:
    some = build_report(last_hour(), limit=1)
    assert (some.is_whole, some.seen["aitf.rag.pipeline"], some.counts["aitf.rag.pipeline"]) == (False, 1, 3)
    monkeypatch.setattr(kept_reports, "PAGE", 1)
    whole = build_report(last_hour(), limit=None)
    assert whole.is_whole and whole.seen["aitf.rag.pipeline"] == 3


def test_the_range_and_the_collections(stored: None) -> None:
    assert build_report(last_hour("cellar")).counts["aitf.rag.pipeline"] == 1
    before = Range(timezone.now() - timedelta(days=2), timezone.now() - timedelta(days=1))
    assert build_report(before).spans == 0


def test_doors(stored: None, admin_client: Client) -> None:
    page = admin_client.get(f"{PAGE}&since=1h").content.decode()
    assert "EU AI Act" in page and "AML.T0051.001" in page
    told = json.loads(admin_client.get(f"{PAGE}&since=1h&format=json").content)
    assert told["frameworks"][0]["framework"] == "EU AI Act" and told["gaps"] == []
    wrong = admin_client.get(f"{PAGE}&since=yesterday")
    assert wrong.status_code == 422 and "an age such as 30m" in wrong.content.decode()
    assert admin_client.get(f"{PAGE}&since=1h&until=2h").status_code == 422
    make_collection_row("cellar")
    headers = {"Authorization": f"Bearer {create_key(NewKey('tests', scope='read', collections=['cellar']))[1]}"}
    limited: Any = Client(headers=headers).get("/v1/evidence?since=1h").json()
    assert (limited["spans"]["aitf.rag.pipeline"], limited["collections"]) == (1, ["cellar"])
    assert Client(headers=headers).get("/v1/evidence?collection=house").status_code == 403
    assert Client(headers=headers).get("/v1/evidence?collection=%00").status_code == 200


def test_the_fields_of_cosai_are_counted_and_exported(stored: None, admin_client: Client) -> None:
    report = build_report(last_hour())
    cosai = next(framework for framework in report.frameworks if framework.name == "CoSAI WS2")
    fields = {each.control.number: each for each in cosai.controls}
    assert len(fields) == 18
    assert {each.control.title for each in cosai.controls} == {"RAG_CONTEXT", "AI_INTERACTION"}
    (database,) = fields["rag.database.name"].fields
    assert (database.name, database.applies, database.recorded) == ("aitf.rag.retrieve.database", 3, 3)
    assert {each.name for each in fields["rag.doc.provenance"].fields} == {"aitf.rag.doc.provenance"}
    retrieve = Span.objects.filter(type="aitf.rag.retrieve").earliest("started_at")
    marks = admin_client.get(f"/traces/{retrieve.trace_id}/?view=span&span_id={retrieve.span_id}").context["controls"]
    shown = {row.control.number for row in marks if row.control.framework == "CoSAI WS2"}
    assert shown == {name for name in fields if name.startswith("rag.")}
    exported = field_controls(make_record(retrieve, "full"))["CoSAI WS2"]
    assert exported["rag.query.text"] == ["aitf.rag.query"] and exported.keys() == shown


def test_the_page_reads_what_was_counted_lately(
    stored: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_reports, "KEPT_FROM", 0)
    first = admin_client.get(PAGE).context["report"]
    Span.objects.all().delete()
    with CaptureQueriesContext(connection) as asked:
        kept = admin_client.get(PAGE).context["report"]
    assert not [query for query in asked.captured_queries if "jsonb_each" in query["sql"]]
    assert EvidenceOut.from_orm(kept).dict() == EvidenceOut.from_orm(first).dict() and kept.spans
    assert admin_client.get(f"{PAGE}&since=7d").context["report"].spans == 0, "another range is counted"
    assert admin_client.get(f"{PAGE}&again=1").context["report"].spans == 0
    assert admin_client.get(PAGE).context["report"].spans == 0, "what was counted last is kept"


def test_the_worker_counts_before_the_kept_report_is_too_old(
    stored: None, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_reports, "KEPT_FROM", 0)
    assert refresh_usual() and not refresh_usual()
    made_at = timezone.now() - REFRESHED
    Status.objects.filter(name__startswith="evidence:").update(made_at=made_at)
    assert admin_client.get(PAGE).context["report"].made_at == made_at
    assert refresh_usual() and Status.objects.filter(name__startswith="evidence:").count() == 1


RUN = UUID(int=1)
NAMES = {"rag.pipeline", "rag.query", "embeddings", "rag.retrieve", "rag.rerank", "chat", "rag.evaluate"}


@pytest.fixture
def trace_id(span_table: None, recorder: Recorder) -> Iterator[str]:
    exporter = PostgresSpanExporter(site_telemetry.connect, name="web@test")
    made = make_query_spans(make_candidates(2))
    with telemetry.pipeline_span("cellar", QUERY):
        pass
    exporter.export(recorder.spans)
    exporter.shutdown()
    QueryRun.objects.create(pk=RUN, kind="ask", collection_name="house", query=QUERY, channel="api", trace_id=made)
    yield made
    QueryRun.objects.all().delete()


def body(response: Any) -> str:
    assert response.status_code == 200, response.content
    return b"".join(response.streaming_content).decode()


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def key_client(**values: Any) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_key(NewKey('tests', **values))[1]}"})


def user_client(name: str, *, is_staff: bool) -> Client:
    return client_of(User.objects.create_user(name, is_staff=is_staff, is_superuser=True))


def test_the_api(trace_id: str, settings: Any) -> None:
    reader, writer = key_client(scope="read"), key_client()
    found = body(reader.get("/v1/spans/export?format=openinference&collection=house&type=aitf.rag.retrieve"))
    assert [row["name"] for row in lines(found)] == ["rag.retrieve postgresql+pgvector"]
    assert SECRET not in found and "__REDACTED__" in found
    settings.RAGD_OTLP_CONTENT = "hash"
    assert "sha256:" in body(reader.get("/v1/spans/export?format=ocsf"))
    response = writer.get(f"/v1/spans/export?run_id={RUN}&format=ocsf&content=stored")
    events = lines(body(response))
    assert {event["message"].split(" ")[0] for event in events} == NAMES and SECRET in json.dumps(events)
    assert AuditEvent.objects.filter(action="span.export", message__contains="as ocsf").count() == 2
    assert len(lines(body(writer.get("/v1/spans/export?format=openinference&limit=3")))) == 3


@pytest.mark.parametrize(
    ("address", "status", "word"),
    [
        ("/v1/spans/export?content=stored", 403, "write scope"),
        ("/v1/spans/export?content=all", 422, "'stored'"),
        ("/v1/spans/export?format=xml", 422, "otlp, otlp-lines, openinference, ocsf"),
        ("/v1/spans/export?colection=house", 422, "no parameter 'colection'"),
        ("/v1/spans/export?limit=0", 422, "limit"),
    ],
)
def test_what_the_api_refuses(db: None, address: str, status: int, word: str) -> None:
    response = key_client(scope="read").get(address)
    assert response.status_code == status
    assert word in response.json()["error"]["message"]
    for _ in range(downloads.EXPORTS_AT_ONCE):
        downloads._slots.acquire()  # every slot: nothing was left open
    for _ in range(downloads.EXPORTS_AT_ONCE):
        downloads._slots.release()


def test_a_limited_key_sees_its_collections_only(trace_id: str) -> None:
    make_collection_row("cellar")
    limited = key_client(collections=["cellar"])
    assert [row["name"] for row in lines(body(limited.get("/v1/spans/export?format=openinference")))] == [
        "rag.pipeline cellar"
    ]
    assert body(limited.get("/v1/spans/export?format=openinference&collection=house")) == ""
    assert body(limited.get(f"/v1/spans/export?run_id={RUN}&format=openinference")) == ""


def test_the_pages(trace_id: str) -> None:
    staff, guest = user_client("ada", is_staff=True), user_client("bob", is_staff=False)
    for address in (f"/runs/{RUN}/export/", f"/traces/{trace_id}/export/", "/traces/export/"):
        page = guest.get(address).content.decode()
        assert "OCSF events" in page and "Staff accounts only" in page
        assert SECRET not in body(guest.get(address, {"format": "otlp", "content": ""}))
        assert SECRET in body(staff.get(address, {"format": "otlp", "content": "stored"}))
        refused = guest.get(address, {"format": "otlp", "content": "stored"}, follow=True)
        assert "need a staff account" in refused.content.decode()
    patience: list[float] = []
    connection = SimpleNamespace(settimeout=patience.append)
    body(staff.get("/traces/export/", {"format": "otlp"}, **{"gunicorn.socket": connection}))
    assert patience == [60.0]  # a reader who takes nothing keeps no thread for ever
    chosen = staff.get("/traces/export/?type=gen_ai.inference&min_ms=0").content.decode()
    assert 'name="type" value="gen_ai.inference"' in chosen
    found = body(staff.get("/traces/export/?type=gen_ai.inference&format=openinference"))
    assert [row["name"] for row in lines(found)] == ["chat gpt-4o"]
    wrong = staff.get("/traces/export/?nonsense=1", follow=True)
    assert wrong.redirect_chain == [("/activity/spans/", 302)]
    assert "no filter &#x27;nonsense&#x27;" in wrong.content.decode()
    assert staff.get("/traces/0000/export/").status_code == 404
    assert (
        AuditEvent.objects.filter(actor_name="ada", action="span.export", message__contains="with their texts").count()
        == 3
    )


def test_the_shell_writes_them_into_a_file(trace_id: str, tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    ask = ("ragd", "api", "GET", "/v1/spans/export", "--output", str(path))
    call_command(*ask, "--query", "format=openinference", "--query", f"run_id={RUN}")
    rows = lines(path.read_text())
    assert len(rows) > len(NAMES) and SECRET not in path.read_text()
    with pytest.raises(CommandError, match="--force writes over it"):
        call_command(*ask)
    call_command(*ask, "--force", "--query", "content=stored", "--query", "kind=LLM")
    (span,) = json.loads(path.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert span["name"] == "chat gpt-4o" and SECRET in path.read_text()
    assert [item.name for item in tmp_path.iterdir()] == ["spans.jsonl"]
    events = AuditEvent.objects.filter(action="span.export").order_by("pk")
    assert [(event.actor_kind, event.channel) for event in events] == [("system", "cli")] * 2


def test_a_search_is_read_page_by_page(trace_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "BATCH", 4)
    wanted = downloads.SpanFilter(collections=("house",))
    batches = list(downloads.search_in_batches(wanted))
    assert {len(batch) for batch in batches[:-1]} == {4}
    ids = [span.span_id for batch in batches for span in batch]
    assert len(ids) == len(set(ids)) == sum(len(batch) for batch in downloads.search_in_batches(wanted, 1000))
    assert [span.span_id for batch in downloads.search_in_batches(wanted, 5) for span in batch] == ids[:5]
