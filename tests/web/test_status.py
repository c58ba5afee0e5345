"""The conformance page, its button and the shell command, over one stored run.
Home, operations, traces, evaluation and the palette with real rows behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import Forbidden, using_access
from collections_app.access.services import access_of_key, access_of_user
from collections_app.collections.models import name_actor
from collections_app.http.navigation import all_pages
from collections_app.jobs import operations
from collections_app.jobs.operations import cancel_operation, process_operation, requeue_operations
from collections_app.jobs.workers import record_archive, record_backup, record_drill
from collections_app.models import Operation, Status
from evaluation_app import conformance
from ragd.conformance import run
from ragd_site.operations.views import NEW, VERBS, _done_with, _pages, find_destinations
from tests.refusals import refuses
from tests.web.pages import text, tones, tree, whole

RULES = [
    {"section": "1.1.1", "title": "text is brought to Unicode NFC", "cases": 12, "passed": True, "failures": [],
     "took_ms": 1.5},
    {"section": "4.3", "title": "score = sum of 1 / (rrf_k + rank)", "cases": 8, "passed": False, "took_ms": 2.0,
     "failures": [{"case": "a#0", "expected": "0.0325", "got": "<0.033>"}]},
]  # fmt: skip
REPORT = {
    "spec_version": "0.1.0", "database": "18.4", "pgvector": "0.8.5", "passed": False, "cases": 20, "took_ms": 4321.0,
    "rules": RULES,
}  # fmt: skip


def make_result(report: dict[str, Any] = REPORT, **values: Any) -> Operation:
    given = {
        "kind": "conformance", "state": "succeeded", "report": report, "findings": 1, "arguments": {},
        "finished_at": timezone.now(), "created_by": "ada",
    }  # fmt: skip
    return Operation.objects.create(**given | values)


def make_running(**values: Any) -> Operation:
    return make_result({}, state="running", findings=0, finished_at=None, **values)


@pytest.fixture
def run_only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have only the rules of these sections tried."""

    def choose(*sections: str) -> None:
        monkeypatch.setattr(conformance.conformance, "run", lambda connection: run(connection, only=sections))

    return choose


def test_the_page_shows_rules_by_chapter_and_the_failing_case(visitor: Client) -> None:
    make_result()
    html = whole(visitor.get("/operations/?view=conformance"))
    assert "1 of 2" in html
    assert "4 Retrieval semantics" in html
    assert 'data-section="1.1.1" data-passed="true"' in html
    assert 'data-section="4.3" data-passed="false"' in html
    assert "<b>a#0</b>: expected <code>0.0325</code>, got <code>&lt;0.033&gt;</code>" in html
    assert html.count("Failed") >= 1


def test_an_older_run_can_be_looked_at(visitor: Client) -> None:
    older = make_result(REPORT | {"rules": []}, created_at=timezone.now() - timedelta(days=1), findings=0)
    other = Operation.objects.create(kind="check")
    make_result()
    assert "1 of 2" in whole(visitor.get("/operations/?view=conformance"))
    assert "0 of 0" in whole(visitor.get(f"/operations/?view=conformance&result={older.pk}"))
    assert visitor.get(f"/operations/?view=conformance&result={other.pk}").status_code == 404
    assert visitor.get("/operations/?view=conformance&result=x").status_code == 404


def test_a_run_under_way_is_polled_and_one_that_is_given_up_is_named(visitor: Client) -> None:
    running = make_running(attempts=3, lease_until=timezone.now() - timedelta(seconds=1))
    part = visitor.get("/operations/?view=conformance", headers={"HX-Request": "true", "HX-Target": "conformance"})
    assert 'hx-trigger="every 2s"' in whole(part)
    assert "<title>" not in whole(part)
    assert requeue_operations(timezone.now()) == 0
    running.refresh_from_db()
    assert (running.verdict, running.lease_until) == ("error", None)
    html = whole(visitor.get("/operations/?view=conformance"))
    assert "given up after 3 attempts" in html
    assert 'hx-trigger="every 2s"' not in html


def test_the_button_asks_the_worker_once(
    visitor: Client, django_capture_on_commit_callbacks: Any, run_only: Callable[..., None]
) -> None:
    run_only("4.3", "5.3")
    with django_capture_on_commit_callbacks(execute=False) as callbacks:
        assert visitor.post("/operations/?view=conformance").status_code == 302
        assert visitor.post("/operations/?view=conformance").status_code == 302
    assert len(callbacks) == 1
    (result,) = Operation.objects.all()
    assert (result.verdict, result.created_by) == ("running", "ada")
    callbacks[0]()  # the task runs where it is sent
    result.refresh_from_db()
    assert (result.verdict, result.error, result.attempts) == ("passed", "", 1)
    assert {rule["section"] for rule in result.report["rules"]} == {"4.3", "5.3"}
    assert result.report["database"]
    process_operation(str(result.pk))  # the broker delivers again
    result.refresh_from_db()
    assert result.attempts == 1


