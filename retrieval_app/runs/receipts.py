"""Signed receipts of runs: what was asked, found and answered; and what a receipt is worth beside an export.

The signed bytes are the canonical JSON (sorted keys, no spaces, UTF-8) of `receipt`.

The key that signs receipts: Ed25519, made at first use in RAGD_VAR; its public half is for everybody.

An export opened as a collection that only this transaction sees, to be searched and given up.

A stored run, run again: the same question by the same plan, now, beside what came back then.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from collections_app.collections.export_parts import DOCUMENTS, LISTS, check_row, invalid_export
from collections_app.collections.export_reader import Archive
from collections_app.collections.import_stage import read_spec
from collections_app.collections.import_writer import SET_REVISIONS, read_chunks
from collections_app.collections.services import get_collection
from collections_app.errors import ServiceError
from collections_app.index.stores import embedder_for, open_rerankers
from collections_app.models import ApiKey, IndexVersion
from ragd import telemetry
from ragd.errors import InvalidInput, RagdError
from ragd.search.retrieval import retrieve
from ragd.store.indexing import index
from ragd.store.store import REBAKE, SET_BAKED, Store, execute
from ragd.store.tables import create_collection, scratch_schema
from ragd.types import SPEC_VERSION, Chunk, RetrievePlan, canonical_json
from ragd.version import product_version
from retrieval_app.answers.protocol import result_dict
from retrieval_app.models import QueryRun
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest

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


DOCUMENTS_AT_ONCE = 200

INSERT_DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id, revision, state)
SELECT %(collection)s, doc_id, revision, state
FROM jsonb_to_recordset(%(rows)s::jsonb) AS listed (doc_id text, revision integer, state text)
"""

# Nobody reads as somebody here, but scores are those of the chunks without a list.
INSERT_LISTS = """
INSERT INTO document_access (collection_id, doc_id, access)
SELECT %(collection)s, doc_id, '{0}' FROM unnest(%(doc_ids)s::text[]) AS listed (doc_id) ON CONFLICT DO NOTHING
"""


@contextmanager
def open_export(archive: Archive) -> Iterator[Store]:
    """The exported collection as a store with its embedder, in a schema that is rolled back at the end.

    archive: checked. Scores are those of the exported collection: its vectors, its words, the mean length that its
    weights were computed with. Vector search is exact. Raises ServiceError 422 for an export that is damaged.
    """
    spec = read_spec(archive.manifest)
    with transaction.atomic(), scratch_schema(connection):
        pk = create_collection(
            connection,
            name=str(archive.manifest.collection["name"]),
            embed_model=spec.embed_model,
            embed_dims=spec.embed_dims,
            hybrid_enabled=spec.hybrid_enabled,
            language=spec.language,
            policy=spec.policy,
            placement="local",
        )
        store = Store(connection, pk, exact_threshold=settings.RAGD_EXACT_THRESHOLD, rerankers=open_rerankers())
        try:
            _fill(store, archive)
        except IntegrityError as error:
            raise invalid_export(f"its rows contradict each other: {str(error).splitlines()[0]}") from None
        store.use_embedder(embedder_for(spec.embed_model, spec.embed_dims))
        yield store


def _fill(store: Store, archive: Archive) -> None:
    listed = [str(row["doc_id"]) for row in archive.rows(LISTS)]
    execute(connection, INSERT_LISTS, {"collection": store.collection.id, "doc_ids": listed})
    rows = []
    for row in archive.rows(DOCUMENTS.member):
        check_row(DOCUMENTS.member, row)
        rows.append({name: row[name] for name in ("doc_id", "revision", "state")})
    execute(connection, INSERT_DOCUMENTS, {"collection": store.collection.id, "rows": canonical_json(rows)})
    waiting: list[tuple[Chunk, int]] = []
    for number, (_, chunks) in enumerate(groupby(read_chunks(archive), key=lambda pair: pair[0].doc_id), 1):
        waiting += chunks
        if number % DOCUMENTS_AT_ONCE == 0:
            _index(store, waiting)
            waiting = []
    _index(store, waiting)
    if store.collection.hybrid_enabled:
        params: dict[str, Any] = store.scope | {"length_baked": float(archive.manifest.statistics["length_baked"])}
        execute(connection, REBAKE.format(chunks=store.collection.partition), params)
        execute(connection, SET_BAKED, params)


def _index(store: Store, rows: Sequence[tuple[Chunk, int]]) -> None:
    index([chunk for chunk, _ in rows], store)
    params = {
        "collection": store.collection.id,
        "doc_ids": [chunk.doc_id for chunk, _ in rows],
        "numbers": [chunk.chunk_index for chunk, _ in rows],
        "revisions": [revision for _, revision in rows],
    }
    execute(connection, SET_REVISIONS.format(chunks=store.collection.partition), params)


PLACES = ("doc_id", "chunk_index")


@dataclass(frozen=True, slots=True)
class Problem:
    """kind: "wrong_key", "tampered", "plan", "export", "index_version", "result" or "not_repeatable"."""

    kind: str
    message: str


