"""The way from the thread that makes an answer to the one that sends it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client, RequestFactory
from pytest_django import Settings

from collections_app.errors import ServiceError
from collections_app.http import downloads
from retrieval_app.answers.streams import (
    WAITING_MAX,
    AnswerStream,
    Event,
    EventBody,
    event_response,
    frame_event,
    open_stream,
    slots,
    wants_events,
)
from tests.refusals import raises_with


@pytest.fixture
def stream() -> Iterator[AnswerStream]:
    slots.take()
    slots.give_back(running=1)
    opened = AnswerStream()
    yield opened
    opened.leave()
    assert slots.readers == 0


def taken(stream: AnswerStream) -> list[Event]:
    events = []
    while event := stream.take(0):
        events.append(event)
    return events


def test_tokens_that_nobody_takes_are_joined_and_none_is_lost(stream: AnswerStream) -> None:
    for number in range(10_000):
        stream.tell(f"{number} ")
    events = taken(stream)
    assert len(events) == WAITING_MAX
    assert "".join(event.data["text"] for event in events) == "".join(f"{number} " for number in range(10_000))


def test_what_is_no_token_is_never_joined(stream: AnswerStream) -> None:
    for number in range(WAITING_MAX + 2):
        stream.put(Event("citation", {"marker": number}))
        stream.tell(".")
    assert [event.name for event in taken(stream)] == ["citation", "token"] * (WAITING_MAX + 2)


def test_after_the_reader_left_nothing_waits(stream: AnswerStream) -> None:
    stream.tell("a")
    stream.leave()
    stream.leave()
    stream.tell("b")
    assert (taken(stream), slots.readers) == ([], 0)


def test_an_event_that_the_client_is_not_told_is_passed_over(stream: AnswerStream) -> None:
    body = EventBody(stream, lambda event: b"" if event.name == "citation" else frame_event(event))
    stream.put(Event("citation", {"marker": 1}))
    stream.tell('two\nlines "quoted"')
    assert next(body) == b'event: token\ndata: {"text":"two\\nlines \\"quoted\\""}\n\n'
    body.stream.heartbeat_s = 0
    assert next(body) == b": waiting\n\n"


def test_a_response_that_is_thrown_away_gives_its_place_back(stream: AnswerStream) -> None:
    response = event_response(RequestFactory().get("/"), stream, frame_event)
    assert slots.readers == 1
    del response
    gc.collect()
    assert slots.readers == 0


def test_a_connection_that_takes_nothing_is_given_up(stream: AnswerStream) -> None:
    class Connection:
        timeout: float | None = None

        def settimeout(self, seconds: float) -> None:
            self.timeout = seconds

    connection = Connection()
    event_response(RequestFactory().get("/", **{"gunicorn.socket": connection}), stream, frame_event)  # type: ignore[arg-type]
    assert connection.timeout == downloads.SEND_TIMEOUT_S


@pytest.mark.django_db
def test_work_that_fails_before_its_first_event_raises_where_it_is_waited_for(client: Client) -> None:
    def fail(listener: Any) -> dict[str, Any]:
        raise ServiceError("no", type="no", status=418)

    with pytest.raises(ServiceError) as caught:
        open_stream(fail).start()
    assert (caught.value.status, slots.readers, slots.running) == (418, 0, 0)


@pytest.mark.django_db
def test_answers_without_reader_are_bounded_too(settings: Settings) -> None:
    settings.RAGD_WEB_THREADS = 2
    for _ in range(8):
        slots.take()
        slots.give_back(readers=1)
    with raises_with(ServiceError, type="too_many_streams", status=503):
        open_stream(lambda listener: {})
    slots.give_back(running=8)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("text/event-stream", True),
        ("text/event-stream, application/json;q=0.5", True),
        ("application/json;q=0.1, text/event-stream", True),
        ("application/json, text/event-stream", False),
        ("*/*", False),
        ("text/html", False),
        ("", False),
    ],
)
def test_who_wants_events(accept: str, wanted: bool) -> None:
    assert wants_events(RequestFactory().get("/", headers={"Accept": accept})) is wanted
