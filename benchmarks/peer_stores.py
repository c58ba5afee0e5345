"""The peers behind one small interface. Runs in the virtual environment of requirements-peers.txt, as a process that
reads one JSON request per line and answers with one; it knows nothing of ragd. See bench_peers.py.

Every vector is given: documents are added with theirs, and a query's comes from a look-up. A row's key is its number.
Times are taken here, around the peer's own public calls, so that talking to this process costs nothing.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np

M, EF_CONSTRUCTION = 16, 64
BATCH = 1000


class Peer(Protocol):
    def create(self, table: str, dims: int, beam: int, pool: int, hybrid: bool) -> None:
        """A new table with its HNSW index, and the index of words for hybrid."""

    def add(self, numbers: Sequence[int], texts: Sequence[str], vectors: Sequence[list[float]]) -> None: ...

    def search(self, text: str, vector: list[float], k: int, hybrid: bool) -> list[int]: ...


class LangChain:
    """PGVectorStore of langchain-postgres, its hybrid search fused by its own reciprocal_rank_fusion."""

    def __init__(self, url: str) -> None:
        from langchain_core.embeddings import Embeddings
        from langchain_postgres import PGEngine

        class LookUp(Embeddings):
            vectors: dict[str, list[float]] = {}

            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return [self.vectors[text] for text in texts]

            def embed_query(self, text: str) -> list[float]:
                return self.vectors[text]

        self.embedder = LookUp()
        self.engine = PGEngine.from_connection_string(url.replace("postgresql://", "postgresql+asyncpg://"))

    def create(self, table: str, dims: int, beam: int, pool: int, hybrid: bool) -> None:
        from langchain_postgres import PGVectorStore
        from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion
        from langchain_postgres.v2.indexes import HNSWIndex, HNSWQueryOptions

        config = HybridSearchConfig(
            tsv_column="content_tsv",
            tsv_lang="pg_catalog.english",
            fusion_function=reciprocal_rank_fusion,
            primary_top_k=pool,
            secondary_top_k=pool,
            index_name=f"{table}_tsv",
        )
        self.engine.init_vectorstore_table(
            table, dims, overwrite_existing=True, hybrid_search_config=config if hybrid else None
        )
        self.store = PGVectorStore.create_sync(
            self.engine,
            self.embedder,
            table,
            index_query_options=HNSWQueryOptions(ef_search=beam),
            hybrid_search_config=config if hybrid else None,
        )
        self.store.apply_vector_index(HNSWIndex(name=f"{table}_hnsw", m=M, ef_construction=EF_CONSTRUCTION))
        if hybrid:
            self.store.apply_hybrid_search_index()

    def add(self, numbers: Sequence[int], texts: Sequence[str], vectors: Sequence[list[float]]) -> None:
        import uuid

        ids = [str(uuid.UUID(int=number)) for number in numbers]
        metadatas = [{"number": number} for number in numbers]
        self.store.add_embeddings(list(texts), list(vectors), metadatas, ids)

    def search(self, text: str, vector: list[float], k: int, hybrid: bool) -> list[int]:
        self.embedder.vectors[text] = vector
        return [document.metadata["number"] for document in self.store.similarity_search(text, k=k)]


class LlamaIndex:
    """PGVectorStore of llama-index-vector-stores-postgres. Its hybrid mode gives the vector list, then the words'."""

    def __init__(self, url: str) -> None:
        self.url = urlsplit(url)

    def create(self, table: str, dims: int, beam: int, pool: int, hybrid: bool) -> None:
        from llama_index.vector_stores.postgres import PGVectorStore

        self.pool = pool
        self.store = PGVectorStore.from_params(
            host=self.url.hostname,
            port=str(self.url.port),
            database=self.url.path[1:],
            user=self.url.username,
            password=self.url.password,
            table_name=table,
            embed_dim=dims,
            hybrid_search=hybrid,
            text_search_config="english",
            hnsw_kwargs={"hnsw_m": M, "hnsw_ef_construction": EF_CONSTRUCTION, "hnsw_ef_search": beam},
        )
        self.store.add([])

    def add(self, numbers: Sequence[int], texts: Sequence[str], vectors: Sequence[list[float]]) -> None:
        from llama_index.core.schema import TextNode

        self.store.add(
            [
                TextNode(id_=str(number), text=text, embedding=vector)
                for number, text, vector in zip(numbers, texts, vectors, strict=True)
            ]
        )

    def search(self, text: str, vector: list[float], k: int, hybrid: bool) -> list[int]:
        from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

        mode = VectorStoreQueryMode.HYBRID if hybrid else VectorStoreQueryMode.DEFAULT
        top = self.pool if hybrid else k
        query = VectorStoreQuery(
            query_embedding=vector, query_str=text, similarity_top_k=top, sparse_top_k=self.pool, mode=mode
        )
        return [int(number) for number in self.store.query(query).ids or []][:k]


