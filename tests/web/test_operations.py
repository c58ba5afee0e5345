"""Home, operations, traces, evaluation and the palette with real rows behind them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.http.navigation import all_pages
from collections_app.jobs.workers import record_archive, record_backup, record_drill
from collections_app.models import Report
from ragd_site.operations.palette import NEW, VERBS, find_destinations
from tests.web.pages import text, tones, tree


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
            assert page.title in found(word), word
    for verb in VERBS:
        label = verb.label % {"name": "nature"}
        for typed in (*verb.words, verb.words[0][:3], f"{verb.words[0]} nat"):
            assert found(typed)[label] == verb.address_of(nature)
        assert label not in found(f"{verb.words[0]} elsewhere")
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
    Report.objects.filter(name="backup").update(made_at=timezone.now() - timedelta(hours=27))
    record_archive({"until": timezone.now().isoformat()})
    record_drill({"differences": ["public.documents has <3> rows"], "error": ""}, passed=False)
    assert 'data-late="yes"' in shown()
    assert '<dd data-drill="failed">' in shown()
    assert "has &lt;3&gt; rows" in shown()
    record_drill({"differences": [], "error": ""}, passed=True)
    assert '<dd data-drill="passed">' in shown()


def test_operations_shows_what_needs_somebody(visitor: Client, fill: Callable[..., Any]) -> None:
    from collections_app.jobs.maintenance import maintain
    from collections_app.models import IngestBatch, IngestJob, Provider, WorkerHeartbeat

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
    WorkerHeartbeat.objects.create(name="host:1", memory_mb=321)
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
