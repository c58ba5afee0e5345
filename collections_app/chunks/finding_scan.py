"""What stands in the stored chunks of a collection that may do harm, looked for on demand.

Chunks are read in batches by their key and never locked, so that nothing waits for a scan, and it never holds up an
ingest. A scan that stops goes on behind the last batch. What it finds is kept by chunk, without the text.

What findings in a collection's texts lead to: recorded, hidden, or refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from django.db import connection, transaction
from django.db.models import Count

from collections_app.audit import services
from collections_app.jobs.operations import last_report, running
from collections_app.models import ChunkFindings, Collection, Operation
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.security import FAMILIES, ORDERS, RULES_VERSION, Finding, mask, risk_score, scan, scan_once
from ragd.security.findings import COVER
from ragd.security.scanner import CHARS_MAX
from ragd.store.store import execute, fetch_all

BATCH = 500
PAGE_SCAN_S = 15.0

BATCH_ROWS = """
SELECT doc_id, chunk_index, revision, content, context FROM {chunks}
WHERE collection_id = %(collection)s AND (doc_id, chunk_index) > (%(doc_id)s, %(index)s)
ORDER BY doc_id, chunk_index LIMIT %(batch)s
"""
FAMILY_COUNTS = """
SELECT family, count(*) FROM chunk_findings, unnest(families) AS family WHERE collection_id = %(collection)s
GROUP BY family
"""
# In parts, each of which a cluster can do where its rows are.
DROP_GONE = """
WITH listed AS MATERIALIZED (
    SELECT doc_id, chunk_index FROM chunk_findings WHERE collection_id = %(collection)s
), there AS MATERIALIZED (
    SELECT c.doc_id, c.chunk_index FROM listed
    JOIN {chunks} c ON c.collection_id = %(collection)s AND c.doc_id = listed.doc_id
                    AND c.chunk_index = listed.chunk_index
)
DELETE FROM chunk_findings f WHERE f.collection_id = %(collection)s AND NOT EXISTS (
    SELECT FROM there WHERE there.doc_id = f.doc_id AND there.chunk_index = f.chunk_index)
"""
FORGET = """
DELETE FROM chunk_findings WHERE collection_id = %(collection)s
AND (doc_id, chunk_index) >= (%(first_doc)s, %(first)s) AND (doc_id, chunk_index) <= (%(last_doc)s, %(last)s)
"""

OnBatch = Callable[[int], object]  # how many chunks were looked at


@dataclass(frozen=True, slots=True)
class FindingCounts:
    """Chunks with findings: all of them, and by family, the gravest family first."""

    chunks: int
    by_family: dict[str, int]


def find_in_chunk(content: str, context: str) -> list[dict[str, Any]]:
    """[`Finding.as_dict()`] of a chunk's content and, with "part": "context", of its context; by place."""
    result: list[dict[str, Any]] = [item.as_dict() for item in scan(content)]
    return result + [item.as_dict() | {"part": "context"} for item in scan(context)]


def scan_collection(
    collection: Collection,
    *,
    seconds: float | None = None,
    anew: bool = False,
    actor: services.Actor = None,
    on_batch: OnBatch = lambda scan: None,
) -> Operation:
    """Look through the chunks, from the beginning, or from where an earlier scan by the same rules stopped.

    seconds: stop after a batch when that much time has gone; None goes to the end. anew: from the beginning in any
    case. on_batch: told after each batch. What was found before stays until its chunk is looked at again.

    findings: chunks with any. report: {"rules": their version, "index_version", "chunks_scanned", "complete",
    "reached": [doc_id, chunk_index] that the next scan goes on behind}.
    """
    began = time.monotonic()
    report = _open_report(collection, anew)
    with running(Operation.Kind.FINDINGS, collection.name, actor=actor) as progress:
        while not report["complete"]:
            _scan_batch(collection, report)
            progress.write(stage="chunks", done=report["chunks_scanned"], report=report)
            on_batch(report["chunks_scanned"])
            if seconds is not None and time.monotonic() - began >= seconds:
                break
        if report["complete"]:
            execute(connection, DROP_GONE.format(chunks=collection.chunks_table), {"collection": collection.pk})
        message = "all chunks" if report["complete"] else "a part of the chunks"
        services.record(actor, [collection], services.CHANGE, f"scanned {message} for findings")
        return progress.succeed(report, findings=count_findings(collection).chunks)