class Haystack:
    """PgvectorDocumentStore of pgvector-haystack; hybrid as its documentation shows it: two retrievers and a joiner."""

    def __init__(self, url: str) -> None:
        self.url = url

    def create(self, table: str, dims: int, beam: int, pool: int, hybrid: bool) -> None:
        from haystack.components.joiners import DocumentJoiner
        from haystack.utils import Secret
        from haystack_integrations.components.retrievers.pgvector import (
            PgvectorEmbeddingRetriever,
            PgvectorKeywordRetriever,
        )
        from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

        self.store = PgvectorDocumentStore(
            connection_string=Secret.from_token(self.url),
            table_name=table,
            embedding_dimension=dims,
            recreate_table=True,
            search_strategy="hnsw",
            hnsw_index_creation_kwargs={"m": M, "ef_construction": EF_CONSTRUCTION},
            hnsw_index_name=f"{table}_hnsw",
            hnsw_ef_search=beam,
            keyword_index_name=f"{table}_words",
        )
        self.store.count_documents()
        self.nearest = PgvectorEmbeddingRetriever(document_store=self.store, top_k=pool)
        self.by_words = PgvectorKeywordRetriever(document_store=self.store, top_k=pool)
        self.joiner = DocumentJoiner(join_mode="reciprocal_rank_fusion")

    def add(self, numbers: Sequence[int], texts: Sequence[str], vectors: Sequence[list[float]]) -> None:
        from haystack import Document

        self.store.write_documents(
            [
                Document(id=str(number), content=text, embedding=vector)
                for number, text, vector in zip(numbers, texts, vectors, strict=True)
            ]
        )

    def search(self, text: str, vector: list[float], k: int, hybrid: bool) -> list[int]:
        if not hybrid:
            return [int(found.id) for found in self.nearest.run(query_embedding=vector, top_k=k)["documents"]]
        lists = [self.nearest.run(query_embedding=vector)["documents"], self.by_words.run(query=text)["documents"]]
        return [int(found.id) for found in self.joiner.run(documents=lists, top_k=k)["documents"]]


PEERS = {"langchain": LangChain, "llamaindex": LlamaIndex, "haystack": Haystack}


class Worker:
    """Answers requests about one peer; the data lie in a folder as numpy and JSON files."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.peer: Peer = PEERS[name](url)
        self.folder = folder

    def create(self, table: str, dims: int, beam: int, pool: int, hybrid: bool) -> dict[str, Any]:
        self.peer.create(table, dims, beam, pool, hybrid)
        return {}

    def add(self, data: str, first: int, count: int) -> dict[str, Any]:
        """Seconds in the peer's own calls; what makes Python lists of the vectors is left out."""
        vectors = np.load(self.folder / f"{data}.npy", mmap_mode="r")
        texts = json.loads((self.folder / f"{data}.json").read_text())
        seconds = 0.0
        for start in range(first, first + count, BATCH):
            numbers = range(start, min(start + BATCH, first + count))
            given = [vectors[number].tolist() for number in numbers]
            began = time.perf_counter()
            self.peer.add(numbers, texts[numbers.start : numbers.stop], given)
            seconds += time.perf_counter() - began
        return {"seconds": seconds}

    def search(self, data: str, first: int, count: int, k: int, hybrid: bool) -> dict[str, Any]:
        vectors = np.load(self.folder / f"{data}.npy")
        texts = json.loads((self.folder / f"{data}.json").read_text())
        took_ms, found = [], []
        for number in range(first, first + count):
            text, vector = texts[number], vectors[number].tolist()
            began = time.perf_counter()
            found.append(self.peer.search(text, vector, k, hybrid))
            took_ms.append((time.perf_counter() - began) * 1000)
        return {"took_ms": took_ms, "found": found}


def main() -> None:
    logging.disable(logging.WARNING)
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a peer prints must not look like an answer
    worker = Worker(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(worker, request.pop("do"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
