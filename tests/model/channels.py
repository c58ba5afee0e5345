"""The calls of the model by each channel: the library with its services, REST, MCP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from django.contrib.auth.models import User
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import using_access
from collections_app.access.document_access import OPEN, StatedAccess, change_readers, resolve
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.documents import edits, services
from collections_app.documents.revisions.services import any_revision, revision_text
from collections_app.documents.services import restore_documents, trash_documents
from collections_app.errors import ServiceError
from collections_app.index.services import activate_index_version, list_index_versions, start_index_version
from collections_app.index.stores import read_store
from collections_app.models import Collection, Document, TrashedDocument
from ragd.errors import IndexVersionChanged
from ragd.search.retrieval import retrieve
from ragd.types import RetrievePlan
from tests.model.model import AGAIN, CONFLICT, DONE, NOT_FOUND, PEOPLE, READS, REFUSED, ROOT, Action

QUERY, K = "heron", 20
POLICIES = ({"target_tokens": 12, "overlap_tokens": 0}, {"target_tokens": 24, "overlap_tokens": 0})


class RefusedError(Exception):
    """(status, type of the error) of an answer that is not 200 or 202."""


def join(chunks: Iterable[tuple[str, int, str]]) -> dict[str, str]:
    """doc_id -> the text that its chunks make, in their order."""
    found = sorted(chunks)
    return {doc_id: " ".join(content for *_, content in own) for doc_id, own in groupby(found, itemgetter(0))}


class Library:
    """Calls functions of the services, and of the library for searches, as the person who calls."""

    def __init__(self, name: str) -> None:
        self.pk = create_collection(name=name, open_role=Role.ASKER, chunk_policy=POLICIES[0]).pk
        self.users = {
            each: User.objects.filter(username=each).first() or make(each)
            for each, make in {
                ROOT: User.objects.create_superuser,
                **dict.fromkeys(PEOPLE, User.objects.create_user),
            }.items()
        }

    @property
    def collection(self) -> Collection:
        """Read anew: the services bring the object that they are given up to date, and threads must not share one."""
        return Collection.objects.get(pk=self.pk)

    def answer(self, action: Action) -> Any:
        """What the model compares: a refusal by its name, for a read None."""
        with using_access(access_of_user(self.users[action.reader])):
            try:
                return getattr(self, action.name)(action)
            except IndexVersionChanged:
                return AGAIN
            except (ServiceError, RefusedError) as error:
                status, kind = (error.status, error.type) if isinstance(error, ServiceError) else error.args
                if kind == "index_version_changed":
                    return AGAIN
                if status not in REFUSED:
                    raise
                return None if action.name in READS and status == 404 else REFUSED[status]

    def put(self, action: Action) -> Any:
        return services.ingest_text(self.collection, action.doc_id, action.value).revision

    def set_state(self, action: Action) -> Any:
        edits.edit_document(self.collection, action.doc_id, {"state": action.value})
        return DONE

    def roll_back(self, action: Action) -> Any:
        edits.roll_back(self.collection, action.doc_id, action.value)
        return DONE

    def delete(self, action: Action) -> Any:
        return DONE if services.delete_documents(self.collection, [action.doc_id])["documents"] else NOT_FOUND

    def trash(self, action: Action) -> Any:
        return DONE if trash_documents(self.collection, [action.doc_id])["documents"] else NOT_FOUND

    def restore(self, action: Action) -> Any:
        rows = TrashedDocument.objects.filter(collection=self.collection, doc_id=action.doc_id)
        ids = list(rows.values_list("pk", flat=True))
        return DONE if restore_documents(self.collection, ids).done else CONFLICT if ids else NOT_FOUND

    def set_access(self, action: Action) -> Any:
        services.get_document(self.collection, action.doc_id)
        listed = None if action.value is None else resolve(self.collection, StatedAccess(users=tuple(action.value)))
        change_readers(self.collection, [action.doc_id], listed or OPEN)
        services.get_document(self.collection, action.doc_id)  # one deleted meanwhile is passed over
        return DONE

    def build_index(self, _: Action) -> Any:
        start_index_version(self.collection, {"chunk_policy": POLICIES[self.served() % 2]})
        return DONE

    def switch_back(self, _: Action) -> Any:
        kept = [each for each in list_index_versions(self.collection) if each.state == "retired"]
        if kept:
            activate_index_version(kept[0])
        return DONE

    def served(self) -> int:
        """The number of the index version that serves."""
        return Collection.objects.values_list("index_version", flat=True).get(pk=self.collection.pk)

    def search(self, _: Action) -> Any:
        found = read_store(self.collection, lambda store: retrieve(QUERY, RetrievePlan(k=K), store))
        return join((each.doc_id, each.chunk_index, each.content) for each in found)

    def read(self, action: Action) -> Any:
        document = services.get_document(self.collection, action.doc_id)
        return document.text, document.revision, document.state

    def list(self, _: Action) -> Any:
        rows = Document.objects.filter(collection=self.collection).listed()
        return {each.doc_id: (each.revision, each.state) for each in rows}

    def past(self, action: Action) -> Any:
        document = services.get_document(self.collection, action.doc_id)
        any_revision(document, action.value)
        return revision_text(document, action.value)


class Rest(Library):
    """Sends requests with a key of the person; the trash, which has pages alone, by its services."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.headers = {
            each: {"Authorization": f"Bearer {create_key(NewKey(each, acts_as=each))[1]}"} for each in self.users
        }

    def send(self, action: Action, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The decoded answer. Raises RefusedError."""
        data = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        address = f"/v1/collections/{self.collection.name}/{path}"
        response = Client().generic(method, address, headers=self.headers[action.reader], **data)
        if response.status_code not in (200, 202):
            raise RefusedError(response.status_code, response.json()["error"]["type"])
        return response.json()

    def put(self, action: Action) -> Any:
        return self.send(action, "PUT", f"documents/{action.doc_id}", {"content": action.value})["revision"]

    def set_state(self, action: Action) -> Any:
        return self.edit(action, state=action.value)

    def roll_back(self, action: Action) -> Any:
        return self.edit(action, restore_revision=action.value)

    def edit(self, action: Action, **changes: Any) -> Any:
        self.send(action, "PATCH", f"documents/{action.doc_id}", changes)
        return DONE

    def delete(self, action: Action) -> Any:
        return DONE if self.send(action, "DELETE", f"documents/{action.doc_id}")["documents"] else NOT_FOUND

    def set_access(self, action: Action) -> Any:
        body = {"restricted": action.value is not None, "users": sorted(action.value or ())}
        return self.edit(action, access=body)

    def build_index(self, action: Action) -> Any:
        self.send(action, "POST", "index-versions", {"chunk_policy": POLICIES[self.served() % 2]})
        return DONE

    def switch_back(self, action: Action) -> Any:
        items = self.send(action, "GET", "index-versions")["items"]
        kept = [each["number"] for each in items if each["state"] == "retired"]
        if kept:
            self.send(action, "PATCH", f"index-versions/{kept[0]}", {"state": "serving"})
        return DONE

    def search(self, action: Action) -> Any:
        results = self.send(action, "POST", "search", {"query": QUERY, "k": K})["results"]
        return join((each["doc_id"], each["chunk_index"], each["content"]) for each in results)

    def read(self, action: Action) -> Any:
        document = self.send(action, "GET", f"documents/{action.doc_id}")
        return document["content"], document["revision"], document["state"]

    def list(self, action: Action) -> Any:
        items = self.send(action, "GET", "documents?state=any")["items"]
        return {each["doc_id"]: (each["revision"], each["state"]) for each in items}

    def past(self, action: Action) -> Any:
        return self.send(action, "GET", f"revisions/{action.value}?doc_id={quote(action.doc_id)}")["content"]


TOOLS = {
    "put": "documents-ingest", "set_state": "documents-edit", "roll_back": "documents-edit",
    "set_access": "documents-edit", "delete": "documents-delete", "search": "collections-search",
    "read": "documents-get",
}  # fmt: skip


UNKNOWN = ("unknown_document", "unknown_revision")


class Mcp(Rest):
    """Calls the tools; what has none, by REST."""

    def send(self, action: Action, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        tool = TOOLS.get(action.name)
        if action.name == "list" and action.reader == ROOT:
            tool, body = "documents-list", {"state": "any"}
        if tool is None:
            return super().send(action, method, path, body)
        arguments = {"collection": self.collection.name, **(body or {})}
        if action.doc_id:
            arguments["doc_id"] = action.doc_id
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = self.headers[action.reader]
        response = Client().post("/mcp", message, content_type="application/json", headers=headers)
        result = response.json()["result"]
        answer = json.loads(result["content"][0]["text"])
        if result.get("isError"):
            kind = answer["error"]["type"]
            raise RefusedError(404 if kind in UNKNOWN else 409, kind)
        return answer
