"""A reranker behind the `/rerank` request that Cohere, Jina, vLLM and text-embeddings-inference (TEI) share.

    {"model", "query", "documents", "top_n"}    ->  {"results": [{"index", "relevance_score"}, ...]}
    {"query", "texts", "truncate"}   (TEI)      ->  [{"index", "score"}, ...]

Both answer with the logistic of the model's output, 0 to 1. llama.cpp answers with that output itself.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from ragd.errors import RerankerError
from ragd.models import openai_client
from ragd.types import check_at_least

BATCH_SIZE = 100
POLICY = openai_client.RetryPolicy(max_retries=3, deadline_s=60.0)
TEI_BATCH_SIZE = 32  # what TEI accepts unless it is started with --max-client-batch-size
HINTS = {404: "check its address and the model's name", 413: "make the batch or the pool smaller"}


class EndpointReranker:
    """POST the server's base_url + "/rerank" (which may name it already). Threads may share it; a fork opens its own.

    model "" is not sent: a TEI server has one. The request begins in the common form; a server that asks for `texts`
    gets TEI's from then on. Texts travel in batches of at most `batch_size` (for TEI of at most 32). The policy's
    deadline is that of all batches. gives_logits: the server answers with the model's output (llama.cpp), and the
    logistic is taken here. wants_texts: the server is TEI, which the first answer tells otherwise.
    """

    scores_are_probabilities = True

    def __init__(
        self,
        server: openai_client.Server,
        model: str = "",
        *,
        policy: openai_client.RetryPolicy = POLICY,
        batch_size: int = BATCH_SIZE,
        gives_logits: bool = False,
        wants_texts: bool = False,
    ) -> None:
        openai_client.check_base_url(server.base_url)
        address = urlsplit(server.base_url)
        check_at_least("batch_size", batch_size, 1)
        path = address.path.rstrip("/")
        self.url = address._replace(path=path if path.endswith("/rerank") else f"{path}/rerank").geturl()
        self.model, self._api_key, self.batch_size, self.policy = model, server.api_key, batch_size, policy
        self._wants_texts, self._gives_logits, self._key_header = wants_texts, gives_logits, server.key_header

    @property
    def name(self) -> str:
        """The model's name, or the host when the endpoint has only one."""
        return self.model or urlsplit(self.url).hostname or "endpoint"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        """The endpoint's relevance, 0 to 1, of each text, in their order. [] for no texts.

        RerankerError says what the endpoint answered and what to do: unreachable, refused key, limit, another shape,
        missing or repeated texts, a score that is no finite number.
        """
        deadline = time.monotonic() + self.policy.deadline_s
        scores: list[float] = []
        while len(scores) < len(texts):
            size = min(self.batch_size, TEI_BATCH_SIZE) if self._wants_texts else self.batch_size
            batch = texts[len(scores) : len(scores) + size]
            try:
                scores += self._request(query, batch, deadline)
            except openai_client.EndpointError as error:
                if self._wants_texts or "texts" not in error.body:
                    raise self._final(error) from error
                self._wants_texts = True
        return scores

    def _request(self, query: str, batch: list[str], deadline: float) -> list[float]:
        body = self._body(query, batch)
        return self.policy.run(lambda timeout_s: self._read(self._send(body, timeout_s), batch), deadline=deadline)

    def _body(self, query: str, batch: list[str]) -> dict[str, Any]:
        if self._wants_texts:
            return {"query": query, "texts": batch, "raw_scores": False, "truncate": True}
        named = {"model": self.model} if self.model else {}
        return {**named, "query": query, "documents": batch, "top_n": len(batch)}

    def _send(self, body: dict[str, Any], timeout_s: float) -> bytes:
        """The body of a 2xx answer."""
        # A lone surrogate has no encoding; the escapes of JSON would carry it to a server that cannot read it.
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        options: Any = {
            "timeout": openai_client.request_timeout(timeout_s),
            "headers": {"Content-Type": "application/json"},
        }
        with openai_client.endpoint_errors(timeout_s):
            client = openai_client.open_client(self.url, self._api_key, self._key_header)
            return client.post(self.url, cast_to=httpx2.Response, content=content, options=options).content

    def _read(self, body: bytes, batch: list[str]) -> list[float]:
        try:
            rows = list(_rows(json.loads(body)))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            beginning = body[: openai_client.QUOTED_CHARS].decode(errors="replace")
            message = f"gave an answer that is not the JSON of a /rerank endpoint; it begins with {beginning!r}"
            raise openai_client.EndpointError("malformed", message) from error
        if sorted(index for index, _ in rows) != list(range(len(batch))):
            message = (
                f"gave scores for the texts {openai_client.shortened(str(sorted(index for index, _ in rows)))}, "
                f"expected one for each of 0 to {len(batch) - 1}; use a server that scores every text it is given"
            )
            raise openai_client.EndpointError("count", message, retryable=False)
        scores = {index: _logistic(score) if self._gives_logits else score for index, score in rows}
        return [scores[index] for index in range(len(batch))]

    def _final(self, failure: openai_client.EndpointError) -> RerankerError:
        model = f" (model {self.model!r})" if self.model else ""
        message = f"the reranking endpoint {openai_client.public_address(self.url)}{model} {failure.message}"
        if failure.status in HINTS:
            message += f"; {HINTS[failure.status]}"
        if failure.retry_after_s is not None:
            message += f"; it asks to wait {failure.retry_after_s:.0f} s"
        return RerankerError(message, retryable=failure.retryable)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def _rows(answer: Any) -> Iterator[tuple[int, float]]:
    """(index, score) of each row of either shape; ValueError, TypeError or KeyError for anything else."""
    rows = answer["results"] if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise TypeError("the results must be a list")
    for row in rows:
        index, score = row["index"], row["relevance_score"] if "relevance_score" in row else row["score"]
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError("an index must be a whole number")
        if not isinstance(score, int | float) or isinstance(score, bool) or not math.isfinite(score):
            raise ValueError("a score must be a finite number")
        yield index, float(score)
