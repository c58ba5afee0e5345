"""Every operation of the OpenAPI document with keys that row-level security binds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from ninja.constants import NOT_SET

from collections_app.access.auth import SAFE_METHODS, BearerAuth, ErrorResponse
from collections_app.access.permissions import GIVEN
from ragd_site.api import api as ragd_api
from ragd_site.api import openapi_document
from tests.api.conftest import Api
from tests.api.test_keys import example, operations, send
from tests.keys.conftest import FOREIGN, NARROWED, OAK, ROLES, World

NOBODYS = "00000000-0000-4000-8000-000000000000"
SPECIFIC = {  # what the least body that the document allows would not do
    "documents-ingest": {"content": OAK, "title": "Oak"},
    "documents-edit": {"title": "An oak"},
    "documents-bulk": {"action": "add_tags", "doc_ids": ["oak"], "tags": ["tree"]},
    "chunks-add": {"doc_id": "oak", "content": "An oak stands."},
    "chunks-change": {"enabled": False},
    "collections-update": {"description": "trees"},
    "collections-search": {"query": "How tall is an oak?", "mode": "hybrid"},
    "collections-ask": {"query": "How tall is an oak?"},
    "collections-create": {"name": "made", "hybrid_enabled": True},
    "chat-completions": {"model": "ragd/notes", "messages": [{"role": "user", "content": "How tall is an oak?"}]},
    "chunk-preview": {"content": OAK},
    "documents-fetch": {"urls": ["https://192.0.2.1/a.html"]},
    "golden-questions-create": {"question": "How old is an oak?", "expected_doc_ids": ["oak"]},
    "golden-suggestions-create": {"count": 1},
    "plans-put": {"k": 4},
    "sync-open": {"entries": [{"doc_id": "elm.txt", "sha256": "0" * 64, "size": 3}]},
    "uploads-plan": {"entries": [{"doc_id": "elm.txt", "sha256": "0" * 64, "size": 3}]},
}
# Operation -> permission; "" none but a live key, None no key. What reads has `read`, where nothing else stands here.
PERMISSIONS: dict[str, str | None] = {
    "health": None,
    **dict.fromkeys(("audit-list", "audit-verify", "grants-list", "grants-put"),
        "administer",
    ),
    **dict.fromkeys(
        ("sources-list", "sources-create", "sources-sync", "sources-run"), "write"
    ),
    **dict.fromkeys(("api-keys-self", "api-keys-rotate"), ""),
    **dict.fromkeys(
        ("api-keys-create", "api-keys-list", "api-keys-revoke", "collections-delete"),
        "administer",
    ),
    **dict.fromkeys(
        ("collections-search", "collections-ask", "chat-completions", "runs-replay", "runs-feedback-create"), "ask"
    ),
    **dict.fromkeys(("chunk-preview", "chunk-preview-file", "documents-plan", "impact", "operations-change"), "read"),
    **dict.fromkeys(
        ("collections-create", "collections-update", "collections-export", "collections-import",
         "documents-ingest", "documents-upload", "documents-edit", "documents-delete", "documents-bulk",
         "documents-fetch", "documents-fetch-s3", "chunks-change", "chunks-add", "overlays-attach",
         "overlays-delete", "outliers-scan", "index-versions-create", "index-versions-delete", "index-versions-change",
         "measurements-create", "jobs-change", "sync-open", "sync-commit", "plans-put",
         "plans-update", "plans-delete", "calibration-update", "calibration-delete"),
        "write",
    ),
    **dict.fromkeys(
        ("golden-sets-create", "golden-sets-update", "golden-sets-delete", "golden-questions-create",
         "golden-questions-update", "golden-questions-delete", "golden-suggestions-create",
         "golden-suggestions-change", "golden-sets-import", "evaluation-runs-create", "evaluation-runs-change",
         "evaluation-runs-delete", "experiments-create", "experiments-change", "experiments-delete",
         "evaluation-settings-update", "runs-judge", "bisections-create"),
        "evaluate",
    ),
}  # fmt: skip
EVERYWHERE = {"api-keys-create", "api-keys-list", "api-keys-revoke", "collections-import", "collections-create"}


def find_permissions(router: Any, inherited: Any = None) -> Iterator[tuple[str, str | None]]:
    own = inherited if router.auth in (None, NOT_SET) else router.auth
    for views in router.path_operations.values():
        for operation in views.operations:
            auth = own if operation.auth_param is NOT_SET else operation.auth_param
            needed = None
            if isinstance(auth, BearerAuth):
                permission = auth.reads if operation.methods[0] in SAFE_METHODS else auth.changes
                needed = permission.value if permission else ""
            yield operation.operation_id, needed
    for _, part, *_ in router._routers:
        yield from find_permissions(part, own)


def find_answers(router: Any) -> Iterator[dict[int, Any]]:
    for views in router.path_operations.values():
        yield from (operation.response_models for operation in views.operations if operation.response_models.get(404))
    for _, part, *_ in router._routers:
        yield from find_answers(part)


@cache
def describe() -> dict[str, Any]:
    """The API's description, which takes a second and more to make."""
    return dict(json.loads(openapi_document.read()))  # made once per process


def test_every_operation_needs_its_permission() -> None:
    found = {}
    for _, router, *_ in ragd_api._routers:
        found = dict(find_permissions(router)) | found  # a part of a router may be listed again, by itself
    document = describe()
    named = {
        shape["operationId"]: method for methods in document["paths"].values() for method, shape in methods.items()
    }
    assert found.keys() == named.keys()
    assert not PERMISSIONS.keys() - named.keys()
    assert found == {name: PERMISSIONS.get(name, "read") for name in named}
    assert {name for name, method in named.items() if method != "get"} <= PERMISSIONS.keys()


