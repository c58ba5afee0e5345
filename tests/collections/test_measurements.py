"""Measurements of an index version: made in a job, kept with it, shown; weights used where none are stated.
Evening out nodes, and one PostgreSQL that is no cluster."""

from __future__ import annotations

import json
from collections import Counter
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from collections_app.access.context import using_access
from collections_app.access.services import access_of_user
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.index import measurements
from collections_app.index.cluster import TELL, Move, Node, Shard, plan_moves, read_cluster, rebalance, recover
from collections_app.index.measurements import (
    measurements_of,
    probes_of,
    sample_probes,
    submit_due_measurements,
    submit_measurement,
)
from collections_app.index.services import start_index_version
from collections_app.index.stores import open_store
from collections_app.index.swap import ensure_serving
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.queue import submit_index_build
from collections_app.models import AuditEvent, Collection, IndexVersion, IngestJob
from collections_app.models import Chunk as StoredChunk
from evaluation_app.telemetry.store.span_store import SELECT_PARTITIONS
from ragd.errors import RagdError
from ragd.insight.list_weights import CHUNKS_MIN, EVEN, embed_probes
from ragd.search.retrieval import retrieve
from ragd.types import Chunk, RetrievePlan
from ragd_site.observability.tracing import connect
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan, save_plan
from tests.refusals import raises_with, refuses
from tests.retrieval.corpus import bearer
from tests.web.pages import has

CHUNKS = CHUNKS_MIN + 2
THINGS = ("river", "stone", "bread", "garden", "music", "winter", "tower", "horse")


@pytest.fixture(scope="module")
def filled_of_module(notes_of_module: Collection) -> Collection:
    """A collection whose words find what its vectors do not: the endpoint's vectors are a hash of the text."""
    for number in range(CHUNKS):
        thing = f"{THINGS[number % 8]}{number}"
        content = f"The {thing} was old. Nobody had seen the {thing} move."
        ingest_text(notes_of_module, doc_id=f"{number:02}.txt", content=content)
    return notes_of_module


@pytest.fixture
def filled(filled_of_module: Collection, db: None) -> Collection:
    return copy(filled_of_module)


def measured(collection: Collection) -> IndexVersion:
    assert run_job(submit_measurement(collection).pk) == "succeeded"
    return IndexVersion.objects.get(collection=collection, number=collection.index_version)


def test_a_measurement_is_kept_and_used_where_none_is_stated(filled: Collection) -> None:
    assert dict(build_plan(filled).weights) == EVEN
    index_version = measured(filled)
    report = index_version.measurements["weights"]
    assert report["alone"]["lexical"] > report["alone"]["vector"]
    assert (report["probes"], index_version.measurements["chunks"]) == (2 * CHUNKS, CHUNKS)
    assert "recall" not in index_version.measurements
    assert report["fused"] > report["even"]
    assert index_version.measured_at is not None
    weights = index_version.list_weights
    assert weights["lexical"] == 1.0 and weights["vector"] < 0.1
    assert dict(build_plan(filled).weights) == weights
    assert build_plan(filled).hash != build_plan(filled, weights=EVEN).hash


def test_chunks_in_no_table_are_drawn_as_those_of_a_collection(filled: Collection, monkeypatch: Any) -> None:
    monkeypatch.setattr(measurements, "CHUNKS", 20)
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
    assert later.measured_at is not None
    earlier = {
        "list_weights": {"vector": 9.0, "lexical": 1.0},
        "measurements": {"chunks": 1},
        "measured_at": later.measured_at - timedelta(seconds=1),
    }
    monkeypatch.setattr(measurements, "measure", lambda store, pause: dict(earlier))
    assert measured(filled).list_weights == later.list_weights
    earlier["measured_at"] += timedelta(seconds=2)
    assert measured(filled).list_weights == {"vector": 9.0, "lexical": 1.0}


def test_the_same_chunks_give_the_same_weights_and_nothing_is_left(filled: Collection) -> None:
    first = measured(filled)
    second = measured(filled)
    assert (first.list_weights, first.measurements) == (second.list_weights, second.measurements)
    assert not Collection.objects.filter(name="probes").exists()


