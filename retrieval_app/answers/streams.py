"""An answer told as server-sent events while it is made.

The work runs in a thread of its own, so that it ends and is stored whether or not somebody still reads. A slow reader
never stops the model: when many tokens wait, the next are joined to the last. Each process answers so many readers at
once that a thread stays free for all else; beyond that it answers 503.

The events of a streamed answer, for the OpenAPI page. `search_results` and `final` are shaped like JSON answers.

JSON as every channel sends it.
"""

from __future__ import annotations

import logging
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Field, Schema

from collections_app.errors import ServiceError, describe
from collections_app.http.downloads import limit_sending
from ragd.types import canonical_json
from retrieval_app.answers.citations import Citation
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import RunListener
from retrieval_app.search.schemas import SearchResponse


class TokenEvent(Schema):
    """The next piece of the checked answer; joined, the pieces are the answer."""

    text: str


class CitationEvent(Schema):
    """A citation as it is told while the answer comes; start, end and quote are judged by the sentence so far."""

    marker: int
    doc_id: str
    chunk_index: int
    start: int
    end: int
    quote: str
    match: Literal["quote", "closest", "chunk"]
    answer_start: int = Field(description="The marker in the answer; the tokens so far end with it")
    answer_end: int
    page: str | None


class ErrorEvent(Schema):
    """What ended the stream: the error as everywhere, with the status that it would have had."""

    error: dict[str, str]
    detail: str
    status: int
    run_id: str | None


_STATED = tomllib.loads(Path(__file__).with_name("ask_events.toml").read_text(encoding="utf-8"))
_EVENTS = {
    "search_results": {"$ref": "#/components/schemas/SearchResponse"},
    "token": TokenEvent.model_json_schema(),
    "citation": CitationEvent.model_json_schema(),
    "final": {"$ref": "#/components/schemas/AskResponse"},
    "error": ErrorEvent.model_json_schema(),
}
_SCHEMA = {"type": "string", "description": _STATED["description"], "x-events": _EVENTS}
_CONTENT = {"text/event-stream": {"schema": _SCHEMA, "example": _STATED["example"]}}
ASK_EVENTS: dict[str, Any] = {"responses": {200: {"content": _CONTENT}}}


def body_of(answer: Schema) -> dict[str, Any]:
    """The answer as JSON values; optional fields that it does not have are left out."""
    return answer.model_dump(exclude_unset=True)


def encode(body: Any) -> str:
    """Sorted keys, no spaces."""
    return canonical_json(body_of(body) if isinstance(body, Schema) else body)


def json_response(body: Any) -> HttpResponse:
    return HttpResponse(encode(body), content_type="application/json")


log = logging.getLogger(__name__)

EventName = Literal["stage", "search_results", "answer", "token", "citation", "final", "error"]

HEARTBEAT_S = 15.0
HEARTBEAT = b": waiting\n\n"
TRY_AGAIN_S = 2.0
RUNNING_PER_THREAD = 4
WAITING_MAX = 64  # events; tokens beyond are joined to the last
MEDIA_TYPE = "text/event-stream"
TOO_MANY = "too_many_streams"  # the type of the error; asked without streaming, the same is answered


@dataclass(frozen=True, slots=True)
class Event:
    """One event: search_results, then tokens and citations in the order of the answer, then final or error.

    The Chat page is told stages before, and the answer so far in place of tokens and citations.
    """

    name: EventName
    data: dict[str, Any]


