"""Documents over HTTP: written, listed, filtered, deleted.
Documents in many scripts: what language they are in, and answers that cite the right sentence."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from collections_app.collections.import_stage import import_collection
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.jobs.dispatch import run_job
from collections_app.models import Chunk, Collection, Document, IngestJob
from tests.api.conftest import Api
from tests.exports import export_to_file
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer

PATH = "/collections/notes/documents/guide.md"
CHUNKS = "/collections/notes/chunks?doc_id=guide.md"
GONE = {"documents": 1, "chunks": 1, "revisions": 0, "overlays": 0, "uploads": 0}
LONG = "\n\n".join(f"Paragraph {number} speaks of subject {number} with some more words." for number in range(60))


def chunks_of(doc_id: str) -> list[tuple[int, str]]:
    return list(Chunk.objects.filter(doc_id=doc_id).order_by("chunk_index").values_list("chunk_index", "content"))


def check_slices(doc_id: str) -> None:
    text = Document.objects.get(doc_id=doc_id).text
    for chunk in Chunk.objects.filter(doc_id=doc_id).light():
        assert text[chunk.start_char : chunk.end_char] == chunk.content


def test_ingest_answers_what_was_written(api: Any, notes: Collection) -> None:
    response = api.put(PATH, {"title": "Guide", "content": "Four words of text.", "tags": ["a"], "metadata": {"x": 1}})
    expected = {"chunks_written": 1, "tokens_estimated": 4, "unchanged": False, "revision": 1}
    assert (response.status_code, response.json()) == (200, expected)
    chunk = Chunk.objects.get()
    assert (chunk.content, chunk.tags, chunk.metadata, chunk.context) == (
        "Four words of text.",
        ["a"],
        {"x": 1},
        "Guide",
    )


@pytest.mark.fault("ID-01")
def test_a_decomposed_name_finds_the_composed_one(api: Any, notes: Collection) -> None:
    name = "테스트 é.md"
    decomposed = unicodedata.normalize("NFD", name)
    at = f"/collections/notes/documents/{quote(decomposed)}"
    for path in (at, f"/collections/notes/documents/{quote(name)}"):
        assert api.put(path, {"content": "Four words of text."}).status_code == 200
    assert [row.doc_id for row in Document.objects.all()] == [name]
    assert api.get(at).json()["doc_id"] == name
    listed = api.get(f"/collections/notes/documents?q={quote(decomposed)}").json()
    assert [row["doc_id"] for row in listed["items"]] == [name]
    assert api.get(f"/collections/notes/chunks?doc_id={quote(decomposed)}").json()["items"]
    assert api.delete(at).status_code == 200
    assert not Document.objects.exists()


def test_upsert_embeds_only_what_is_new(api: Any, notes: Collection, embeddings: OpenAIServer) -> None:
    body = {"content": LONG, "chunk_target_tokens": 40, "chunk_overlap_tokens": 0, "ingest_mode": "upsert"}
    total = api.put(PATH, body).json()["chunks_written"]
    embeddings.requests.clear()
    api.put(PATH, body | {"content": f"{LONG}\n\nAn ending that was not there before."})
    assert sum(len(request.body["input"]) for request in embeddings.requests) < total / 2
    embeddings.requests.clear()
    api.put(PATH, body | {"tags": ["new"]} | {"content": f"{LONG}\n\nAn ending that was not there before."})
    assert embeddings.requests == []
    assert {tuple(tags) for tags in Chunk.objects.values_list("tags", flat=True)} == {("new",)}
    check_slices("guide.md")


def test_segments_keep_their_times(api: Any, notes: Collection) -> None:
    segments = [
        {"text": "Hello and welcome.", "t_start": 0.0, "t_end": 2.5},
        {"text": "Today we speak of pumps.", "t_start": 2.5, "t_end": 6.0},
    ]
    answer = api.put("/collections/notes/documents/talk", {"content": segments}).json()
    assert (answer["chunks_written"], answer["tokens_estimated"]) == (1, 8)
    chunk = Chunk.objects.get()
    assert (chunk.metadata["t_start"], chunk.metadata["t_end"]) == (0.0, 6.0)
    got = api.get("/collections/notes/documents/talk").json()
    assert got["content"] == "Hello and welcome.\nToday we speak of pumps."
    assert got["segments"] == [[0, 18, 0.0, 2.5], [19, 43, 2.5, 6.0]]
    check_slices("talk")


@pytest.mark.parametrize("content", ["", "   \n\t", "\x00\x00", [], [{"text": " "}]])
def test_empty_content_is_400_and_keeps_what_was_there(api: Any, notes: Collection, content: Any) -> None:
    api.put(PATH, {"content": "first version"})
    response = api.put(PATH, {"content": content})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "empty_content")
    assert chunks_of("guide.md") == [(0, "first version")]


def test_nul_surrogates_and_line_ends_are_normalized(api: Any, notes: Collection) -> None:
    body = (
        '{"content": "a\\u0000b \\ud800 c\\r\\nd", "title": "t\\u0000\\ud800", '
        '"tags": ["x\\u0000y"], "metadata": {"k\\u0000": "v\\udfff"}}'
    )
    response = api.put(PATH, body)
    assert response.status_code == 200, response.json()
    document = Document.objects.get()
    assert (document.text, document.title) == ("ab \ufffd c\nd", "t")
    assert (document.tags, document.metadata) == (["x y"], {"k": "v\ufffd"})
    check_slices("guide.md")


def test_a_document_over_the_limit_is_413_and_names_the_setting(api: Any, notes: Collection, settings: Any) -> None:
    settings.RAGD_MAX_DOCUMENT_MB = 1
    response = api.put(PATH, {"content": "word " * 220_000})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["field"]) == (413, "too_large", "content")
    assert "RAGD_MAX_DOCUMENT_MB" in error["message"]
    assert not Document.objects.exists()


def test_a_wrong_field_is_422_and_named(api: Any, notes: Collection) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "content"),
        ({"content": 5}, "content"),
        ({"content": "x", "ingest_mode": "append"}, "ingest_mode"),
        ({"content": "x", "tags": "a"}, "tags"),
        ({"content": "x", "tags": [1]}, "tags.0"),
        ({"content": "x", "metadata": []}, "metadata"),
        ({"content": "x", "metadatas": {}}, "metadatas"),
        ({"content": "x", "chunk_target_tokens": 0}, "chunk_target_tokens"),
        ({"content": "x", "chunk_target_tokens": 10, "chunk_overlap_tokens": 10}, "chunk_overlap_tokens"),
        ({"content": "x", "chunk_max_chars": 100_000}, "chunk_max_chars"),
        ({"content": "x", "title": "t" * 501}, "title"),
        ({"content": "x", "tags": ["t" * 201]}, "tags"),
        ({"content": "x", "metadata": {"k": "v" * 70_000}}, "metadata"),
    ]
    for body, field in cases:
        response = api.put(PATH, body)
        assert (response.status_code, response.json()["error"].get("field", "").split(".")[0]) == (
            422,
            field.split(".")[0],
        )
        assert not Document.objects.exists()


@pytest.mark.parametrize("doc_id", ["a/b/c.md", "Übung 1.md", "a#b?c", "100%", "a//b", "x/chunks", "日本語", "a" * 512])
def test_ids_are_kept_exactly(api: Any, notes: Collection, doc_id: str) -> None:
    from urllib.parse import quote

    path = f"/collections/notes/documents/{quote(doc_id)}"
    assert api.put(path, {"content": "some text"}).status_code == 200
    assert Document.objects.get().doc_id == doc_id
    assert api.get(path).json()["doc_id"] == doc_id
    assert api.get(f"/collections/notes/chunks?doc_id={quote(doc_id)}").json()["items"][0]["doc_id"] == doc_id
    assert api.delete(path).json() == GONE


def test_a_failing_embedder_is_502_and_keeps_the_old_version(
    api: Any, notes: Collection, embeddings: OpenAIServer
) -> None:
    api.put(PATH, {"content": "the first version", "title": "One"})
    embeddings.script(failing(400))
    response = api.put(PATH, {"content": "the second version", "title": "Two"})
    assert response.status_code == 502
    assert response.json()["error"]["type"].startswith("embedder_failed_")
    document = Document.objects.get()
    assert (document.text, document.title, document.revision) == ("the first version", "One", 1)
    assert chunks_of("guide.md") == [(0, "the first version")]


def test_vectors_of_another_length_are_refused(api: Any, notes: Collection, embeddings: OpenAIServer) -> None:
    create_collection(name="other", embed_model="other", embed_dims=8)
    embeddings.dims = 16
    response = api.put("/collections/other/documents/a", {"content": "text"})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "dimension_mismatch")
    assert not Document.objects.exists() and not Chunk.objects.exists()


def test_get_shows_the_document(api: Any, notes: Collection) -> None:
    api.put(PATH, {"content": "some text", "title": "Guide", "tags": ["a"], "metadata": {"x": [1, None]}})
    got = api.get(PATH).json()
    assert (got["doc_id"], got["title"], got["tags"], got["metadata"]) == ("guide.md", "Guide", ["a"], {"x": [1, None]})
    assert (got["content"], got["chunk_count"], got["token_count"], got["revision"]) == ("some text", 1, 2, 1)
    assert (got["enabled"], got["source"], got["media_type"]) == (True, "api", "text/plain")
    missing = api.get("/collections/notes/documents/none")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "unknown_document")


def test_list_is_paged_and_filtered(api: Any, notes: Collection) -> None:
    for doc_id, tags in (("a", ["x"]), ("b", ["x", "y"]), ("c", [])):
        ingest_text(notes, doc_id, f"text of {doc_id}", title=f"Title {doc_id}", tags=tags)
    first = api.get("/collections/notes/documents?limit=2").json()
    assert [row["doc_id"] for row in first["items"]] == ["a", "b"]
    rest = api.get(f"/collections/notes/documents?limit=2&cursor={first['next_cursor']}").json()
    assert ([row["doc_id"] for row in rest["items"]], rest["next_cursor"]) == (["c"], None)
    assert [row["doc_id"] for row in api.get("/collections/notes/documents?tag=x&tag=y").json()["items"]] == ["b"]
    assert [row["doc_id"] for row in api.get("/collections/notes/documents?q=title+c").json()["items"]] == ["c"]
    assert api.get("/collections/notes/documents?q=nothing").json()["items"] == []
    assert "content" not in first["items"][0]


def test_chunks_are_listed_in_order_across_pages(api: Any, notes: Collection) -> None:
    total = api.put(PATH, {"content": LONG, "chunk_target_tokens": 40}).json()["chunks_written"]
    seen: list[int] = []
    cursor = ""
    while True:
        page = api.get(f"{CHUNKS}&limit=4{cursor}").json()
        seen += [chunk["chunk_index"] for chunk in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == list(range(total))
    text = Document.objects.get().text
    assert all(text[chunk["start"] : chunk["end"]] == chunk["content"] for chunk in page["items"])


def test_delete_removes_chunks_and_leaves_the_others(api: Any, notes: Collection) -> None:
    ingest_text(notes, "guide.md", "text of the guide")
    ingest_text(notes, "other", "text of the other")
    assert api.delete(PATH).json() == GONE
    assert list(Chunk.objects.values_list("doc_id", flat=True)) == ["other"]
    assert api.delete(PATH).status_code == 404


DATA = Path(__file__).parent.parent / "data"
# language -> (three sentences, a question, which of the sentences answers it)
TEXTS: dict[str, tuple[list[str], str, int]] = json.loads((DATA / "languages.json").read_text("utf-8"))


@pytest.mark.parametrize("language", TEXTS)
def test_the_answer_cites_the_right_sentence(api: Api, language: str) -> None:
    create_collection(name="notes")
    sentences, question, right = TEXTS[language]
    text = "".join(sentences)
    api.send("PUT", "/collections/notes/documents/a", {"content": text})
    document = api.get("/collections/notes/documents/a").json()
    assert document["language"] == language
    body = api.send("POST", "/collections/notes/ask", {"query": question, "mode": "lexical"}).json()
    assert body["sources"]
    quotes = [citation["quote"] for citation in body["citations"]]
    assert quotes, body["answer"]
    assert all(text[each["start"] : each["end"]] == each["quote"] for each in body["citations"])
    assert sentences[right].strip() in quotes
    assert text not in quotes


def test_a_stated_language_is_kept_until_it_is_taken_back(api: Api, notes: Collection) -> None:
    path = "/collections/notes/documents/a"

    def state() -> tuple[str, str]:
        found = api.get(path).json()
        return found["language"], found["language_stated"]

    text = "The keys are valid for ninety days and must be renewed after that."
    api.send("PUT", path, {"content": text, "language": "DE"})
    assert state() == ("de", "de")
    api.send("PUT", path, {"content": f"{text} Soon."})
    assert state() == ("de", "de")
    assert api.patch(path, {"language": ""}).status_code == 200
    assert state() == ("en", "")
    chunks = api.get("/collections/notes/chunks").json()["items"]
    assert {chunk["attributes"]["language"] for chunk in chunks} == {"en"}
    refused = api.patch(path, {"language": "german"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "language")
    assert state() == ("en", "")


def test_documents_are_filtered_and_counted_by_language(api: Api, notes: Collection) -> None:
    for doc_id, text in (("zh", TEXTS["zh"][0][0]), ("th", TEXTS["th"][0][0]), ("none", "1 2 3 4")):
        api.send("PUT", f"/collections/notes/documents/{doc_id}", {"content": text})
    for language, expected in (("zh", ["zh"]), ("unknown", ["none"]), ("", ["none", "th", "zh"]), ("xx", [])):
        page = api.get(f"/collections/notes/documents?language={language}").json()
        assert [item["doc_id"] for item in page["items"]] == expected
    facets = api.get("/collections/notes/documents?facets=true").json()["facets"]["languages"]
    assert {facet["value"]: facet["count"] for facet in facets} == {"zh": 1, "th": 1, "unknown": 1}


def test_new_collections_go_by_document_and_named_languages_stay(api: Api) -> None:
    for values in ({"name": "open"}, {"name": "named", "language": "german"}):
        assert api.send("POST", "/collections", values).status_code == 200
    made, named = (api.get(f"/collections/{name}").json() for name in ("open", "named"))
    assert (made["language"], named["language"]) == ("auto", "german")
    refused = api.send("POST", "/collections", {"name": "wrong", "language": "klingon"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "language")
    assert not Document.objects.filter(collection__name="wrong").exists()


def test_an_upload_states_the_language(api: Api, notes: Collection) -> None:
    answer = api.upload("notes", ("a.txt", b"The keys are valid for ninety days."), fields={"language": "fr"})
    assert answer.status_code == 202
    assert IngestJob.objects.get(doc_id="a.txt").origin.language == "fr"


def test_a_preview_compares_the_language_and_a_repeated_key_tells_it_apart(api: Api, notes: Collection) -> None:
    content = b"The keys are valid for ninety days."

    def plans(**fields: str) -> list[str]:
        offered = {"name": "a.txt", "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        asked = api.post("/collections/notes/uploads/plan", {"entries": [offered], **fields}).json()["items"]
        shown = api.upload("notes", ("a.txt", content), fields=fields | {"dry_run": "true"}).json()["items"]
        return [item["status"] for item in (*asked, *shown)]

    assert api.upload("notes", ("a.txt", content), fields={"language": "fr"}).status_code == 202
    assert plans(language="fr") == ["unchanged", "unchanged"]
    assert plans(language="de") == ["changed", "changed"]
    assert plans(language="") == ["changed", "changed"]
    (job,) = IngestJob.objects.all()
    assert run_job(job.pk) == "succeeded"
    assert plans(language="de") == ["changed", "changed"]
    assert plans() == ["unchanged", "unchanged"]
    headers = {"Idempotency-Key": "once"}
    first = api.upload("notes", ("b.txt", content), fields={"language": "fr"}, **headers)
    second = api.upload("notes", ("b.txt", content), fields={"language": "de"}, **headers)
    assert (first.status_code, second.status_code) == (202, 422)


def test_a_language_is_stated_for_many_and_taken_back(api: Api, notes: Collection) -> None:
    for doc_id in ("a", "b", "gone"):
        api.put(f"/collections/notes/documents/{doc_id}", {"content": "The keys are valid for ninety days."})
    api.patch("/collections/notes/documents/gone", {"state": "archived"})
    change = {"action": "set_language", "language": "DE", "doc_ids": ["a", "b", "gone", "none"]}
    results = api.post("/collections/notes/documents-bulk", change).json()["results"]
    assert [item["status"] for item in results] == ["changed", "changed", "refused", "unknown"]

    def stated() -> list[tuple[str, str]]:
        return list(Document.objects.order_by("doc_id").values_list("language", "language_stated"))

    assert stated() == [("de", "de"), ("de", "de"), ("en", "")]
    assert api.post("/collections/notes/documents-bulk", change).json()["counts"]["unchanged"] == 2
    api.post("/collections/notes/documents-bulk", {"action": "set_language", "doc_ids": ["a"]})
    assert stated() == [("en", ""), ("de", "de"), ("en", "")]
    wrong = api.post("/collections/notes/documents-bulk", change | {"language": "german"})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "language")


def test_an_export_carries_the_language(committed: None, api: Api, notes: Collection, tmp_path: Path) -> None:
    api.put("/collections/notes/documents/a", {"content": TEXTS["el"][0][1], "language": "fr"})
    export_to_file(notes, tmp_path / "notes.zip")
    import_collection(tmp_path / "notes.zip", name="copy")
    document = Document.objects.get(collection__name="copy", doc_id="a")
    assert (document.language, document.language_stated) == ("fr", "fr")
    query = {"query": "κλειδί", "mode": "lexical"}
    found = [api.post(f"/collections/{name}/search", query).json()["results"] for name in ("notes", "copy")]
    assert found[0]
    assert [item["score"] for item in found[0]] == [item["score"] for item in found[1]]
