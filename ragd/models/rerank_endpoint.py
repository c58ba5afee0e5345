"""A reranker behind the `/rerank` request that Cohere, Jina, vLLM and text-embeddings-inference (TEI) share.

    {"model", "query", "documents", "top_n"}    ->  {"results": [{"index", "relevance_score"}, ...]}
    {"query", "texts", "truncate"}   (TEI)      ->  [{"index", "score"}, ...]

Both answer with the logistic of the model's output, 0 to 1.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ragd.errors import InvalidInput, RerankerError
from ragd.models.openai_endpoint import read_retry_after

if TYPE_CHECKING:
    import httpx2

BACKOFF_MAX_S = 8.0
CONNECT_TIMEOUT_S = 5.0
RETRIED_STATUSES = frozenset({408, 409, 429})
QUOTED_CHARS = 300
BATCH_SIZE = 100
TEI_BATCH_SIZE = 32  # what TEI accepts unless it is started with --max-client-batch-size


class _AttemptError(Exception):
    """One attempt's failure. wait_s: how long the endpoint asked to wait. body: of a refusal, to see what it lacks."""

    def __init__(self, said: str, *, retryable: bool, wait_s: float | None = None, body: str = "") -> None:
        super().__init__(said)
        self.said, self.retryable, self.wait_s, self.body = said, retryable, wait_s, body


