"""Revisions, edits and bulk changes over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from collections_app.documents.edits import edit_document
from collections_app.documents.revisions import services
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.models import Collection, Document

DOC = "guides/a b.md"
SMALL = {"target_tokens": 8, "overlap_tokens": 0}
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


def flat(number: int | None = None, what: str = "", **query: Any) -> str:
    place = "" if number is None else f"/{number}" + (f"/{what}" if what else "")
    asked = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/collections/notes/revisions{place}?doc_id={quote(DOC, safe='')}{asked}"


def chunks(number: int, **query: Any) -> str:
    return flat(revision=number, **query).replace("revisions", "chunks", 1)


@pytest.fixture
def revised(notes: Collection) -> Collection:
    notes.chunk_policy = SMALL
    notes.save()
    ingest_text(notes, DOC, WORDS, title="First", tags=["x"])
    ingest_text(notes, DOC, WORDS.replace("ten", "TEN") + " seventeen", title="First", tags=["y"])
    return notes


def test_revisions_are_listed_newest_first(api: Any, revised: Collection) -> None:
    items = api.get(flat()).json()["items"]
    found = [(item["revision"], item["present"], item["tags"], item["reason"]) for item in items]
    assert found == [(2, True, ["y"], ""), (1, False, ["x"], "text")]
    assert items[1]["replaced_by"] == "the system"
    assert items[0]["replaced_at"] is None


def test_a_revision_gives_its_text_and_chunks(api: Any, revised: Collection) -> None:
    found = api.get(flat(1)).json()
    assert (found["content"], found["title"], found["present"]) == (WORDS, "First", False)
    page = api.get(chunks(1, limit=1)).json()
    assert [item["content"] for item in page["items"]] == ["one two three four five six seven eight"]
    assert page["next_cursor"]
    assert api.get(flat(2)).json()["content"].endswith("seventeen")
    missing = api.get(flat(7))
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "unknown_revision")


@pytest.mark.parametrize(("name", "kind"), [("revision_maps", "unknown_document"), ("any_revision", "gone")])
def test_what_goes_while_a_revision_is_read_is_not_there(
    api: Any, revised: Collection, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    read = getattr(services, name)

    def delete_first(document: Document, number: int) -> Any:
        delete_documents(revised, [DOC])
        if kind == "gone":
            document.refresh_from_db()  # as any query does whose row went
        return read(document, number)

    monkeypatch.setattr(services, name, delete_first)
    answer = api.get(flat(1))
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, kind)


def test_chunks_are_paged_to_their_end(api: Any, revised: Collection) -> None:
    first = api.get(chunks(1, limit=1)).json()
    rest = api.get(chunks(1, limit=1, cursor=first["next_cursor"])).json()
    assert [item["chunk_index"] for item in first["items"] + rest["items"]] == [0, 1]
    assert rest["next_cursor"] is None
    assert api.get(chunks(1, cursor="nonsense")).status_code == 422
    assert api.get(chunks(1, limit=0)).status_code == 422


def test_a_difference_marks_words_and_folds_what_is_equal(api: Any, revised: Collection) -> None:
    for address in (flat(1, "diff"), flat(1, "diff", **{"with": 2})):
        found = api.get(address).json()
        assert (found["before"], found["after"]) == (1, 2)
        assert found["counts"] == {"same": 1, "changed": 1, "added": 1, "removed": 0}
        assert found["fields"] == [{"name": "tags", "before": ["x"], "after": ["y"]}]
        changes = [(change["kind"], change["count"]) for change in found["changes"]]
        assert changes == [("same", 1), ("changed", 1), ("added", 1)]
        marked = [(part["kind"], part["text"]) for part in found["changes"][1]["parts"]]
        assert ("removed", "ten ") in marked
        assert ("added", "TEN ") in marked
    assert api.get(flat(2, "diff", **{"with": 1})).json()["counts"]["removed"] == 1


def test_a_rollback_answers_the_new_revision(api: Any, revised: Collection) -> None:
    path = f"/collections/notes/documents/{quote(DOC)}"
    restored = api.patch(path, {"restore_revision": 1}).json()
    assert (restored["revision"], restored["chunk_count"], restored["tags"]) == (3, 2, ["x"])
    assert api.patch(path, {"restore_revision": 2}).json()["revision"] == 4
    assert api.patch(path, {"restore_revision": 1, "tags": ["q"]}).json()["error"]["field"] == "restore_revision"
    edit_document(revised, DOC, {"state": "archived"})
    refused = api.patch(path, {"restore_revision": 1})
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "archived")


@pytest.mark.parametrize("doc_id", ["a/revisions", "a/revisions/3", "a/revisions/3/diff", "bulk", "a/chunks"])
def test_ids_that_end_like_an_address_keep_their_methods(api: Any, notes: Collection, doc_id: str) -> None:
    path = f"/collections/notes/documents/{doc_id}"
    assert api.put(path, {"content": "some text"}).status_code == 200
    assert Document.objects.get().doc_id == doc_id
    assert api.patch(path, {"tags": ["x"]}).json()["tags"] == ["x"]
    assert len(api.get(f"/collections/notes/revisions?doc_id={quote(doc_id)}").json()["items"]) == 2
    assert api.get(path).json()["doc_id"] == doc_id
    assert api.delete(path).json()["revisions"] == 1


def test_a_document_is_edited(api: Any, revised: Collection) -> None:
    path = f"/collections/notes/documents/{quote(DOC)}"
    found = api.patch(path, {"tags": ["z"], "metadata": {"k": 1}, "expected_revision": 2}).json()
    assert (found["tags"], found["metadata"], found["revision"], found["title"]) == (["z"], {"k": 1}, 3, "First")
    found = api.patch(path, {"chunk_policy": {"target_tokens": 4, "overlap_tokens": 0}}).json()
    assert (found["chunk_count"], found["chunk_policy_stated"]["target_tokens"]) == (5, 4)
    assert api.patch(path, {"chunk_policy": {}}).json()["chunk_policy_stated"] == {}
    assert api.patch(path, {"state": "archived"}).json()["state"] == "archived"
    for body, status in (
        ({"tags": ["q"]}, 409),
        ({"state": "enabled", "expected_revision": 1}, 409),
        ({"text": "x"}, 422),
        ({"tags": "x"}, 422),
        ({"state": "gone"}, 422),
    ):
        assert api.patch(path, body).status_code == status, body
    assert api.put(path, {"content": "text"}).status_code == 409
    found = api.patch(path, {"state": "enabled"}).json()
    assert (found["state"], found["enabled"]) == ("enabled", True)


def test_many_are_changed_by_ids_and_by_filter(api: Any, notes: Collection) -> None:
    for number in range(4):
        ingest_text(notes, f"d{number}", f"text {number}", tags=[f"t{number % 2}"])
    bulk = "/collections/notes/documents-bulk"
    answer = api.post(bulk, {"action": "add_tags", "tags": ["new"], "doc_ids": ["d0", "none"]}).json()
    assert answer["counts"] == {"changed": 1, "unknown": 1}
    assert answer["results"][1]["error"]["type"] == "unknown_document"
    wanted = {"action": "archive", "filter": {"tags": ["t1"]}}
    assert api.post(bulk, wanted | {"dry_run": True}).json()["counts"] == {"meant": 2}
    assert api.post(bulk, wanted | {"expected": 3}).status_code == 409
    assert api.post(bulk, wanted | {"expected": 2}).json()["counts"] == {"changed": 2}
    listed = [item["doc_id"] for item in api.get("/collections/notes/documents?state=archived").json()["items"]]
    assert listed == ["d1", "d3"]
    assert len(api.get("/collections/notes/documents").json()["items"]) == 4
    facets = api.get("/collections/notes/documents?state=present&facets=true").json()["facets"]
    assert facets["states"][3] == {"value": "archived", "count": 2}
    assert facets["tags"] == [{"value": "t0", "count": 2}, {"value": "new", "count": 1}]
    where = {"field": "tags", "op": "eq", "value": "new"}
    named = {"action": "enable", "dry_run": True, "filter": {"where": where}}
    assert api.post(bulk, named).json()["results"][0]["doc_id"] == "d0"
    assert api.post(bulk, named | {"filter": {"where": where | {"field": "page"}}}).status_code == 422
    found = api.get("/collections/notes/documents?filter=tags = new&facets=true").json()
    assert [item["doc_id"] for item in found["items"]] == ["d0"] and found["facets"]["states"][0]["count"] == 1
    for wrong in ("tags =", "page = 3"):
        refused = api.get(f"/collections/notes/documents?filter={wrong}")
        assert (refused.status_code, refused.json()["error"]["field"]) == (422, "filter")
    answer = api.post(bulk, {"action": "delete", "filter": {"state": "any"}}).json()
    assert (answer["counts"], answer["removed"]["chunks"]) == ({"deleted": 4}, 4)
    for body in (
        {"action": "delete"},
        {"action": "delete", "filter": {}, "doc_ids": []},
        {"action": "add_tags", "doc_ids": ["d0"]},
        {"action": "set_metadata", "doc_ids": ["d0"]},
        {"action": "paint", "doc_ids": ["d0"]},
        {"action": "delete", "filter": {"state": "odd"}},
    ):
        assert api.post(bulk, body).status_code == 422, body


def test_results_and_sources_name_the_revision(api: Any, revised: Collection) -> None:
    found = api.post("/collections/notes/search", {"query": "seventeen", "mode": "lexical"}).json()
    assert {result["revision"] for result in found["results"]} == {2}
    asked = api.post("/collections/notes/ask", {"query": "What comes after sixteen?"}).json()
    assert {source["revision"] for source in asked["sources"]} == {2}
    run = api.get(f"/runs/{asked['run_id']}").json()
    assert {result["revision"] for result in run["results"]} == {2}
