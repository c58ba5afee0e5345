"""A deleted collection: found nowhere, restored as it was by who could delete it, and erased in the end.
Who may write in a collection changes no document that an access list keeps from them, also by naming it.
Services refuse a change that row-level security would make nothing of."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import escape
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from collections_app.access.context import Forbidden, using_access
from collections_app.access.services import access_of_user
from collections_app.chunks.edits import edit_chunk, set_chunk_enabled
from collections_app.collections import deletion
from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import create_collection, get_collection, update_collection
from collections_app.documents.edits import edit_document, roll_back
from collections_app.documents.files import store_upload
from collections_app.documents.services import change_state, delete_documents, ingest_text, reindex_documents
from collections_app.errors import ServiceError
from collections_app.jobs.recovery import cancel_job, cancel_jobs, retry_job, retry_jobs
from collections_app.models import Collection, Document, Operation, Source, Upload
from collections_app.sources.sync import start_syncs
from evaluation_app.golden.edits import delete_questions
from evaluation_app.golden.sets import create_set, delete_set, update_set
from evaluation_app.models import BoardCard, EvaluationRun, GoldenQuestion, GoldenSet, PromotionGate
from evaluation_app.runs.lifecycle import count_due, delete_run
from evaluation_app.runs.requests import make_baseline
from ragd.errors import UnknownCollection
from ragd_site.operations.erasure.documents import erase_person
from retrieval_app.plans.services import delete_plan
from tests.access.house import House
from tests.access.test_pages import addresses_of, body_of
from tests.web.pages import has, tones

TRASH = "/collections/?view=trash"
# what keeps a record of what was asked, answered and measured, as it does when a collection is deleted for good
RECORDS = re.compile(
    "/(audit|runs|traces|evaluation/(runs|experiments|review|compare|sets/from-run)|chat/[0-9a-f]{8}-)"
)
KEPT = ("All about whale", "whale batch", "whale source", "whale set", "whale is locked", 'href="/collections/nature/')


def delete(house: House, name: str = "administrator") -> None:
    answer = house.client(name).post("/collections/nature/settings/?view=delete", {"typed_name": "nature"})
    assert answer["Location"] == "/collections/"


def address_of(house: House) -> str:
    return f"{TRASH}&pk={house.own.collection.pk}"


def state_of(house: House) -> Any:
    """Rows by table, and what other tables keep of it, with what points at that."""
    pk, models = house.own.collection.pk, (GoldenSet, GoldenQuestion, BoardCard, PromotionGate)
    rows = [row for model in models for row in model._default_manager.order_by("pk").values()]
    links = list(EvaluationRun.objects.order_by("pk").values_list("pk", "golden_set", "items__question"))
    kept = [{name: value for name, value in row.items() if name != "updated_at"} for row in rows]
    return deletion.count_rows(pk), kept, links


@pytest.fixture
def attached(house: House) -> House:
    """With everything that hangs on the name of the collection."""
    own = house.own
    GoldenSet.objects.filter(pk=own.golden_set.pk).update(baseline=own.runs[0].pk)
    BoardCard.objects.create(golden_set=own.golden_set, question_text="What?", mode="low_completeness")
    PromotionGate.objects.create(collection_name=own.name, golden_set=own.golden_set, set_name="x", updated_by="viewer")
    own.runs[0].items.update(question=own.question)
    return house


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["administrator", "root"])
def test_no_page_tells_of_a_collection_in_the_trash(house: House, name: str) -> None:
    delete(house)
    Source.objects.update(enabled=True, schedule=5, next_at=timezone.now() - timedelta(hours=1))
    assert start_syncs(timezone.now()) == 1, "that of the other collection"
    client, wrong, words = house.client(name), [], ("whale",) if name == "administrator" else KEPT
    client.raise_request_exception = False
    for view_name, _, _, address in [*addresses_of(house.own), ("palette", "", {}, "/go/?q=wha")]:
        response = client.get(address)
        assert response.status_code < 500, address
        if address == TRASH or (name == "root" and RECORDS.match(address)):
            continue
        body = body_of(response).replace(escape(address), "")
        wrong += [f"{view_name} {address}: {response.status_code} tells {word}" for word in words if word in body]
    assert not wrong, "\n".join(wrong)


def test_who_could_delete_it_restores_it_as_it_was(attached: House) -> None:
    house = attached
    before = state_of(house)
    delete(house)
    assert GoldenSet.objects.filter(collection_name="nature").count() == 0
    assert all(run.golden_set is None for run in house.own.runs[0].__class__.objects.filter(collection_name="nature"))
    for name in ("curator", "nobody"):
        assert not has(house.client(name).get(TRASH), "[data-trashed]")
        assert house.client(name).post(address_of(house)).status_code == 404
    client = house.client("administrator")
    assert has(client.get("/collections/"), 'a[href="/collections/?view=trash"]')
    assert has(client.get(TRASH), '[data-trashed="nature"]')
    answer = client.post(address_of(house))
    assert answer["Location"] == "/collections/nature/"
    assert client.get("/collections/nature/").status_code == 200
    assert house.client("viewer").get("/collections/nature/documents/whale.md/").status_code == 200
    assert house.client("nobody").get("/collections/nature/documents/whale.md/").status_code in (403, 404)
    assert state_of(house) == before
    assert not has(client.get("/collections/"), 'a[href="/collections/?view=trash"]')
    assert client.post(address_of(house)).status_code == 404


def test_a_name_that_is_taken_meanwhile_is_given_back_first(attached: House) -> None:
    house = attached
    before = state_of(house)
    delete(house)
    newer = create_collection(name="nature")
    create_set(house.own.golden_set.name, "nature")
    client = house.client("root")
    refused = client.post(address_of(house), follow=True)
    assert tones(refused) == ["bad"] and get_collection("nature").pk == newer.pk
    deletion.delete_collection(newer)
    assert client.post(address_of(house))["Location"] == "/collections/nature/"
    assert state_of(house) == before


def test_what_pointed_at_it_may_be_gone(attached: House) -> None:
    house = attached
    delete(house)
    EvaluationRun.objects.filter(collection_name="nature").delete()
    deletion.restore_collection(house.own.collection)
    assert GoldenSet.objects.get(pk=house.own.golden_set.pk).baseline is None


@pytest.mark.parametrize("way", ["for good", "period"])
def test_it_is_erased_when_its_time_is_over_or_at_once(attached: House, way: str) -> None:
    house = attached
    pk = house.own.collection.pk
    delete(house)
    now = timezone.now()
    assert deletion.purge_deleted(now + timedelta(days=29)) == 0
    if way == "for good":
        answer = house.client("administrator").post(address_of(house), {"do": "purge"}, follow=True)
        assert tones(answer) == ["good"]
        assert Operation.objects.get(kind="deletion").report["before"]["documents"] == 3
    else:
        assert [count_due({"trash_days": days})["trash_days"] for days in (0, 30)] == [1, 0]
        assert deletion.purge_deleted(now + timedelta(days=31)) == 1
    assert not Collection.objects.filter(pk=pk).exists() and not any(deletion.count_rows(pk).values())
    with pytest.raises(UnknownCollection):
        deletion.restore_collection(house.own.collection)


def test_without_a_period_and_of_own_files_it_is_deleted_for_good(house: House, settings: Any) -> None:
    own = create_collection(name="my-files-7-abc")
    assert not deletion.trash_collection(own)
    settings.RAGD_TRASH_DAYS = 0
    assert (
        not deletion.trash_collection(house.own.collection) and get_collection("nature").pk == house.own.collection.pk
    )


def test_nobody_writes_into_it_and_a_second_deletion_is_refused(house: House) -> None:
    collection = house.own.collection
    assert deletion.trash_collection(collection)
    with pytest.raises((UnknownCollection, ServiceError)):
        ingest_text(collection, "late.md", "Too late.")
    with pytest.raises(UnknownCollection):
        deletion.trash_collection(collection)
    with using_access(access_of_user(house.people["administrator"])), pytest.raises(Exception, match="administer"):
        deletion.restore_collection(collection)


def test_an_erased_person_is_named_nowhere_in_the_trash(attached: House) -> None:
    delete(attached)
    PromotionGate.objects.all().delete()
    erase_person(attached.people["viewer"])
    deletion.restore_collection(attached.own.collection)
    assert PromotionGate.objects.get().updated_by not in ("", "viewer")


def changes(house: House) -> dict[str, list[Callable[[], Any]]]:
    """By the permission that they need."""
    own, place = house.own.collection, house.own
    doc_id = f"{place.word}.md"
    return {
        "write": [
            lambda: update_collection(own, changes={"description": "x"}),
            lambda: delete_documents(own, [doc_id]),
            lambda: change_state(own, [doc_id], "disabled"),
            lambda: reindex_documents(own, [doc_id]),
            lambda: change_state(own, [doc_id], "archived"),
            lambda: edit_document(own, doc_id, {"title": "x"}),
            lambda: roll_back(own, doc_id, 1),
            lambda: edit_chunk(own, doc_id, 0, "x"),
            lambda: set_chunk_enabled(own, doc_id, 0, enabled=False),
            lambda: cancel_job(place.job),
            lambda: retry_job(place.job),
            lambda: retry_jobs(own),
            lambda: cancel_jobs(own),
            lambda: delete_plan(own, "x"),
        ],
        "evaluate": [
            lambda: update_set(place.golden_set, description="x"),
            lambda: delete_questions(place.golden_set, [place.question.pk]),
            lambda: delete_set(place.golden_set),
            lambda: make_baseline(place.runs[0]),
            lambda: delete_run(place.runs[0], None),
        ],
        "administer": [lambda: update_collection(own, changes={"open_role": "viewer"}), lambda: delete_collection(own)],
    }


LACKS = {
    "viewer": ("write", "evaluate", "administer"),
    "asker": ("write", "evaluate", "administer"),
    "curator": ("evaluate", "administer"),
    "evaluator": ("write", "administer"),
}


def test_a_refused_change_is_never_silently_nothing(house: House) -> None:
    for name, lacking in LACKS.items():
        with using_access(access_of_user(house.people[name])):
            for permission in lacking:
                for number, change in enumerate(changes(house)[permission]):
                    with pytest.raises(Forbidden):
                        change()
                        pytest.fail(f"{name} {permission} {number}")


def test_a_curator_cannot_change_a_hidden_document_by_its_name(house: House) -> None:
    client, base = house.client("curator"), "/collections/nature/"
    before = Document.objects.values().get(doc_id="secret.md")
    answers = [
        client.post(f"{base}upload/?view=text", {"doc_id": "secret.md", "content": "overwritten"}),
        client.post(f"{base}upload/", {"uploads": [SimpleUploadedFile("secret.md", b"overwritten")]}),
        client.post(f"{base}documents/secret.md/?view=edit", {"title": "x", "expected_revision": "1"}),
        client.post(f"{base}chunks/0/secret.md/?view=change", {"action": "edit", "content": "x", "revision": "1"}),
        client.post(f"{base}documents/secret.md/?view=rollback&number=1"),
        *(
            client.post(f"{base}?view=change", {"action": action, "confirmed": "on", "doc_id": "secret.md"})
            for action in ("delete", "archive", "disable", "reindex")
        ),
    ]
    assert all(answer.status_code < 500 for answer in answers), [answer.status_code for answer in answers]
    assert all(house.hidden not in answer.content.decode() for answer in answers)
    assert Document.objects.values().get(doc_id="secret.md") == before
    assert not Upload.objects.filter(doc_id="secret.md").exists()


def test_the_original_of_a_hidden_document_is_there_for_its_readers_alone(house: House) -> None:
    collection = house.own.collection
    words = f"{house.hidden} in the file".encode()
    for doc_id in ("secret.md", f"{house.own.word}.md"):
        upload = store_upload(collection, doc_id, doc_id, words)
        Document.objects.filter(collection=collection, doc_id=doc_id).update(source_hash=upload.sha256)
    for name, status in {"administrator": 200, "curator": 404, "viewer": 404, "nobody": 404}.items():
        answer = house.client(name).get("/collections/nature/original/secret.md/")
        assert answer.status_code == status, name
        if status != 200:
            assert house.hidden not in answer.content.decode()
    assert (
        house.hidden in b"".join(house.client("administrator").get("/collections/nature/original/secret.md/")).decode()
    )
    assert house.client("viewer").get(f"/collections/nature/original/{house.own.word}.md/").status_code == 200
    replaced = house.client("curator").post(
        "/collections/nature/documents/secret.md/?view=new-version",
        {"file": SimpleUploadedFile("x.md", b"overwritten")},
    )
    assert replaced.status_code == 404


def test_the_administrator_of_a_collection_deletes_it(house: House) -> None:
    client = house.client("administrator")
    answer = client.post("/collections/nature/settings/?view=delete", {"typed_name": "nature"}, follow=True)
    assert answer.redirect_chain == [("/collections/", 302)] and answer.status_code == 200
    assert not Collection.objects.live().filter(pk=house.own.collection.pk).exists()
    assert Document.objects.filter(collection_id=house.foreign.collection.pk).count() == 2