@pytest.mark.fault("F3")
def test_weights_change_by_an_event_and_are_shown_and_give_the_librarys_bytes(filled: Collection) -> None:
    def search() -> Any:
        body = {"query": "Who saw the river8 move?", "k": 5}
        address = f"/v1/collections/{filled.name}/search"
        return Client().post(address, body, headers=bearer(scope="read"), content_type="application/json").json()

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
    (job,) = IngestJob.objects.filter(kind="measure")
    assert run_job(job.pk) == "succeeded"
    assert submit_due_measurements() == 0
    row = IndexVersion.objects.filter(collection=filled)
    row.update(measurements={"chunks": CHUNKS // 2})
    assert submit_due_measurements() == 1
    IngestJob.objects.filter(kind="measure").update(state="failed")
    assert submit_due_measurements() == 0  # before somebody asks


def test_a_collection_is_not_measured_while_documents_come(filled: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    job = IngestJob.objects.create(collection=filled, kind="file", doc_id="next")
    assert submit_due_measurements() == 0
    IngestJob.objects.filter(pk=job.pk).update(sent_at=timezone.now() + timedelta(hours=1))
    assert submit_due_measurements() == 1, "a job that waits for its endpoint brings nothing now"
    assert run_job(IngestJob.objects.get(kind="measure").pk) == "succeeded"
    IngestJob.objects.filter(pk=job.pk).update(sent_at=timezone.now(), state="running")
    monkeypatch.setattr(measurements, "BUSY_CHUNKS_MIN", CHUNKS)
    row = IndexVersion.objects.filter(collection=filled)
    row.update(measurements={"chunks": CHUNKS // 2})
    assert submit_due_measurements() == 0
    row.update(measurements={"chunks": CHUNKS // 10})
    assert submit_due_measurements() == 1


@pytest.mark.parametrize(("created_by", "busy_least"), [("maintenance", 5000), ("admin", 5000), ("maintenance", 2)])
def test_a_measurement_that_nobody_asked_for_gives_way_to_documents(
    filled: Collection, monkeypatch: pytest.MonkeyPatch, created_by: str, busy_least: int
) -> None:
    monkeypatch.setattr(measurements, "BUSY_CHUNKS_MIN", busy_least)
    embedded: list[int] = []

    def embed(probes: Any, embedder: Any) -> Any:
        embedded.append(len(probes))
        if len(embedded) == 1:  # a document comes in the middle
            IngestJob.objects.create(collection=filled, kind="file", doc_id="next")
        return embed_probes(probes, embedder)

    monkeypatch.setattr(measurements, "embed_probes", embed)
    job = submit_measurement(filled, created_by=created_by)
    gives_way = created_by == "maintenance" and busy_least > CHUNKS
    assert run_job(job.pk) == ("cancelled" if gives_way else "succeeded")
    assert sum(embedded) == (measurements.PORTION if gives_way else 2 * CHUNKS)
    kept = IndexVersion.objects.filter(collection=filled, measured_at__isnull=False)
    assert kept.exists() != gives_way
    if gives_way:
        job.refresh_from_db()
        assert (job.error_type, job.lease_until) == ("documents_first", None)
        assert submit_due_measurements() == 0
        IngestJob.objects.filter(kind="file").update(state="succeeded")
        assert submit_due_measurements() == 1, "it is made when none wait"


def test_small_collections_and_those_of_one_list_are_left_alone(notes: Collection) -> None:
    ingest_text(notes, doc_id="a", content="The river rises. It falls.")
    submit_due_measurements()
    assert not IngestJob.objects.filter(collection=notes).exists()
    index_version = measured(notes)
    assert (index_version.list_weights, index_version.measurements) == ({}, {"weights": {"probes": 2}, "chunks": 1})
    assert dict(build_plan(notes).weights) == EVEN
    Collection.objects.filter(pk=notes.pk).update(hybrid_enabled=False)
    notes.refresh_from_db()
    with refuses("nothing_to_measure"):
        submit_measurement(notes)


def test_a_new_index_version_is_measured_before_it_serves(filled: Collection) -> None:
    index_version = start_index_version(filled, {})
    (job,) = IngestJob.objects.active()
    assert run_job(job.pk) == "succeeded"
    index_version.refresh_from_db()
    assert index_version.state == "serving"
    assert index_version.list_weights["vector"] < 0.1


def test_the_page_the_api_and_the_command_show_and_measure(
    filled: Collection, admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    page = f"/collections/{filled.name}/?show=statistics"
    assert admin_client.post(f"/collections/{filled.name}/measure/").status_code == 302
    assert "running" in admin_client.get(page).content.decode()
    (job,) = IngestJob.objects.active()
    address = f"/v1/collections/{filled.name}/measurements"
    started = Client().post(address, headers=bearer(scope="write"), content_type="application/json")
    assert (started.status_code, started.json()["job_id"]) == (202, str(job.pk))
    assert run_job(job.pk) == "succeeded"
    used = measurements_of(filled)
    html = admin_client.get(page).content.decode()
    assert f'<td class="num">{used.used["vector"]:g}</td>' in html
    item = Client().get(f"/v1/collections/{filled.name}/index-versions/1", headers=bearer(scope="read")).json()
    assert item["list_weights"] == used.used
    assert item["measurements"]["chunks"] == CHUNKS
    call_command("ragd", "index", "measure", filled.name, "--json")
    assert json.loads(capsys.readouterr().out)["weights"]["lexical"] == 1


@pytest.fixture
def indexed(notes: Collection, settings: Any) -> Collection:
    """A collection of six chunks above its threshold, with an index, and the measurement that its build asked for."""
    settings.RAGD_EXACT_THRESHOLD = 2
    for number, word in enumerate(("river", "stone", "bread", "garden", "music", "winter")):
        ingest_text(notes, doc_id=f"{number}.txt", content=f"The {word} has a story of its own.")
    job = submit_index_build(notes)
    assert job is not None
    assert run_job(job.pk) == "succeeded"
    return notes


def keep_recall(collection: Collection, recall: float) -> None:
    rounds = {"mean": recall, "lowest": recall, "selectivity": 1.0, "queries": 6, "index_ms": 1.0, "exact_ms": 1.0}
    report = {"k": 12, "ef_search": 12, "plain": rounds, "filtered": rounds | {"mean": 1.0, "selectivity": 0.01}}
    ensure_serving(collection)
    IndexVersion.objects.filter(collection=collection, number=collection.index_version).update(
        measurements={"chunks": 6, "recall": report}, measured_at=timezone.now()
    )


def test_an_index_build_is_followed_by_one_measurement(indexed: Collection) -> None:
    (job,) = IngestJob.objects.active()
    assert (job.kind, job.created_by) == ("measure", "the index build")
    assert submit_measurement(indexed).pk == job.pk
    assert run_job(job.pk) == "succeeded"
    result = measurements_of(indexed)
    plain, filtered = result.recall["plain"], result.recall["filtered"]
    assert (plain["mean"], filtered["mean"], plain["queries"], result.chunks) == (1.0, None, 6, 6)
    assert (result.weights, result.warning) == ({"probes": 12}, "")


def test_an_index_version_without_a_keyword_index_has_its_recall_measured(indexed: Collection) -> None:
    IngestJob.objects.active().delete()
    Collection.objects.filter(pk=indexed.pk).update(hybrid_enabled=False)
    index_version = measured(Collection.objects.get(pk=indexed.pk))
    assert index_version.measurements.keys() == {"chunks", "recall"}


def test_low_recall_warns_with_both_figures_and_a_way_out(notes: Collection, settings: Any) -> None:
    keep_recall(notes, 0.9)
    said = measurements_of(notes).warning
    assert "found 90.0 % of the exact neighbours, and 100.0 % under a filter" in said
    assert "less than 95.0 % (RAGD_RECALL_WARNING)" in said
    settings.RAGD_RECALL_WARNING = 0.85
    assert measurements_of(notes).warning == ""


def node(group: int, **values: bool) -> Node:
    return replace(Node(group, f"node{group}", 5432, is_active=True, takes_shards=group > 0, answers=True), **values)  # type: ignore[arg-type]


NODES = [node(group) for group in range(4)]


def after(shards: list[Shard], moves: list[Move]) -> dict[int, Shard]:
    """Where the shards are then; each move begins where the shard is."""
    now = {shard.shard_id: shard for shard in shards}
    for move in moves:
        assert now[move.shard.shard_id].group == move.source.group != move.target.group
        now[move.shard.shard_id] = replace(now[move.shard.shard_id], group=move.target.group)
    return now


def test_a_new_node_gets_its_share() -> None:
    shards = [Shard(number, "chunks_c1_g1", 1 + number % 2, 100) for number in range(6)]
    shards += [Shard(10 + number, f"chunks_c{number}_g1", 1, 1000) for number in range(2, 5)]
    now = after(shards, plan_moves(shards, NODES))
    spread = Counter(shard.group for shard in now.values() if shard.table == "chunks_c1_g1")
    whole = Counter(shard.group for shard in now.values() if shard.table != "chunks_c1_g1")
    assert dict(spread) == dict(whole) | dict.fromkeys((1, 2, 3), 2) and set(whole.values()) == {1}


def test_nodes_that_are_gone_or_take_none_neither_give_nor_get() -> None:
    shards = [Shard(number, f"chunks_c{number}_g1", 1, 100) for number in range(4)]
    assert plan_moves(shards, [node(0), node(1)]) == []
    assert plan_moves(shards, [node(0), node(1), node(2, answers=False)]) == []
    assert plan_moves(shards, [node(0), node(1, answers=False), node(2), node(3)]) == []
    targets = {
        move.target.group for move in plan_moves(shards, [node(0), node(1), node(2, takes_shards=False), node(3)])
    }
    assert targets == {3}


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 1000) | st.none()), max_size=12))
def test_the_moves_end_and_leave_nothing_to_move(made: list[tuple[int, int, int | None]]) -> None:
    shards = [Shard(number, f"chunks_c{table}_g1", group, size) for number, (table, group, size) in enumerate(made)]
    moves = plan_moves(shards, NODES)
    now = after(shards, moves)
    assert len(moves) <= 3 * len(shards) and plan_moves(now.values(), NODES) == []
    assert plan_moves(reversed(shards), NODES) == moves, "the same in any order"


@pytest.mark.django_db
def test_one_postgresql_says_so(admin_client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_cluster().version == ""
    page = admin_client.get("/operations/?view=cluster")
    assert page.status_code == 200 and has(page, ".empty-state") and not has(page, "[name=do]")
    for refused in (lambda: rebalance(None), lambda: recover(None)):
        with raises_with(ServiceError, type="no_cluster", status=409):
            refused()
    assert admin_client.post("/operations/?view=cluster", {"do": "rebalance"}).status_code == 302
    call_command("ragd", "status", "--cluster", "--json")
    assert '"citus": null' in capsys.readouterr().out


@pytest.mark.django_db
def test_only_administrators_of_the_server_see_the_nodes(client: Client, django_user_model: type) -> None:
    ada = django_user_model.objects.create_user("ada")  # type: ignore[attr-defined]
    client.force_login(ada)
    assert client.get("/operations/?view=cluster").status_code == 403
    with using_access(access_of_user(ada)), pytest.raises(RagdError):
        read_cluster()


@pytest.mark.django_db
def test_what_is_dropped_meanwhile_has_no_size() -> None:
    with connect() as other, connect() as reader:
        other.execute("CREATE TABLE chunks_c987654_g1 (id int)")
        other.execute("CREATE TABLE spans_gone PARTITION OF spans FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert reader.execute("SELECT 1 FROM pg_class WHERE relname = 'spans_gone'").fetchall()
        other.execute("DROP TABLE chunks_c987654_g1, spans_gone")
        assert reader.execute("SELECT 1 FROM pg_class WHERE relname = 'spans_gone'").fetchall()
        sizes = json.loads(reader.execute(TELL).fetchall()[0][0])["sizes"]
        assert None not in sizes.values() and "chunks_c987654_g1" not in sizes
        partitions = {name: size for name, _, size in reader.execute(SELECT_PARTITIONS)}
        assert None not in partitions.values() and "spans_gone" not in partitions and "spans_default" in partitions
