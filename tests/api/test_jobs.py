from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import connection

from collections_app.collections.services import create_collection
from collections_app.jobs import leases
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, IdempotencyRecord, IngestBatch, IngestJob
from evaluation_app.models import GoldenSet
from tests.collections.conftest import committed
from tests.fakes.openai_server import OpenAIServer


def upload(api: Any, *names: str, collection: str = "notes") -> list[str]:
    files = api.upload(collection, *[(name, b"some text") for name in names]).json()["results"]
    return [file["job_id"] for file in files]


def test_list_is_newest_first_filtered_and_paged(api: Any, notes: Collection) -> None:
    create_collection(name="other")
    (first,) = upload(api, "a.txt")
    (second,) = upload(api, "b.txt")
    (third,) = upload(api, "c.txt", collection="other")
    IngestJob.objects.filter(pk=first).update(state="failed", error="why", error_type="broken")
    page = api.get("/jobs?limit=2").json()
    assert [job["id"] for job in page["items"]] == [third, second]
    rest = api.get(f"/jobs?limit=2&cursor={page['next_cursor']}").json()
    assert ([job["id"] for job in rest["items"]], rest["next_cursor"]) == ([first], None)
    assert [job["id"] for job in api.get("/jobs?collection=notes").json()["items"]] == [second, first]
    assert [job["id"] for job in api.get("/jobs?state=failed").json()["items"]] == [first]
    assert [job["id"] for job in api.get("/jobs?doc_id=b.txt").json()["items"]] == [second]
    failed = api.get(f"/jobs/{first}").json()
    assert (failed["collection"], failed["doc_id"], failed["error"], failed["error_type"]) == (
        "notes",
        "a.txt",
        "why",
        "broken",
    )
    assert api.get("/jobs?state=lost").status_code == 422


def test_a_job_of_another_collection_is_404(api: Any, make_api: Any, notes: Collection) -> None:
    (job,) = upload(api, "a.txt")
    limited = make_api(collections=["other"])
    assert limited.get(f"/jobs/{job}").json()["error"]["type"] == "unknown_job"
    assert limited.get("/jobs").json()["items"] == []
    for state in ("cancelled", "queued"):
        assert limited.patch(f"/jobs?job={job}", {"state": state}).json()["error"]["type"] == "unknown_job"
        assert limited.patch("/jobs?collection=notes", {"state": state}).status_code in (403, 404)
    assert IngestJob.objects.get(pk=job).state == "queued"


CANCELLED, QUEUED = {"state": "cancelled"}, {"state": "queued"}


def test_an_upload_is_a_batch_that_tells_its_progress(api: Any, notes: Collection) -> None:
    jobs = upload(api, "a.txt", "b.txt", "c.txt")
    (batch,) = api.get("/batches?collection=notes").json()["items"]
    assert (batch["collection"], batch["kind"], batch["documents"], batch["queued"], batch["done"]) == (
        "notes", "upload", 3, 3, 0,
    )  # fmt: skip
    run_job(jobs[0])
    IngestJob.objects.filter(pk=jobs[1]).update(state="failed", error="why")
    found = api.get(f"/batches/{batch['id']}").json()
    assert (found["done"], found["percent"], found["succeeded"], found["failed"], found["errors"]) == (2, 66, 1, 1, 1)
    assert [job["id"] for job in api.get(f"/jobs?batch={batch['id']}&state=failed").json()["items"]] == [jobs[1]]


def test_cancel_and_retry_of_a_batch(api: Any, make_api: Any, notes: Collection) -> None:
    jobs = upload(api, "a.txt", "b.txt")
    batch = IngestBatch.objects.get().pk
    IngestJob.objects.filter(pk=jobs[0]).update(state="failed")
    assert make_api(scope="read").patch(f"/jobs?batch={batch}", CANCELLED).status_code == 403
    assert make_api(collections=["other"]).patch(f"/jobs?batch={batch}", CANCELLED).status_code == 404
    assert IngestJob.objects.get(pk=jobs[1]).state == "queued"
    assert api.patch(f"/jobs?batch={batch}", CANCELLED).json() == {"jobs": 1}
    assert api.patch(f"/jobs?batch={batch}", QUEUED).json() == {"jobs": 1}
    assert [IngestJob.objects.get(pk=job).state for job in jobs] == ["queued", "cancelled"]


def test_cancel_and_retry_of_jobs(api: Any, make_api: Any, notes: Collection) -> None:
    (job,) = upload(api, "a.txt")
    assert api.patch(f"/jobs?job={job}", CANCELLED).json() == {"jobs": 1}
    assert api.patch(f"/jobs?job={job}", CANCELLED).status_code == 409
    assert api.patch(f"/jobs?job={job}", QUEUED).json() == {"jobs": 1}
    assert api.patch(f"/jobs?job={job}", QUEUED).status_code == 409
    IngestJob.objects.update(state="failed")
    assert api.patch("/jobs?collection=notes", QUEUED).json() == {"jobs": 1}
    assert make_api(collections=["other"]).patch("/jobs?collection=notes", CANCELLED).status_code == 403
    assert api.patch("/jobs?collection=notes", CANCELLED).json() == {"jobs": 1}
    for where in ("", f"?collection=notes&batch={IngestBatch.objects.get().pk}"):
        assert api.patch(f"/jobs{where}", CANCELLED).json()["error"]["field"] == "job"
    assert api.get(f"/jobs/{job}").json()["error"].startswith("cancelled by key ")


