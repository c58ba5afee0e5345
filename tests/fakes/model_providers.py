"""A server on the loopback for each provider of models: paths, key, fields and answers as its documentation says.

A field that the provider does not document is refused where the provider itself refuses it (Mistral 422
"extra_forbidden", Cohere 400), and noted elsewhere. Vectors and chat answers are those of the OpenAIServer.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.openai_server import BadRequest, OpenAIServer, Request, count_words, hashed_vector
from tests.fakes.rerank_server import TEI_BATCH_MAX, word_share

KEY = "sk-provider-secret-4711"
RERANK_FIELDS = {"model", "query", "documents", "top_n"}


class ProviderServer(OpenAIServer):
    """kind: a key of PRESETS. `base(purpose)` is the address that its documentation gives for a purpose."""

    keyed = False
    chat_path = embed_path = "/v1/chat/completions"
    rerank_path = ""
    own_dims = 16

    def __init__(self) -> None:
        super().__init__(dims=self.own_dims, api_key=KEY if self.keyed else None)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def base(self, purpose: str) -> str:
        return f"{self.root}/v1"

    def answer(self, request: Request) -> Any:
        self.check_key(request)
        path = urlsplit(request.path).path
        if path.endswith("/chat/completions"):
            self.check_chat(request.body)
            return self._chat(request.body)
        if path.endswith("/models"):
            return {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}
        if path.endswith("/embeddings"):
            return self.embed(request.body)
        if path.endswith("/rerank"):
            return self.rerank(request.body)
        raise BadRequest(404, f"no such path {path}")

    def check_key(self, request: Request) -> None:
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            raise BadRequest(401, "invalid api token")

    def check_chat(self, body: dict[str, Any]) -> None:
        if "max_tokens" not in body:
            raise BadRequest(400, "max_tokens is expected")

    def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._embeddings(body)

    def rerank(self, body: dict[str, Any]) -> Any:
        raise BadRequest(404, "there is no reranking here")

    def ranked(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        if set(body) - RERANK_FIELDS:
            raise BadRequest(400, f"unknown fields {sorted(set(body) - RERANK_FIELDS)}")
        rows = [
            {"index": place, "relevance_score": word_share(body["query"], text)}
            for place, text in enumerate(body["documents"])
        ]
        return sorted(rows, key=lambda row: -row["relevance_score"])[: body.get("top_n")]


class Ollama(ProviderServer):
    """Numbers come as a list whatever encoding is asked for; an unknown model is 404."""

    def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["model"] == "missing":
            raise BadRequest(404, 'model "missing" not found, try pulling it first')
        return self._embeddings(body | {"encoding_format": "float"})


class Vllm(ProviderServer):
    def rerank(self, body: dict[str, Any]) -> Any:
        return {"id": "rerank-1", "model": body["model"], "usage": {"total_tokens": 9}, "results": self.ranked(body)}


class LlamaCpp(ProviderServer):
    """Its rerank scores are the model's output, not probabilities."""

    def rerank(self, body: dict[str, Any]) -> Any:
        rows = [row | {"relevance_score": 12 * row["relevance_score"] - 6} for row in self.ranked(body)]
        return {"model": body["model"], "object": "list", "usage": {"prompt_tokens": 9}, "results": rows}


class LmStudio(Ollama):
    """Numbers come as a list."""


class Tei(ProviderServer):
    """OpenAI's form below /v1, its own `/rerank` at the root; at most 32 texts at once."""

    def base(self, purpose: str) -> str:
        return self.root if purpose == "rerank" else f"{self.root}/v1"

    def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        if len(body["input"]) > TEI_BATCH_MAX:
            raise BadRequest(413, f"batch size {len(body['input'])} > maximum allowed batch size {TEI_BATCH_MAX}")
        return self._embeddings(body)

    def rerank(self, body: dict[str, Any]) -> Any:
        if "texts" not in body:
            raise BadRequest(422, "", raw=b"Failed to deserialize the JSON body: missing field `texts` at line 1")
        rows = [{"index": place, "score": word_share(body["query"], text)} for place, text in enumerate(body["texts"])]
        return sorted(rows, key=lambda row: -row["score"])


