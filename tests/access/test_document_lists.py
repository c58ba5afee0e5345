"""Access lists of documents: stated with uploads, texts and sources, by metadata, by hand; kept, changed, inherited."""

from __future__ import annotations

import io
import json
import zipfile
from email.message import EmailMessage
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import SYSTEM, Access, using_access
from collections_app.access.document_access import (
    OPEN,
    StatedAccess,
    change_readers,
    lists_of,
    parse_access,
    read_access,
    readers_of,
    resolve,
    set_access,
    widen,
)
from collections_app.access.permissions import Role, group_principal, user_principal
from collections_app.collections.services import update_collection
from collections_app.documents.bulk_changes import BulkChange, DocumentFilter, change_documents, count_facets
from collections_app.documents.edits import edit_document
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.errors import ServiceError
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import Chunk, Document, FetchedSource, IngestJob, RoleGrant, Upload
from collections_app.sources.source_jobs import UrlEntry, submit_urls
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.plan import Entry, plan_uploads
from collections_app.uploads.services import HeldFile, submit_uploads
from ragd.errors import InvalidInput
from ragd.insight.chunk_map import find_axes
from retrieval_app.models import QueryRun
from tests.access.marsh import WORD, People, run_all
from tests.refusals import raises_with
from tests.stated import split
from tests.web.pages import texts

pytestmark = pytest.mark.django_db


def rangers_only(people: People) -> tuple[int, ...]:
    return (0, group_principal(people.rangers.pk))


def send(people: People, name: str, text: str = f"the {WORD} lies behind the reed", **values: Any) -> Any:
    content = text if isinstance(text, bytes) else text.encode()
    options, others = split(values)
    return submit_uploads(people.collection, [HeldFile(name, content)], options, **others)[0]


def codes(people: People, doc_id: str) -> tuple[int, ...]:
    listed = lists_of(people.collection, [doc_id]).get(doc_id)
    return listed.codes if listed else OPEN


# --- what a list may look like


def test_a_stated_list_is_names_and_says_what_is_wrong_with_it() -> None:
    assert read_access({"users": ["ada"], "groups": ["rangers"]}) == StatedAccess(True, ("ada",), ("rangers",))
    assert read_access({}) == StatedAccess(True)
    assert read_access({"restricted": False}) == StatedAccess(False)
    assert parse_access("  ") is None
    assert parse_access('{"groups": ["a", "a"]}') == StatedAccess(True, (), ("a",))
    for wrong in ("[]", "x", '{"people": []}', '{"users": "ada"}', '{"users": [3]}', '{"restricted": 0}'):
        with raises_with(InvalidInput, field="access"):
            parse_access(wrong)
    with pytest.raises(InvalidInput):
        read_access({"restricted": False, "users": ["ada"]})


def test_names_of_nobody_and_a_list_without_oneself_are_refused(people: People) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve(people.collection, StatedAccess(True, ("nobody-there",), ("rangers",)))
    assert "nobody-there" in caught.value.message
    with using_access(people.access("cara")):
        assert resolve(people.collection, StatedAccess(True, (), ("rangers",))) == rangers_only(people)
        with pytest.raises(InvalidInput):
            resolve(people.collection, StatedAccess(True, ("ada",)))
    assert resolve(people.collection, StatedAccess(True, ("ada",))) == (0, user_principal(people.ada.pk))


# --- from the first moment


def test_an_upload_is_hidden_while_it_waits_and_when_it_is_stored(people: People) -> None:
    with using_access(people.access("cara")):
        outcome = send(people, "a.txt", access=rangers_only(people))
    assert outcome.status == "queued"
    assert (people.jobs("ada"), people.jobs("bob")) == (set(), {"a.txt"})
    with using_access(people.access("ada")):
        assert not Upload.objects.exists()
    assert run_all(people.collection) == [("a.txt", "succeeded")]
    assert (people.documents("ada"), people.documents("bob")) == (set(), {"a.txt"})
    with using_access(people.access("ada")):
        assert not Chunk.objects.of(people.collection).exists()
        assert not IngestJob.objects.exists()


