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
from tests.web.pages import client_of, has, text

__all__ = ["committed"]

if TYPE_CHECKING:  # this file is read before Django is set up
    from collections_app.models import Collection


@pytest.fixture
def ada(committed: None, django_user_model: Any) -> Client:
    return client_of(django_user_model.objects.create_superuser("ada", password="lovelace"))


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
