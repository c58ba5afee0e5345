"""Stored documents cut into chunks as a generation would hold them, with what people changed of the chunks."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db import connection

from collections_app.models import Collection, Document
from collections_app.policies import policy_of
from collections_app.services.documents.documents import draft_of
from collections_app.services.indexing.embedding_checkpoints import Chunks
from collections_app.services.indexing.ingestion import chunk_draft, hash_content
from collections_app.services.indexing.stored_documents import DocumentOverlays
from ragd.store.store import fetch_all
from ragd.text.chunking import document_text
from ragd.types import Chunk, ChunkPolicy

SERVED_ROWS = """
SELECT chunk_index, content, start_char, end_char, tags, metadata::text, context, NOT switched_off,
       attributes::text FROM {chunks}
WHERE collection_id = %(collection)s AND doc_id = %(doc_id)s ORDER BY chunk_index
"""


@dataclass(frozen=True, slots=True)
class CutDocument:
    """One document as it was read, with its chunks to be and the policy that cut them."""

    document: Document
    chunks: Chunks
    content_hash: str
    policy: ChunkPolicy


def cut_document(collection: Collection, document: Document, target: Collection, policy: ChunkPolicy) -> CutDocument:
    """The document by the policy of the generation, or by what was stated for it alone.

    target: the collection as it is with the generation, unsaved: its model, dimensions and chunk policy.
    """
    draft = draft_of(document)
    text = document_text(draft.content)
    policy = policy_of(target, document) if document.chunk_policy_stated else policy
    overlays = DocumentOverlays.read(collection.pk, document.doc_id)
    # what is indexed through the library has no text: its chunks stay as they were cut
    cut = overlays.apply(chunk_draft(draft, text, policy)) if text.strip() else _served_chunks(collection, document)
    return CutDocument(document, cut, hash_content(target, draft, text, policy, overlays.digest), policy)


def _served_chunks(collection: Collection, document: Document) -> list[Chunk]:
    scope = {"collection": collection.pk, "doc_id": document.doc_id}
    rows = fetch_all(connection, SERVED_ROWS.format(chunks=collection.chunks_table), scope)
    return [
        Chunk(
            document.doc_id,
            index,
            content,
            start,
            end,
            tuple(tags),
            json.loads(metadata),
            context,
            None,
            enabled,
            json.loads(attributes),
        )
        for index, content, start, end, tags, metadata, context, enabled, attributes in rows
    ]