def test_a_text_has_its_list_with_its_row(people: People) -> None:
    ingest_text(people.collection, "t", f"{WORD} and reed", access=rangers_only(people))
    assert (people.documents("ada"), people.documents("bob")) == (set(), {"t"})
    assert Document.objects.get(doc_id="t").access == list(rangers_only(people))
    assert Chunk.objects.get(doc_id="t").access == list(rangers_only(people))


def test_a_url_that_waits_is_hidden(people: People) -> None:
    plan = submit_urls(
        people.collection, [UrlEntry("https://reed.example/page", "page")], IngestOptions(access=rangers_only(people))
    )
    assert plan.batch is not None
    assert (people.jobs("ada"), people.jobs("bob")) == (set(), {"page"})


def test_members_of_an_archive_have_its_list(people: People) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("one.txt", f"{WORD} one")
        archive.writestr("two.txt", f"{WORD} two")
    with using_access(people.access("cara")):
        send(people, "both.zip", held.getvalue(), access=rangers_only(people))  # type: ignore[arg-type]
    assert people.jobs("ada") == set()
    assert {state for _, state in run_all(people.collection)} == {"succeeded"}
    assert (people.documents("ada"), people.documents("bob")) == (set(), {"one.txt", "two.txt"})
    assert people.jobs("ada") == set()


# --- again


def test_a_list_is_kept_without_a_word_and_changed_by_one(people: People) -> None:
    send(people, "a.txt", access=rangers_only(people))
    run_all(people.collection)
    assert send(people, "a.txt", "other text").plan == "changed"
    run_all(people.collection)
    assert codes(people, "a.txt") == rangers_only(people)
    only_ada = (0, user_principal(people.ada.pk))
    assert send(people, "a.txt", "other text", access=rangers_only(people)).status == "unchanged"
    assert send(people, "a.txt", "other text", access=only_ada).plan == "changed"
    assert codes(people, "a.txt") == (0,)  # until it is stored: who may read both
    run_all(people.collection)
    assert (people.documents("ada"), people.documents("bob")) == ({"a.txt"}, set())
    send(people, "a.txt", "text for all", access=OPEN)
    assert codes(people, "a.txt") == only_ada  # what is there is not opened before
    run_all(people.collection)
    assert (people.documents("ada"), people.documents("bob")) == ({"a.txt"}, {"a.txt"})


def test_an_open_document_closes_at_once_for_a_narrower_upload(people: People) -> None:
    ingest_text(people.collection, "a.txt", "old text")
    send(people, "a.txt", access=rangers_only(people))
    assert people.documents("ada") == set()


def test_a_document_that_is_deleted_and_made_again_has_its_list(people: People) -> None:
    ingest_text(people.collection, "t", WORD, access=rangers_only(people))
    delete_documents(people.collection, ["t"])
    ingest_text(people.collection, "t", f"{WORD} again")
    assert (people.documents("ada"), people.documents("bob")) == (set(), {"t"})


# --- by metadata


def test_metadata_name_the_readers(people: People) -> None:
    update_collection(people.collection, changes={"access_from": "acl"})
    people.collection.refresh_from_db()
    for doc_id, value in {
        "group": "rangers", "both": ["rangers", "ada"], "nobody": ["nobody-there"], "half": ["ada", "nobody-there"],
        "empty": [], "wrong": {"x": 1}, "all": "*", "unsaid": None,
    }.items():  # fmt: skip
        ingest_text(people.collection, doc_id, f"{WORD} {doc_id}", metadata={} if value is None else {"acl": value})
    assert people.documents("ada") == {"both", "half", "all", "unsaid"}
    assert people.documents("bob") == {"group", "both", "all", "unsaid"}
    listed = lists_of(people.collection, ["nobody", "half", "wrong"])
    assert {name: each.unknown for name, each in listed.items()} == {
        "nobody": ("nobody-there",), "half": ("nobody-there",), "wrong": ("{'x': 1}",),
    }  # fmt: skip
    assert {each.origin for each in listed.values()} == {"metadata"}


