"""Recall probes: queued, run, kept, shown, warned of."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from collections_app.models import Collection, IngestJob, StoredProbe
from collections_app.services.documents.documents import ingest_text
from collections_app.services.generations.recall_probes import KEPT_PROBES, last_probe, recall_warning, submit_probe
from collections_app.services.jobs.queue import submit_index_build
from collections_app.services.worker.dispatch import run_job
from tests.refusals import refuses


@pytest.fixture
def indexed(notes: Collection, settings: Any) -> Collection:
    """A collection of six chunks above its threshold, with an index, and the probe that its build asked for queued."""
    settings.RAGD_EXACT_THRESHOLD = 2
    for number, word in enumerate(("river", "stone", "bread", "garden", "music", "winter")):
        ingest_text(notes, doc_id=f"{number}.txt", content=f"The {word} has a story of its own.")
    job = submit_index_build(notes)
    assert job is not None
    assert run_job(job.pk) == "succeeded"
    return notes


def test_an_index_build_is_followed_by_a_probe(indexed: Collection) -> None:
    (job,) = IngestJob.objects.active()
    assert (job.kind, job.created_by) == ("probe_recall", "the index build")
    assert run_job(job.pk) == "succeeded"
    probe = last_probe(indexed)
    assert probe is not None
    assert (probe.recall, probe.filtered_recall, probe.queries, probe.chunk_count) == (1.0, None, 6, 6)
    assert (probe.generation, probe.created_by) == (1, "the index build")
    assert recall_warning(probe) == ""


def test_a_probe_under_way_is_not_queued_twice(indexed: Collection) -> None:
    (waiting,) = IngestJob.objects.active()
    assert submit_probe(indexed).pk == waiting.pk
    assert IngestJob.objects.active().count() == 1


def test_without_an_index_there_is_nothing_to_measure(notes: Collection) -> None:
    with refuses("no_vector_index"):
        submit_probe(notes)


def store_probe(collection: Collection, recall: float) -> StoredProbe:
    return StoredProbe.objects.create(
        collection=collection, generation=1, k=12, ef_search=12, chunk_count=6, queries=6, recall=recall,
        selectivity=0.01, filtered_recall=1.0,
    )  # fmt: skip


def test_low_recall_warns_with_both_figures_and_a_way_out(notes: Collection, settings: Any) -> None:
    probe = store_probe(notes, 0.9)
    said = recall_warning(probe)
    assert "found 90.0 % of the exact neighbours, and 100.0 % under a filter" in said
    assert "less than 95.0 % (RAGD_RECALL_WARNING)" in said
    settings.RAGD_RECALL_WARNING = 0.85
    assert recall_warning(probe) == ""


def test_only_the_last_hundred_are_kept(indexed: Collection) -> None:
    oldest = store_probe(indexed, 1.0)
    for _ in range(KEPT_PROBES - 1):
        store_probe(indexed, 1.0)
    (job,) = IngestJob.objects.active()
    run_job(job.pk)
    assert StoredProbe.objects.filter(collection=indexed).count() == KEPT_PROBES
    assert not StoredProbe.objects.filter(pk=oldest.pk).exists()


def test_the_page_shows_measures_and_warns(indexed: Collection, admin_client: Client) -> None:
    address = f"/collections/{indexed.name}/statistics/"
    assert "running" in admin_client.get(address).content.decode().lower()
    IngestJob.objects.active().update(state="cancelled")
    assert "Not measured yet" in admin_client.get(address).content.decode()
    store_probe(indexed, 0.5)
    shown = admin_client.get(address).content.decode()
    assert "found 50.0 % of the exact neighbours" in shown
    answer = admin_client.post(f"/collections/{indexed.name}/probe/")
    assert answer.headers["Location"] == address
    assert IngestJob.objects.active().get().created_by == "admin"


def test_operations_lists_collections_whose_newest_probe_is_low(notes: Collection, admin_client: Client) -> None:
    store_probe(notes, 1.0)
    assert "Low recall" not in admin_client.get("/operations/").content.decode()
    store_probe(notes, 0.25)
    shown = admin_client.get("/operations/").content.decode()
    assert f"/collections/{notes.name}/statistics/#recall" in shown and "0.2500" in shown
    store_probe(notes, 0.99)
    assert "Low recall" not in admin_client.get("/operations/").content.decode()
