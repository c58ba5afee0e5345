"""A server on the loopback that speaks OpenAI's protocol: /v1/embeddings, /v1/chat/completions and /v1/models.

    def test_answer(openai_server):
        openai_server.chat_reply = lambda messages: "Paris [1]"
        openai_server.script(rate_limited("1"), slow(0.2))     # the next two requests, whatever they ask
        openai_server.script(failing(500), model="flaky")      # the next request for the model "flaky"
        ... OpenAI(base_url=openai_server.base_url, api_key=openai_server.api_key) ...
        assert openai_server.requests[0].body["model"] == "gpt-4o-mini"

Vectors are sums of hashed words, so texts that share words are near each other; the same text has the same vector on
every machine. A token is a word or a punctuation mark.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from tests.fakes.faults import JSON, Fault, error_body
from tests.fakes.serving import Serving

WORD = re.compile(r"\w+|[^\w\s]")
INPUTS_MAX = 2048
Message = dict[str, Any]


def count_words(text: str) -> int:
    return len(WORD.findall(text))


def hashed_vector(text: str, dims: int) -> np.ndarray:
    """The unit vector, float32 [dims], of the sum of the word's hashes."""
    total = np.zeros(dims)
    for word in WORD.findall(text.lower()) or [text]:
        bits = np.frombuffer(hashlib.shake_256(word.encode()).digest(dims), dtype=np.uint8)
        total += bits.astype(np.float64) - 127.5
    return (total / np.linalg.norm(total)).astype(np.float32)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: dict[str, Any]
    at_s: float  # time.monotonic()


