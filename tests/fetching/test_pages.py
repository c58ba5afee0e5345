"""The stage fetch of a job: addresses, redirects, politeness, what is unchanged, what is tried again."""

from __future__ import annotations

import io
import zipfile
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from collections_app.advisory_locks import LockSpace, named, try_session_lock
from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import create_collection
from collections_app.documents.services import delete_documents
from collections_app.jobs.attempts import JobProgress, claim_job
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.maintenance import maintain
from collections_app.jobs.recovery import cancel_job, retry_job
from collections_app.models import Collection, Document, FetchedSource, IngestJob, Status, Upload
from collections_app.sources import web_client
from collections_app.sources.source_jobs import UrlEntry, fetch_source, submit_urls
from collections_app.sources.web_client import _name_of
from ragd.readers.fetching import read_address
from ragd.version import product_version
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.web_server import Page, WebServer
from tests.stated import split

ANY_ROBOTS = "/robots.txt"


def page(text: str = "Some text about pumps.", **headers: str) -> Page:
    return Page(f"<html><title>Pumps</title><body><p>{text}</p></body></html>".encode(), headers=headers)


def submit(collection: Collection, *urls: str, **values: Any) -> list[IngestJob]:
    options, others = split(values)
    plan = submit_urls(collection, [UrlEntry(url) for url in urls], options, **others)
    return [IngestJob.objects.get(pk=line.job_id) for line in plan.lines if line.job_id]


def fetch(collection: Collection, url: str, **values: Any) -> IngestJob:
    (job,) = submit(collection, url, **values)
    run_job(job.pk)
    job.refresh_from_db()
    return job


def test_a_page_becomes_a_document(notes: Collection, web_server: WebServer, settings: Any) -> None:
    settings.RAGD_FETCH_CONTACT = "https://rag.example.org"
    web_server.pages["/docs/pumps?v=2"] = page(ETag='"7"')
    job = fetch(notes, web_server.url("/docs/pumps?v=2"), tags=["web"])
    assert (job.state, job.kind, job.error) == ("succeeded", "fetch", "")
    document = Document.objects.get()
    assert document.doc_id == f"127.0.0.1:{web_server.port}/docs/pumps?v=2"
    assert (document.title, document.tags, document.source) == ("Pumps", ["web"], web_server.url("/docs/pumps?v=2"))
    assert (document.media_type, document.text) == ("text/html", "Some text about pumps.")
    assert web_server.paths() == [ANY_ROBOTS, "/docs/pumps?v=2"]
    assert {asked.headers["user-agent"] for asked in web_server.asked} == {
        f"ragd/{product_version()} (+https://rag.example.org)"
    }
    assert [entry["stage"] for entry in job.stages] == ["fetch", "parse", "chunk", "embed", "store"]
    assert (job.stages[0]["unit"], job.stages[0]["done"]) == ("bytes", len(web_server.pages["/docs/pumps?v=2"].body))
    source = FetchedSource.objects.get()
    assert (source.etag, source.address, source.sha256) == ('"7"', document.source, document.source_hash)
    assert job.batch is not None
    assert (job.batch.kind, job.batch.submitted, job.batch.open) == ("urls", 1, False)


def test_what_has_not_changed_costs_one_question(
    notes: Collection, web_server: WebServer, embeddings: OpenAIServer
) -> None:
    web_server.pages["/a"] = page(ETag='"7"', **{"Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT"})
    fetch(notes, web_server.url("/a"))
    embedded = len(embeddings.requests)
    job = fetch(notes, web_server.url("/a"))
    assert (job.state, job.unchanged) == ("succeeded", True)
    assert web_server.paths() == [ANY_ROBOTS, "/a", "/a"]
    assert web_server.asked[-1].headers["if-none-match"] == '"7"'
    assert web_server.asked[-1].headers["if-modified-since"] == "Sat, 21 Nov 2026 10:00:00 GMT"
    assert len(embeddings.requests) == embedded
    assert Document.objects.get().revision == 1
    assert Upload.objects.count() == 1