class OpenAi(ProviderServer):
    """The limit of an answer is max_completion_tokens."""

    keyed = True

    def check_chat(self, body: dict[str, Any]) -> None:
        if "max_tokens" in body or "max_completion_tokens" not in body:
            raise BadRequest(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")


class Azure(OpenAi):
    """The key in the header api-key; the v1 API, or a path for each deployment with an API version."""

    def base(self, purpose: str) -> str:
        return f"{self.root}/openai/v1"

    def check_key(self, request: Request) -> None:
        if request.headers.get("api-key") != KEY or "authorization" in request.headers:
            raise BadRequest(401, "Access denied due to invalid subscription key or wrong API endpoint.")
        parts = urlsplit(request.path)
        if parts.path.startswith("/openai/deployments/"):
            if not parse_qs(parts.query).get("api-version"):
                raise BadRequest(404, "Resource not found")
        elif not parts.path.startswith("/openai/v1/"):
            raise BadRequest(404, "Resource not found")


class KeyedOther(ProviderServer):
    """OpenAI's protocol as most speak it."""

    keyed = True


class Anthropic(KeyedOther):
    """The list of models wants a key and a version in headers of its own."""

    def check_key(self, request: Request) -> None:
        if request.path.endswith("/models"):
            if (request.headers.get("x-api-key"), request.headers.get("anthropic-version")) != (KEY, "2023-06-01"):
                raise BadRequest(401, "invalid x-api-key")
        super().check_key(request)


class Mistral(ProviderServer):
    """Refuses every field that it does not document."""

    keyed = True
    chat_fields = frozenset(
        ("model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed", "response_format",
         "presence_penalty", "frequency_penalty", "n", "safe_prompt")
    )  # fmt: skip
    embed_fields = frozenset(("model", "input", "encoding_format", "output_dimension", "output_dtype", "metadata"))

    def check_chat(self, body: dict[str, Any]) -> None:
        self._forbid(body, self.chat_fields)

    def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        self._forbid(body, self.embed_fields)
        return self._embeddings(body | {"dimensions": body.get("output_dimension", self.dims)})

    def _forbid(self, body: dict[str, Any], known: frozenset[str]) -> None:
        for name in body:
            if name not in known:
                detail = [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}]
                raw = json.dumps({"object": "error", "message": {"detail": detail}, "type": "invalid_request_error"})
                raise BadRequest(422, "", raw=raw.encode())


class Cohere(ProviderServer):
    """v2 for embeddings and reranking, the compatibility API for chat."""

    keyed = True

    def base(self, purpose: str) -> str:
        return f"{self.root}/compatibility/v1" if purpose in ("chat", "judge") else f"{self.root}/v2"

    def answer(self, request: Request) -> Any:
        self.check_key(request)
        if request.path.startswith("/v1/models?"):
            return {"models": [{"name": name, "endpoints": ["chat"]} for name in self.models]}
        if request.path == "/v2/embed":
            return self._embed(request.body)
        if request.path == "/v2/rerank":
            return {"id": "1", "results": self.ranked(request.body), "meta": {"billed_units": {"search_units": 1}}}
        if request.path == "/compatibility/v1/chat/completions":
            self.check_chat(request.body)
            return self._chat(request.body)
        raise BadRequest(404, f"no such path {request.path}")

    def _embed(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("input_type") not in ("search_document", "search_query") or "embedding_types" not in body:
            raise BadRequest(400, "input_type and embedding_types must be specified")
        if len(body["texts"]) > 96:
            raise BadRequest(400, "at most 96 texts")
        dims = body.get("output_dimension", self.dims)
        vectors = [hashed_vector(f"{body['input_type']} {text}", dims).tolist() for text in body["texts"]]
        tokens = sum(count_words(text) for text in body["texts"])
        meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
        return {"id": "1", "embeddings": {"float": vectors}, "texts": body["texts"], "meta": meta}


class Jina(ProviderServer):
    """embedding_type in place of encoding_format, and a task for each side."""

    keyed = True
    fields = frozenset(("model", "input", "task", "dimensions", "embedding_type", "late_chunking", "normalized"))

    def embed(self, body: dict[str, Any]) -> dict[str, Any]:
        if set(body) - self.fields or body.get("task") not in ("retrieval.query", "retrieval.passage"):
            raise BadRequest(422, f"fields {sorted(body)}")
        vectors = [hashed_vector(f"{body['task']} {text}", body.get("dimensions", self.dims)) for text in body["input"]]
        rows = [
            {"object": "embedding", "index": place, "embedding": base64.b64encode(vector.tobytes()).decode()}
            for place, vector in enumerate(vectors)
        ]
        return {
            "model": body["model"],
            "object": "list",
            "usage": {"total_tokens": 4, "prompt_tokens": 4},
            "data": rows,
        }

    def rerank(self, body: dict[str, Any]) -> Any:
        return {"model": body["model"], "usage": {"total_tokens": 9}, "results": self.ranked(body)}


class Other(Vllm):
    """OpenAI's protocol and /rerank in the common form."""


SERVERS: dict[str, type[ProviderServer]] = {
    "ollama": Ollama, "vllm": Vllm, "llama_cpp": LlamaCpp, "lm_studio": LmStudio, "tei": Tei, "openai": OpenAi,
    "azure": Azure, "mistral": Mistral, "cohere": Cohere, "jina": Jina, "other": Other,
    "anthropic": Anthropic, "bedrock": OpenAi,
    **dict.fromkeys(("gemini", "openrouter", "groq", "deepseek"), KeyedOther),
}  # fmt: skip


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))