def test_a_group_and_a_user_of_one_name_are_told_apart(people: People) -> None:
    update_collection(people.collection, changes={"access_from": "acl"})
    people.collection.refresh_from_db()
    same = Group.objects.create(name="ada")
    ingest_text(people.collection, "g", WORD, metadata={"acl": "ada"})
    ingest_text(people.collection, "u", WORD, metadata={"acl": "user:ada"})
    assert codes(people, "g") == (0, group_principal(same.pk))
    assert codes(people, "u") == (0, user_principal(people.ada.pk))


def test_changed_metadata_and_a_changed_setting_reach_documents_that_are_there(people: People) -> None:
    ingest_text(people.collection, "a", WORD, metadata={"acl": "rangers"})
    ingest_text(people.collection, "b", WORD, metadata={"acl": "rangers"}, access=(0, user_principal(people.ada.pk)))
    assert people.documents("ada") == {"a", "b"}
    update_collection(people.collection, changes={"access_from": "acl"})
    people.collection.refresh_from_db()
    assert people.documents("ada") == {"b"}  # what somebody stated stays
    edit_document(people.collection, "a", {"metadata": {"acl": ["ada"]}})
    assert (people.documents("ada"), people.documents("bob")) == ({"a", "b"}, set())
    change_documents(people.collection, BulkChange("set_metadata", key="acl", value="rangers"), ["a"])
    assert (people.documents("ada"), people.documents("bob")) == ({"b"}, {"a"})


def test_a_file_whose_metadata_name_nobody_waits_and_ends_with_a_warning(people: People) -> None:
    update_collection(people.collection, changes={"access_from": "acl"})
    people.collection.refresh_from_db()
    with using_access(people.access("cara")):
        outcome = send(people, "a.txt", metadata={"acl": "nobody-there"})
        assert outcome.status == "queued"
    assert (people.jobs("ada"), people.jobs("cara")) == (set(), set())
    assert run_all(people.collection) == [("a.txt", "succeeded")]
    job = IngestJob.objects.get()
    assert any("nobody-there" in warning for warning in job.warnings)
    assert people.documents("cara") == set()


def test_only_administrators_choose_the_key(people: People) -> None:
    with using_access(people.access("cara")), pytest.raises(Exception) as caught:
        update_collection(people.collection, changes={"access_from": "acl"})
    assert type(caught.value).__name__ == "Forbidden"


# --- by hand


def test_many_documents_are_restricted_and_found_by_it(people: People) -> None:
    for doc_id in "abc":
        ingest_text(people.collection, doc_id, f"{WORD} {doc_id}")
    outcome = change_documents(
        people.collection, BulkChange("set_access", access=rangers_only(people)), ["a", "b", "gone"]
    )
    assert [(each.doc_id, each.status) for each in outcome.results] == [
        ("a", "changed"), ("b", "changed"), ("gone", "unknown"),
    ]  # fmt: skip
    assert people.documents("ada") == {"c"}
    ids = {
        access: sorted(DocumentFilter(access=access).rows(people.collection).values_list("doc_id", flat=True))
        for access in ("", "restricted", "open")
    }
    assert ids == {"": ["a", "b", "c"], "restricted": ["a", "b"], "open": ["c"]}
    facets = {facet.value: facet.count for facet in count_facets(people.collection, DocumentFilter())["access"]}
    assert facets == {"restricted": 2, "open": 1}
    with using_access(people.access("ada")):
        mine = {facet.value: facet.count for facet in count_facets(people.collection, DocumentFilter())["access"]}
    assert mine == {"restricted": 0, "open": 1}
    with pytest.raises(InvalidInput):
        BulkChange("set_access").checked()
    change_documents(people.collection, BulkChange("set_access", access=OPEN), ["a", "b"])
    assert people.documents("ada") == {"a", "b", "c"}


