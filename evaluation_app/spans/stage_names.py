"""The stages of queries and ingests by the types of their spans, in words."""

from __future__ import annotations

from ragd.telemetry import names

PIPELINE_TYPE = "aitf.rag.pipeline"
# the stages in the order of the work, and their words; others follow by name
STAGE_WORDS = {
    PIPELINE_TYPE: "Pipeline (root)",
    "aitf.rag.query": "Question",
    "gen_ai.embeddings": "Embeddings",
    "aitf.rag.retrieve": "Retrieval",
    names.LEXICAL: "Keyword search",
    names.VECTOR: "Vector search",
    names.FUSE: "Fusion",
    "aitf.rag.rerank": "Reranking",
    names.COMPRESS: "Compression",
    "gen_ai.inference": "Chat",
    "aitf.rag.evaluate": "Evaluation",
    names.INGEST: "Ingest",
    names.FETCH: "Fetch",
    names.UNPACK: "Extract",
    names.PARSE: "Parse",
    names.CHUNK: "Chunk",
    names.STORE: "Store",
    names.FILL: "Build index version",
    names.BUILD_INDEX: "Build index",
    names.PROBE: "Recall probe",
}
