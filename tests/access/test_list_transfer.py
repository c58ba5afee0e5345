"""Access lists travel with an export by name; where nobody is called so, nobody but administrators reads."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from uuid import UUID

import pytest

from collections_app.access.document_access import OPEN, lists_of
from collections_app.access.permissions import Role, group_principal, thread_principal
from collections_app.collections.import_stage import import_collection
from collections_app.collections.services import update_collection
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.models import Collection
from tests.access.marsh import WORD, People, make_people
from tests.exports import export_to_file

pytestmark = pytest.mark.django_db(transaction=True)
THREAD = UUID(int=7)


@pytest.fixture
def people() -> People:
    made = make_people()
    update_collection(made.collection, changes={"access_from": "acl"})
    made.collection.refresh_from_db()
    lists = {"ranger": (0, group_principal(made.rangers.pk)), "root": (0,), "open": OPEN}
    for doc_id, codes in lists.items():
        ingest_text(made.collection, doc_id, f"{WORD} {doc_id}", access=codes)
    ingest_text(made.collection, "said", WORD, metadata={"acl": "ada"})
    ingest_text(made.collection, "gone", WORD, access=lists["root"])
    delete_documents(made.collection, ["gone"])
    return made


def codes(collection: Collection) -> dict[str, tuple[int, ...]]:
    names = ["ranger", "root", "open", "said", "gone"]
    return {doc_id: listed.codes for doc_id, listed in lists_of(collection, names).items()}


def test_lists_come_back_by_name_before_anything_is_shown(people: People, tmp_path: Path) -> None:
    file = tmp_path / "marsh.ragd.zip"
    ingest_text(people.collection, f"thread-{THREAD}/a.txt", "halcyon", access=(thread_principal(THREAD),))
    export_to_file(people.collection, file)
    with zipfile.ZipFile(file) as archive:
        assert not any(
            b"thread-" in archive.read(name) or b"halcyon" in archive.read(name) for name in archive.namelist()
        )
        assert b'"access"' not in archive.read("documents.jsonl") + archive.read("chunks.jsonl")
        rows = {row["doc_id"]: row for row in map(json.loads, archive.read("document_access.jsonl").splitlines())}
    assert set(rows) == {"ranger", "root", "said", "gone"}
    assert (rows["ranger"]["groups"], rows["said"]["users"], rows["said"]["origin"]) == (
        ["rangers"],
        ["ada"],
        "metadata",
    )
    report = import_collection(file, name="second")
    second = Collection.objects.get(name="second")
    assert report["warnings"] == [] and report["counts"]["document_access"] == 4
    assert (codes(second), second.access_from) == (codes(people.collection), "acl")
    Collection.objects.filter(pk=second.pk).update(open_role=Role.ASKER)
    second.refresh_from_db()
    moved = People(second, people.ada, people.bob, people.cara, people.rangers)
    assert (moved.documents("ada"), moved.documents("bob")) == ({"open", "said"}, {"open", "ranger"})


def test_names_of_nobody_let_nobody_in_and_are_told(people: People, tmp_path: Path) -> None:
    file = tmp_path / "marsh.ragd.zip"
    export_to_file(people.collection, file)
    people.rangers.name = "wardens"
    people.rangers.save()
    report = import_collection(file, name="second")
    second = Collection.objects.get(name="second")
    assert [("rangers" in warning, "1 documents" in warning) for warning in report["warnings"]] == [(True, True)]
    listed = lists_of(second, ["ranger"])["ranger"]
    assert (listed.codes, listed.unknown, listed.origin) == ((0,), ("rangers",), "import")
