"""What Celery is told about each kind of broker. Every option here was found by killing workers and measuring."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

VISIBILITY_TIMEOUT_S = 900  # a task that is not acknowledged by then is given to another worker
POOL_SIZE = 5

PGMQ_OPTIONS = {
    "init_extension": False,  # its SQL is installed by a migration
    "use_notify": True,
    "notify_throttle_interval_ms": 0,  # each message says that it came: none waits for the next look
    "wait_time_seconds": 0,
    "polling_interval": 1.0,  # for messages that become visible again
    "visibility_timeout": VISIBILITY_TIMEOUT_S,
    "pool_size": POOL_SIZE,
    "pool_timeout": 10,
}
REDIS_OPTIONS = {
    "visibility_timeout": VISIBILITY_TIMEOUT_S,
    # by default lost messages are looked for every 100 s only
    "unacked_restore_interval": 2,
    "unacked_restore_throttle": 1,
    # a worker that dies in the middle of that keeps the others from it for so long: 300 s by default
    "unacked_mutex_expire": 10,
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
}
AMQP_OPTIONS = {"confirm_publish": True}


def describe_broker(broker_url: str, database_url: str) -> tuple[str, dict[str, Any]]:
    """(broker URL, transport options). An empty `broker_url` is the queue in the database itself."""
    if not broker_url:
        database = urlsplit(database_url)
        # user and password travel in the options only: Celery prints the URL
        address = f"pgmq://{database.hostname or 'localhost'}:{database.port or 5432}{database.path}"
        return address, {**PGMQ_OPTIONS, "conn_string": database_url}
    match urlsplit(broker_url).scheme:
        case "pgmq":
            return broker_url, dict(PGMQ_OPTIONS)
        case "redis" | "rediss":
            return broker_url, dict(REDIS_OPTIONS)
        case _:
            return broker_url, dict(AMQP_OPTIONS)