def test_a_suite_that_cannot_run_is_kept_as_an_error(visitor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(connection: Any) -> None:
        raise PermissionError("permission denied for database")

    monkeypatch.setattr(conformance.conformance, "run", refuse)
    assert conformance.run_now().verdict == "error"
    assert "PermissionError: permission denied for database" in whole(visitor.get("/operations/?view=conformance"))


def test_a_run_is_cancelled_by_who_began_it_and_by_administrators(
    visitor: Client, django_user_model: type[User]
) -> None:
    bob = django_user_model.objects.create_user("bob")
    running, own = make_running(), make_running(created_by="bob")
    address = f"/collections/operation/{running.pk}/"
    with using_access(access_of_user(bob)):
        with pytest.raises(Forbidden):
            cancel_operation(running, actor=bob)
        assert cancel_operation(own, actor=bob).state == "cancelled"
    visitor.post(address)
    running.refresh_from_db()
    assert (running.state, running.error) == ("cancelled", "cancelled by ada")
    process_operation(str(running.pk))
    running.refresh_from_db()
    assert running.attempts == 0
    with refuses("conflict"):
        cancel_operation(running, actor=bob.__class__.objects.get(username="ada"))


def test_a_key_of_the_same_name_cancels_nothing_that_another_began(db: None) -> None:
    began, key = (create_key(NewKey("ci", scopes=["read"]))[0] for _ in range(2))
    running = make_running(created_by=name_actor(began))
    access = access_of_key(key)
    assert access is not None
    with using_access(access):
        assert not operations.may_cancel(running, actor=key)
        with pytest.raises(Forbidden):
            cancel_operation(running, actor=key)


def test_the_last_scan_of_a_collection_stays_and_so_does_what_runs(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "KEPT_PER_KIND", 2)
    now = timezone.now()
    for number, subject in enumerate(("small", "large", "large", "large")):
        Operation.objects.create(
            kind="findings", subject=subject, state="succeeded", report={"number": number},
            created_at=now + timedelta(seconds=number), finished_at=now,
        )  # fmt: skip
    waiting = [make_running(kind="check") for _ in range(3)]
    assert operations.forget_operations() == 1
    kept = Operation.objects.filter(kind="findings").values_list("subject", "report__number")
    assert set(kept) == {("small", 0), ("large", 2), ("large", 3)}
    assert Operation.objects.filter(pk__in=[each.pk for each in waiting]).count() == 3


def run_command(*arguments: str) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command("ragd", "check", "conformance", *arguments, stdout=out)
    except SystemExit as stopped:
        return out.getvalue(), int(stopped.code or 0)
    return out.getvalue(), 0


def test_the_shell_command_keeps_the_result(
    db: None, monkeypatch: pytest.MonkeyPatch, run_only: Callable[..., None]
) -> None:
    run_only("4.3")
    printed, status = run_command()
    assert status == 0
    assert "all pass" in printed.splitlines()[-1]
    assert Operation.objects.get().verdict == "passed"
    monkeypatch.setattr("ragd.fuse", lambda *_, **__: [])
    printed, status = run_command("--json")
    assert status == 1
    answer = json.loads(printed)
    assert answer["passed"] is False
    assert answer["rules"][0]["section"] == "4.3"
    assert Operation.objects.count() == 2


@pytest.mark.django_db
def test_no_span_is_left_by_a_run() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from ragd_site.observability.tracing import RagdSampler

    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=RagdSampler())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    seen = []

    def look(done: int, total: int) -> None:
        with tracer.start_as_current_span("rag.retrieve postgresql+pgvector"):
            seen.append(trace.get_current_span().is_recording())

    run(connection, only=["4.3"], on_rule=look)
    assert seen == [False] * 4
    assert exporter.get_finished_spans() == ()


