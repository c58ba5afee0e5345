"""Documents in many scripts: what language they are in, and answers that cite the right sentence."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from collections_app.collections.import_stage import import_collection
from collections_app.collections.services import create_collection
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestJob
from tests.api.conftest import Api
from tests.exports import export_to_file

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