class BadRequest(Exception):
    """raw: the whole body, where it is not OpenAI's error object."""

    def __init__(self, status: int, message: str, param: str | None = None, raw: bytes | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.raw = status, message, param, raw


class OpenAIServer(Serving):
    """base_url ends in /v1. dims: what a model gives when `dimensions` is not sent. With api_key None any key is good.

    chat_reply makes the assistant's text from the messages; chat_finish is the finish reason when no limit cuts it.
    pause is called in a stream after each event with how many were sent, and may wait.
    """

    def __init__(self, dims: int = 384, api_key: str | None = "test-key", host: str = "127.0.0.1") -> None:
        self.dims, self.api_key = dims, api_key
        self.models = ["text-embedding-3-small", "gpt-4o-mini"]
        self.chat_reply: Callable[[list[Message]], str] = lambda messages: f"You said: {messages[-1]['content']}"
        self.chat_finish = "stop"
        self.pause: Callable[[int], object] = lambda sent: None
        self.requests: list[Request] = []
        self.stopping = threading.Event()
        self._scripts: dict[str | None, deque[Fault]] = {}
        self._lock = threading.Lock()
        super().__init__(ThreadingHTTPServer((host, 0), type("Bound", (Handler,), {"fake": self})))

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    def stop(self) -> None:
        self.stopping.set()
        super().stop()

    def script(self, *faults: Fault, model: str | None = None) -> None:
        """The next requests (for that model, or any) meet these faults, one each, in order."""
        self._scripts.setdefault(model, deque()).extend(faults)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """What was posted to a path such as "/v1/embeddings", in order of arrival."""
        return [request.body for request in self.requests if request.path == path]

    def receive(self, request: Request) -> Fault:
        """Note the request; the fault that it meets."""
        with self._lock:
            self.requests.append(request)
            for key in (request.body.get("model"), None):
                if self._scripts.get(key):
                    return self._scripts[key].popleft()
        return Fault()

    def answer(self, request: Request) -> dict[str, Any]:
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            raise BadRequest(401, "Incorrect API key provided.")
        if (request.method, request.path) == ("GET", "/v1/models"):
            rows = [{"id": name, "object": "model", "created": 0, "owned_by": "tests"} for name in self.models]
            return {"object": "list", "data": rows}
        if (request.method, request.path) == ("POST", "/v1/embeddings"):
            return self._embeddings(request.body)
        if (request.method, request.path) == ("POST", "/v1/chat/completions"):
            return self._chat(request.body)
        raise BadRequest(404, f"Invalid URL ({request.method} {request.path})")

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        given = body.get("input")
        inputs = (
            [given]
            if isinstance(given, str) or (isinstance(given, list) and given and isinstance(given[0], int))
            else given
        )
        if not isinstance(body.get("model"), str) or not isinstance(inputs, list) or not inputs or "" in inputs:
            raise BadRequest(400, "'$.input' is invalid. Please check the API reference.", "input")
        if len(inputs) > INPUTS_MAX:
            raise BadRequest(400, f"at most {INPUTS_MAX} inputs are allowed", "input")
        texts = [item if isinstance(item, str) else json.dumps(item) for item in inputs]
        vectors = [hashed_vector(text, body.get("dimensions", self.dims)) for text in texts]
        as_base64 = body.get("encoding_format") == "base64"
        rows = [
            {
                "object": "embedding",
                "index": place,
                "embedding": base64.b64encode(vector.tobytes()).decode() if as_base64 else vector.tolist(),
            }
            for place, vector in enumerate(vectors)
        ]
        tokens = sum(count_words(text) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": rows, "model": body["model"], "usage": usage}

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        messages = body.get("messages")
        if not isinstance(body.get("model"), str) or not isinstance(messages, list) or not messages:
            raise BadRequest(400, "Missing required parameter: 'messages'.", "messages")
        text, finish = self.chat_reply(messages), self.chat_finish
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        if limit is not None and count_words(text) > limit:
            ends = [found.end() for found in WORD.finditer(text)]
            text, finish = text[: ends[limit - 1]] if limit else "", "length"
        asked, given = sum(count_words(str(message.get("content"))) for message in messages), count_words(text)
        return {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": finish,
                }
            ],
            "usage": {"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given},
            "system_fingerprint": "fp_tests",
        }


def stream_events(answer: dict[str, Any], include_usage: bool) -> list[bytes]:
    """The server-sent events of a chat answer: role, one piece per word, finish reason, usage where asked, [DONE]."""
    choice = answer["choices"][0]
    pieces = re.findall(r"\s*\S+|\s+$", choice["message"]["content"])
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    deltas += [({}, choice["finish_reason"])]
    shared = {name: answer[name] for name in ("id", "created", "model", "system_fingerprint")}
    shared |= {"object": "chat.completion.chunk"} | ({"usage": None} if include_usage else {})
    chunks = [
        shared | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        for delta, finish in deltas
    ]
    if include_usage:
        chunks.append(shared | {"choices": [], "usage": answer["usage"]})
    return [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]


class Handler(BaseHTTPRequestHandler):
    """One connection. `fake` is the OpenAIServer that it speaks for."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the client to acknowledge the headers
    fake: OpenAIServer

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""

    def _respond(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            self._send(
                400, error_body("We could not parse the JSON body of your request.", "invalid_request_error"), Fault()
            )
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body, time.monotonic())
        fault = self.fake.receive(request)
        if fault.delay_s:
            self.fake.stopping.wait(fault.delay_s)
        try:
            self._meet(request, fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _meet(self, request: Request, fault: Fault) -> None:
        if fault.reset:
            # Closing with a zero linger time sends RST.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        if fault.status is not None:
            self._send(fault.status, fault.body, fault)
            return
        try:
            answer = self.fake.answer(request)
        except BadRequest as error:
            body = error.raw or error_body(error.message, "invalid_request_error", param=error.param)
            self._send(error.status, body, fault)
            return
        if request.body.get("stream"):
            asks_usage = bool((request.body.get("stream_options") or {}).get("include_usage"))
            self._stream(stream_events(answer, asks_usage), fault)
        else:
            self._send(200, json.dumps(fault.alter(answer) if fault.alter else answer).encode(), fault)

    def _send(self, status: int, body: bytes, fault: Fault) -> None:
        self.send_response(status)
        self.send_header("Content-Type", fault.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-request-id", f"req-{len(self.fake.requests)}")
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if fault.cut_after is not None:
            self.wfile.write(body[: fault.cut_after])
            self.close_connection = True
            return
        if not fault.drip_s:
            self.wfile.write(body)
            return
        for byte in body:
            self.wfile.write(bytes([byte]))
            if self.fake.stopping.wait(fault.drip_s):
                break

    def _stream(self, events: list[bytes], fault: Fault) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(events if fault.cut_after is None else events[: fault.cut_after], 1):
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            self.fake.pause(number)
            if fault.drip_s:
                self.fake.stopping.wait(fault.drip_s)
        if fault.cut_after is None:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    server = OpenAIServer().start()
    yield server
    server.stop()


__all__ = ["JSON", "OpenAIServer", "count_words", "hashed_vector", "openai_server"]
