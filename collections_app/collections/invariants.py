"""The invariant check: whether what is stored agrees with itself, by the rules of invariants.toml, in bounded time.

It reads and changes nothing. A finding says what is wrong, by which rows, and what to do. Rules that read a whole
collection stop at their time limit, which is told, and never taken for a pass.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from collections_app.audit import services
from collections_app.collections.deletion import collection_tables
from collections_app.documents.services import draft_of
from collections_app.documents.stored_documents import DocumentOverlays
from collections_app.index.ingestion import hash_content
from collections_app.jobs.operations import OperationProgress, handles, last_operation, request_operation, running
from collections_app.models import ChunkOverlay, Collection, Document, Operation
from ragd.errors import UnknownCollection
from ragd.store.store import fetch_all, partition_name
from ragd.types import ChunkPolicy


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule over a collection. sql yields a text per wrong row. remedy: what to do about it."""

    name: str
    says: str
    sql: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found. rows: the first few of `count`."""

    collection: str
    rule: str
    says: str
    count: int
    rows: tuple[str, ...]
    remedy: str


_STORED = tomllib.loads(Path(__file__).with_name("invariants.toml").read_text(encoding="utf-8"))
RULES, OTHERS, (SLICES, HASHES) = (
    tuple(Rule(**rule) for rule in _STORED[place]) for place in ("collection", "other", "text")
)

# what a file could bring that was written by hand; the rest is made here
IMPORT_RULES = (
    *(rule for rule in RULES if rule.name in {"chunk indexes", "switches"}), SLICES, HASHES,
)  # fmt: skip


RULE_LIMIT_S = 60.0
SHOWN_ROWS = 5
DOCUMENTS_AT_ONCE = 50
CHARS_AT_ONCE = 4_000_000

SET_LIMIT = "SELECT set_config('statement_timeout', %(limit)s, true)"

LISTED_DOCUMENTS = """
SELECT doc_id, text FROM (
    SELECT d.doc_id, d.text, sum(d.size_chars) OVER (ORDER BY d.doc_id) - d.size_chars AS before
    FROM documents d
    WHERE d.collection_id = %(collection)s AND d.doc_id > %(after)s AND d.size_chars > 0
    ORDER BY d.doc_id LIMIT %(most)s
) AS listed
WHERE before < %(chars)s
ORDER BY doc_id
"""

PLACED_CHUNKS = """
SELECT doc_id, chunk_index, start_char, end_char, content FROM {chunks}
WHERE doc_id = ANY(%(doc_ids)s) AND NOT attributes ? 'overlay'
ORDER BY doc_id, chunk_index
"""


def check_invariants(collection: Collection | None = None, *, actor: services.Actor = None) -> Operation:
    """Check one collection, or all of them with what stands between them; the operation that keeps the result.

    `findings` counts the rules that found something. report: {"collections": how many, "rules": how many were looked
    at, "findings": [`Finding` as objects], "unfinished": [rules that hit their time limit], "seconds"}.
    """
    subject = "" if collection is None else collection.name
    with running(Operation.Kind.CHECK, subject, actor=actor) as progress:
        return Check(progress).run(collection)


def request_check(collection: Collection | None = None, *, actor: services.Actor = None) -> Operation:
    """Have a worker check; the operation that will keep the result. One that is under way is returned instead."""
    subject = "" if collection is None else collection.name
    newest = last_operation(Operation.Kind.CHECK, subject)
    if newest is not None and newest.is_running:
        return newest
    return request_operation(Operation.Kind.CHECK, subject, {}, actor=actor)


@handles(Operation.Kind.CHECK)
def run_check(progress: OperationProgress) -> None:
    """The worker's side of `request_check`."""
    name = progress.operation.subject
    collection = Collection.objects.live().filter(name=name).first() if name else None
    if name and collection is None:
        raise UnknownCollection(f"collection {name!r} was deleted", field="collection")
    Check(progress).run(collection)


