"""A deleted collection: found nowhere, restored as it was by who could delete it, and erased in the end."""

from __future__ import annotations

import re
from datetime import timedelta
from html import escape
from typing import Any

import pytest
from django.utils import timezone

from collections_app.access.context import using_access
from collections_app.access.services import access_of_user
from collections_app.collections.deletion import (
    count_rows,
    delete_collection,
    purge_deleted,
    restore_collection,
    trash_collection,
)
from collections_app.collections.services import create_collection, get_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.models import Collection, Operation, Source
from collections_app.sources.sync import start_syncs
from evaluation_app.golden.sets import create_set
from evaluation_app.models import BoardCard, EvaluationRun, GoldenQuestion, GoldenSet, PromotionGate
from evaluation_app.runs.lifecycle import count_due
from ragd.errors import UnknownCollection
from ragd_site.operations.erasure.documents import erase_person
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
    return count_rows(pk), kept, links


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
    delete_collection(newer)
    assert client.post(address_of(house))["Location"] == "/collections/nature/"
    assert state_of(house) == before


def test_what_pointed_at_it_may_be_gone(attached: House) -> None:
    house = attached
    delete(house)
    EvaluationRun.objects.filter(collection_name="nature").delete()
    restore_collection(house.own.collection)
    assert GoldenSet.objects.get(pk=house.own.golden_set.pk).baseline is None


@pytest.mark.parametrize("way", ["for good", "period"])
def test_it_is_erased_when_its_time_is_over_or_at_once(attached: House, way: str) -> None:
    house = attached
    pk = house.own.collection.pk
    delete(house)
    now = timezone.now()
    assert purge_deleted(now + timedelta(days=29)) == 0
    if way == "for good":
        answer = house.client("administrator").post(address_of(house), {"do": "purge"}, follow=True)
        assert tones(answer) == ["good"]
        assert Operation.objects.get(kind="deletion").report["before"]["documents"] == 3
    else:
        assert [count_due({"trash_days": days})["trash_days"] for days in (0, 30)] == [1, 0]
        assert purge_deleted(now + timedelta(days=31)) == 1
    assert not Collection.objects.filter(pk=pk).exists() and not any(count_rows(pk).values())
    with pytest.raises(UnknownCollection):
        restore_collection(house.own.collection)


def test_without_a_period_and_of_own_files_it_is_deleted_for_good(house: House, settings: Any) -> None:
    own = create_collection(name="my-files-7-abc")
    assert not trash_collection(own)
    settings.RAGD_TRASH_DAYS = 0
    assert not trash_collection(house.own.collection) and get_collection("nature").pk == house.own.collection.pk


def test_nobody_writes_into_it_and_a_second_deletion_is_refused(house: House) -> None:
    collection = house.own.collection
    assert trash_collection(collection)
    with pytest.raises((UnknownCollection, ServiceError)):
        ingest_text(collection, "late.md", "Too late.")
    with pytest.raises(UnknownCollection):
        trash_collection(collection)
    with using_access(access_of_user(house.people["administrator"])), pytest.raises(Exception, match="administer"):
        restore_collection(collection)


def test_an_erased_person_is_named_nowhere_in_the_trash(attached: House) -> None:
    delete(attached)
    PromotionGate.objects.all().delete()
    erase_person(attached.people["viewer"])
    restore_collection(attached.own.collection)
    assert PromotionGate.objects.get().updated_by not in ("", "viewer")
