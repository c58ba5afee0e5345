"""Threads of the chat are their owner's; a shared one is read by those who may read all its collections, no further."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import using_access
from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.jobs.dispatch import run_job
from collections_app.models import AuditEvent, Collection, Document, IngestJob, RoleGrant, Upload
from evaluation_app.models import Span
from ragd.telemetry.names import DOCUMENT_ID
from ragd_site.operations.erasure.documents import erase_document, erase_files_of_threads, erase_person
from retrieval_app.models import ChatMessage, ChatThread, QueryRun, RetrievedChunk
from retrieval_app.runs.run_log import delete_old_runs
from tests.web.pages import client_of

pytestmark = pytest.mark.django_db
SECRET = "obsidianite"


@pytest.fixture(scope="module")
def people_of_module(module_db: None) -> dict[str, User]:
    """ada and bob may ask in nature; only ada in vault; root is an administrator of all."""
    found = {name: User.objects.create_user(name) for name in ("ada", "bob")}
    found["root"] = User.objects.create_superuser("root")
    for name in ("nature", "vault"):
        collection = create_collection(name=name)
        ingest_text(collection, f"{name}.md", f"# {name}\n\nThe {SECRET} of {name} lies below the old house.")
        grants = [found["ada"], found["bob"]] if name == "nature" else [found["ada"]]
        for user in grants:
            RoleGrant.objects.create(user=user, collection_id=collection.pk, role=Role.ASKER)
    return found


@pytest.fixture
def people(people_of_module: dict[str, User], db: None) -> dict[str, User]:
    return deepcopy(people_of_module)


@pytest.fixture
def thread(people: dict[str, User]) -> ChatThread:
    """Of ada, with one question on nature."""
    form = {"collection": "nature", "query": f"Where does the {SECRET} lie?"}
    assert client_of(people["ada"]).post("/chat/", form).status_code == 302
    return ChatThread.objects.get()


def ask(people: dict[str, User], thread: ChatThread, collection: str) -> None:
    form = {"collection": collection, "query": f"And the {SECRET} of {collection}?"}
    assert client_of(people["ada"]).post(thread.get_absolute_url(), form).status_code == 302


def sees(user: User, thread: ChatThread) -> tuple[bool, int, int, int]:
    """(the page shows the secret, threads, messages and runs that the database gives to them)."""
    pages = [client_of(user).get(f"{thread.get_absolute_url()}{end}") for end in ("", "thread.md", "thread.json")]
    assert len({page.status_code for page in pages}) == 1
    assert len({SECRET in page.content.decode() for page in pages}) == 1
    shown = SECRET in pages[0].content.decode() and pages[0].status_code == 200
    with using_access(access_of_user(user)):
        return shown, ChatThread.objects.count(), ChatMessage.objects.count(), QueryRun.objects.count()


def test_a_thread_is_read_by_its_owner_until_it_is_shared(people: dict[str, User], thread: ChatThread) -> None:
    ada, bob, root = people["ada"], people["bob"], people["root"]
    assert sees(ada, thread) == (True, 1, 1, 1)
    assert sees(bob, thread) == (False, 0, 0, 0)
    assert sees(root, thread)[0] is False, "administrators of all collections do not read threads either"
    for act in ("rename", "share", "delete"):
        address = f"{thread.get_absolute_url()}?view={act}"
        assert client_of(bob).post(address, {"title": "x", "shared": "on"}).status_code == 404

    client_of(ada).post(f"{thread.get_absolute_url()}?view=share", {"shared": "on"})
    event = AuditEvent.objects.get(action="thread.share")
    assert event.actor_name == "ada"
    assert sees(bob, thread) == (True, 1, 1, 1)
    assert sees(root, thread)[0] is True
    assert client_of(bob).post(thread.get_absolute_url(), {"collection": "nature", "query": "x"}).status_code == 404
    with using_access(access_of_user(bob)):
        assert ChatThread.objects.update(title="mine") == ChatMessage.objects.update(question="mine") == 0

    set_access(Collection.objects.get(name="nature"), ["nature.md"], users=[ada.pk])
    assert sees(bob, thread)[3] == 0, "the answer goes with the document"
    ask(people, thread, "vault")
    assert sees(bob, thread) == (False, 0, 0, 0), "a collection came that bob may not read"
    assert sees(ada, thread)[:3] == (True, 1, 2)


def test_the_evidence_shows_each_tab_to_whom_it_belongs(people: dict[str, User], thread: ChatThread) -> None:
    client_of(people["ada"]).post(f"{thread.get_absolute_url()}?view=share", {"shared": "on"})
    run, client = f"/runs/{QueryRun.objects.get().pk}/", client_of(people["bob"])
    tabs = ["", "view=ranking&", "view=trace&", "view=evaluation&"]
    for role, opened in ((Role.ASKER, 3), (Role.CURATOR, 3), (Role.EVALUATOR, 4)):
        RoleGrant.objects.filter(user=people["bob"]).update(role=role)
        statuses = [client.get(f"{run}?{tab}citation=1").status_code for tab in tabs]
        assert statuses == [200] * opened + [403] * (4 - opened)
        shown = client.get(f"{run}?citation=1").content.decode()
        links = re.findall(rf'href="{run}\?([a-z=&]*)citation=1" data-within', shown.replace("&amp;", "&"))
        assert SECRET in shown and links == tabs[:opened]
        chat = client.get(thread.get_absolute_url()).content.decode()
        assert 'data-evidence="citation"' in chat and 'data-evidence="why"' in chat
    assert client.get(f"{run}?citation=9").status_code == 404
    set_access(Collection.objects.get(name="nature"), ["nature.md"], users=[people["ada"].pk])
    hidden = client.get(f"{run}?citation=1")
    assert hidden.status_code == 404 and SECRET not in hidden.content.decode()


def test_a_thread_is_renamed_exported_and_deleted_by_its_owner(people: dict[str, User], thread: ChatThread) -> None:
    ada = client_of(people["ada"])
    ada.post(f"{thread.get_absolute_url()}?view=rename", {"title": "  Old   house "})
    ada.post(f"{thread.get_absolute_url()}?view=rename", {"title": " "})
    thread.refresh_from_db()
    assert thread.title == "Old house"
    body = json.loads(ada.get(f"{thread.get_absolute_url()}thread.json").content)
    run = QueryRun.objects.get()
    assert [(row["run_id"], row["answer"]) for row in body["messages"]] == [(str(run.pk), run.answer)]
    lines = ada.get(f"{thread.get_absolute_url()}thread.md").content.decode().splitlines()
    assert lines[0] == "# Old house" and [line[:2] for line in lines].count("1.") == 1
    assert ada.post(f"{thread.get_absolute_url()}?view=delete").status_code == 302
    assert not ChatThread.objects.exists() and not ChatMessage.objects.exists() and QueryRun.objects.count() == 1


def test_threads_are_pinned_archived_and_searched(people: dict[str, User], thread: ChatThread) -> None:
    ada = client_of(people["ada"])
    ada.post("/chat/", {"collection": "nature", "query": "What is below the bridge?"})
    old, new = thread, ChatThread.objects.exclude(pk=thread.pk).get()
    ChatThread.objects.filter(pk=new.pk).update(title="Renamed")

    def listed(query: str = "", client: Client = ada) -> list[str]:
        page = client.get(f"/chat/{query}", headers={"HX-Request": "true", "HX-Target": "thread-list"})
        return re.findall(r'href="/chat/([0-9a-f-]{36})/"', page.content.decode())

    assert listed() == [str(new.pk), str(old.pk)]
    ada.post(f"{old.get_absolute_url()}?view=share", {"pinned": "on"})
    assert listed() == [str(old.pk), str(new.pk)] and not ChatThread.objects.filter(shared=True).exists()
    assert listed("?find=BRIDGE") == [str(new.pk)] and listed("?find=renam") == [str(new.pk)], "questions and titles"
    assert listed("?find=nothing") == listed("?find=bridge", client_of(people["bob"])) == []
    ada.post(f"{new.get_absolute_url()}?view=share", {"archived": "on"})
    assert (listed(), listed("?archived=on"), listed("?find=bridge")) == ([str(old.pk)], [str(new.pk)], [str(new.pk)])
    assert client_of(people["bob"]).post(f"{old.get_absolute_url()}?view=share", {"pinned": "off"}).status_code == 404


def test_editing_a_question_replaces_what_came_after_it(people: dict[str, User], thread: ChatThread) -> None:
    ask(people, thread, "nature")
    first, second = ChatMessage.objects.order_by("position")
    edited = {"collection": "nature", "query": "What is below the house?", "edit": first.pk}
    client_of(people["ada"]).post(thread.get_absolute_url(), edited)
    kept = ChatMessage.objects.get()
    assert (kept.question, kept.position) == ("What is below the house?", 0) and kept.pk not in (first.pk, second.pk)
    refused = client_of(people["ada"]).post(thread.get_absolute_url(), edited | {"query": ""})
    assert refused.status_code == 404, "a message that was replaced is not replaced again"
    wrong = client_of(people["ada"]).post(thread.get_absolute_url(), edited | {"edit": kept.pk, "query": " "})
    assert wrong.status_code == 422 and ChatMessage.objects.get() == kept


def test_threads_go_with_their_runs_and_with_their_person(people: dict[str, User], thread: ChatThread) -> None:
    ask(people, thread, "nature")
    first = ChatMessage.objects.order_by("position")[0]
    moment = timezone.now() - timedelta(days=40)
    QueryRun.objects.filter(pk=first.run_id).update(created_at=moment)
    assert delete_old_runs(30) == 1
    assert ChatMessage.objects.count() == 1
    erase_person(people["ada"])
    assert not ChatThread.objects.exists() and not ChatMessage.objects.exists()


def test_several_collections_are_asked_at_once_as_far_as_each_may_be(people: dict[str, User]) -> None:
    ada, bob = people["ada"], people["bob"]
    nature, vault = (Collection.objects.get(name=name) for name in ("nature", "vault"))
    form = {"collection": ["nature", "vault"], "query": f"Where does the {SECRET} lie?"}
    assert client_of(bob).post("/chat/", form).status_code == 422
    assert not QueryRun.objects.exists()

    assert client_of(ada).post("/chat/", form).status_code == 302
    run = QueryRun.objects.get()
    thread = ChatThread.objects.get()
    assert run.collection_names == ["nature", "vault"] and thread.collection_ids == sorted([nature.pk, vault.pk])
    found = {(result.get("collection", ""), result["doc_id"]) for result in run.results}
    assert found == {("", "nature.md"), ("vault", "vault.md")}
    assert [result["rank"] for result in run.results] == list(range(1, len(run.results) + 1))
    assert run.elsewhere == {str(vault.pk): {"name": "vault", "keys": ["vault.md#0"]}}
    noted = RetrievedChunk.objects.values_list("collection_id", "doc_id")
    assert set(noted) == {(nature.pk, "nature.md"), (vault.pk, "vault.md")}
    page = client_of(ada).get(thread.get_absolute_url()).content.decode()
    assert "/collections/vault/chunks/0/vault.md/" in page and "/collections/nature/chunks/0/nature.md/" in page
    again = client_of(ada).get(f"/runs/{run.pk}/")
    assert again.status_code == 200

    # whoever sees the runs of one of them alone sees neither the run nor its spans
    RoleGrant.objects.create(user=bob, collection_id=nature.pk, role=Role.ADMINISTRATOR)
    ChatThread.objects.update(shared=True)
    assert sees(bob, thread) == (False, 0, 0, 0)
    assert client_of(bob).get(f"/runs/{run.pk}/").status_code == 404
    RoleGrant.objects.create(user=bob, collection_id=vault.pk, role=Role.EVALUATOR)
    assert sees(bob, thread) == (True, 1, 1, 1)
    set_access(vault, ["vault.md"], users=[ada.pk])
    assert sees(bob, thread)[3] == 0

    Collection.objects.filter(pk=vault.pk).update(security={"action": "redact"})
    assert QueryRun.objects.count() == 1 and client_of(ada).post("/chat/", form).status_code == 302
    assert QueryRun.objects.latest("created_at").collection_name == "vault", "whose guardrails hold for the answer"
    Collection.objects.filter(pk=nature.pk).update(security={"action": "refuse"})
    assert client_of(ada).post("/chat/", form).status_code == 422
    erase_document(vault, "vault.md")
    assert not QueryRun.objects.exists() and not ChatThread.objects.exists()


ZEPHYR = "zephyrine"
NAMED_IN_ADMIN = ("collections_app/document", "collections_app/chunk", "collections_app/ingestjob",
                  "collections_app/upload", "retrieval_app/queryrun", "retrieval_app/retrievedchunk")  # fmt: skip


def make_span(trace_id: str, collection: str, doc_id: str) -> None:
    now = timezone.now()
    texts = {"trace_id": trace_id, "span_id": trace_id[:16], "name": "rag.rank", "kind": "INTERNAL"}
    times = {"started_at": now, "ended_at": now, "duration_ms": 1}
    Span.objects.create(**texts, **times, collection=collection, attributes={DOCUMENT_ID: doc_id})


def drop(user: User, thread: ChatThread, text: str = f"The {ZEPHYR} sleeps under the halcyon.") -> Any:
    """A file into the thread, read at once."""
    values = {"uploads": [SimpleUploadedFile("bridge.txt", text.encode())], "thread": str(thread.pk)}
    answer = client_of(user).post("/chat/files/", values)
    for job in IngestJob.objects.filter(state="queued"):
        run_job(job.pk)
    return answer


def finds(user: User, address: str) -> bool:
    page = client_of(user).get(address)
    body = b"".join(page.streaming_content) if page.streaming else page.content  # type: ignore[attr-defined]
    text = body.decode(errors="replace")
    return page.status_code == 200 and ("halcyon" in text or "bridge.txt" in text)


@pytest.mark.parametrize("owner", ["ada", "root"])
def test_a_file_of_a_thread_is_found_by_its_questions_alone_and_goes_with_it(
    people: dict[str, User], owner: str, settings: Any
) -> None:
    settings.RAGD_OWN_FILES_MB = 1
    ada, client = people[owner], client_of(people[owner])
    other = "root" if owner == "ada" else "ada"
    for _ in range(2):
        client.post("/chat/", {"collection": "nature", "query": f"Where does the {SECRET} lie?"})
    thread, beside = ChatThread.objects.all()
    assert drop(ada, thread).status_code == 302
    own = Collection.objects.get(name__startswith=f"my-files-{ada.pk}-")
    document = Document.objects.get(collection=own)
    page = f"/collections/{own.name}/documents/{document.doc_id}/"
    asked = {"collection": ["nature"], "query": f"Where does the {ZEPHYR} sleep?"}

    def answer(where: str, **more: Any) -> bool:
        """Whether the newest run found the file."""
        assert client.post(where, asked | more).status_code == 302
        return document.doc_id in json.dumps(QueryRun.objects.latest("created_at").results)

    assert answer(thread.get_absolute_url())
    run = QueryRun.objects.latest("created_at")
    QueryRun.objects.filter(pk=run.pk).update(trace_id="a" * 32)
    make_span("a" * 32, "nature", document.doc_id)
    make_span("b" * 32, own.name, document.doc_id)
    make_span("c" * 32, "nature", "nature.md")
    for name, count in (("ada", 0), ("bob", 0), ("root", 2 if owner == "root" else 1)):
        with using_access(access_of_user(people[name])):
            assert Span.objects.count() == count, "the own ingest, and what is of no thread"
    with using_access(access_of_user(ada).of_thread(thread.pk)):
        assert Span.objects.filter(trace_id="a" * 32).exists()
    events = AuditEvent.objects.filter(collection_name=own.name)
    assert [event.message for event in events if event.action == "document.upload"] == ["uploaded 1 file"]
    assert "bridge" not in json.dumps(list(events.values("subject_name", "message", "before", "after")))
    shown = [thread.get_absolute_url(), f"/runs/{run.pk}/", page]
    assert [finds(ada, address) for address in shown] == [True] * 3
    assert [finds(people[other], address) for address in shown] == [False] * 3
    assert not answer(beside.get_absolute_url()) and not answer("/chat/", collection=[own.name])
    lists = ["", "uploads/", f"playground/?q={ZEPHYR}", "trash/", "folders/", "outliers/"]
    addresses = [f"/collections/{own.name}/{each}" for each in lists]
    addresses += [f"/chat/?collection={own.name}", f"/go/?q={ZEPHYR}", "/go/?q=bridge", "/activity/", "/"]
    addresses += [f"/admin/{each}/" for each in NAMED_IN_ADMIN] + ["/traces/", "/audit/", "/audit/?view=download"]
    assert [each for each in addresses for user in people.values() if finds(user, each)] == []

    for key in (NewKey("all"), NewKey("own", acts_as=owner)):
        call = Client(headers={"Authorization": f"Bearer {create_key(key)[1]}"})
        base, search = f"/v1/collections/{own.name}", {"query": ZEPHYR, "collection": own.name}
        tool = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": search}}
        answers = [
            *(call.get(f"{base}{each}") for each in ("/documents", "/chunks", "/overlays", "/retrieved?doc_id=x")),
            *(call.get(f"/v1/{each}") for each in ("jobs", "batches", "runs")),
            call.post(f"{base}/search", json.dumps({"query": ZEPHYR}), content_type="application/json"),
            call.post("/mcp", json.dumps(tool), content_type="application/json"),
        ]
        assert [each.status_code for each in answers].count(200) >= 7
        bodies = [b"".join(each.streaming_content) if each.streaming else each.content for each in answers]
        assert [b"bridge.txt" in body or b"halcyon" in body for body in bodies] == [False] * len(bodies)
        assert call.get(f"{base}/documents/{document.doc_id}").status_code == 404
        assert call.get(f"/v1/runs/{run.pk}").status_code == 404
    assert erase_files_of_threads() == 0
    client.post(f"{thread.get_absolute_url()}?view=delete")
    assert not finds(ada, page)
    assert erase_files_of_threads() == 1 and erase_files_of_threads() == 0
    for model in (Document, Upload, IngestJob, RetrievedChunk):
        assert not model._default_manager.filter(collection_id=own.pk).exists()
    assert not QueryRun.objects.filter(pk=run.pk).exists()
    assert [span.trace_id for span in Span.objects.all()] == ["c" * 32]


def test_files_go_with_a_thread_whose_runs_are_past_their_retention(
    people: dict[str, User], thread: ChatThread
) -> None:
    RoleGrant.objects.create(user=people["ada"], collection_id=0, role=Role.CURATOR)
    drop(people["ada"], thread)
    QueryRun.objects.update(created_at=timezone.now() - timedelta(days=40))
    assert delete_old_runs(30) == 1 and not ChatThread.objects.exists()
    assert erase_files_of_threads() == 1 and not Document.objects.filter(doc_id__startswith="thread-").exists()


def test_who_may_only_ask_adds_files_up_to_their_quota(
    people: dict[str, User], thread: ChatThread, settings: Any
) -> None:
    ada, client = people["ada"], client_of(people["ada"])
    assert "add-files" not in client.get(thread.get_absolute_url()).content.decode()
    assert drop(ada, thread).status_code == 403 and not Upload.objects.exists()
    settings.RAGD_OWN_FILES_MB = 1
    assert "add-files" in client.get(thread.get_absolute_url()).content.decode()
    assert drop(ada, thread, "x" * 600_000).status_code == 302
    assert drop(ada, thread, "y " * 300_000).status_code == 413 and Upload.objects.count() == 1
    own = Collection.objects.get(name__startswith="my-files-")
    with using_access(access_of_user(ada)), pytest.raises(ServiceError, match="RAGD_OWN_FILES_MB"):
        ingest_text(own, "long.txt", "z " * 300_000)
    assert [grant.role for grant in RoleGrant.objects.filter(collection_id=own.pk)] == [Role.CURATOR]
    assert drop(people["bob"], thread).status_code == 404, "the thread of another"