class Check:
    """One run."""

    def __init__(self, progress: OperationProgress, limit_s: float = RULE_LIMIT_S) -> None:
        self.progress, self.limit_s = progress, limit_s
        self.findings: list[Finding] = []
        self.unfinished: list[str] = []
        self.rules = 0

    def run(self, collection: Collection | None) -> Operation:
        began = time.monotonic()
        listed = list(Collection.objects.live().by_name()) if collection is None else [collection]
        for number, each in enumerate(listed):
            self.progress.tell(each.name, number, len(listed))
            self._collection(each)
        if collection is None:
            for rule in OTHERS:
                self._rule("", rule, {}, {}, rows=_rows_without_collection if not rule.sql else None)
        report = {
            "collections": len(listed),
            "rules": self.rules,
            "findings": [asdict(finding) for finding in self.findings],
            "unfinished": self.unfinished,
            "seconds": round(time.monotonic() - began, 3),
        }
        return self.progress.succeed(report, findings=len(self.findings))

    def broken(self, collection: Collection, rules: Sequence[Rule]) -> list[Finding]:
        """What these rules find in a collection, whether or not anybody sees it yet; see `unfinished` too."""
        self._collection(collection, rules)
        return self.findings

    def _collection(self, collection: Collection, rules: Sequence[Rule] | None = None) -> None:
        names = {"chunks": partition_name(collection.pk, collection.index_version)}
        params = {
            "collection": collection.pk,
            "index_version": collection.index_version,
            "dims": collection.embed_dims,
            "hybrid": collection.hybrid_enabled,
        }
        in_python = {SLICES.name: self._wrong_slices, HASHES.name: self._wrong_hashes}
        for rule in (*RULES, SLICES, HASHES) if rules is None else rules:
            find = in_python.get(rule.name)
            self._rule(collection.name, rule, names, params, rows=partial(find, names, params) if find else None)
            self.progress.tell(collection.name, self.rules, 0)

    def _rule(
        self,
        collection: str,
        rule: Rule,
        names: Mapping[str, str],
        params: Mapping[str, Any],
        rows: Callable[[], Iterator[str]] | None = None,
    ) -> None:
        self.rules += 1
        try:
            with transaction.atomic():
                fetch_all(connection, SET_LIMIT, {"limit": f"{self.limit_s * 1000:.0f}ms"})
                if rows is None:
                    sql = rule.sql
                    for name, value in names.items():  # patterns hold braces, so no format
                        sql = sql.replace(f"{{{name}}}", value)
                    fetched = [str(row) for (row,) in fetch_all(connection, sql, dict(params) or None)]
                else:
                    fetched = list(rows())
        except (OperationalError, TimeoutError) as error:
            if not isinstance(error, TimeoutError) and not isinstance(error.__cause__, QueryCanceled):
                raise
            self.unfinished.append(f"{rule.name} of {collection or 'all collections'}")
            return
        if fetched:
            remedy = rule.remedy.replace("NAME", collection)
            self.findings.append(
                Finding(collection, rule.name, rule.says, len(fetched), tuple(fetched[:SHOWN_ROWS]), remedy)
            )

    def _wrong_slices(self, names: Mapping[str, str], params: Mapping[str, Any]) -> Iterator[str]:
        """Chunks that are not the slice of their document's text; those that a person changed are passed over.

        Compared here, because the database would unpack a document's whole text for each of its chunks.
        """
        began, after = time.monotonic(), ""
        sql = PLACED_CHUNKS.format(**names)
        params = {**params, "most": DOCUMENTS_AT_ONCE, "chars": CHARS_AT_ONCE}
        while rows := fetch_all(connection, LISTED_DOCUMENTS, {**params, "after": after}):
            texts: dict[str, str] = dict(rows)
            for doc_id, index, start, end, content in fetch_all(connection, sql, {"doc_ids": list(texts)}):
                if texts[doc_id][start:end] != content:
                    yield f"{doc_id}#{index}"
            after = rows[-1][0]
            if time.monotonic() - began > self.limit_s:
                raise TimeoutError

    def _wrong_hashes(self, names: Mapping[str, str], params: Mapping[str, Any]) -> Iterator[str]:
        """Documents whose chunks were not made from what is stored of them; those of the library have no hash."""
        began = time.monotonic()
        collection = Collection.objects.get(pk=params["collection"])
        changed = set(ChunkOverlay.objects.filter(collection=collection).values_list("doc_id", flat=True))
        rows = Document.objects.filter(collection=collection).exclude(content_hash="")
        for document in rows.order_by("doc_id").iterator(chunk_size=DOCUMENTS_AT_ONCE):
            overlays = (
                DocumentOverlays.read(collection.pk, document.doc_id).digest if document.doc_id in changed else []
            )
            policy = ChunkPolicy.from_dict(document.chunk_policy)
            if hash_content(collection, draft_of(document), document.text, policy, overlays) != document.content_hash:
                yield document.doc_id
            if time.monotonic() - began > self.limit_s:
                raise TimeoutError


def _rows_without_collection() -> Iterator[str]:
    """0 stands for all collections, in roles and alert rules."""
    for table, _ in collection_tables():
        sql = (
            'SELECT count(*) FROM "{table}" t WHERE collection_id <> 0 '
            "AND NOT EXISTS (SELECT 1 FROM collections c WHERE c.id = t.collection_id)"
        )
        ((count,),) = fetch_all(connection, sql.format(table=table))
        if count:
            yield f"{table} has {count}"