class _Slots:
    """How many answers are read and how many are made in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.readers = self.running = 0

    def take(self) -> None:
        """Raises ServiceError 503 when there are as many as this process takes."""
        with self._lock:
            if self.readers >= readers_max() or self.running >= settings.RAGD_WEB_THREADS * RUNNING_PER_THREAD:
                raise ServiceError(
                    f"this server process streams at most {readers_max()} answers at once, and all are taken; ask "
                    "again in a moment, ask without streaming, or raise RAGD_WEB_THREADS",
                    type=TOO_MANY,
                    status=503,
                    retry_after_s=TRY_AGAIN_S,
                )
            self.readers += 1
            self.running += 1

    def give_back(self, *, readers: int = 0, running: int = 0) -> None:
        with self._lock:
            self.readers -= readers
            self.running -= running


slots = _Slots()


def readers_max() -> int:
    """Streams that one process answers at once: all its threads but one."""
    threads: int = settings.RAGD_WEB_THREADS
    return max(1, threads - 1)


class AnswerStream(RunListener):
    """The events of one answer, from the thread that makes it to the one that sends them.

    The listener's methods belong to the first, `start`, `take` and `leave` to the second.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._seen: set[str] = set()
        self._failure: Exception | None = None
        self._has_ended = self._has_left = False
        self.heartbeat_s = HEARTBEAT_S
        self.run_id: str | None = None

    # --- the thread that makes the answer
    def retrieved(self, run: QueryRun) -> None:
        self.run_id = str(run.pk)
        self.put(Event("search_results", body_of(SearchResponse.from_orm(run))))
        self.rest()

    def rest(self) -> None:
        """Hold no connection to the database while the model writes, which may take a minute."""
        _close_connections()

    def tell(self, text: str) -> None:
        self.put(Event("token", {"text": text}))

    def cite(self, citation: Citation) -> None:
        self.put(Event("citation", body_of(CitationEvent.from_orm(citation))))

    def restarted(self) -> None:
        """Nothing can be taken back here; `final` has the answer alone."""

    def make(self, work: Callable[[RunListener], dict[str, Any]]) -> None:
        """Do the work and tell how it ended. Never raises."""
        try:
            self.put(Event("final", work(self)))
        except Exception as error:
            self._failure = error
            status, body = describe(error)
            self.put(Event("error", {"run_id": self.run_id} | body | {"status": status}))
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()
            slots.give_back(running=1)

    def put(self, event: Event) -> None:
        """One more event for the reader."""
        with self._changed:
            self._seen.add(event.name)
            if self._has_left:
                return
            if event.name == "answer" and self._events and self._events[-1].name == "answer":
                if self._events[-1].data.get("column") == event.data.get("column"):
                    self._events.pop()  # the newer one holds it
            if event.name == "token" and len(self._events) >= WAITING_MAX and self._events[-1].name == "token":
                event = Event("token", {"text": self._events.pop().data["text"] + event.data["text"]})
            self._events.append(event)
            self._changed.notify_all()

    # --- the thread that sends it
    def start(self, names: Collection[str] = ("search_results",), patience_s: float | None = None) -> None:
        """Wait for an event of these names, or the end, or so many seconds. Raises what failed before.

        So a question that cannot be answered gets a status of its own and no stream.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or not self._seen.isdisjoint(names), patience_s)
            failure = self._failure if self._seen.isdisjoint(names) else None
        if failure is not None:
            self.leave()
            raise failure

    def take(self, timeout_s: float) -> Event | None:
        """The next event; None when none came in time. Raises StopIteration after the last."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self._events, timeout_s)
            if self._events:
                return self._events.popleft()
            if self._has_ended:
                raise StopIteration
            return None

    def leave(self) -> None:
        """Nobody reads any more; the work goes on to its end. Calling it again changes nothing."""
        with self._changed:
            if self._has_left:
                return
            self._has_left = True
            self._events.clear()
        slots.give_back(readers=1)


def open_stream(work: Callable[[RunListener], dict[str, Any]], stream: AnswerStream | None = None) -> AnswerStream:
    """Begin the work: it is given the listener and returns the data of the final event. stream: another kind of it.

    Raises ServiceError 503 when this process streams enough already. Inside a transaction the work is done here, at
    once: a thread has a connection of its own, which would not see what the transaction wrote.
    """
    slots.take()
    stream = stream or AnswerStream()
    if transaction.get_connection().in_atomic_block:
        stream.make(work)
        return stream
    _close_connections()  # the thread needs one, and this one may not wait for it with one in its hand
    context = copy_context()

    def run() -> None:
        try:
            context.run(stream.make, work)
        finally:
            connections.close_all()

    try:
        threading.Thread(target=run, name="ragd-answer").start()
    except RuntimeError:  # the system gives no more threads
        slots.give_back(running=1)
        stream.leave()
        raise
    return stream


def _close_connections() -> None:
    """Give the database connections of this thread back, unless a transaction is open."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


class EventBody(Iterator[bytes]):
    """The body of a response: each event as `frame` writes it, and a comment when nothing came for a while.

    frame may give b"" for an event that this client is not told.
    """

    def __init__(self, stream: AnswerStream, frame: Callable[[Event], bytes]) -> None:
        self.stream = stream
        self.frame = frame

    def __next__(self) -> bytes:
        due = time.monotonic() + self.stream.heartbeat_s
        while True:
            event = self.stream.take(max(0.0, due - time.monotonic()))
            if event is None:
                return HEARTBEAT
            if event.name == "error" and event.data["status"] >= 500:
                log.error("an answer failed while it was streamed: %s", event.data["detail"])
            if body := self.frame(event):
                return body

    def close(self) -> None:
        self.stream.leave()

    def __del__(self) -> None:
        """A response that nobody sent or closed holds no place for ever."""
        self.close()


def event_response(
    request: HttpRequest, stream: AnswerStream, frame: Callable[[Event], bytes]
) -> StreamingHttpResponse:
    """The events as a response that nothing on the way is to buffer. A reader that takes nothing is given up."""
    limit_sending(request)
    return StreamingHttpResponse(
        EventBody(stream, frame), content_type=f"{MEDIA_TYPE}; charset=utf-8", headers={"X-Accel-Buffering": "no"}
    )


def wants_events(request: HttpRequest) -> bool:
    """Whether the caller asked for server-sent events rather than JSON."""
    return request.get_preferred_type(["application/json", MEDIA_TYPE]) == MEDIA_TYPE


def frame_event(event: Event) -> bytes:
    """One server-sent event: its name, and its data as one line of JSON."""
    return f"event: {event.name}\ndata: {encode(event.data)}\n\n".encode()
