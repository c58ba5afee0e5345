from __future__ import annotations

from typing import Any

from collections_app.collections.services import create_collection
from collections_app.models import Collection, IngestJob


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
