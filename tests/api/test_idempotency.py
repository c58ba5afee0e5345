from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.db import connection

from collections_app.jobs import leases
from collections_app.models import Collection, IdempotencyRecord, IngestJob
from evaluation_app.models import GoldenSet
from tests.collections.conftest import committed
from tests.fakes.openai_server import OpenAIServer

__all__ = ["committed"]

KEY = {"Idempotency-Key": "one"}


@pytest.mark.parametrize(
    ("path", "body", "model"),
    [
        ("/collections", {"name": "a"}, Collection),
        ("/golden-sets", {"name": "trees", "collection": "notes"}, GoldenSet),
        ("/collections/notes/index-versions", {"embed_dims": 48}, IngestJob),
        ("/collections/notes/urls", {"urls": ["https://example.org/a"]}, IngestJob),
    ],
)
def test_the_same_request_is_carried_out_once(
    api: Any, notes: Collection, path: str, body: Any, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "send", lambda *_, **__: None)  # no worker
    before = model.objects.count()
    first, again = (api.post(path, body, **KEY) for _ in range(2))
    assert first.status_code < 300 and (first.status_code, first.content) == (again.status_code, again.content)
    assert "Idempotency-Replayed" not in first and again["Idempotency-Replayed"] == "true"
    assert model.objects.count() == before + 1


def test_another_body_under_the_same_key_is_refused(api: Any, embeddings: OpenAIServer) -> None:
    api.post("/collections", {"name": "a"}, **KEY)
    response = api.post("/collections", {"name": "b"}, **KEY)
    assert (response.status_code, response.json()["error"]["type"]) == (422, "idempotency_key_reused")
    assert Collection.objects.count() == 1


def test_an_error_is_not_kept(api: Any, notes: Collection) -> None:
    assert api.post("/collections", {"name": "notes"}, **KEY).status_code == 409
    assert not IdempotencyRecord.objects.exists()


def test_keys_of_two_callers_do_not_meet(api: Any, make_api: Any, embeddings: OpenAIServer) -> None:
    api.post("/collections", {"name": "a"}, **KEY)
    assert make_api().post("/collections", {"name": "b"}, **KEY).status_code == 200


def test_a_request_that_still_runs_is_a_conflict_and_one_that_was_cut_off_is_not(
    committed: None, make_api: Any, embeddings: OpenAIServer
) -> None:
    api = make_api()
    api.post("/collections", {"name": "a"}, **KEY)
    IdempotencyRecord.objects.update(status=None)
    Collection.objects.all().update(name="b")
    with psycopg.connect(**connection_values()) as other:  # whoever carries the first one out
        other.execute("SELECT 1 FROM idempotency_records FOR UPDATE")
        response = api.post("/collections", {"name": "a"}, **KEY)
        assert (response.status_code, response.json()["error"]["type"]) == (409, "idempotency_key_in_use")
        assert IdempotencyRecord.objects.count() == 1
    assert api.post("/collections", {"name": "a"}, **KEY).status_code == 200
    assert api.post("/collections", {"name": "a"}, **KEY)["Idempotency-Replayed"] == "true"
    IdempotencyRecord.objects.all().delete()


def connection_values() -> dict[str, Any]:
    values = connection.settings_dict
    return {
        "host": values["HOST"], "port": values["PORT"], "dbname": values["NAME"], "user": values["USER"],
        "password": values["PASSWORD"],
    }  # fmt: skip


def test_an_unusable_key_is_422(api: Any, embeddings: OpenAIServer) -> None:
    for key in ("", "x" * 256):
        assert api.post("/collections", {"name": "a"}, **{"Idempotency-Key": key}).status_code == 422


def test_an_upload_is_queued_once(api: Any, notes: Collection) -> None:
    first = api.upload("notes", ("a.txt", b"some text"), **KEY)
    again = api.upload("notes", ("a.txt", b"some text"), **KEY)
    assert first.json() == again.json()
    assert IngestJob.objects.count() == 1
    assert api.upload("notes", ("a.txt", b"other text"), **KEY).status_code == 422