def last_finding_scan(collection: Collection) -> Operation | None:
    return last_report(Operation.Kind.FINDINGS, collection)


def count_findings(collection: Collection) -> FindingCounts:
    """What the last scan found."""
    rows = dict(fetch_all(connection, FAMILY_COUNTS, {"collection": collection.pk}))
    total = ChunkFindings.objects.filter(collection=collection).aggregate(total=Count("pk"))["total"]
    ranked = sorted(FAMILIES, key=lambda name: -FAMILIES[name].score)
    return FindingCounts(total, {name: rows[name] for name in ranked if name in rows})


def list_findings(collection: Collection, family: str = "", *, offset: int = 0, limit: int = 50) -> list[ChunkFindings]:
    """The riskiest first, ties by (doc_id, chunk_index). family "": with any."""
    rows = ChunkFindings.objects.filter(collection=collection).order_by("-risk_score", "doc_id", "chunk_index")
    if family:
        rows = rows.filter(families__contains=[family])
    return list(rows[offset : offset + limit])


def _open_report(collection: Collection, anew: bool) -> dict[str, Any]:
    last = last_finding_scan(collection)
    same = {"rules": RULES_VERSION, "index_version": collection.index_version, "complete": False}
    if last is not None and not anew and last.report.items() >= same.items():
        return dict(last.report)
    return same | {"chunks_scanned": 0, "reached": ["", -1]}


def _scan_batch(collection: Collection, report: dict[str, Any]) -> None:
    doc_id, index = report["reached"]
    values = {"collection": collection.pk, "doc_id": doc_id, "index": index, "batch": BATCH}
    rows = fetch_all(connection, BATCH_ROWS.format(chunks=collection.chunks_table), values)
    result = []
    for doc_id, index, revision, content, context in rows:
        if findings := find_in_chunk(content, context):
            result.append(_row(collection, doc_id, index, revision, findings))
    with transaction.atomic():
        if rows:
            first, last = rows[0], rows[-1]
            _forget(collection, (first[0], first[1]), (last[0], last[1]))
            report["reached"] = [last[0], last[1]]
        ChunkFindings.objects.bulk_create(
            result,
            update_conflicts=True,
            unique_fields=["collection", "doc_id", "chunk_index"],
            update_fields=["revision", "families", "findings", "risk_score"],
        )
    report["chunks_scanned"] += len(rows)
    if len(rows) < BATCH:
        report |= {"complete": True, "reached": ["", -1]}


def _row(
    collection: Collection, doc_id: str, index: int, revision: int, findings: list[dict[str, Any]]
) -> ChunkFindings:
    return ChunkFindings(
        collection=collection,
        doc_id=doc_id,
        chunk_index=index,
        revision=revision,
        families=sorted({item["family"] for item in findings}),
        findings=findings,
        risk_score=risk_score(
            Finding(item["family"], item["rule"], item["start"], item["end"], item["confidence"]) for item in findings
        ),
    )


def _forget(collection: Collection, first: tuple[str, int], last: tuple[str, int]) -> None:
    values = {
        "collection": collection.pk, "first_doc": first[0], "first": first[1], "last_doc": last[0], "last": last[1],
    }  # fmt: skip
    execute(connection, FORGET, values)


