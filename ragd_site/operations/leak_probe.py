"""Every channel by which a person reaches text: pages, API, MCP, chat facade, and the paths of the library.

Who may read which documents, worked out in Python from grants and access lists, apart from row-level security.

One probe: questions about what a person may not read, on every channel; what leaked, and what is missing.
"""

from __future__ import annotations

import html
import json
import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from typing import Any
from urllib.parse import quote

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from collections_app.access.api_keys import NewKey, create_key, revoke_key
from collections_app.access.context import system_access, using_access
from collections_app.access.permissions import GIVEN, Permission, Role, group_principal, user_principal
from collections_app.access.services import access_of_user
from collections_app.index.stores import open_store
from collections_app.models import ApiKey, Collection, Document, RoleGrant
from ragd import telemetry
from ragd.errors import RagdError
from ragd.search.retrieval import retrieve_detailed
from ragd.store.store import fetch_all
from ragd.types import POOL_MAX, RetrievePlan
from retrieval_app.models import QueryRun

BACKEND = "django.contrib.auth.backends.ModelBackend"
PATHS = tuple(product(("vector", "lexical", "hybrid"), ("always", "never", "auto")))
K = 10


@dataclass(frozen=True, slots=True)
class Told:
    """What came back. doc_ids: of the results, where the channel names them; None: only its text tells."""

    body: str
    doc_ids: tuple[str, ...] | None = None


