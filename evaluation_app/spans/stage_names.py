"""The stages of queries and ingests by the types of their spans, in words."""

from __future__ import annotations

from ragd.telemetry import names

PIPELINE_TYPE = "aitf.rag.pipeline"
# the stages in the order of the work, and their words; others follow by name
STAGE_WORDS = {
    PIPELINE_TYPE: "Whole query",
    "aitf.rag.query": "Question",
    "gen_ai.embeddings": "Embeddings",
    "aitf.rag.retrieve": "Retrieval",
    names.LEXICAL: "Lexical list",
    names.VECTOR: "Vector list",
    names.FUSE: "Fusion",
    "aitf.rag.rerank": "Reranking",
    names.COMPRESS: "Compression",
    "gen_ai.inference": "Chat",
    "aitf.rag.evaluate": "Evaluation",
    names.INGEST: "Ingest",
    names.FETCH: "Fetch",
    names.UNPACK: "Unpack",
    names.PARSE: "Parse",
    names.CHUNK: "Chunk",
    names.STORE: "Store",
    names.FILL: "Fill a generation",
    names.BUILD_INDEX: "Build an index",
    names.PROBE: "Probe of recall",
}