Action = Literal["flag", "redact", "refuse"]
ACTIONS: tuple[Action, ...] = ("flag", "redact", "refuse")
FIELDS = ("action", "min_score", "allow_overrides")
SCORE_MAX = 100.0
PARTED_WITHIN = 2_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecurityPolicy:
    """action holds for findings of min_score or more. "flag" only records; the others are told in docs/security.md.

    allow_overrides: who asks may name any chat model and replace the system prompt, without the permission to write.
    """

    action: Action = "flag"
    min_score: float = 0.0
    allow_overrides: bool = False

    @property
    def acts(self) -> bool:
        return self.action != "flag"

    @property
    def refuses(self) -> bool:
        return self.action == "refuse"

    def holds_for(self, finding: Finding) -> bool:
        return self.acts and finding.score >= self.min_score

    def held(self, findings: Iterable[Finding]) -> list[Finding]:
        """Those of the findings that the action is taken for, in their order."""
        return [finding for finding in findings if self.holds_for(finding)]

    def withholds(self, text: str, location: str | None = None) -> bool:
        """Whether a passage holds orders to a model, so that no model shall read it."""
        return self.acts and any(item.family in ORDERS and self.holds_for(item) for item in scan_once(text, location))

    def hide(self, text: str) -> str:
        """The text with its secrets and personal data hidden, of the same length; the text itself under "flag"."""
        if not self.acts:
            return text
        return "".join(mask(piece, self.held(scan_once(piece))) for piece in _pieces(text))

    def show(self, text: str) -> str:
        """`hide`, and all of a passage covered that a collection which refuses leaves out."""
        return COVER * len(text) if self.refuses and self.withholds(text) else self.hide(text)

    def hide_whatever(self, text: str) -> str:
        """`hide` for what is kept of a run that failed, perhaps because its texts cannot be looked through."""
        try:
            return self.hide(text)
        except Exception:
            log.exception("a text of %d characters could not be looked through; it is not kept", len(text))
            return telemetry.REDACTED


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that a scan reads to their ends, parted at blanks where there are any."""
    while len(text) > CHARS_MAX:
        blank = max(text.rfind(sign, CHARS_MAX - PARTED_WITHIN, CHARS_MAX) for sign in (" ", "\n"))
        cut = blank + 1 or CHARS_MAX
        yield text[:cut]
        text = text[cut:]
    yield text


def policy_of(collection: Collection) -> SecurityPolicy:
    """What holds for a collection; what it does not state is the default, "flag" for every score."""
    explicit = collection.security or {}
    return SecurityPolicy(
        explicit.get("action", "flag"), float(explicit.get("min_score", 0.0)), explicit.get("allow_overrides") is True
    )


def redacted_spans(collection: Collection) -> AbstractContextManager[None]:
    """Inside, spans show texts as the collection lets them be shown."""
    policy = policy_of(collection)
    return telemetry.redacting(policy.hide if policy.acts else None)


def effective_security(collection: Collection) -> dict[str, Any]:
    """{"action", "min_score", "allow_overrides"} as they hold."""
    policy = policy_of(collection)
    return {"action": policy.action, "min_score": policy.min_score, "allow_overrides": policy.allow_overrides}


def check_security(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a collection states: action, min_score (0 to 100), allow_overrides. Raises InvalidInput."""
    selected: dict[str, Any] = {}
    for name, value in (values or {}).items():
        if name not in FIELDS:
            raise InvalidInput(f"security has no field {name!r}; it has {', '.join(FIELDS)}", field="security")
        if value is None:
            continue
        if name == "action" and value not in ACTIONS:
            raise InvalidInput(f"action must be one of {', '.join(ACTIONS)}, not {value!r}", field="action")
        if name == "min_score":
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= SCORE_MAX:
                raise InvalidInput(f"min_score must be a number from 0 to 100, not {value!r}", field="min_score")
            value = float(value)
        if name == "allow_overrides" and not isinstance(value, bool):
            raise InvalidInput(f"allow_overrides must be true or false, not {value!r}", field="allow_overrides")
        selected[name] = value
    return selected