def test_an_unchanged_page_takes_new_tags(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/a"] = page(ETag='"7"')
    fetch(notes, web_server.url("/a"), tags=["old"], metadata={"team": "a"})
    assert fetch(notes, web_server.url("/a"), tags=["new"]).unchanged is False
    document = Document.objects.get()
    assert (document.tags, document.metadata["team"]) == (["new"], "a")
    assert fetch(notes, web_server.url("/a")).unchanged is True
    assert Document.objects.get().tags == ["new"]


def test_a_changed_page_becomes_a_revision(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/a"] = page(ETag='"7"')
    fetch(notes, web_server.url("/a"))
    web_server.pages["/a"] = page("Other text.", ETag='"8"')
    assert fetch(notes, web_server.url("/a")).state == "succeeded"
    assert (Document.objects.get().revision, Document.objects.get().text) == (2, "Other text.")
    assert FetchedSource.objects.get().etag == '"8"'


def test_a_document_that_was_replaced_is_asked_for_whole(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/a"] = page(ETag='"7"')
    fetch(notes, web_server.url("/a"))
    Document.objects.update(source_hash="0" * 64)
    fetch(notes, web_server.url("/a"))
    assert "if-none-match" not in web_server.asked[-1].headers


def test_redirects_are_followed_step_by_step(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/old"] = Page(status=301, headers={"Location": "/middle#part"})
    web_server.pages["/middle"] = Page(status=307, headers={"Location": web_server.url("/new", "localhost")})
    web_server.pages["/new"] = page(ETag='"7"')
    job = fetch(notes, web_server.url("/old"))
    assert job.state == "succeeded"
    assert web_server.paths() == [ANY_ROBOTS, "/old", "/middle", ANY_ROBOTS, "/new"]
    assert FetchedSource.objects.get().final_address == web_server.url("/new", "localhost")
    fetch(notes, web_server.url("/old"))
    conditions = ["if-none-match" in asked.headers for asked in web_server.asked[-3:]]
    assert conditions == [False, False, True]


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("http://127.0.0.2:{port}/secret", "address_refused"),
        ("http://[::ffff:10.0.0.1]:{port}/secret", "address_refused"),
        ("http://169.254.169.254/latest/meta-data/", "address_refused"),
        ("file:///etc/passwd", "bad_redirect"),
        ("http://127.0.0.1:22/", "bad_redirect"),
        ("http://user:word@127.0.0.1:{port}/", "bad_redirect"),
        ("/again", "too_many_redirects"),
    ],
)
def test_a_redirect_is_checked_like_an_address(
    notes: Collection, web_server: WebServer, settings: Any, location: str, kind: str
) -> None:
    settings.RAGD_FETCH_ALLOWED_NETWORKS = ["127.0.0.1/32"]
    there = location.format(port=web_server.port)
    web_server.pages["/again"] = Page(status=302, headers={"Location": there})
    job = fetch(notes, web_server.url("/again"))
    assert (job.state, job.error_type) == ("failed", kind)
    assert "/secret" not in web_server.paths()
    assert not Upload.objects.exists()


def test_private_addresses_are_refused_by_default(notes: Collection, web_server: WebServer, settings: Any) -> None:
    settings.RAGD_FETCH_ALLOWED_NETWORKS = []
    job = fetch(notes, web_server.url("/a"))
    assert (job.state, job.error_type, job.attempts) == ("failed", "address_refused", 1)
    assert web_server.asked == []


ROBOTS = (
    b"User-agent: other\nDisallow: /\n\nUser-agent: *\nDisallow: /private\nDisallow: /*.pdf$\nAllow: /private/open\n"
)


@pytest.mark.parametrize(
    ("path", "state"),
    [("/a", "succeeded"), ("/private/a", "failed"), ("/x.pdf", "failed"), ("/private/open/a", "succeeded")],
)
def test_robots_are_honoured(notes: Collection, web_server: WebServer, path: str, state: str) -> None:
    web_server.pages[ANY_ROBOTS] = Page(ROBOTS)
    web_server.pages[path] = page()
    job = fetch(notes, web_server.url(path))
    assert job.state == state
    if state == "failed":
        assert (job.error_type, job.attempts) == ("robots_refused", 1)
        assert path not in web_server.paths()


def test_robots_are_asked_for_once_and_forgotten_in_time(notes: Collection, web_server: WebServer) -> None:
    web_server.pages |= {"/a": page(), "/b": page(), "/c": page()}
    fetch(notes, web_server.url("/a"))
    fetch(notes, web_server.url("/b"))
    assert web_server.paths() == [ANY_ROBOTS, "/a", "/b"]
    state = Status.objects.get(kind="host")
    (kept,) = state.values["robots"].values()
    kept["until"] = timezone.now().isoformat()
    state.save()
    fetch(notes, web_server.url("/c"))
    assert web_server.paths()[3:] == [ANY_ROBOTS, "/c"]
    assert web_client.forget_hosts(timezone.now()) == 0
    assert web_client.forget_hosts(timezone.now() + timedelta(days=8)) == 1


def test_while_the_robots_cannot_be_read_nothing_is(notes: Collection, web_server: WebServer) -> None:
    web_server.pages |= {ANY_ROBOTS: Page(status=503), "/a": page()}
    job = fetch(notes, web_server.url("/a"))
    assert (job.state, job.error_type) == ("queued", "robots_unknown")
    web_server.pages[ANY_ROBOTS] = Page(b"")
    assert run_job(job.pk) == "succeeded"


@pytest.mark.parametrize(
    ("status", "error_type"),
    [(404, "not_found"), (410, "not_found"), (401, "not_allowed"), (403, "not_allowed"), (418, "unexpected_answer")],
)
def test_a_final_answer_is_not_tried_again(
    notes: Collection, web_server: WebServer, status: int, error_type: str
) -> None:
    web_server.pages["/a"] = Page(b"sorry", status)
    job = fetch(notes, web_server.url("/a"))
    assert (job.state, job.error_type, job.attempts) == ("failed", error_type, 1)
    assert str(status) in job.error
    assert job.stages[0]["state"] == "failed"


def test_a_failing_server_is_tried_again(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/a"] = Page(status=500)
    job = fetch(notes, web_server.url("/a"))
    assert (job.state, job.error_type) == ("queued", "server_failed")
    web_server.pages["/a"] = page()
    assert run_job(job.pk) == "succeeded"


def test_a_server_that_keeps_failing_is_given_up(notes: Collection, web_server: WebServer, settings: Any) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 2
    web_server.pages["/a"] = Page(status=502)
    job = fetch(notes, web_server.url("/a"))
    assert run_job(job.pk) == "failed"
    web_server.pages["/a"] = page()
    job.refresh_from_db()
    retry_job(job)
    assert run_job(job.pk) == "succeeded"


@pytest.mark.parametrize(
    ("status", "header", "least", "most"), [(429, "40", 35, 42), (503, "40", 35, 42), (429, "", 50, 62)]
)
def test_a_site_that_has_had_enough_is_left_alone(
    notes: Collection, web_server: WebServer, status: int, header: str, least: int, most: int
) -> None:
    web_server.pages["/a"] = Page(status=status, headers={"Retry-After": header} if header else {})
    web_server.pages["/b"] = page()
    job = fetch(notes, web_server.url("/a"))
    assert (job.state, job.error_type, job.tries) == ("queued", "waiting_for_site", 0)
    waits_s = (job.sent_at - timezone.now()).total_seconds()
    assert least < waits_s < most
    other = fetch(notes, web_server.url("/b"))
    assert (other.state, other.error_type) == ("queued", "waiting_for_site")
    assert "/b" not in web_server.paths()


def test_maintenance_sends_what_waited(
    notes: Collection, web_server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    web_server.pages["/a"] = Page(status=429, headers={"Retry-After": "4000"})
    job = fetch(notes, web_server.url("/a"))
    maintain()
    job.refresh_from_db()
    assert job.error_type == "waiting_for_site"
    past = timezone.now() - timedelta(seconds=1)
    IngestJob.objects.update(sent_at=past)
    Status.objects.filter(kind="host").update(values={"next_at": past.isoformat()})
    maintain()
    job.refresh_from_db()
    assert (job.error_type, job.state) == ("", "queued")
    web_server.pages["/a"] = page()
    assert run_job(job.pk) == "succeeded"


def test_a_job_does_not_wait_for_ever(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/a"] = Page(status=429, headers={"Retry-After": "4000"})
    job = fetch(notes, web_server.url("/a"))
    IngestJob.objects.update(started_at=timezone.now() - timedelta(days=2))
    assert run_job(job.pk) == "failed"
    job.refresh_from_db()
    assert job.error_type == "waited_too_long"


def test_a_host_rests_between_two_requests(notes: Collection, web_server: WebServer, settings: Any) -> None:
    settings.RAGD_FETCH_PAUSE_S = 0.3
    web_server.pages["/a"] = page()
    fetch(notes, web_server.url("/a"))
    fetch(notes, web_server.url("/a"))
    moments = [asked.at_s for asked in web_server.asked]
    assert web_server.paths() == [ANY_ROBOTS, "/a", "/a"]
    noted_late_s = 0.15  # a busy server notes a request after it came; without a rest they come milliseconds apart
    assert min(later - earlier for earlier, later in pairwise(moments)) >= 0.3 - noted_late_s


def test_a_crawl_delay_is_kept(notes: Collection, web_server: WebServer) -> None:
    web_server.pages |= {ANY_ROBOTS: Page(b"User-agent: *\nCrawl-delay: 20"), "/a": page()}
    fetch(notes, web_server.url("/a"))
    next_at = datetime.fromisoformat(Status.objects.get(kind="host").values["next_at"])
    assert 10 < (next_at - timezone.now()).total_seconds() <= 20


def test_a_busy_host_is_waited_for_and_then_left(
    committed: None, embeddings: OpenAIServer, web_server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection has the host's turn."""
    monkeypatch.setattr(web_client, "TURN_WAIT_MAX_S", 0.2)
    notes = create_collection(name="notes")
    web_server.pages["/a"] = page()
    other = connection.copy()
    assert try_session_lock(named(LockSpace.HOST, "127.0.0.1"), other)
    job = fetch(notes, web_server.url("/a"))
    assert (job.state, job.error_type, job.tries) == ("queued", "waiting_for_site", 0)
    assert web_server.asked == []
    other.close()
    assert run_job(job.pk) == "succeeded"


def test_a_cancelled_fetch_stops_in_the_middle(
    committed: None, embeddings: OpenAIServer, web_server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collections_app.jobs.leases.WRITE_EVERY_S", 0)
    notes = create_collection(name="notes")
    (job,) = submit(notes, web_server.url("/a"))

    def cancel() -> None:
        cancel_job(IngestJob.objects.get(pk=job.pk))
        connection.close()

    web_server.pages["/a"] = page()
    web_server.pages["/a"].before = cancel
    assert run_job(job.pk) == "cancelled"
    assert not Document.objects.exists()
    assert not Upload.objects.exists()


def test_an_attempt_goes_on_from_the_bytes_that_came(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/a"] = page()
    (job,) = submit(notes, web_server.url("/a"))
    claimed = claim_job(job.pk, "a worker that is killed")
    assert claimed is not None
    fetch_source(notes, claimed, JobProgress(claimed))
    IngestJob.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert run_job(job.pk) == "succeeded"
    assert web_server.paths() == [ANY_ROBOTS, "/a"]
    assert FetchedSource.objects.get().final_address == web_server.url("/a")


def test_a_fetched_archive_is_unpacked(notes: Collection, web_server: WebServer) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("one.txt", "the first text")
        archive.writestr("in/two.txt", "the second text")
    web_server.pages["/files/all.zip"] = Page(packed.getvalue())
    job = fetch(notes, web_server.url("/files/all.zip"))
    assert (job.state, job.kind) == ("succeeded", "archive")
    host = f"127.0.0.1:{web_server.port}"
    members = IngestJob.objects.filter(kind="file").order_by("doc_id")
    assert [member.doc_id for member in members] == [f"{host}/files/in/two.txt", f"{host}/files/one.txt"]
    assert {member.batch_id for member in members} == {job.batch_id}


def test_what_is_known_goes_with_the_document(notes: Collection, web_server: WebServer) -> None:
    web_server.pages |= {"/a": page(), "/b": page()}
    fetch(notes, web_server.url("/a"))
    fetch(notes, web_server.url("/b"))
    assert FetchedSource.objects.count() == 2
    delete_documents(notes, [f"127.0.0.1:{web_server.port}/a"])
    assert FetchedSource.objects.count() == 1
    delete_collection(notes)
    assert not FetchedSource.objects.exists()


def test_an_empty_page_says_so(notes: Collection, web_server: WebServer) -> None:
    web_server.pages["/a"] = Page(b"")
    assert fetch(notes, web_server.url("/a")).error_type == "empty_content"


def test_the_name_of_a_file_is_one_that_can_be_kept() -> None:
    assert _name_of(read_address("http://example.org/in/a%00b%0A.html?x=1")) == "a b .html"
    assert _name_of(read_address("http://example.org/%00")) == "example.org"
