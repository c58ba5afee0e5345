"""Who may write in a collection changes no document that an access list keeps from them, also by naming it."""

from __future__ import annotations

from django.core.files.uploadedfile import SimpleUploadedFile

from collections_app.documents.files import store_upload
from collections_app.models import Collection, Document, Upload
from tests.access.house import House


def test_a_curator_cannot_change_a_hidden_document_by_its_name(house: House) -> None:
    client, base = house.client("curator"), "/collections/nature/"
    before = Document.objects.values().get(doc_id="secret.md")
    answers = [
        client.post(f"{base}upload/?view=text", {"doc_id": "secret.md", "content": "overwritten"}),
        client.post(f"{base}upload/", {"uploads": [SimpleUploadedFile("secret.md", b"overwritten")]}),
        client.post(f"{base}documents/secret.md/?view=edit", {"title": "x", "expected_revision": "1"}),
        client.post(f"{base}chunks/0/secret.md/?view=change", {"action": "edit", "content": "x", "revision": "1"}),
        client.post(f"{base}documents/secret.md/?view=rollback&number=1"),
        *(
            client.post(f"{base}?view=change", {"action": action, "confirmed": "on", "doc_id": "secret.md"})
            for action in ("delete", "archive", "disable", "reindex")
        ),
    ]
    assert all(answer.status_code < 500 for answer in answers), [answer.status_code for answer in answers]
    assert all(house.hidden not in answer.content.decode() for answer in answers)
    assert Document.objects.values().get(doc_id="secret.md") == before
    assert not Upload.objects.filter(doc_id="secret.md").exists()


def test_the_original_of_a_hidden_document_is_there_for_its_readers_alone(house: House) -> None:
    collection = house.own.collection
    words = f"{house.hidden} in the file".encode()
    for doc_id in ("secret.md", f"{house.own.word}.md"):
        upload = store_upload(collection, doc_id, doc_id, words)
        Document.objects.filter(collection=collection, doc_id=doc_id).update(source_hash=upload.sha256)
    for name, status in {"administrator": 200, "curator": 404, "viewer": 404, "nobody": 404}.items():
        answer = house.client(name).get("/collections/nature/original/secret.md/")
        assert answer.status_code == status, name
        if status != 200:
            assert house.hidden not in answer.content.decode()
    assert (
        house.hidden in b"".join(house.client("administrator").get("/collections/nature/original/secret.md/")).decode()
    )
    assert house.client("viewer").get(f"/collections/nature/original/{house.own.word}.md/").status_code == 200
    replaced = house.client("curator").post(
        "/collections/nature/documents/secret.md/?view=new-version",
        {"file": SimpleUploadedFile("x.md", b"overwritten")},
    )
    assert replaced.status_code == 404


def test_the_administrator_of_a_collection_deletes_it(house: House) -> None:
    client = house.client("administrator")
    answer = client.post("/collections/nature/settings/?view=delete", {"typed_name": "nature"}, follow=True)
    assert answer.redirect_chain == [("/collections/", 302)] and answer.status_code == 200
    assert not Collection.objects.live().filter(pk=house.own.collection.pk).exists()
    assert Document.objects.filter(collection_id=house.foreign.collection.pk).count() == 2
