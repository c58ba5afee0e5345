"""Downloads of spans through the API, the pages and the shell: who gets what, and in whose words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.models import AuditEvent
from evaluation_app.telemetry.exports import downloads
from evaluation_app.telemetry.store.exporter import PostgresSpanExporter
from ragd import telemetry
from ragd_site.observability import tracing as site_telemetry
from retrieval_app.models import QueryRun
from tests.retrieval.corpus import make_collection_row
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import QUERY, SECRET, make_candidates, make_query_spans
from tests.web.pages import client_of

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