def test_a_curator_cannot_touch_what_they_may_not_read(people: People) -> None:
    ingest_text(people.collection, "a", WORD, access=(0, user_principal(people.ada.pk)))
    with using_access(people.access("cara")):
        outcome = change_documents(people.collection, BulkChange("set_access", access=OPEN), ["a"])
        assert [each.status for each in outcome.results] == ["unknown"]
        assert change_readers(people.collection, ["a"], OPEN) == []
    assert codes(people, "a") == (0, user_principal(people.ada.pk))


# --- attachments


def mail(*attachments: tuple[str, str], text: str = "see the files") -> bytes:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "plans", "a@example.org", "b@example.org"
    message.set_content(text)
    for name, content in attachments:
        message.add_attachment(content.encode(), maintype="text", subtype="plain", filename=name)
    return message.as_bytes()


def test_attachments_have_the_list_of_their_mail_always(people: People) -> None:
    with using_access(people.access("cara")):
        send(people, "m.eml", mail(("plan.txt", WORD)), access=rangers_only(people))  # type: ignore[arg-type]
    run_all(people.collection)
    assert (people.documents("ada"), people.documents("bob")) == (set(), {"m.eml", "m.eml/plan.txt"})
    assert people.jobs("ada") == set()
    change_readers(people.collection, ["m.eml"], OPEN)
    assert people.documents("ada") == {"m.eml", "m.eml/plan.txt"}
    change_readers(people.collection, ["m.eml"], (0, user_principal(people.ada.pk)))
    assert (people.documents("ada"), people.documents("bob")) == ({"m.eml", "m.eml/plan.txt"}, set())
    told = readers_of(people.collection, Document.objects.get(doc_id="m.eml/plan.txt"))
    assert (told.of, told.origin, told.users) == ("m.eml", "attachment", ("ada",))
    with raises_with(ServiceError, status=409, type="follows_parent"):
        change_readers(people.collection, ["m.eml/plan.txt"], OPEN)
    outcome = change_documents(people.collection, BulkChange("set_access", access=OPEN), ["m.eml/plan.txt"])
    assert [each.error_type for each in outcome.results] == ["follows_parent"]


def test_attachments_that_wait_follow_a_change_of_their_mail(people: People) -> None:
    send(people, "m.eml", mail(("plan.txt", WORD)))  # type: ignore[arg-type]
    first = IngestJob.objects.get()
    run_job(first.pk)
    assert people.jobs("ada") == {"m.eml", "m.eml/plan.txt"}
    change_readers(people.collection, ["m.eml"], rangers_only(people))
    assert people.jobs("ada") == set()
    run_all(people.collection)
    assert (people.documents("ada"), people.documents("bob")) == (set(), {"m.eml", "m.eml/plan.txt"})


def test_a_mail_sent_again_unchanged_with_another_list_takes_its_attachments_along(people: People) -> None:
    content = mail(("plan.txt", WORD))
    send(people, "m.eml", content)  # type: ignore[arg-type]
    run_all(people.collection)
    send(people, "m.eml", content, access=rangers_only(people))  # type: ignore[arg-type]
    run_all(people.collection)
    assert (people.documents("ada"), people.documents("bob")) == (set(), {"m.eml", "m.eml/plan.txt"})


# --- names that are taken


def test_a_name_of_a_hidden_document_is_refused(people: People) -> None:
    ingest_text(people.collection, "a.txt", WORD, access=(0, user_principal(people.ada.pk)))
    ingest_text(people.collection, "b (2).txt", WORD, access=(0, user_principal(people.ada.pk)))
    FetchedSource.objects.create(document=Document.objects.get(doc_id="b (2).txt"), address="https://reed.example/b")
    ingest_text(people.collection, "b.txt", "open text")
    with using_access(people.access("cara")):
        line = plan_uploads(people.collection, [Entry("", "0" * 64, 5, "a.txt")]).lines[0]
        assert (line.status, line.error_type) == ("rejected", "restricted")
        assert send(people, "a.txt").error_type == "restricted"
        assert send(people, "b.txt", on_clash="keep_both").doc_id == "b (3).txt"
        both = IngestOptions(on_clash="keep_both")  # the hidden copy that came from there is no other's to replace
        plan = submit_urls(people.collection, [UrlEntry("https://reed.example/b", "b.txt")], both, dry_run=True)
        assert plan.lines[0].doc_id == "b (4).txt"
        plan = submit_urls(people.collection, [UrlEntry("https://reed.example/", "a.txt")])
        assert [line.error_type for line in plan.lines] == ["restricted"]
        with pytest.raises(ServiceError) as caught:
            ingest_text(people.collection, "a.txt", "mine now")
    assert (caught.value.status, caught.value.type) == (403, "restricted")
    assert Document.objects.get(doc_id="a.txt").text == WORD