@dataclass(slots=True)
class Verification:
    """signature_valid: by the trusted key. repeated: whether the retrieval was made again. No problems: all holds."""

    run_id: str
    signature_valid: bool = False
    repeated: bool = False
    problems: list[Problem] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.problems

    def add(self, kind: str, message: str) -> None:
        self.problems.append(Problem(kind, message))


def read_receipt(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The receipt in a file. Raises InvalidInput for what is none."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", field="receipt") from None
    except ValueError:
        values = None
    return check_form(values)


def check_form(values: Any) -> dict[str, Any]:
    """The receipt unchanged. Raises InvalidInput for another format or version."""
    receipt = values.get("receipt") if isinstance(values, dict) else None
    signature = values.get("signature") if isinstance(values, dict) else None
    if not isinstance(receipt, dict) or not isinstance(signature, dict) or receipt.get("format") != FORMAT:
        raise InvalidInput(
            f"this is no receipt: expected a JSON object with receipt (format {FORMAT!r}) and signature, as "
            "GET /v1/runs/{id}/receipt gives it",
            field="receipt",
        )
    if receipt.get("format_version") != FORMAT_VERSION:
        raise InvalidInput(
            f"the receipt has format version {receipt.get('format_version')!r}, and this ragd reads {FORMAT_VERSION}",
            field="receipt",
        )
    return dict(values)


def verify(values: Mapping[str, Any], key: PublicKey, export: str | os.PathLike[str] | None = None) -> Verification:
    """Check the signature by the trusted key, and repeat the retrieval over the export where one is given.

    The question is searched by the receipt's plan in a scratch schema that is rolled back; nothing else is read.
    An export that is damaged is a problem, too. Raises InvalidInput for what is no receipt, EmbedderError and
    RerankerError where a model that the plan needs is not set up.
    """
    receipt = check_form(values)["receipt"]
    result = Verification(str(receipt.get("run_id", "")))
    _check_signature(values, key, result)
    if export is not None and result.signature_valid:
        _check_export(receipt, export, result)
    return result


def _check_signature(values: Mapping[str, Any], key: PublicKey, result: Verification) -> None:
    signature = values["signature"]
    if signature.get("algorithm") != ALGORITHM or signature.get("key_id") != key.id:
        result.add(
            "wrong_key",
            f"it is signed by key {signature.get('key_id')!r} ({signature.get('algorithm')}), and the trusted key is "
            f"{key.id!r} ({ALGORITHM}): another server signed it, or this one has a new key",
        )
        return
    if not key.verifies(str(signature.get("value", "")), canonical_json(values["receipt"]).encode()):
        result.add(
            "tampered", f"the signature of key {key.id!r} does not fit: the receipt was changed after it was signed"
        )
        return
    result.signature_valid = True


def _check_export(receipt: Mapping[str, Any], export: str | os.PathLike[str], result: Verification) -> None:
    if not receipt["repeatable"]:
        result.add(
            "not_repeatable",
            "what was retrieved was hidden or corrected before it was answered, so that no search gives it again",
        )
        return
    plan = _read_plan(receipt, result)
    if plan is None:
        return
    try:
        with Archive(Path(export)) as archive:
            archive.check()
            _check_origin(receipt, archive, result)
            with open_export(archive) as store, telemetry.silenced():
                found = retrieve(receipt["question"], plan, store)
    except ServiceError as error:
        result.add("export", f"the export cannot be used: {error.message}")
        return
    result.repeated = True
    again = [describe_result(result_dict(candidate, rank)) for rank, candidate in enumerate(found, 1)]
    _compare(receipt["retrieved"], again, result)


def _read_plan(receipt: Mapping[str, Any], result: Verification) -> RetrievePlan | None:
    try:
        plan = RetrievePlan.from_dict(receipt["plan"])
    except (RagdError, TypeError) as error:
        result.add("plan", f"the plan cannot be read by this version ({SPEC_VERSION}): {error}")
        return None
    if plan.hash != receipt["plan_hash"]:
        result.add("plan", f"the plan's hash is {plan.hash}, and the receipt says {receipt['plan_hash']}")
    return plan


def _check_origin(receipt: Mapping[str, Any], archive: Archive, result: Verification) -> None:
    """Another collection or index version; the results then say what that means."""
    name, exported = archive.manifest.collection["name"], archive.manifest.index_version
    if name != receipt["collection"]["name"]:
        result.add("export", f"the export is of collection {name!r}, the receipt of {receipt['collection']['name']!r}")
    if receipt["index_version"]["hash"] not in (None, exported["hash"]):
        result.add(
            "index_version",
            f"the export is of index version {exported['number']} ({exported['hash'][:12]}), the receipt of "
            f"{receipt['index_version']['number']} ({receipt['index_version']['hash'][:12]})",
        )


