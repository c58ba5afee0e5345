"""ragd: the blocks of retrieval-augmented generation over PostgreSQL and pgvector, each one function.

The library takes a connection and never owns a transaction. It knows no web framework, no queue and no settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragd.errors import (
        DimensionMismatch,
        EmbedderError,
        EmptyContent,
        InvalidInput,
        LexicalDisabled,
        QueryVectorError,
        RagdError,
        RerankerError,
        UnknownCollection,
        UnsupportedDatabase,
    )
    from ragd.models.reranking import rerank
    from ragd.search.compression import compress
    from ragd.search.fusion import fuse
    from ragd.search.retrieval import Retrieval, ShortResult, retrieve, retrieve_detailed
    from ragd.store.indexing import embed_chunks, index
    from ragd.store.store import Store
    from ragd.text.chunking import bind, chunk, document_text
    from ragd.types import (
        SPEC_VERSION,
        Candidate,
        Chunk,
        ChunkPolicy,
        Embedder,
        Filters,
        ListRank,
        RetrievePlan,
        Segment,
    )
else:
    from importlib import import_module

    MODULES = {
        "errors": "DimensionMismatch EmbedderError EmptyContent InvalidInput LexicalDisabled QueryVectorError "
        "RagdError RerankerError UnknownCollection UnsupportedDatabase",
        "types": "SPEC_VERSION Candidate Chunk ChunkPolicy Embedder Filters ListRank RetrievePlan Segment",
        "text.chunking": "bind chunk document_text",
        "models.reranking": "rerank",
        "store.store": "Store",
        "store.indexing": "embed_chunks index",
        "search.compression": "compress",
        "search.fusion": "fuse",
        "search.retrieval": "Retrieval ShortResult retrieve retrieve_detailed",
    }
    HOMES = {name: f"{__name__}.{module}" for module, names in MODULES.items() for name in names.split()}

    def __getattr__(name):
        """Load a name at its first use: what wants `ragd.errors` alone needs no numpy."""
        if name not in HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(HOMES[name]), name)
        return value


__all__ = [
    "SPEC_VERSION", "Candidate", "Chunk", "ChunkPolicy", "DimensionMismatch", "Embedder", "EmbedderError",
    "EmptyContent", "Filters", "InvalidInput", "LexicalDisabled", "ListRank", "QueryVectorError", "RagdError",
    "RerankerError", "Retrieval", "RetrievePlan", "Segment", "ShortResult", "Store", "UnknownCollection",
    "UnsupportedDatabase", "bind", "chunk", "compress", "document_text", "embed_chunks", "fuse", "index", "rerank",
    "retrieve", "retrieve_detailed",
]  # fmt: skip