def test_a_job_tells_its_stages_and_how_many_are_ahead(api: Any, notes: Collection) -> None:
    first, second = upload(api, "a.txt"), upload(api, "b.txt")
    waiting = api.get(f"/jobs/{second[0]}").json()
    assert (waiting["ahead"], [stage["state"] for stage in waiting["stages"]]) == (1, ["waiting"] * 4)
    run_job(first[0])
    done = api.get(f"/jobs/{first[0]}").json()
    assert [(stage["stage"], stage["state"]) for stage in done["stages"]] == [
        (stage, "succeeded") for stage in ("parse", "chunk", "embed", "store")
    ]
    assert done["batch_id"] and api.get(f"/jobs/{second[0]}").json()["ahead"] == 0


def test_the_queue_tells_its_depth_and_refuses_with_retry_after(api: Any, notes: Collection, settings: Any) -> None:
    create_collection(name="other")
    settings.RAGD_QUEUE_MAX_JOBS = 2
    upload(api, "a.txt", "b.txt")
    queue = api.get("/queue").json()
    assert (queue["waiting"], queue["waiting_bytes"], queue["max_jobs"]) == (2, 18, 2)
    refused = api.upload("other", ("c.txt", b"some text"))
    assert (refused.status_code, refused.json()["error"]["type"], refused["Retry-After"]) == (429, "queue_full", "61")
    assert IngestJob.objects.count() == 2


__all__ = ["committed"]

KEY = {"Idempotency-Key": "one"}


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/collections", {"name": "a"}, Collection),
        ("/golden-sets", {"name": "trees", "collection": "notes"}, GoldenSet),
        ("/collections/notes/index-versions", {"embed_dims": 48}, IngestJob),
        ("/collections/notes/urls", {"urls": ["https://example.org/a"]}, IngestJob),
    ],
)
def test_the_same_request_is_carried_out_once(
    api: Any, notes: Collection, path: str, body: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "send", lambda *_, **__: None)  # no worker
    before = model.objects.count()
    first, again = (api.post(path, body, **KEY) for _ in range(2))
    assert first.status_code < 300 and (first.status_code, first.content) == (again.status_code, again.content)
    assert "Idempotency-Replayed" not in first and again["Idempotency-Replayed"] == "true"
    assert model.objects.count() == before + 1


def test_another_body_under_the_same_key_is_refused(api: Any, embeddings: OpenAIServer) -> None:
    api.post("/collections", {"name": "a"}, **KEY)
    response = api.post("/collections", {"name": "b"}, **KEY)
    assert (response.status_code, response.json()["error"]["type"]) == (422, "idempotency_key_reused")
    assert Collection.objects.count() == 1


def test_an_error_is_not_kept(api: Any, notes: Collection) -> None:
    assert api.post("/collections", {"name": "notes"}, **KEY).status_code == 409
    assert not IdempotencyRecord.objects.exists()


def test_keys_of_two_callers_do_not_meet(api: Any, make_api: Any, embeddings: OpenAIServer) -> None:
    api.post("/collections", {"name": "a"}, **KEY)
    assert make_api().post("/collections", {"name": "b"}, **KEY).status_code == 200


def test_a_request_that_still_runs_is_a_conflict_and_one_that_was_cut_off_is_not(
    committed: None, make_api: Any, embeddings: OpenAIServer
) -> None:
    api = make_api()
    api.post("/collections", {"name": "a"}, **KEY)
    IdempotencyRecord.objects.update(status=None)
    Collection.objects.all().update(name="b")
    with psycopg.connect(**connection_values()) as other:  # whoever carries the first one out
        other.execute("SELECT 1 FROM idempotency_records FOR UPDATE")
        response = api.post("/collections", {"name": "a"}, **KEY)
        assert (response.status_code, response.json()["error"]["type"]) == (409, "idempotency_key_in_use")
        assert IdempotencyRecord.objects.count() == 1
    assert api.post("/collections", {"name": "a"}, **KEY).status_code == 200
    assert api.post("/collections", {"name": "a"}, **KEY)["Idempotency-Replayed"] == "true"
    IdempotencyRecord.objects.all().delete()


def connection_values() -> dict[str, Any]:
    values = connection.settings_dict
    return {
        "host": values["HOST"], "port": values["PORT"], "dbname": values["NAME"], "user": values["USER"],
        "password": values["PASSWORD"],
    }  # fmt: skip


def test_an_unusable_key_is_422(api: Any, embeddings: OpenAIServer) -> None:
    for key in ("", "x" * 256):
        assert api.post("/collections", {"name": "a"}, **{"Idempotency-Key": key}).status_code == 422


def test_an_upload_is_queued_once(api: Any, notes: Collection) -> None:
    first = api.upload("notes", ("a.txt", b"some text"), **KEY)
    again = api.upload("notes", ("a.txt", b"some text"), **KEY)
    assert first.json() == again.json()
    assert IngestJob.objects.count() == 1
    assert api.upload("notes", ("a.txt", b"other text"), **KEY).status_code == 422