def test_the_worker_asks_again_whether_the_sender_may_write(people: People) -> None:
    with using_access(people.access("cara")):
        send(people, "a.txt")
        send(people, "b.txt")
    set_access(people.collection, ["a.txt"], users=[people.ada.pk])
    assert run_all(people.collection) == [("a.txt", "failed"), ("b.txt", "succeeded")]
    assert IngestJob.objects.get(doc_id="a.txt").error_type == "restricted"
    with using_access(people.access("cara")):
        send(people, "c.txt")
    RoleGrant.objects.filter(user=people.cara).delete()
    assert run_all(people.collection) == [("c.txt", "failed")]
    assert IngestJob.objects.get(doc_id="c.txt").error_type == "forbidden"
    assert not Document.objects.filter(doc_id__in=["a.txt", "c.txt"]).exists()


def test_a_member_under_a_hidden_name_is_refused_for_its_sender(people: People) -> None:
    ingest_text(people.collection, "one.txt", WORD, access=(0, user_principal(people.ada.pk)))
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("one.txt", "mine now")
        archive.writestr("two.txt", "two")
    with using_access(people.access("cara")):
        send(people, "both.zip", held.getvalue())  # type: ignore[arg-type]
    run_all(people.collection)
    assert Document.objects.get(doc_id="one.txt").text == WORD
    assert Document.objects.filter(doc_id="two.txt").exists()


# --- HTTP and pages


@pytest.fixture
def headers(people: People) -> dict[str, str]:
    _, secret = create_key(NewKey("tests"))
    return {"Authorization": f"Bearer {secret}"}


def test_the_api_states_tells_and_opens(people: People, headers: dict[str, str], client: Client) -> None:
    base = f"/v1/collections/{people.collection.name}"

    def call(method: str, address: str, body: Any = None) -> Any:
        data = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        return getattr(client, method)(base + address, headers=headers, **data)

    answer = call("put", "/documents/t", {"content": WORD, "access": {"groups": ["rangers"]}})
    assert answer.status_code == 200, answer.content
    assert people.documents("ada") == set()
    listed = call("get", "/documents?access=restricted").json()["items"]
    assert [(each["doc_id"], each["restricted"]) for each in listed] == [("t", True)]
    assert call("get", "/documents?access=open").json()["items"] == []
    told = call("get", "/documents/t").json()["access"]
    assert told == {
        "restricted": True, "users": [], "groups": ["rangers"], "origin": "stated", "of": "",
        "unknown": [],
    }  # fmt: skip
    assert call("patch", "/documents/t", {"access": {"users": ["ada"]}}).json()["restricted"]
    told = call("get", "/documents/t").json()["access"]
    assert (told["users"], told["groups"]) == (["ada"], [])
    assert call("patch", "/documents/t", {"access": {"users": ["nobody-there"]}}).status_code == 422
    assert call("patch", "/documents/t", {"access": {"restricted": False}}).json()["restricted"] is False
    bulk = {"action": "set_access", "doc_ids": ["t"], "access": {"groups": ["rangers"]}}
    assert call("post", "/documents-bulk", bulk).json()["counts"] == {"changed": 1}
    assert people.documents("ada") == set()
    sent = client.post(
        f"{base}/documents",
        {"files": io.BytesIO(b"some text"), "doc_ids": "f", "access": '{"groups": ["rangers"]}'},
        headers=headers,
    )
    assert sent.status_code == 202, sent.content
    assert people.jobs("ada") == set()
    assert (
        client.post(f"{base}/documents", {"files": io.BytesIO(b"x"), "access": "[]"}, headers=headers).status_code
        == 422
    )


