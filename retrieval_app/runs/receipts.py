"""A receipt of a run: what was asked and found, by what, and what was answered, signed.

The signed bytes are the canonical JSON (sorted keys, no spaces, UTF-8) of `receipt`.

The key that signs receipts: Ed25519, made at first use in RAGD_VAR; its public half is for everybody.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.conf import settings
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.models import IndexVersion
from ragd.errors import InvalidInput
from ragd.types import canonical_json
from ragd.version import product_version
from retrieval_app.models import QueryRun
from retrieval_app.runs.replay import CORRECTED

ALGORITHM = "Ed25519"
KEY_FILE = "receipt_key"
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class PublicKey:
    """raw: the 32 bytes of an Ed25519 public key."""

    raw: bytes

    @property
    def id(self) -> str:
        """The first 16 hex digits of its SHA-256."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The bytes in base64."""
        return base64.b64encode(self.raw).decode()

    def as_dict(self) -> dict[str, str]:
        return {"algorithm": ALGORITHM, "key_id": self.id, "public_key": self.text}

    def verifies(self, signature: str, content: bytes) -> bool:
        """Whether the signature (base64) is one of this key over the content."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(base64.b64decode(signature, validate=True), content)
        except (InvalidSignature, binascii.Error, ValueError):
            return False
        return True


def own_key() -> PublicKey:
    """The public key of this server."""
    return _public_half(_private_key())


def read_key(text: str) -> PublicKey:
    """A public key from its base64. Raises InvalidInput."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise InvalidInput(
            f"a public key is {KEY_BYTES} bytes in base64, as GET /v1/receipt-key gives it, not {text.strip()[:60]!r}",
            field="key",
        )
    return PublicKey(raw)


def sign(content: bytes) -> dict[str, Any]:
    """{"algorithm", "key_id", "public_key", "value" (base64)} of this server over the content."""
    key = _private_key()
    return _public_half(key).as_dict() | {"value": base64.b64encode(key.sign(content)).decode()}


def _public_half(key: Ed25519PrivateKey) -> PublicKey:
    return PublicKey(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def _private_key() -> Ed25519PrivateKey:
    path = Path(settings.RAGD_VAR) / KEY_FILE
    if not path.exists():
        # of two threads or processes that make one at once, the first one's stays; nobody reads half a key
        raw = Ed25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        with NamedTemporaryFile(dir=path.parent) as draft, contextlib.suppress(FileExistsError):  # mode 0600
            draft.write(base64.b64encode(raw))
            draft.flush()
            os.link(draft.name, path)
    return Ed25519PrivateKey.from_private_bytes(base64.b64decode(path.read_text()))


FORMAT = "ragd-receipt"
FORMAT_VERSION = 1
HIDING = ("redacted", "withheld")


def make_receipt(run: QueryRun) -> dict[str, Any]:
    """{"receipt", "signature"} of a search or an answer. ServiceError 409 for a run that failed or was refused."""
    if run.status not in (QueryRun.Status.OK, QueryRun.Status.ABSTAINED):
        raise ServiceError(
            f"run {run.pk} was not answered ({run.get_status_display().lower()}), so there is no receipt of it",
            type="not_answered",
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
        "index_version": {"number": run.index_version, "hash": _index_version_hash(run)},
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


def _index_version_hash(run: QueryRun) -> str | None:
    rows = IndexVersion.objects.filter(collection_id=run.collection_id or 0, number=run.index_version)
    return rows.values_list("hash", flat=True).first()
