"""What somebody is told of words, as bodies of answers in which ids and times are masked: equal whatever is hidden."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

from django.contrib.auth.models import User

from collections_app.access.document_access import set_access, widen
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.models import Collection, RoleGrant
from ragd_site.operations.leak_probe import Person

MASKS = {
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "<id>",
    r"\b[0-9a-f]{32}\b": "<id>",
    r'"(timings_ms|timings)": ?\{[^}]*\}': r'"\1": <times>',
    r'"(\w+_ms)": ?[0-9.eE+-]+': r'"\1": <time>',
    r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)": "<time>",
    r"\b[0-9][0-9.,]*\s?(ms|s)\b": "<time>",
    r'(name="csrfmiddlewaretoken" value|nonce|data-csrf)="[^"]*"': r'\1="<id>"',
}
Channel = Callable[[Person, Collection, str], str]
Answers = dict[tuple[str, str], str]  # (channel, word) -> what it told


def masked(body: str) -> str:
    body = body.replace('\\"', '"')  # JSON in a text of JSON
    for pattern, stands in MASKS.items():
        body = re.sub(pattern, stands, body)
    return body


def _search(mode: str) -> Channel:
    def ask(person: Person, collection: Collection, word: str) -> str:
        body = {"query": word, "mode": mode, "explain": True}
        return person.api("POST", f"/v1/collections/{collection.name}/search", body)

    return ask


def _get(path: str) -> Channel:
    return lambda person, collection, word: person.api("GET", path.format(c=collection.name))


def _tool(person: Person, collection: Collection, word: str) -> str:
    params = {"name": "collections-search", "arguments": {"collection": collection.name, "query": word}}
    return person.api("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def _page(path: str, **values: str) -> Channel:
    def ask(person: Person, collection: Collection, word: str) -> str:
        filled = {name: value.format(w=word) for name, value in values.items()}
        return person.page(path.format(c=quote(collection.name)), filled)

    return ask


SEARCHES: Mapping[str, Channel] = {
    **{f"API search {mode}": _search(mode) for mode in ("lexical", "vector", "hybrid")},
    "completions": _page("/filter-completions/", collection="oracle", text="metadata.{w}"),
}
OTHERS: Mapping[str, Channel] = {
    "MCP search": _tool,
    "API collections": _get("/v1/collections"),
    "API collection": _get("/v1/collections/{c}"),
    "API statistics": _get("/v1/collections/{c}/statistics"),
}


class Oracle:
    """A collection with open documents, `ada`, who asks in it, and `bob`, for whom documents are hidden from her."""

    def __init__(self, open_texts: Mapping[str, str], hidden_texts: Mapping[str, str]) -> None:
        self.collection = create_collection(name="oracle")
        self.ada, self.bob = (User.objects.create_user(name) for name in ("ada", "bob"))
        for user in (self.ada, self.bob):
            RoleGrant.objects.create(user=user, collection_id=self.collection.pk, role=Role.ASKER)
        self.hidden_texts = hidden_texts
        self.ingest(open_texts)

    def ingest(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            ingest_text(self.collection, name, text, metadata={"kind": "note"})

    def hide(self) -> None:
        """Documents that are hidden before they are there."""
        set_access(self.collection, list(self.hidden_texts), users=[self.bob.pk])
        self.ingest(self.hidden_texts)

    def open_and_hide_again(self) -> None:
        """Documents whose list goes and comes while they are there."""
        widen(self.collection, list(self.hidden_texts))
        set_access(self.collection, list(self.hidden_texts), users=[self.bob.pk])

    def write_anew(self) -> None:
        """Hidden documents that become others."""
        self.ingest({name: f"{text} {text} Once more." for name, text in self.hidden_texts.items()})

    def remove(self) -> None:
        delete_documents(self.collection, list(self.hidden_texts))

    def told(self, words: Iterable[str], channels: Mapping[str, Channel]) -> Answers:
        """What ada is told of the words."""
        with Person(self.ada).opened() as person:
            return {
                (name, word): masked(channel(person, self.collection, word))
                for word in words
                for name, channel in channels.items()
            }