def test_storage_counts_partitions_with_their_table(fill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from ragd_site.operations import summaries
    from ragd_site.operations.summaries import index_builds, storage_summary

    monkeypatch.setattr(summaries, "TABLES_SHOWN", 1000)
    fill()
    summary = storage_summary()
    names = [table.name for table in summary.tables]
    assert "chunks" in names
    assert not [name for name in names if name.startswith("chunks_")]
    assert summary.database_bytes > sum(table.size_bytes for table in summary.tables)
    assert index_builds() == []


def test_the_palette_finds_every_page_and_what_can_be_done(visitor: Client, fill: Callable[..., Any]) -> None:
    nature = fill("nature", 1)

    ada = User.objects.get(username="ada")

    def found(words: str) -> dict[str, str]:
        """Label and address, of links and of forms."""
        groups = find_destinations(words, ada, {})
        places = {each.label: each.href for group in groups for each in group.destinations}
        return places | {each.label: each.href for group in groups for each in group.commands}

    for page in (*all_pages(), *NEW):
        assert found(page.title)[page.title] == page.href
        for word in page.words.split():
            assert page.title in {each.label for each in _pages(word, ada)}, word
    for verb in VERBS:
        label = verb.label % {"name": "nature"}
        for typed in (*verb.words, verb.words[0][:3], f"{verb.words[0]} nat"):
            assert {each.label: each.href for each in _done_with(typed)}[label] == verb.address_of(nature)
        assert label not in {each.label for each in _done_with(f"{verb.words[0]} elsewhere")}
    assert found("ask nature")["Ask nature"] == "/chat/?collection=nature"
    assert found("zzz")["Ask “zzz”"] == "/chat/?q=zzz"
    done = ("System theme", "Light theme", "Dark theme", "English", "Deutsch", "Log out", "Show the keys")
    assert set(done) <= found("").keys()
    for label in done:
        assert label in found(label)
    page = tree(visitor.get("/go/", {"q": "o"}, headers={"HX-Request": "true", "HX-Target": "palette-results"}))
    shown = {(node.text(strip=True), node.attributes["href"]) for node in page.css("a[href]")}
    shown |= {(node.text(strip=True).strip("?"), node.attributes["action"]) for node in page.css("form")}
    assert {("Operations", "/operations/"), ("Log out", "/accounts/logout/")} <= shown


def test_operations_shows_the_last_backup_and_the_last_drill(visitor: Client) -> None:
    def shown() -> str:
        html = text(visitor.get("/operations/"))
        return html[html.index('id="backups"') : html.index("</section>", html.index('id="backups"'))]

    assert "data-drill" not in shown()
    record_backup({"rows": 12345, "bytes": 7_000_000, "place": "s3://vault/ragd at https://s3.example.org"})
    assert '<dd data-drill="never">' in shown()
    assert 'data-late="no"' in shown()
    assert "s3://vault/ragd" in shown() and "12,345" in shown()
    Status.objects.filter(name="backup").update(made_at=timezone.now() - timedelta(hours=27))
    record_archive({"until": timezone.now().isoformat()})
    record_drill({"differences": ["public.documents has <3> rows"], "error": ""}, passed=False)
    assert 'data-late="yes"' in shown()
    assert '<dd data-drill="failed">' in shown()
    assert "has &lt;3&gt; rows" in shown()
    record_drill({"differences": [], "error": ""}, passed=True)
    assert '<dd data-drill="passed">' in shown()


def test_operations_shows_what_needs_somebody(visitor: Client, fill: Callable[..., Any]) -> None:
    from collections_app.jobs.maintenance import maintain
    from collections_app.models import IngestBatch, IngestJob, Provider

    collection = fill(documents=1)
    now = timezone.now()
    assert "Retry all" not in text(visitor.get("/operations/"))
    batch = IngestBatch.objects.create(collection=collection, label="Autumn letters", submitted=2)
    values = {"collection": collection, "kind": "reindex"}
    IngestJob.objects.create(**values, doc_id="waits.md", batch=batch, lane=1)
    IngestJob.objects.create(
        **values, doc_id="works.md", state="running", worker="host:1", lease_until=now + timedelta(minutes=2)
    )
    IngestJob.objects.create(**values, doc_id="stuck.md", state="running", worker="host:2", lease_until=now)
    IngestJob.objects.create(**values, doc_id="poison.md", state="quarantined", error="The reader crashed.")
    failed = IngestJob.objects.create(**values, doc_id="failed.md", state="failed", error="It broke.")
    Status.objects.create(kind="worker", name="host:1", values={"memory_mb": 321})
    Provider.objects.create(
        name="http://host/v1 model", failures=4, open_until=now + timedelta(minutes=1), error="It answered 503."
    )
    html = text(visitor.get("/operations/"))
    for words in (
        "Autumn letters", "1 bulk", "1 quarantined", "The reader crashed.", "It broke.", "321 MB",
        "http://host/v1 model", "Paused", "It answered 503.", "Retry all failed", "50,000 jobs",
    ):  # fmt: skip
        assert words in html, words
    assert (
        html.index('id="stuck"') < html.index("stuck.md") < html.index('id="failed"') < html.index('id="quarantined"')
    )
    maintain()
    assert "resent 1" in text(visitor.get("/operations/"))
    assert tones(visitor.post("/operations/", {"do": "retry"}, follow=True)) == ["good"]
    failed.refresh_from_db()
    assert failed.state == "queued"
