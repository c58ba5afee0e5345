"""Fusion weights of a collection: measured in a job, kept with the index version, used where none are stated."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import Client

from collections_app.models import AuditEvent, Collection, Generation, IngestJob
from collections_app.models import Chunk as StoredChunk
from collections_app.services.collections.collections import create_collection
from collections_app.services.documents.documents import ingest_text
from collections_app.services.generations import list_weights
from collections_app.services.generations.generations import start_generation
from collections_app.services.generations.list_weights import (
    probes_of,
    sample_probes,
    submit_due_measurements,
    submit_measurement,
    used_weights,
)
from collections_app.services.governance.api_keys import create_key
from collections_app.services.worker.dispatch import run_job
from collections_app.stores import open_store
from ragd.insight.list_weights import CHUNKS_MIN, EVEN
from ragd.search.retrieval import retrieve
from ragd.types import Chunk, RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.runs.plans import build_plan, default_plans, save_plan
from tests.refusals import refuses

CHUNKS = CHUNKS_MIN + 2
THINGS = ("river", "stone", "bread", "garden", "music", "winter", "tower", "horse")


@pytest.fixture
def filled(notes: Collection) -> Collection:
    """A collection whose words find what its vectors do not: the endpoint's vectors are a hash of the text."""
    for number in range(CHUNKS):
        thing = f"{THINGS[number % 8]}{number}"
        ingest_text(notes, doc_id=f"{number:02}.txt", content=f"The {thing} was old. Nobody had seen the {thing} move.")
    return notes


def measured(collection: Collection) -> Generation:
    assert run_job(submit_measurement(collection).pk) == "succeeded"
    return Generation.objects.get(collection=collection, number=collection.generation)


def test_a_measurement_is_kept_and_used_where_none_is_stated(filled: Collection) -> None:
    assert dict(build_plan(filled).weights) == EVEN
    generation = measured(filled)
    report = generation.list_weights_report
    assert report["alone"]["lexical"] > report["alone"]["vector"]
    assert (report["probes"], report["chunks"]) == (2 * CHUNKS, CHUNKS)
    assert report["fused"] > report["even"]
    assert generation.list_weights_measured_at is not None
    weights = generation.list_weights
    assert weights["lexical"] == 1.0 and weights["vector"] < 0.1
    assert dict(build_plan(filled).weights) == weights
    assert dict(default_plans([filled])[filled.name].plan.weights) == weights
    assert build_plan(filled).hash != build_plan(filled, weights=EVEN).hash


def test_chunks_in_no_table_are_drawn_as_those_of_a_collection(filled: Collection, monkeypatch: Any) -> None:
    monkeypatch.setattr(list_weights, "CHUNKS", 20)
    chunks = [
        Chunk(row.doc_id, row.chunk_index, row.content, 0, len(row.content), attributes=row.attributes)
        for row in StoredChunk.objects.of(filled)
    ]
    drawn = probes_of(chunks)
    assert len(drawn) == 40 and drawn == sample_probes(open_store(filled))
    assert probes_of([replace(chunk, enabled=False) for chunk in chunks]) == []


def test_what_is_stated_wins(filled: Collection) -> None:
    save_plan(filled, "even", build_plan(filled))
    measured(filled)
    assert dict(build_plan(filled, plan="even").weights) == EVEN
    assert dict(build_plan(filled, weights={"vector": 2.0, "lexical": 3.0}).weights) == {"vector": 2.0, "lexical": 3.0}