class Person:
    """Somebody logged in, with a key that acts as them."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.client = Client(SERVER_NAME="localhost")
        self.secret = ""

    @contextmanager
    def opened(self) -> Iterator[Person]:
        with system_access():
            self.client.force_login(self.user, backend=BACKEND)
            key, self.secret = create_key(NewKey(f"leak probe {uuid.uuid4().hex[:8]}", scopes=["read", "ask"]))
            ApiKey.objects.filter(pk=key.pk).update(user=self.user)
        try:
            yield self
        finally:
            with system_access():
                revoke_key(key)
                self.client.logout()

    def page(self, path: str, values: Mapping[str, Any] | None = None, *, post: bool = False) -> str:
        """The page that is led to in the end."""
        send = self.client.post if post else self.client.get
        answer = send(path, dict(values or {}), follow=True)
        return b"".join(answer).decode(errors="replace") if answer.streaming else answer.content.decode()

    def api(self, method: str, path: str, body: Any = None) -> str:
        data = "" if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.secret}"}
        answer: Any = self.client.generic(method, path, data, "application/json", headers=headers)
        return b"".join(answer).decode(errors="replace") if answer.streaming else answer.content.decode()


Channel = Callable[[Person, Collection, str, str], Told]  # person, collection, question, a document to aim at


def _library(mode: str, exact: str) -> Channel:
    def ask(person: Person, collection: Collection, question: str, doc_id: str) -> Told:
        plan = RetrievePlan(mode=mode, exact=exact, k=K)  # type: ignore[arg-type]
        try:
            with using_access(access_of_user(person.user)), transaction.atomic():
                found = retrieve_detailed(question, plan, open_store(collection))
        except RagdError as error:
            return Told(str(error), ())
        listed = [each for candidates in found.lists.values() for each in candidates]
        body = "\n".join(f"{each.context}\n{each.content}" for each in [*found.candidates, *listed])
        return Told(body, tuple(each.doc_id for each in [*found.candidates, *listed]))

    return ask


def _results(body: str, name: str = "results") -> tuple[str, ...]:
    """The documents of a JSON answer; none of an error."""
    try:
        return tuple(item["doc_id"] for item in json.loads(body).get(name, ()))
    except ValueError:
        return ()


def _search(mode: str, exact: str) -> Channel:
    def ask(person: Person, collection: Collection, question: str, doc_id: str) -> Told:
        values = {"query": question, "mode": mode, "exact": exact, "k": K, "explain": exact == "auto"}
        body = person.api("POST", f"/v1/collections/{collection.name}/search", values)
        return Told(body, _results(body))

    return ask


def _api(method: str, path: str, body: Callable[[str, str], Any] | None = None) -> Channel:
    def ask(person: Person, collection: Collection, question: str, doc_id: str) -> Told:
        address = path.format(c=quote(collection.name, safe=""), d=quote(doc_id, safe=""))
        return Told(person.api(method, address, body(collection.name, question) if body else None))

    return ask


def _page(path: str, values: Callable[[str, str], Mapping[str, Any]] | None = None, *, post: bool = False) -> Channel:
    def ask(person: Person, collection: Collection, question: str, doc_id: str) -> Told:
        address = path.format(c=quote(collection.name, safe=""), d=quote(doc_id))
        return Told(person.page(address, values(collection.name, question) if values else None, post=post))

    return ask


def _tool(name: str, arguments: Callable[[str, str, str], Mapping[str, Any]]) -> Channel:
    def ask(person: Person, collection: Collection, question: str, doc_id: str) -> Told:
        params = {"name": name, "arguments": arguments(collection.name, question, doc_id)}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return Told(person.api("POST", "/mcp", message))

    return ask


CHANNELS: dict[str, Channel] = {
    **{f"library {mode} {exact}": _library(mode, exact) for mode, exact in PATHS},
    **{f"API search {mode} {exact}": _search(mode, exact) for mode, exact in PATHS},
    "API ask": _api("POST", "/v1/collections/{c}/ask", lambda c, q: {"query": q}),
    "chat facade": _api(
        "POST", "/v1/chat/completions",
        lambda c, q: {"model": f"ragd/{c}", "messages": [{"role": "user", "content": q}]},
    ),
    "API document": _api("GET", "/v1/collections/{c}/documents/{d}"),
    "API chunks": _api("GET", "/v1/collections/{c}/chunks?doc_id={d}"),
    "API documents": _api("GET", "/v1/collections/{c}/documents?limit=500"),
    "API revisions": _api("GET", "/v1/collections/{c}/revisions?doc_id={d}"),
    "API runs": _api("GET", "/v1/runs?limit=100"),
    "API run log": _api("GET", "/v1/runs?format=jsonl"),
    "API spans": _api("GET", "/v1/spans?limit=100"),
    "API export": _api("GET", "/v1/collections/{c}/export"),
    "API test sets": _api("GET", "/v1/golden-sets"),
    "MCP search": _tool("collections-search", lambda c, q, d: {"collection": c, "query": q, "k": K}),
    "MCP ask": _tool("collections-ask", lambda c, q, d: {"collection": c, "query": q}),
    "MCP document": _tool("documents-get", lambda c, q, d: {"collection": c, "doc_id": d}),
    "page ask": _page("/chat/", lambda c, q: {"collection": c, "query": q, "do": "ask"}, post=True),
    "page search": _page("/chat/", lambda c, q: {"collection": c, "query": q, "do": "search"}, post=True),
    "page playground": _page("/collections/{c}/playground/", lambda c, q: {"q": q, "k": str(K)}),
    "page documents": _page("/collections/{c}/"),
    "page document": _page("/collections/{c}/documents/{d}/"),
    "page chunk": _page("/collections/{c}/chunks/0/{d}/"),
    "page edit": _page("/collections/{c}/documents/{d}/?view=edit"),
    "page history": _page("/collections/{c}/documents/{d}/?view=history"),
    "page preview": _page("/collections/{c}/documents/{d}/?view=preview"),
    "page chunk issues": _page("/collections/{c}/health/"),
    "page security": _page("/collections/{c}/health/?view=findings"),
    "page statistics": _page("/collections/{c}/", lambda c, q: {"show": "statistics"}),
    "page runs": _page("/activity/"),
    "page run log": _page("/runs/log/"),
    "page spans": _page("/activity/spans/"),
    "page traces": _page("/activity/traces/"),
    "page palette": _page("/go/", lambda c, q: {"q": q[:40]}),
    "page completions": _page("/filter-completions/", lambda c, q: {"collection": c, "text": "metadata."}),
    "page test sets": _page("/evaluation/sets/"),
    "page home": _page("/"),
}  # fmt: skip


LISTS = "SELECT doc_id, access FROM document_access WHERE collection_id = %(collection)s"
MARK_CHARS = 40
MARKS = 3  # slices of a hidden document that are looked for
BLANKS = re.compile(r"\s+")


@dataclass(frozen=True)
class Readable:
    """What one person may read of one collection. enters: whether they may see the collection at all."""

    collection: Collection
    enters: bool
    asks: bool
    readable: frozenset[str]
    hidden: frozenset[str]


def what_may_be_read(user: User, collection: Collection) -> Readable:
    """By the roles of the person and their groups, the collection's open role, and the documents' access lists."""
    with system_access():
        groups = set(user.groups.values_list("pk", flat=True))
        grants = RoleGrant.objects.filter(Q(user=user) | Q(group__in=groups), collection_id__in=(0, collection.pk))
        open_role = Collection.objects.filter(pk=collection.pk).values_list("open_role", flat=True).get()
        roles = {*grants.values_list("role", flat=True), open_role} - {""}
        names = set(Document.objects.filter(collection=collection).values_list("doc_id", flat=True))
        lists = dict(fetch_all(connection, LISTS, {"collection": collection.pk}))
    if user.is_superuser or Role.ADMINISTRATOR in roles:
        return Readable(collection, True, True, frozenset(names), frozenset())
    may = frozenset[Permission]().union(*(GIVEN[role] for role in roles))
    own = {user_principal(user.pk), *map(group_principal, groups)}
    readable = {name for name in names if name not in lists or own & set(lists[name])} if may else set()
    return Readable(collection, bool(may), Permission.ASK in may, frozenset(readable), frozenset(names - readable))


class Marks:
    """Slices of hidden documents that no readable document holds: where one stands in an answer, text has leaked."""

    def __init__(self, found: Readable, hidden: Iterable[str]) -> None:
        self.found, self.hidden = found, sorted(hidden)

    @cached_property
    def by_slice(self) -> dict[str, str]:
        """Slice -> the document that it is of."""
        with system_access():
            rows = Document.objects.filter(collection=self.found.collection)
            texts = dict(rows.filter(doc_id__in=self.hidden).values_list("doc_id", "text"))
            kept = rows.filter(doc_id__in=self.found.readable).values_list("text", flat=True)
            open_text = "\n".join(map(plain, kept))
        slices = {part: name for name, text in texts.items() for part in cut(plain(text))}
        return {part: name for part, name in slices.items() if part not in open_text}

    def found_in(self, body: str) -> set[str]:
        """The hidden documents of which a slice stands in the answer of some channel."""
        told = plain(html.unescape(body.replace("\\n", " ").replace('\\"', '"')))
        return {name for part, name in self.by_slice.items() if part in told}


def plain(text: str) -> str:
    return BLANKS.sub(" ", text)


def cut(text: str) -> list[str]:
    """Up to MARKS slices: of the beginning, the middle and the end."""
    if len(text) <= MARK_CHARS:
        return [text] if text.strip() else []
    last = len(text) - MARK_CHARS
    return [text[start : start + MARK_CHARS] for start in sorted({last * part // (MARKS - 1) for part in range(MARKS)})]


QUESTION_WORDS = 12
ITS_OWN = (telemetry.EVALUATION, telemetry.PLAYGROUND)
AIMED = 20  # hidden documents that are looked for at once


@dataclass(frozen=True, slots=True)
class Leak:
    """A hidden document that a channel told of: by a slice of its text, or among its results."""

    channel: str
    collection: str
    doc_id: str
    question: str


@dataclass
class ProbeReport:
    """missing: channel and question where readable results were left out of an exact search."""

    person: str
    asked: int = 0
    channels: dict[str, int] = field(default_factory=dict)
    hidden: int = 0
    readable: int = 0
    leaks: list[Leak] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.leaks and not self.missing

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


def probe(
    user: User,
    collections: Iterable[Collection],
    *,
    rounds: int = 3,
    seed: int = 1,
    channels: dict[str, Channel] | None = None,
    on_asked: Callable[[int], object] = lambda asked: None,
) -> ProbeReport:
    """Ask as the person, `rounds` questions of each collection on each channel.

    Questions are words of documents, hidden ones where there are some. The query runs that it makes are of
    no production and go at the end. It logs in as the person and makes a key that acts as them for its time.
    """
    began, report, chance = timezone.now(), ProbeReport(user.get_username()), random.Random(seed)  # noqa: S311  (a sample)
    with telemetry.environment(telemetry.EVALUATION), Person(user).opened() as person:
        for collection in collections:
            truth = what_may_be_read(user, collection)
            report.hidden += len(truth.hidden)
            report.readable += len(truth.readable)
            for _ in range(rounds):
                aimed = chance.sample(sorted(truth.hidden), min(AIMED, len(truth.hidden)))
                target = aimed[0] if aimed else chance.choice(sorted(truth.readable) or [""])
                question = question_about(collection, target, chance)
                for name, channel in (channels or CHANNELS).items():
                    ask_once(report, person, Marks(truth, aimed), (name, channel), question, target)
                    on_asked(report.asked)
    with system_access():
        QueryRun.objects.filter(user=user, environment__in=ITS_OWN, created_at__gte=began).delete()
    return report


def ask_once(
    report: ProbeReport, person: Person, marks: Marks, named: tuple[str, Channel], question: str, target: str
) -> None:
    """named: the channel and what it is called. marks: of what the person may read."""
    (name, channel), truth = named, marks.found
    told = channel(person, truth.collection, question, target)
    report.asked += 1
    report.channels[name] = report.channels.get(name, 0) + 1
    leaked = marks.found_in(told.body) | (set(told.doc_ids or ()) & truth.hidden)
    if not truth.enters:
        leaked |= set(told.doc_ids or ())
    report.leaks += [Leak(name, truth.collection.name, doc_id, question) for doc_id in sorted(leaked)]
    if truth.asks and told.doc_ids is not None and name.startswith("API search") and name.endswith("always"):
        mode = name.split()[2]
        expected = expected_documents(truth, question, mode)
        if expected is not None and list(told.doc_ids) != expected:
            report.missing.append((name, question))


def expected_documents(truth: Readable, question: str, mode: str) -> list[str] | None:
    """The documents of the best K of one exact list over what may be read, from the server's own unlimited search.

    None where the list does not reach that far, and for a fusion of two lists, whose pools depend on the reader.
    """
    if mode == "hybrid":
        return None
    plan = RetrievePlan(mode=mode, exact="always", k=POOL_MAX)  # type: ignore[arg-type]
    with system_access(), transaction.atomic():
        found = retrieve_detailed(question, plan, open_store(truth.collection)).candidates
    kept = [each.doc_id for each in found if each.doc_id in truth.readable]
    return kept[:K] if len(kept) >= K or len(found) < POOL_MAX else None


def question_about(collection: Collection, doc_id: str, chance: random.Random) -> str:
    """Words of the document in another order, so that a question that is repeated is no slice of it."""
    with system_access():
        texts = Document.objects.filter(collection=collection, doc_id=doc_id).values_list("text", flat=True)
        text = texts.first() or "what is there"
    words = text.split()[:1000]
    return " ".join(chance.sample(words, min(QUESTION_WORDS, len(words))))
