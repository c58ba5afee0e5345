"""Exports, imports, checks, proofs of deletion and the audit log, as a person sees them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from tests.api.conftest import committed
from tests.web.pages import has, is_empty, text

__all__ = ["committed"]

if TYPE_CHECKING:  # this file is read before Django is set up
    from collections_app.models import Collection


@pytest.fixture
def ada(committed: None, django_user_model: Any) -> Client:
    client = Client()
    client.force_login(django_user_model.objects.create_superuser("ada", password="lovelace"))
    return client


def export(client: Client, name: str = "nature") -> bytes:
    response = client.post(f"/collections/{name}/export/")
    assert response["Content-Type"] == "application/zip"
    content: bytes = b"".join(response.streaming_content)  # type: ignore[attr-defined]
    return content


def send(client: Client, content: bytes, **fields: Any) -> Any:
    return client.post("/collections/?view=import", {"file": SimpleUploadedFile("x.ragd.zip", content), **fields})


def test_export_and_import_by_page(ada: Client, fill: Callable[..., Collection]) -> None:
    fill("nature", 3)
    content = export(ada)
    assert "Export" in text(ada.get("/collections/nature/transfers/")) and "by ada" in text(
        ada.get("/collections/nature/transfers/")
    )
    begun = send(ada, content, name="copy")
    assert begun["Location"].startswith("/collections/operation/")
    page = text(ada.get(begun["Location"]))
    assert "Succeeded" in page and 'href="/collections/copy/"' in page and "<dt>Documents</dt><dd>3</dd>" in page
    assert ada.get("/collections/copy/").status_code == 200


def test_a_refused_file_says_why_beside_the_field(ada: Client, fill: Callable[..., Collection]) -> None:
    fill("nature", 1)
    content = export(ada)
    for bad, fields, status, words in (
        (b"nothing", {}, 422, "no complete ZIP file"),
        (content, {}, 409, "there is a collection &#x27;nature&#x27; already"),
        (content, {"name": "a/b"}, 422, "must not contain"),
    ):
        refused = send(ada, bad, **fields)
        assert refused.status_code == status and words in text(refused)
    damaged = bytearray(content)
    damaged[len(content) // 3] ^= 255
    begun = send(ada, bytes(damaged), name="copy")
    page = text(begun) if begun.status_code == 422 else text(ada.get(begun["Location"]))
    assert "damaged" in page or "no complete ZIP" in page
    assert ada.get("/collections/copy/").status_code == 404


def test_an_operation_whose_process_died_says_so(visitor: Client) -> None:
    from collections_app.models import Operation

    operation = Operation.objects.create(kind="import", subject="x", lease_until=timezone.now() - timedelta(minutes=1))
    page = text(visitor.get(f"/collections/operation/{operation.pk}/"))
    assert "Interrupted" in page and 'role="alert"' in page and "every 1s" not in page
    Operation.objects.update(lease_until=timezone.now() + timedelta(minutes=1), stage="chunks", done=40, total=80)
    page = text(visitor.get(f"/collections/operation/{operation.pk}/"))
    assert 'value="50"' in page and "every 1s" in page
    assert visitor.get("/collections/operation/00000000-0000-4000-8000-000000000000/").status_code == 404


def test_settings_keep_retention_and_lead_to_the_rest(visitor: Client, fill: Callable[..., Collection]) -> None:
    collection = fill("nature", 2)
    page = text(visitor.get("/collections/nature/settings/"))
    for words in ("Export ", 'hx-get="/collections/nature/plans/"', "#change", "Retention"):
        assert words in page
    form = {"description": "d", "revisions": "3", "runs_days": "0"}
    assert visitor.post("/collections/nature/settings/", form).status_code == 302
    collection.refresh_from_db()
    assert collection.retention == {"revisions": 3, "runs_days": 0}
    assert visitor.post("/collections/nature/settings/", form | {"runs_days": "-1"}).status_code == 422
    refused = visitor.post("/collections/nature/settings/", form | {"revisions": "100000"})
    assert refused.status_code == 422 and "from 0 to 1000" in text(refused)
    assert visitor.post("/collections/nature/settings/", {"description": "d"}).status_code == 302
    collection.refresh_from_db()
    assert collection.retention == {}


def test_plans_are_listed_with_the_default_one(visitor: Client, fill: Callable[..., Collection]) -> None:
    from ragd.types import RetrievePlan
    from retrieval_app.plans.services import save_plan

    collection = fill("nature", 1)
    assert not has(visitor.get("/collections/nature/plans/"), "table")
    save_plan(collection, "wide", RetrievePlan(k=7), is_default=True)
    page = text(visitor.get("/collections/nature/plans/"))
    assert "?plan=wide" in page and "default</span>" in page


def test_statistics_tell_of_states_types_growth_and_what_was_never_retrieved(
    visitor: Client, fill: Callable[..., Collection], ask: Callable[..., Any]
) -> None:
    from collections_app.documents.services import change_state

    collection = fill("nature", 3)
    never = "/collections/nature/health/?view=never-retrieved"
    assert not has(visitor.get(never), "table")
    change_state(collection, ["trees.md"], "disabled")
    ask("Where do whales sing?")
    listed = text(visitor.get(never))
    assert "1 of 3 documents" in listed and "Trees" in listed and "Whales" not in listed
    page = text(visitor.get("/collections/nature/?show=statistics"))
    assert 'Disabled</th><td class="num">1</td>' in page and ">Text<" in page
    assert 'aria-label="Documents per week, last 26 weeks"' in page
    for days in ("7", "0", "x", "9" * 30):
        assert visitor.get(f"{never}&days={days}").status_code == 200


def test_a_check_is_asked_for_and_told(
    visitor: Client, fill: Callable[..., Collection], django_capture_on_commit_callbacks: Any
) -> None:
    from collections_app.models import Document

    fill("nature", 2)
    with django_capture_on_commit_callbacks(execute=True):
        begun = visitor.post("/check/", {"collection": "nature"})
    assert has(visitor.get(begun["Location"]), ".banner[data-tone=good]")
    Document.objects.filter(doc_id="trees.md").update(chunk_count=77)
    with django_capture_on_commit_callbacks(execute=True):
        begun = visitor.post("/check/")
    page = text(visitor.get(begun["Location"]))
    assert "trees.md has" in page and "Re-index these documents" in page
    assert "1 problem" in text(visitor.get("/collections/nature/?show=statistics"))
    assert visitor.post("/check/", {"collection": "none"}).status_code == 404


def test_the_audit_log_says_who_did_what_when(visitor: Client, fill: Callable[..., Collection]) -> None:
    from collections_app.access.api_keys import NewKey, create_key
    from collections_app.documents.services import change_state

    collection, other = fill("nature", 2), fill("other", 1)
    key, _ = create_key(NewKey("robot"))
    change_state(collection, ["trees.md"], "disabled", actor=key)
    visitor.post("/collections/other/settings/", {"description": "changed by ada"})
    page = text(visitor.get("/audit/"))
    assert "key robot" in page and "changed description" in page.lower()
    assert "(by key robot)" not in page  # who it was stands in a column of its own
    of_nature = text(visitor.get("/audit/", {"collection": "nature"}))
    assert "trees.md" in of_nature and "changed description" not in of_nature.lower()
    by_ada = text(visitor.get("/audit/", {"actor": "ada"}))
    assert other.name in by_ada and "trees.md" not in by_ada
    assert "trees.md" in text(visitor.get("/audit/", {"kind": "document"}))
    assert is_empty(visitor.get("/audit/", {"q": "nothing like this"}))
    assert is_empty(visitor.get("/audit/", {"q": "\x00"}))


def test_operations_shows_checks_retention_and_what_was_done(
    visitor: Client, fill: Callable[..., Collection], django_capture_on_commit_callbacks: Any
) -> None:
    from evaluation_app.runs.retention import apply_retention

    page = text(visitor.get("/operations/"))
    assert page.count("not run yet") == 2 and 'href="/audit/"' in page
    fill("nature", 1)
    apply_retention()
    with django_capture_on_commit_callbacks(execute=True):
        visitor.post("/check/")
    visitor.post("/collections/nature/settings/?view=delete", {"typed_name": "nature"})
    page = text(visitor.get("/operations/"))
    assert "passed" in page and "nothing deleted" in page and "Deletion nature" in page
