"""The queue in PostgreSQL: what is no task is dropped, and what comes after it is delivered."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.db import connection
from kombu import Connection, Consumer, Exchange, Producer, Queue
from pgmq import PGMQueue

from ragd_site.broker import describe_broker
from ragd_site.environment import read_environment
from ragd_site.run import make_children

NAME = "test_forged"
QUEUE = Queue(NAME, Exchange(NAME), routing_key=NAME)
TORN = {
    "body": "abcde", "headers": {}, "properties": {"delivery_tag": "a", "delivery_info": {}, "body_encoding": "base64"}
}  # fmt: skip
FORGED: list[Any] = ["text", [1, 2], 7, None, {}, {"body": "x"}, {"body": "x", "headers": {}, "properties": {}}, TORN]


@pytest.fixture
def database_url(db: None) -> str:
    values = connection.settings_dict
    return (
        f"postgresql://{values['USER']}:{quote(values['PASSWORD'])}@{values['HOST']}:{values['PORT']}/{values['NAME']}"
    )


@pytest.fixture
def broker(database_url: str) -> Iterator[Connection]:
    url, options = describe_broker("", database_url)
    with Connection(url, transport_options=options) as opened:
        yield opened
        QUEUE(opened.default_channel).delete()


def test_what_is_no_task_is_dropped_with_a_line_in_the_log(
    broker: Connection, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[Any] = []
    with Consumer(broker, [QUEUE], callbacks=[lambda body, message: (received.append(body), message.ack())]):
        client: PGMQueue = broker.default_channel.pgmq
        with psycopg.connect(database_url, autocommit=True) as other:
            for forged in FORGED:
                other.execute("SELECT pgmq.send(%s, %s)", [NAME, psycopg.types.json.Jsonb(forged)])
        Producer(broker).publish({"task": "good"}, exchange=QUEUE.exchange, routing_key=NAME, declare=[QUEUE])
        with caplog.at_level(logging.ERROR):
            while not received:
                broker.drain_events(timeout=60)
        assert received == [{"task": "good"}]
        assert client.metrics(NAME).queue_length == 0
    assert len([record for record in caplog.records if record.name == "ragd_site.celery"]) == len(FORGED)


def test_the_worker_sends_no_events_that_nobody_reads() -> None:
    """Over pgmq each of them was an error in PostgreSQL's log, every two seconds."""
    (worker,) = [child for child in make_children(read_environment(), {}) if child.name == "worker"]
    assert {"--without-gossip", "--without-mingle", "--without-heartbeat"} <= set(worker.command)