def _compare(before: list[Any], again: list[Any], result: Verification) -> None:
    """One problem per rank that differs, with every field that does."""
    for rank in range(1, max(len(before), len(again)) + 1):
        old = before[rank - 1] if rank <= len(before) else None
        new = again[rank - 1] if rank <= len(again) else None
        if old == new:
            continue
        if old is None or new is None or any(old[name] != new[name] for name in PLACES):
            result.add("result", f"rank {rank}: the receipt has {_name(old)}, the export {_name(new)}")
            continue
        changed = [
            f"{name} {old[name]!r} in the receipt, {new[name]!r} in the export"
            for name in old
            if old[name] != new.get(name)
        ]
        result.add("result", f"rank {rank}, {_name(old)}: {'; '.join(changed)}")


def _name(row: Mapping[str, Any] | None) -> str:
    return "nothing" if row is None else f"{row['doc_id']}#{row['chunk_index']}"


APPROXIMATE = "the HNSW index was used: its order can differ after a rebuild, and exact 'always' does not"

CORRECTED = ("refined", "completed", "replaced")  # outcomes of the corrective step that change results


@dataclass(frozen=True, slots=True)
class Replayed:
    """A stored run beside the one of the same question and plan that was made again."""

    run: QueryRun
    again: QueryRun

    @property
    def same(self) -> bool:
        """Return True if both have the same results, byte for byte."""
        return canonical_json(self.run.results) == canonical_json(self.again.results)

    @property
    def store_changed(self) -> bool | None:
        """None when the run does not say."""
        return self.run.store_state != self.again.store_state if self.run.store_state else None

    @property
    def index_version_changed(self) -> bool:
        return _index_version(self.run) != _index_version(self.again)

    @property
    def notes(self) -> list[str]:
        return _notes(self.run, self.again)

    @property
    def differences(self) -> list[dict[str, Any]]:
        """See `differences`."""
        return differences(self.run.results, self.again.results)


def replay(run: QueryRun, *, channel: str, api_key: ApiKey | None = None) -> Replayed:
    """The run beside that of `search_again`."""
    return Replayed(run, search_again(run, channel=channel, api_key=api_key))


def search_again(
    run: QueryRun, *, channel: str, user: User | AnonymousUser | None = None, api_key: ApiKey | None = None
) -> QueryRun:
    """The run of the same question by the same plan, made now (`replay_of`). Of an answer only the search is repeated.

    One that was as of an earlier time is as of that time again.

    Raises UnknownCollection when the collection is gone, InvalidInput for a run without a readable plan, and what
    `services.search` raises.
    """
    if run.elsewhere:
        raise InvalidInput(
            f"run {run.pk} searched {len(run.collection_names)} collections, and a replay searches one; ask the"
            " question again in Chat",
            field="run_id",
        )
    with telemetry.environment(telemetry.PLAYGROUND):
        request = QueryRequest(
            get_collection(run.collection_name), run.query, _plan_of(run), channel, plan_name=run.plan_name, user=user,
            api_key=api_key, replay_of=run.pk, as_of=datetime.fromisoformat(run.as_of) if run.as_of else None,
        )  # fmt: skip
        return query_pipeline.search(request)


def differences(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Results whose rank or score differs, by rank now and then, for what is gone, by rank before."""
    old = {(item["doc_id"], item["chunk_index"]): item for item in before}
    new = {(item["doc_id"], item["chunk_index"]): item for item in now}
    result = []
    for key in [*new, *(key for key in old if key not in new)]:
        was, is_now = old.get(key), new.get(key)
        positions = {
            "before": was["rank"] if was else None,
            "now": is_now["rank"] if is_now else None,
            "score_before": was["score"] if was else None,
            "score_now": is_now["score"] if is_now else None,
        }
        if (positions["before"], positions["score_before"]) != (positions["now"], positions["score_now"]):
            result.append({"doc_id": key[0], "chunk_index": key[1]} | positions)
    return result


def _plan_of(run: QueryRun) -> RetrievePlan:
    try:
        return RetrievePlan.from_dict(run.plan)
    except (InvalidInput, TypeError) as error:
        raise InvalidInput(
            f"the plan of run {run.pk} cannot be read by this version: {error}; ask the question again", field="plan"
        ) from error


def _index_version(run: QueryRun) -> tuple[Any, ...]:
    return (run.store_state.get("index_version", run.index_version), run.embed_model)


def _notes(run: QueryRun, again: QueryRun) -> list[str]:
    notes = []
    if run.collection_id != again.collection_id:
        notes.append(f"{run.collection_name!r} is another collection now, under the same name")
    if run.spec_version != SPEC_VERSION:
        notes.append(f"the run was made by version {run.spec_version or 'unknown'} of the specification")
    if again.exact_used is False:
        notes.append(APPROXIMATE)
    if run.correction and run.correction.get("outcome") in CORRECTED:
        notes.append(
            "the results of the run were corrected before it was answered, and a replay repeats the search alone"
        )
    if run.status == QueryRun.Status.ERROR:
        notes.append(f"the run failed: {run.error}")
    return notes
