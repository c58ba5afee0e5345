"""A receipt of a run: what was asked and found, by what, and what was answered, signed.

The signed bytes are the canonical JSON (sorted keys, no spaces, UTF-8) of `receipt`.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.models import Generation
from ragd.types import canonical_json
from ragd.version import product_version
from retrieval_app.models import QueryRun
from retrieval_app.receipts.signing import sign
from retrieval_app.runs.replay import CORRECTED

FORMAT = "ragd-receipt"
FORMAT_VERSION = 1
HIDING = ("redacted", "withheld")


def make_receipt(run: QueryRun) -> dict[str, Any]:
    """{"receipt", "signature"} of a search or an answer. ServiceError 409 for a run that failed or was refused."""
    if run.status not in (QueryRun.Status.OK, QueryRun.Status.ABSTAINED):
        raise ServiceError(
            f"run {run.pk} was not answered ({run.get_status_display().lower()}), so there is no receipt of it",
            type="not_answered",
            status=409,
        )
    receipt = describe(run)
    return {"receipt": receipt, "signature": sign(canonical_json(receipt).encode())}


def describe(run: QueryRun) -> dict[str, Any]:
    """What the receipt says. repeatable: whether the plan finds what was retrieved: nothing was hidden or corrected."""
    hidden = any(finding.get("action") in HIDING for finding in run.findings)
    corrected = bool(run.correction and run.correction.get("outcome") in CORRECTED)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "run_id": str(run.pk),
        "kind": run.kind,
        "asked_at": run.created_at.isoformat(),
        "issued_at": timezone.now().isoformat(),
        "as_of": run.as_of,
        "question": run.query,
        "collection": {"name": run.collection_name, "id": run.collection_id},
        "generation": {"number": run.generation, "hash": _generation_hash(run)},
        "embed_model": run.embed_model,
        "plan": run.plan,
        "plan_hash": run.plan_hash,
        "exact": run.exact_used,
        "repeatable": not (hidden or corrected or run.elsewhere),
        "retrieved": [describe_result(result) for result in run.results],
        "status": run.status,
        "answer": run.answer,
        "answerer": run.answerer,
        "citations": run.citations,
        "versions": {"specification": run.spec_version, "ragd": product_version()},
    }


def describe_result(result: dict[str, Any]) -> dict[str, Any]:
    """One result: where it stands, what it scored, and the SHA-256 of what it says."""
    named = {name: result[name] for name in ("doc_id", "chunk_index", "revision", "rank", "score", "score_kind")}
    return named | {"content_sha256": hashlib.sha256(result["content"].encode()).hexdigest()}


def _generation_hash(run: QueryRun) -> str | None:
    rows = Generation.objects.filter(collection_id=run.collection_id or 0, number=run.generation)
    return rows.values_list("hash", flat=True).first()
