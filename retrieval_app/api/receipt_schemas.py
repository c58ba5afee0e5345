"""The shapes of receipts over HTTP."""

from __future__ import annotations

from typing import Literal

from ninja import Field, Schema

from collections_app.api.schemas import Stored
from ragd.types import RetrievePlan
from retrieval_app.api.schemas import CitationOut


class ReceiptKey(Schema):
    algorithm: Literal["Ed25519"]
    key_id: str = Field(description="The first 16 hex digits of the SHA-256 of the key")
    public_key: str = Field(description="32 bytes in base64")


class ReceiptSignature(ReceiptKey):
    value: str = Field(description="Over the canonical JSON of receipt: sorted keys, no spaces, UTF-8; base64")


class RetrievedOut(Schema):
    doc_id: str
    chunk_index: int
    revision: int
    rank: int
    score: float
    score_kind: str
    content_sha256: str = Field(description="Of the UTF-8 of what the chunk said")


class ReceiptCollection(Schema):
    name: str
    id: int | None


class ReceiptGeneration(Schema):
    number: int
    hash: str | None


class ReceiptVersions(Schema):
    specification: str
    ragd: str


class SignedRecord(Schema):
    format: Literal["ragd-receipt"]
    format_version: int
    run_id: str
    kind: Literal["search", "ask"]
    asked_at: str
    issued_at: str
    as_of: str | None
    question: str
    collection: ReceiptCollection
    generation: ReceiptGeneration
    embed_model: str
    plan: Stored[RetrievePlan]
    plan_hash: str
    exact: bool | None
    repeatable: bool = Field(description="Whether the same search gives the same: nothing was hidden or corrected")
    retrieved: list[RetrievedOut]
    status: Literal["ok", "abstained"]
    answer: str | None
    answerer: str
    citations: Stored[list[CitationOut]]
    versions: ReceiptVersions


class Receipt(Schema):
    receipt: SignedRecord
    signature: ReceiptSignature