def test_the_pages_state_and_tell(people: People, client: Client) -> None:
    User.objects.create_superuser("root", password="x")
    client.force_login(User.objects.get(username="root"))
    base = f"/collections/{people.collection.name}"
    posted = {"doc_id": "t", "content": WORD, "access": "restricted", "access_groups": "rangers"}
    assert client.post(f"{base}/upload/?view=text", posted).status_code == 302
    assert people.documents("ada") == set()
    page = client.get(f"{base}/documents/t/").content.decode()
    assert 'id="readers"' in page and "rangers" in page
    rows = client.get(f"{base}/").content.decode()
    assert 'class="lock"' in rows and "Only: rangers" in rows
    assert 'class="lock"' not in client.get(f"{base}/?access=open").content.decode()
    readers = f"{base}/documents/t/?view=readers"
    assert client.get(readers).status_code == 200
    assert client.post(readers, {"access": "restricted", "access_users": "nobody-there"}).status_code == 422
    assert client.post(readers, {"access": "open", "access_groups": "rangers"}).status_code == 302
    assert people.documents("ada") == {"t"}
    asked = client.post(f"{base}/?view=change", {"action": "access", "doc_id": "t"})
    assert asked.status_code == 200 and 'name="access_groups"' in asked.content.decode()
    changed = {"action": "access", "doc_id": "t", "confirmed": "on", "access": "restricted", "access_groups": "rangers"}
    assert client.post(f"{base}/?view=change", changed).status_code == 302
    assert people.documents("ada") == set()
    for address in ("upload/", "upload/?view=text", "upload/?view=urls", "sources/?view=new&kind=website"):
        assert 'name="access_users"' in client.get(f"{base}/{address}").content.decode(), address


def test_who_is_unbound_is_not_asked(people: People) -> None:
    assert SYSTEM.unbound and isinstance(people.access("cara"), Access)
    assert not people.access("cara").unbound
    widen(people.collection, ["t"])
    assert Role.CURATOR in Role.values


def test_the_map_shows_and_counts_what_its_reader_may_read(people: People, client: Client) -> None:
    for number in range(4):
        ingest_text(people.collection, f"open/{number}.md", f"Reeds grow in marsh number {number}.")
        ingest_text(people.collection, f"kept/{number}.md", f"{WORD} {number}", access=rangers_only(people))
    with using_access(SYSTEM):
        axes, again = (find_axes(open_store(people.collection)) for _ in range(2))
    assert axes == again and len(axes) == 2 and len(axes[0]) == people.collection.embed_dims
    x, y = (np.array(axis) for axis in axes)
    assert abs(x @ y) < 1e-4 and abs(x @ x - 1) < 1e-4 and x[np.abs(x).argmax()] > 0
    with using_access(people.access("ada")):
        assert find_axes(open_store(people.collection)) == axes, "made of what everybody may read"

    def seen(name: str) -> tuple[dict[str, int], list[str]]:
        """({group: chunks}, hits)."""
        client.force_login(getattr(people, name))
        page = client.get(f"/collections/marsh/playground/?map={run.pk}")
        counts = map(int, texts(page, "#map tbody td.num")[:: 1 + ("Hits" in texts(page, "#map thead th"))])
        return dict(zip(texts(page, "#map tbody th"), counts, strict=True)), texts(page, "#map ol li")

    client.force_login(people.bob)
    client.get("/collections/marsh/playground/", {"q": WORD})
    run = QueryRun.objects.latest("created_at")
    groups, hits = seen("bob")
    assert groups == {"open/": 4, "kept/": 4} and len(hits) == min(10, len(run.results)) > 0
    assert seen("ada") == ({f"open/{number}.md": 1 for number in range(4)}, []), "nor the run of another"