class EndpointReranker:
    """POST base_url + "/rerank" (base_url may name it already). Threads may share it; a fork opens its own client.

    model "" is not sent: a TEI server has one. The request begins in the common form; a server that asks for `texts`
    gets TEI's from then on. Texts travel in batches of at most `batch_size` (for TEI of at most 32). `timeout_s` bounds
    one attempt, `deadline_s` all batches with their retries and waits: after a timeout, a lost connection, an
    unreadable answer, 408, 409, 429 and 5xx an attempt is repeated up to `max_retries` times, after Retry-After, else
    after backoff_s * 2^n (8 s at most).
    """

    scores_are_probabilities = True

    def __init__(
        self,
        base_url: str,
        model: str = "",
        api_key: str | None = None,
        *,
        batch_size: int = BATCH_SIZE,
        timeout_s: float = 30.0,
        deadline_s: float = 60.0,
        max_retries: int = 3,
        backoff_s: float = 0.5,
    ) -> None:
        address = urlsplit(base_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidInput(
                f"base_url must be an http or https address such as https://host/v1, not {base_url!r}", field="base_url"
            )
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise InvalidInput(
                f"batch_size must be a whole number of at least 1, not {batch_size!r}", field="batch_size"
            )
        for name, value, low in (
            ("timeout_s", timeout_s, 1e-3), ("deadline_s", deadline_s, 1e-3),
            ("max_retries", max_retries, 0), ("backoff_s", backoff_s, 0),
        ):  # fmt: skip
            if not low <= value < math.inf:
                raise InvalidInput(f"{name} must be a number of at least {low:g}, not {value!r}", field=name)
        path = address.path.rstrip("/")
        self.url = address._replace(path=path if path.endswith("/rerank") else f"{path}/rerank").geturl()
        self.model, self._api_key, self.batch_size = model, api_key, batch_size
        self.timeout_s, self.deadline_s = timeout_s, deadline_s
        self.max_retries, self.backoff_s = max_retries, backoff_s
        self._wants_texts = False
        self._clients: dict[int, httpx2.Client] = {}

    @property
    def name(self) -> str:
        """The model's name, or the host when the endpoint has only one."""
        return self.model or urlsplit(self.url).hostname or "endpoint"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        """The endpoint's relevance, 0 to 1, of each text, in their order. [] for no texts.

        RerankerError says what the endpoint answered and what to do: unreachable, refused key, limit, another shape,
        missing or repeated texts, a score that is no finite number.
        """
        ends = time.monotonic() + self.deadline_s
        scores: list[float] = []
        while len(scores) < len(texts):
            size = min(self.batch_size, TEI_BATCH_SIZE) if self._wants_texts else self.batch_size
            batch = texts[len(scores) : len(scores) + size]
            try:
                scores += self._request(query, batch, ends)
            except _AttemptError as failure:
                if self._wants_texts or "texts" not in failure.body:
                    raise self._final(failure) from failure.__cause__
                self._wants_texts = True
        return scores

    def _request(self, query: str, batch: list[str], ends: float) -> list[float]:
        """One batch with its retries; the last failure is raised."""
        attempt = 0
        while True:
            try:
                left_s = ends - time.monotonic()
                return self._read(self._send(self._body(query, batch), min(self.timeout_s, max(left_s, 1e-3))), batch)
            except _AttemptError as failure:
                wait_s = failure.wait_s
                if wait_s is None:
                    wait_s = min(self.backoff_s * 2.0**attempt, BACKOFF_MAX_S)
                attempt += 1
                if not failure.retryable or attempt > self.max_retries or time.monotonic() + wait_s >= ends:
                    raise
            time.sleep(wait_s)

    def _body(self, query: str, batch: list[str]) -> dict[str, Any]:
        if self._wants_texts:
            return {"query": query, "texts": batch, "raw_scores": False, "truncate": True}
        named = {"model": self.model} if self.model else {}
        return {**named, "query": query, "documents": batch, "top_n": len(batch)}

    def _send(self, body: dict[str, Any], timeout_s: float) -> bytes:
        """The body of a 2xx answer."""
        import httpx2

        ends = time.monotonic() + timeout_s
        received = bytearray()
        # A lone surrogate has no encoding; the escapes of JSON would carry it to a server that cannot read it.
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
        try:
            with self._client().stream("POST", self.url, content=content, timeout=timeout) as response:
                for part in response.iter_bytes():
                    received += part
                    if time.monotonic() > ends:  # the client's timeout bounds each read, not their sum
                        raise _AttemptError(f"did not finish its answer within {timeout_s:.3g} s", retryable=True)
                if response.status_code // 100 != 2:
                    raise _refusal(response.status_code, response.headers, bytes(received))
        except httpx2.TimeoutException as error:
            said = f"did not answer within {timeout_s:.3g} s; check that it runs, or allow it more time"
            raise _AttemptError(said, retryable=True) from error
        except httpx2.TransportError as error:
            said = f"cannot be reached ({type(error).__name__}: {error}); check its address and that it runs"
            raise _AttemptError(said, retryable=True) from error
        except httpx2.HTTPError as error:
            raise _AttemptError(f"gave an answer that cannot be read ({error})", retryable=True) from error
        return bytes(received)

    def _client(self) -> httpx2.Client:
        import httpx2

        pid = os.getpid()
        if pid not in self._clients:  # a lock could be held in a forked child for ever; two threads may open one each
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            if self._api_key:
                headers["Authorization"] = f"Bearer {self._api_key}"
            self._clients[pid] = httpx2.Client(headers=headers)
        return self._clients[pid]

    def _read(self, body: bytes, batch: list[str]) -> list[float]:
        try:
            rows = list(_rows(json.loads(body)))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            begins = body[:QUOTED_CHARS].decode(errors="replace")
            said = f"gave an answer that is not the JSON of a /rerank endpoint; it begins with {begins!r}"
            raise _AttemptError(said, retryable=True) from error
        if sorted(index for index, _ in rows) != list(range(len(batch))):
            said = (
                f"gave scores for the texts {_shortened(str(sorted(index for index, _ in rows)))}, "
                f"expected one for each of 0 to {len(batch) - 1}; use a server that scores every text it is given"
            )
            raise _AttemptError(said, retryable=False)
        scores = dict(rows)
        return [scores[place] for place in range(len(batch))]

    def _final(self, failure: _AttemptError) -> RerankerError:
        address = urlsplit(self.url)
        where = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
        named = f" (model {self.model!r})" if self.model else ""
        message = f"the reranking endpoint {where}{named} {failure}"
        if failure.wait_s is not None:
            message += f"; it asks to wait {failure.wait_s:.0f} s"
        return RerankerError(message)


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


def _refusal(status: int, headers: Mapping[str, str], body: bytes) -> _AttemptError:
    text = body.decode(errors="replace")
    said = f"answered {status} ({_shortened(text.strip()) or 'without a text'})"
    if status in (401, 403):
        return _AttemptError(f"refused the key (HTTP {status}); check the API key", retryable=False)
    if status == 404:
        return _AttemptError(f"{said}; check its address and the model's name", retryable=False)
    if status == 413:
        return _AttemptError(f"{said}; make the batch or the pool smaller", retryable=False)
    if status in RETRIED_STATUSES or status >= 500:
        return _AttemptError(said, retryable=True, wait_s=read_retry_after(headers))
    return _AttemptError(said, retryable=False, body=text)


def _shortened(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "..."
