"""Servers on the loopback that answer `/rerank` as Cohere, Jina and vLLM do, or as text-embeddings-inference (TEI).

A text's score is the share of the query's words that it holds. Rows come best first, as real servers send them.
Requests are noted and faults scripted as for the OpenAIServer. base_url ends in /v1; TEI answers at url alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.openai_server import WORD, BadRequest, OpenAIServer, Request

TEI_BATCH_MAX = 32


def word_share(query: str, text: str) -> float:
    words = set(WORD.findall(query.lower()))
    return len(words & set(WORD.findall(text.lower()))) / len(words)


class RerankServer(OpenAIServer):
    """kind "cohere": model, query, documents, top_n; nothing else is accepted. kind "tei": query and texts."""

    def __init__(self, kind: str = "cohere", api_key: str | None = "test-key") -> None:
        super().__init__(api_key=api_key)
        self.kind = kind

    @property
    def url(self) -> str:
        return self.base_url.removesuffix("/v1")

    def answer(self, request: Request) -> Any:
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            raise BadRequest(401, "invalid api token")
        if request.method != "POST" or request.path not in ("/rerank", "/v1/rerank"):
            raise BadRequest(404, f"no such path {request.path}")
        return self._tei(request.body) if self.kind == "tei" else self._cohere(request.body)

    def _cohere(self, body: dict[str, Any]) -> dict[str, Any]:
        for name in body:
            if name not in ("model", "query", "documents", "top_n"):
                raise BadRequest(400, f"unknown field {name!r}")
        if not isinstance(body.get("model"), str) or not body.get("documents"):
            raise BadRequest(400, "model and documents are required")
        rows = self._ranked(body["query"], body["documents"], "relevance_score")[: body["top_n"]]
        return {"id": f"rerank-{len(self.requests)}", "results": rows, "meta": {"billed_units": {"search_units": 1}}}

    def _tei(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        if "texts" not in body:
            refusal = b"Failed to deserialize the JSON body into the target type: missing field `texts` at line 1"
            raise BadRequest(422, "", raw=refusal)
        if len(body["texts"]) > TEI_BATCH_MAX:
            said = f"batch size {len(body['texts'])} > maximum allowed batch size {TEI_BATCH_MAX}"
            raise BadRequest(413, "", raw=json.dumps({"error": said, "error_type": "Validation"}).encode())
        return self._ranked(body["query"], body["texts"], "score")

    def _ranked(self, query: str, texts: list[str], field: str) -> list[dict[str, Any]]:
        rows = [{"index": place, field: word_share(query, text)} for place, text in enumerate(texts)]
        return sorted(rows, key=lambda row: -row[field])


@pytest.fixture
def rerank_server() -> Iterator[RerankServer]:
    server = RerankServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def tei_server() -> Iterator[RerankServer]:
    server = RerankServer("tei", api_key=None)
    server.start()
    yield server
    server.stop()


__all__ = ["RerankServer", "rerank_server", "tei_server", "word_share"]
