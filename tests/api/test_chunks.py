"""Single chunks over HTTP: changed, added, undone, compared, and previewed under another policy.
Revisions, edits and bulk changes over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from collections_app.documents.edits import edit_document
from collections_app.documents.revisions import services
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.models import Chunk, Collection, Document
from tests.api.conftest import Api

SMALL = {"target_tokens": 6, "overlap_tokens": 0}
LINES = ["Sentence one is about birds.", "Sentence two is about rivers.", "Sentence three is about stones."]
TEXT = "\n\n".join(LINES)
AT = "/collections/notes/chunks"


@pytest.fixture
def house(api: Api, notes: Any) -> Api:
    """docs/a.md in three chunks, b.md in one."""
    fields = {f"chunk_{name}": value for name, value in SMALL.items()}
    assert api.put("/collections/notes/documents/docs/a.md", {"content": TEXT} | fields).status_code == 200
    api.put("/collections/notes/documents/b.md", {"content": "Rivers and birds."})
    return api


def contents(api: Api) -> list[str]:
    items = api.get("/collections/notes/chunks?doc_id=docs/a.md").json()["items"]
    return [item["content"] for item in items]


def test_a_chunk_is_edited_and_the_edit_undone(house: Api) -> None:
    answer = house.patch(f"{AT}/1/docs/a.md", {"content": "Rivers run to the sea.", "revision": 1})
    assert answer.status_code == 200, answer.content
    said = answer.json()
    assert (said["chunk_index"], said["revision"], said["changed"]) == (1, 2, True)
    chunk = house.get(f"{AT}/1/docs/a.md").json()
    assert (chunk["content"], chunk["overlay"]) == ("Rivers run to the sea.", "edit")
    assert (chunk["start"], chunk["end"]) == (TEXT.index(LINES[1]), TEXT.index(LINES[1]) + len(LINES[1]))
    (overlay,) = house.get("/collections/notes/overlays?doc_id=docs/a.md").json()["items"]
    assert (overlay["kind"], overlay["anchor_text"], overlay["applies"]) == ("edit", LINES[1], True)
    undone = house.delete(f"/collections/notes/overlays/{overlay['id']}")
    assert undone.json()["overlay_id"] is None
    assert contents(house) == LINES


def test_a_chunk_is_kept_out_of_results(house: Api) -> None:
    found = {"query": "stones", "mode": "lexical"}
    assert len(house.post("/collections/notes/search", found).json()["results"]) == 1
    assert house.patch(f"{AT}/2/docs/a.md", {"enabled": False}).status_code == 200
    assert house.post("/collections/notes/search", found).json()["results"] == []
    chunk = house.get(f"{AT}/2/docs/a.md").json()
    assert (chunk["enabled"], chunk["switched_off"]) == (False, True)


def test_what_is_refused(house: Api) -> None:
    cases: list[tuple[str, str, Any, int, str]] = [
        ("PATCH", f"{AT}/9/docs/a.md", {"content": "x"}, 404, "has the chunks 0 to 2, not 9"),
        ("PATCH", f"{AT}/0/nothing", {"content": "x"}, 404, "has no document"),
        ("PATCH", f"{AT}/0/docs/a.md", {}, 422, "either content or enabled"),
        ("PATCH", f"{AT}/0/docs/a.md", {"content": "x", "enabled": True}, 422, "either content or enabled"),
        ("PATCH", f"{AT}/0/docs/a.md", {"content": " "}, 400, "must have some text"),
        ("PATCH", f"{AT}/0/docs/a.md", {"content": "x", "revision": 9}, 409, "Reload it, then save again."),
        ("PATCH", f"{AT}/0/docs/a.md", {"text": "x"}, 422, "text"),
        ("DELETE", "/collections/notes/overlays/99", None, 404, "has no change 99"),
        ("GET", "/collections/notes/chunks/9/docs/a.md?neighbours=1", None, 404, "has no chunk 9"),
        ("GET", f"{AT}/9/docs/a.md", None, 404, "has no chunk 9"),
        ("POST", "/collections/notes/chunk-preview", {}, 422, "either doc_id"),
        ("POST", "/collections/notes/chunk-preview", {"content": " "}, 400, "has no text"),
    ]
    for method, path, body, status, says in cases:
        answer = house.send(method, path, body)
        assert answer.status_code == status, answer.content
        assert says in answer.json()["error"]["message"]
        assert contents(house) == LINES


def test_neighbours_are_nearest_first_without_the_chunk_itself(house: Api) -> None:
    items = house.get(f"{AT}/1/docs/a.md?neighbours=8").json()["neighbours"]
    assert [item["rank"] for item in items] == [1, 2, 3]
    assert ("docs/a.md", 1) not in {(item["doc_id"], item["chunk_index"]) for item in items}
    scores = [item["score"] for item in items]
    assert scores == sorted(scores, reverse=True)
    others = house.get(f"{AT}/1/docs/a.md?neighbours=8&other_documents=true").json()["neighbours"]
    assert [(item["doc_id"], item["rank"], item["same_document"]) for item in others] == [("b.md", 1, False)]
    house.patch(f"{AT}/0/docs/a.md", {"enabled": False})
    items = house.get(f"{AT}/1/docs/a.md?neighbours=8").json()["neighbours"]
    assert 0 not in {item["chunk_index"] for item in items if item["doc_id"] == "docs/a.md"}


def test_a_preview_tells_what_a_policy_would_make_and_writes_nothing(house: Api) -> None:
    before = (list(Chunk.objects.values()), list(Document.objects.values()))
    body = {"doc_id": "docs/a.md", "policy": {"target_tokens": 12, "overlap_tokens": 0}}
    said = house.post("/collections/notes/chunk-preview", body).json()
    assert (said["now"]["count"], said["then"]["count"], said["equal"]) == (3, 2, 1)
    assert [(item["start"], item["end"]) for item in said["chunks"]] == [
        (0, TEXT.index(LINES[2]) - 2),
        (TEXT.index(LINES[2]), len(TEXT)),
    ]
    assert [item["kept"] for item in said["chunks"]] == [False, True]
    assert (sum(said["histogram"]["now"]), sum(said["histogram"]["then"])) == (3, 2)
    assert (list(Chunk.objects.values()), list(Document.objects.values())) == before


def test_a_preview_of_a_text_and_of_a_file(house: Api) -> None:
    said = house.post("/collections/notes/chunk-preview", {"content": TEXT, "policy": SMALL, "limit": 1}).json()
    assert (said["now"]["count"], said["then"]["count"], len(said["chunks"])) == (1, 3, 1)
    segments = [{"text": line, "t_start": float(place)} for place, line in enumerate(LINES)]
    said = house.post("/collections/notes/chunk-preview", {"content": segments, "policy": SMALL}).json()
    assert said["then"]["count"] == 3
    answer = house.client.post(
        "/v1/collections/notes/chunk-preview/file",
        {"file": SimpleUploadedFile("a.md", f"# Title\n\n{TEXT}".encode()), "target_tokens": 6, "overlap_tokens": 0},
        headers={"Authorization": f"Bearer {house.secret}"},
    )
    assert answer.status_code == 200, answer.content
    assert [item["headings"] for item in answer.json()["chunks"]][-1] == ["Title"]


def test_a_chunk_and_a_document_tell_the_runs_that_retrieved_them(house: Api) -> None:
    house.post("/collections/notes/search", {"query": "rivers", "mode": "lexical"})
    house.post("/collections/notes/search", {"query": "stones", "mode": "lexical"})
    of_chunk = house.get("/collections/notes/retrieved?doc_id=docs/a.md&chunk_index=1").json()
    assert (of_chunk["runs"], [item["query"] for item in of_chunk["items"]]) == (1, ["rivers"])
    of_document = house.get("/collections/notes/retrieved?doc_id=docs/a.md&limit=1").json()
    assert (of_document["runs"], [item["query"] for item in of_document["items"]]) == (2, ["stones"])
    every = house.get("/collections/notes/retrieved").json()["items"]
    assert [(item["doc_id"], item["runs"]) for item in every] == [("docs/a.md", 2), ("b.md", 1)]
    assert house.get("/collections/notes/retrieved?doc_id=docs/a.md&chunk_index=9").status_code == 404
    assert house.get("/collections/notes/retrieved?doc_id=none").status_code == 404


def test_outliers_are_listed_after_near_duplicates_were_looked_for(house: Api) -> None:
    house.put("/collections/notes/documents/c.md", {"content": "Rivers, and birds!"})
    assert house.get("/collections/notes/outliers").json()["scan"] is None
    assert house.post("/collections/notes/outliers/scan", {}).json()["findings"] == 1
    said = house.get("/collections/notes/outliers?flag=duplicate").json()
    assert said["by_flag"]["duplicate"] == 1
    assert [(item["doc_id"], item["like"]) for item in said["items"]] == [
        ("c.md", {"doc_id": "b.md", "chunk_index": 0, "share": 1.0})
    ]
    assert house.get("/collections/notes/outliers?flag=ugly").status_code == 422


def test_neighbours_in_other_documents_are_found_behind_many_of_its_own(api: Any, notes: Collection) -> None:
    words = " ".join(f"equal words number {n}" for n in range(60))
    api.put("/collections/notes/documents/big", {"content": words, "chunk_target_tokens": 4})
    api.put("/collections/notes/documents/small", {"content": "Something quite different."})
    near = api.get(f"{AT}/0/big?other_documents=true&neighbours=1").json()["neighbours"]
    assert [(each["doc_id"], each["rank"]) for each in near] == [("small", 1)]
    own = api.get(f"{AT}/0/big?neighbours=3").json()["neighbours"]
    assert [each["doc_id"] for each in own] == ["big"] * 3
    assert api.get("/collections/notes/documents/big").json()["chunk_count"] > 20


def test_a_chunk_is_added_and_attached_elsewhere(house: Api) -> None:
    added = house.post(AT, {"doc_id": "docs/a.md", "content": "A note.", "after": 0})
    assert added.status_code == 201, added.content
    assert added.json()["chunk_index"] == 1
    assert contents(house) == [LINES[0], "A note.", *LINES[1:]]
    moved = house.patch(f"/collections/notes/overlays/{added.json()['overlay_id']}", {"chunk_index": 3})
    assert moved.json()["chunk_index"] == 3
    assert contents(house) == [*LINES, "A note."]


def test_a_preview_says_which_changes_would_wait(house: Api) -> None:
    house.patch(f"{AT}/1/docs/a.md", {"content": "Rivers run to the sea."})
    body = {"doc_id": "docs/a.md", "policy": {"target_tokens": 100, "overlap_tokens": 0}}
    assert house.post("/collections/notes/chunk-preview", body).json()["waiting_overlays"] == 1
    body["policy"] = SMALL
    said = house.post("/collections/notes/chunk-preview", body).json()
    assert (said["waiting_overlays"], said["equal"], said["chunks"][1]["overlay"]) == (0, 3, "edit")


DOC = "guides/a b.md"
SMALL_REVISIONS = {"target_tokens": 8, "overlap_tokens": 0}
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


def flat(number: int | None = None, what: str = "", **query: Any) -> str:
    place = "" if number is None else f"/{number}" + (f"/{what}" if what else "")
    asked = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/collections/notes/revisions{place}?doc_id={quote(DOC, safe='')}{asked}"


def chunks(number: int, **query: Any) -> str:
    return flat(revision=number, **query).replace("revisions", "chunks", 1)


@pytest.fixture
def revised(notes: Collection) -> Collection:
    notes.chunk_policy = SMALL_REVISIONS
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
    named = {"action": "add_tags", "tags": ["newer"], "doc_ids": ["d0", "none", "d0"]}
    told = api.post(bulk, named | {"dry_run": True, "expected": 1}).json()
    assert (told["counts"], told["results"][1]) == ({"meant": 1, "unknown": 1}, answer["results"][1])
    for way in ({}, {"dry_run": True}):
        refused = api.post(bulk, named | {"expected": 2} | way)
        assert (refused.status_code, refused.json()["error"]["field"]) == (409, "expected")
    assert api.get("/collections/notes/documents/d0").json()["tags"] == ["t0", "new"]
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