def test_operations_share_the_model_of_their_errors() -> None:
    """A model for each status of each operation took a start half a second."""
    models = [answers[404] for _, router, *_ in ragd_api._routers for answers in find_answers(router)]
    assert len(models) > 100
    assert len(set(models) - {ErrorResponse}) <= 3  # OpenAI's shape has other statuses


def test_a_reading_key_is_refused_by_every_operation_that_needs_more(world: World, key_of: Any) -> None:
    reader, document = key_of(scope="read"), describe()
    refused = {
        shape["operationId"]
        for operation, shape in operations(document)
        if send(reader, operation, shape, document)[1] == "out_of_scope"
    }
    more = {name for name, needed in PERMISSIONS.items() if needed in ("write", "evaluate", "administer")}
    assert refused == more | {"api-keys-rotate"}  # of another key than its own


class Walk:
    """Sends every operation, each in a transaction that is taken back."""

    def __init__(self, ids: dict[str, Any]) -> None:
        self.document = describe()
        self.ids = ids

    def operations(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        for path, methods in self.document["paths"].items():
            for method, shape in methods.items():
                if shape["operationId"] != "health":
                    yield shape["operationId"], method.upper(), path, shape

    def send(self, key: Api, method: str, path: str, shape: dict[str, Any]) -> tuple[int, str]:
        """(status, body)."""
        filled = re.sub(r"\{(\w+)\}", lambda found: str(self._value(path, shape, found[1])), path.removeprefix("/v1"))
        query = {
            each["name"]: self._query(each) for each in shape.get("parameters", [])
            if each["in"] == "query" and each["required"]
        }  # fmt: skip
        content = shape.get("requestBody", {}).get("content", {})
        with transaction.atomic():
            if "multipart/form-data" in content:
                part = "files" if shape["operationId"] == "documents-upload" else "file"
                data = {part: SimpleUploadedFile("a.txt", b"An alder is a tree.")}
                headers = {"Authorization": f"Bearer {key.secret}"}
                answer = key.client.post(f"/v1{filled}", data, headers=headers)
            else:
                body = None
                if "application/json" in content:
                    body = SPECIFIC.get(shape["operationId"]) or example(
                        content["application/json"]["schema"], self.document
                    )
                    body = self._with_ids(body)
                answer = key.send(method, f"{filled}?{urlencode(query)}" if query else filled, body)
            text = b"".join(answer.streaming_content) if answer.streaming else answer.content
            transaction.set_rollback(True)
        return answer.status_code, text.decode("utf-8", "replace")

    def _value(self, path: str, shape: dict[str, Any], name: str) -> Any:
        if name == "run_id" and path.startswith("/v1/evaluation-runs"):
            return self.ids["evaluation_run"]
        if name in self.ids:
            return self.ids[name]
        (schema,) = [each["schema"] for each in shape["parameters"] if each["name"] == name]
        return NOBODYS if schema.get("format") == "uuid" else 1 if schema.get("type") == "integer" else "a"

    def _query(self, parameter: dict[str, Any]) -> Any:
        return self.ids.get(
            {"base": "evaluation_run", "other": "evaluation_run"}.get(parameter["name"], parameter["name"])
        ) or (example(parameter["schema"], self.document))

    def _with_ids(self, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        replaced = {name: self.ids[name] for name in ("golden_set", "collection") if name in body}
        if "model" in body:
            replaced["model"] = self.ids["model"]
        return body | replaced


def is_tried(role: str, needed: str | None) -> bool:
    """An asker, an administrator and the robots, who have the role of a curator, send everything. Others send what they
    are refused, and what none of those three may."""
    may = needed == "" or needed in GIVEN.get(role, ())
    return role in ("asker", "administrator", "robots") or not may or needed == "evaluate"


@pytest.mark.parametrize("role", [role for role in (*ROLES, "robots") if role != "curator"])
def test_every_operation_answers_what_the_key_may_and_tells_nothing_else(world: World, role: str) -> None:
    walk, key = Walk(world.ids["notes"]), world.keys[role]
    given = GIVEN["curator" if role == "robots" else role]
    failed, told, wrong = [], [], []
    for name, method, path, shape in walk.operations():
        needed = PERMISSIONS.get(name, "read")
        if not is_tried(role, needed):
            continue
        status, body = walk.send(key, method, path, shape)
        if status >= 500:
            failed.append((name, status, body[:300]))
        marks = {FOREIGN} if role == "administrator" else {FOREIGN, NARROWED}
        if any(mark in body or mark.lower() in body for mark in marks):
            told.append((name, body[:300]))
        may = needed == "" or (needed in given and name not in EVERYWHERE)
        error = json.loads(body)["error"] if status == 403 else {}
        if (status == 403) == may and not (may and name.startswith("api-keys")):
            wrong.append((name, status, error))
    assert failed == []
    assert told == []
    assert wrong == []


@pytest.mark.parametrize("role", ["administrator", "robots", "limited"])
def test_nothing_of_another_collection_is_answered(world: World, key_of: Any, role: str) -> None:
    """limited: to the collection, and with every permission in it."""
    walk, key = Walk(world.ids["vault"]), world.keys.get(role) or key_of(collections=["notes"])
    for name, method, path, shape in walk.operations():
        status, body = walk.send(key, method, path, shape)
        assert status < 500, (name, body)
        assert FOREIGN not in body and FOREIGN.lower() not in body, name
        assert "set-vault" not in body or status == 404, name
        if re.search(r"\{(collection|run_id|golden_set|job_id|batch_id|model)\}", path):
            assert status in (403, 404, 422), (name, status, body)
