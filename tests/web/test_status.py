"""The conformance page, its button and the shell command, over one stored run."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone


def text(response: Any) -> str:
    assert response.status_code == 200, response.content.decode()
    return str(response.content.decode())


def make_result(**values: Any) -> Any:
    from evaluation_app.models import ConformanceResult

    rules = [
        {"section": "1.1.1", "title": "text is brought to Unicode NFC", "cases": 12, "passed": True, "failures": [],
         "took_ms": 1.5},
        {"section": "4.3", "title": "score = sum of 1 / (rrf_k + rank)", "cases": 8, "passed": False, "took_ms": 2.0,
         "failures": [{"case": "a#0", "expected": "0.0325", "got": "<0.033>"}]},
    ]  # fmt: skip
    given = {
        "spec_version": "0.1.0", "database_version": "18.4", "pgvector_version": "0.8.5", "cases": 20, "rules": rules,
        "took_ms": 4321.0, "finished_at": timezone.now(), "started_by": "ada",
    }  # fmt: skip
    return ConformanceResult.objects.create(**given | values)


def test_the_page_before_any_run(visitor: Client) -> None:
    html = text(visitor.get("/status/"))
    assert "data-section" not in html
    assert 'action="/status/try/"' in html
    assert 'hx-trigger="every 2s"' not in html


def test_the_page_tells_the_product_from_the_specification(visitor: Client) -> None:
    from ragd.types import SPEC_VERSION
    from ragd.version import product_version

    versions = visitor.get("/status/").context["versions"]
    assert (versions.product, versions.specification) == (product_version(), SPEC_VERSION)
    assert versions.is_supported and product_version() not in ("source", SPEC_VERSION)


def test_the_page_names_a_pgvector_that_is_too_old(visitor: Client) -> None:
    assert 'role="alert"' not in text(visitor.get("/status/"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pg_extension SET extversion = '0.8.3' WHERE extname = 'vector'")
    response = visitor.get("/status/")
    assert not response.context["versions"].is_supported and 'role="alert"' in text(response)


def test_the_page_shows_rules_by_chapter_and_the_failing_case(visitor: Client) -> None:
    make_result()
    html = text(visitor.get("/status/"))
    assert "1 of 2" in html
    assert "4 Retrieval semantics" in html
    assert 'data-section="1.1.1" data-passed="true"' in html
    assert 'data-section="4.3" data-passed="false"' in html
    assert "<b>a#0</b>: expected <code>0.0325</code>, got <code>&lt;0.033&gt;</code>" in html
    assert html.count("Failed") >= 1


def test_an_older_run_can_be_looked_at(visitor: Client) -> None:
    older = make_result(passed=True, started_at=timezone.now() - timedelta(days=1), rules=[], cases=1234)
    make_result()
    assert "1 of 2" in text(visitor.get("/status/"))
    assert "0 of 0" in text(visitor.get(f"/status/?result={older.pk}"))
    assert visitor.get("/status/?result=999999").status_code == 404
    assert visitor.get("/status/?result=x").status_code == 404


def test_a_run_under_way_is_polled_and_one_that_is_given_up_is_named(visitor: Client) -> None:
    from evaluation_app.conformance import sweep_conformance

    running = make_result(finished_at=None, rules=[], took_ms=None)
    part = visitor.get("/status/", headers={"HX-Request": "true", "HX-Target": "conformance"})
    assert 'hx-trigger="every 2s"' in text(part)
    assert "<title>" not in text(part)
    running.attempts, running.lease_until = 3, timezone.now() - timedelta(seconds=1)
    running.save()
    assert sweep_conformance() == 0
    running.refresh_from_db()
    assert (running.state, running.lease_until) == ("error", None)
    html = text(visitor.get("/status/"))
    assert "its worker ended 3 times" in html
    assert 'hx-trigger="every 2s"' not in html


def test_a_run_whose_worker_died_is_tried_again(
    db: None, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections_app.work.leases import claim
    from evaluation_app import conformance
    from evaluation_app.models import ConformanceResult
    from ragd.conformance import run

    monkeypatch.setattr(conformance.conformance, "run", lambda connection: run(connection, only=["4.3"]))
    result = make_result(finished_at=None, rules=[], took_ms=None)
    assert claim(ConformanceResult, result.pk, "elsewhere:1", "finished_at IS NULL") is not None
    assert conformance.complete_run(result.pk) is None and conformance.sweep_conformance() == 0
    ConformanceResult.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    with django_capture_on_commit_callbacks(execute=True):
        assert conformance.sweep_conformance() == 1
    result.refresh_from_db()
    assert (result.state, result.attempts) == ("passed", 2)


def test_the_button_asks_the_worker_once(
    visitor: Client, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evaluation_app import conformance
    from evaluation_app.models import ConformanceResult
    from ragd.conformance import run

    monkeypatch.setattr(conformance.conformance, "run", lambda connection: run(connection, only=["4.3", "5.3"]))
    with django_capture_on_commit_callbacks(execute=False) as callbacks:
        assert visitor.post("/status/try/").status_code == 302
        assert visitor.post("/status/try/").status_code == 302
    assert len(callbacks) == 1
    (result,) = ConformanceResult.objects.all()
    assert (result.state, result.started_by) == ("running", "ada")
    callbacks[0]()  # the task runs where it is sent
    result.refresh_from_db()
    assert (result.state, result.error) == ("passed", "")
    assert {rule["section"] for rule in result.rules} == {"4.3", "5.3"}
    assert result.database_version
    assert conformance.complete_run(result.pk) is None


def test_a_queue_that_is_down_only_delays_a_run(
    visitor: Client, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evaluation_app import tasks
    from evaluation_app.conformance import sweep_conformance
    from evaluation_app.models import ConformanceResult

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(tasks.run_conformance, "apply_async", refuse)
    with django_capture_on_commit_callbacks(execute=True):
        visitor.post("/status/try/")
    assert ConformanceResult.objects.get().state == "running"
    monkeypatch.undo()
    ConformanceResult.objects.update(sent_at=timezone.now() - timedelta(minutes=2))
    with django_capture_on_commit_callbacks(execute=True):
        assert sweep_conformance() == 1
    assert ConformanceResult.objects.get().state == "passed"


def test_a_suite_that_cannot_run_is_kept_as_an_error(visitor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from evaluation_app import conformance

    def refuse(connection: Any) -> None:
        raise PermissionError("permission denied for database")

    monkeypatch.setattr(conformance.conformance, "run", refuse)
    result = conformance.run_now()
    assert result.state == "error"
    assert "PermissionError: permission denied for database" in text(visitor.get("/status/"))


def test_strangers_are_sent_to_the_login(db: None, client: Client) -> None:
    assert client.get("/status/")["Location"].startswith("/accounts/login/")
    assert client.post("/status/try/")["Location"].startswith("/accounts/login/")


def run_command(*arguments: str) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command("ragd", "check", "conformance", *arguments, stdout=out)
    except SystemExit as stopped:
        return out.getvalue(), int(stopped.code or 0)
    return out.getvalue(), 0


def test_the_shell_command_keeps_the_result(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from evaluation_app import conformance
    from evaluation_app.models import ConformanceResult
    from ragd.conformance import run

    monkeypatch.setattr(conformance.conformance, "run", lambda connection: run(connection, only=["4.3"]))
    printed, status = run_command()
    assert status == 0
    assert "all pass" in printed.splitlines()[-1]
    assert ConformanceResult.objects.get().passed
    monkeypatch.setattr("ragd.fuse", lambda *_, **__: [])
    printed, status = run_command("--json")
    assert status == 1
    answer = json.loads(printed)
    assert answer["passed"] is False
    assert answer["rules"][0]["section"] == "4.3"
    assert ConformanceResult.objects.count() == 2


@pytest.mark.django_db
def test_no_span_is_left_by_a_run() -> None:
    from django.db import connection
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from ragd import conformance
    from ragd_site.observability.tracing import RagdSampler

    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=RagdSampler())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    seen = []

    def look(done: int, total: int) -> None:
        with tracer.start_as_current_span("rag.retrieve postgresql+pgvector"):
            seen.append(trace.get_current_span().is_recording())

    conformance.run(connection, only=["4.3"], on_rule=look)
    assert seen == [False] * 4
    assert exporter.get_finished_spans() == ()
