"""A silent model is let go at once when its reader leaves: the connection ends, the text so far is the answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from collections_app.errors import ServiceError
from retrieval_app.llm.chat_model import Completion, Endpoint, complete, stops_with

SILENT_S = 60.0  # the deadline of a request, far beyond what a stop takes
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class SilentModel:
    """Takes one request, sends what it is given, and is silent. read: the request has come; closed: the other side
    ended the connection."""

    def __init__(self, sent: bytes) -> None:
        self.sent, self.read, self.closed = sent, threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            connection.settimeout(SILENT_S)
            asked = b""
            while b'"messages"' not in asked:
                asked += connection.recv(65_536)
            connection.sendall(self.sent)
            self.read.set()
            with suppress(ConnectionError):  # it ends with a reset where something was not read
                while connection.recv(65_536):
                    pass
            self.closed.set()

    def stop(self) -> None:
        self._listening.close()


def event(text: str) -> bytes:
    data = b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.fixture(params=["before the headers", "before a piece", "after a piece"])
def model(request: pytest.FixtureRequest) -> Iterator[tuple[SilentModel, str]]:
    """With the text that it sends before it is silent."""
    text = "It is the" if request.param == "after a piece" else ""
    silent = SilentModel(b"" if request.param == "before the headers" else HEAD + (event(text) if text else b""))
    yield silent, text
    silent.stop()


def ask(model: SilentModel, text: str = "", *, streams: bool) -> list[Completion | ServiceError]:
    """What came of it, once the reader has left while the model is silent after this text; [] where it still waits."""
    left, heard = threading.Event(), threading.Event()
    found: list[Completion | ServiceError] = []

    def on_text(piece: str) -> None:
        heard.set()

    def run() -> None:
        endpoint = Endpoint(model.address, "k", timeout_s=SILENT_S, max_tokens=10)
        messages = [{"role": "user", "content": "q"}]
        try:
            with stops_with(left):
                found.append(complete(endpoint, "m", messages, on_text=on_text if streams else None))
        except ServiceError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert model.read.wait(10) and thread.is_alive() and not model.closed.is_set()
    assert not text or heard.wait(10)
    left.set()
    thread.join(SILENT_S / 4)
    return found


def test_a_stream_ends_with_what_was_written(model: tuple[SilentModel, str]) -> None:
    silent, text = model
    [completion] = ask(silent, text, streams=True)
    assert isinstance(completion, Completion)
    assert (completion.text, completion.finish_reason) == (text, "stopped")
    assert silent.closed.wait(SILENT_S / 4)


def test_a_whole_answer_is_given_up_and_not_asked_for_again() -> None:
    silent = SilentModel(b"")
    [error] = ask(silent, streams=False)
    assert isinstance(error, ServiceError) and error.status == 502
    assert silent.closed.wait(SILENT_S / 4)
    silent.stop()