@pytest.mark.fault("UX-F4")
def test_a_measurement_that_began_earlier_never_replaces_a_later_one(
    filled: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = measured(filled)
    assert later.list_weights_measured_at is not None
    earlier = {
        "list_weights": {"vector": 9.0, "lexical": 1.0},
        "list_weights_report": {"chunks": 1},
        "list_weights_measured_at": later.list_weights_measured_at - timedelta(seconds=1),
    }
    monkeypatch.setattr(list_weights, "measure", lambda store: dict(earlier))
    assert measured(filled).list_weights == later.list_weights
    earlier["list_weights_measured_at"] += timedelta(seconds=2)
    assert measured(filled).list_weights == {"vector": 9.0, "lexical": 1.0}


def test_the_same_chunks_give_the_same_weights_and_nothing_is_left(filled: Collection) -> None:
    first = measured(filled)
    second = measured(filled)
    assert (first.list_weights, first.list_weights_report) == (second.list_weights, second.list_weights_report)
    assert not Collection.objects.filter(name="probes").exists()


@pytest.mark.fault("F3")
def test_weights_change_by_an_event_and_are_shown_and_give_the_librarys_bytes(filled: Collection) -> None:
    def search() -> Any:
        body = {"query": "Who saw the river8 move?", "k": 5}
        address = f"/v1/collections/{filled.name}/search"
        return Client().post(address, body, headers=bearer("read"), content_type="application/json").json()

    events = AuditEvent.objects.filter(action="collection.measure_weights")
    before = search()
    assert (before["weights"], events.count()) == (EVEN, 0)
    used = measured(filled).list_weights
    after = search()
    assert after["weights"] == used != EVEN and after["plan_hash"] != before["plan_hash"]
    (event,) = events
    assert (event.before, event.after) == ({"list_weights": EVEN}, {"list_weights": used})
    measured(filled)
    assert events.count() == 1, "the same weights are no change"
    run = QueryRun.objects.get(pk=after["run_id"])
    assert run.plan["weights"] == used
    for found, weights in ((before, EVEN), (after, used)):
        with transaction.atomic():
            own = retrieve("Who saw the river8 move?", RetrievePlan(k=5, weights=weights), open_store(filled))
        assert [(item["doc_id"], item["score"]) for item in found["results"]] == [
            (item.doc_id, item.score) for item in own
        ]


def test_maintenance_measures_what_was_not_and_what_has_grown(filled: Collection) -> None:
    assert submit_due_measurements() == 1
    assert submit_due_measurements() == 0  # it is under way
    (job,) = IngestJob.objects.filter(kind="measure_weights")
    assert run_job(job.pk) == "succeeded"
    assert submit_due_measurements() == 0
    row = Generation.objects.filter(collection=filled)
    row.update(list_weights_report={"chunks": CHUNKS // 2})
    assert submit_due_measurements() == 1
    IngestJob.objects.filter(kind="measure_weights").update(state="failed")
    assert submit_due_measurements() == 0  # before somebody asks


def test_small_collections_and_those_of_one_list_are_left_alone(notes: Collection) -> None:
    ingest_text(notes, doc_id="a", content="The river rises. It falls.")
    assert submit_due_measurements() == 0
    generation = measured(notes)
    assert (generation.list_weights, generation.list_weights_report) == ({}, {"probes": 2, "chunks": 1})
    assert dict(build_plan(notes).weights) == EVEN
    Collection.objects.filter(pk=notes.pk).update(hybrid_enabled=False)
    notes.refresh_from_db()
    with refuses("no_lexical_index"):
        submit_measurement(notes)


def test_a_new_index_version_is_measured_before_it_serves(filled: Collection) -> None:
    generation = start_generation(filled, {})
    (job,) = IngestJob.objects.active()
    assert run_job(job.pk) == "succeeded"
    generation.refresh_from_db()
    assert generation.state == "serving"
    assert generation.list_weights["vector"] < 0.1


def test_the_page_the_api_and_the_command_show_and_measure(
    filled: Collection, admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    page = f"/collections/{filled.name}/statistics/"
    assert admin_client.post(f"/collections/{filled.name}/measure-weights/").status_code == 302
    assert "running" in admin_client.get(page).content.decode()
    (job,) = IngestJob.objects.active()
    started = start_through_api(filled, "write")
    assert (started.status_code, started.json()["job_id"]) == (202, str(job.pk))
    assert run_job(job.pk) == "succeeded"
    used = used_weights(filled)
    html = admin_client.get(page).content.decode()
    assert f'<td class="num">{used.used["vector"]:g}</td>' in html
    item = Client().get(f"/v1/collections/{filled.name}/generations/1", headers=bearer("read")).json()
    assert item["list_weights"] == used.used
    assert item["list_weights_report"]["chunks"] == CHUNKS
    call_command("ragd", "index", "weights", filled.name, "--json")
    assert json.loads(capsys.readouterr().out)["weights"]["lexical"] == 1


def bearer(scope: str, collections: tuple[str, ...] = ()) -> dict[str, str]:
    return {"Authorization": f"Bearer {create_key('tests', scope=scope, collections=collections)[1]}"}


def start_through_api(collection: Collection, scope: str, collections: tuple[str, ...] = ()) -> Any:
    address = f"/v1/collections/{collection.name}/list-weights"
    return Client().post(address, headers=bearer(scope, collections), content_type="application/json")


def test_measuring_needs_a_login_and_a_key_that_may_write_the_collection(notes: Collection, client: Client) -> None:
    assert "login" in client.post(f"/collections/{notes.name}/measure-weights/")["Location"]
    assert start_through_api(notes, "read").status_code == 403
    create_collection(name="elsewhere")
    assert start_through_api(notes, "write", ("elsewhere",)).status_code == 403
    assert not IngestJob.objects.active().exists()
