"""Which attributes and types spans have: those that ragd writes, and those that were seen in the store."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from difflib import get_close_matches

from django.db import connection

from evaluation_app.spans.store.columns import OWN_TYPES, TABLE_TYPES
from ragd.conventions import TABLES
from ragd.errors import InvalidInput
from ragd.telemetry import names

SEEN_NAMES = """
SELECT DISTINCT regexp_replace(jsonb_object_keys(attributes), '\\.[0-9]+(?=\\.|$)', '.N', 'g')
FROM (SELECT attributes FROM spans ORDER BY started_at DESC, id DESC LIMIT %(rows)s) newest
"""
SEEN_TYPES = """
SELECT DISTINCT type FROM (SELECT type FROM spans ORDER BY started_at DESC, id DESC LIMIT %(rows)s) newest
WHERE type <> ''
"""
LOOKED_AT = 2000  # newest spans
KEPT_S = 60.0
SHOWN_MAX = 12
# What the instrumentations of requests, statements and tasks write, and the members of OpenInference's lists.
OF_OTHERS = frozenset(
    {
        "http.request.method", "http.response.status_code", "http.route", "url.path", "url.scheme", "url.query",
        "client.address", "db.system", "db.system.name", "db.name", "db.namespace", "db.query.text", "db.statement",
        "celery.action", "celery.task_name", "celery.state", "messaging.message.id", "messaging.destination",
    }
)  # fmt: skip
MEMBERS = {
    (names.OI_RETRIEVAL_DOCUMENTS, names.OI_RERANKER_INPUT, names.OI_RERANKER_OUTPUT): (
        "document.id", "document.content", "document.score", "document.metadata"
    ),
    (names.OI_LLM_INPUT, names.OI_LLM_OUTPUT): ("message.role", "message.content"),
    (names.OI_EMBEDDINGS,): ("embedding.text",),
    (names.OI_EVALUATIONS,): (
        "evaluation.name", "evaluation.score", "evaluation.label", "evaluation.explanation"
    ),
}  # fmt: skip
NUMBERED = re.compile(r"\.\d+(?=\.|$)")

_lock = threading.Lock()
_kept: dict[str, tuple[float, frozenset[str]]] = {}


def written_attributes() -> frozenset[str]:
    """Names that ragd gives to attributes; a number in a list's name stands as N."""
    message = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    message |= {field.name for table in TABLES.spans for field in table.fields}
    message |= {f"{each}.N.{member}" for lists, members in MEMBERS.items() for each in lists for member in members}
    return OF_OTHERS | {value for value in message if "." in value and not value.endswith(".")}


def known_attributes() -> list[str]:
    """What a filter may name, in order: what ragd writes, and what the newest spans of others hold."""
    return sorted(WRITTEN | seen_attributes())


def seen_attributes() -> frozenset[str]:
    return _read_once("attributes", lambda: _column(SEEN_NAMES))


def seen_types() -> tuple[str, ...]:
    """Types among the newest spans, in order."""
    return tuple(sorted(_read_once("types", lambda: _column(SEEN_TYPES))))


def known_types() -> tuple[str, ...]:
    """Those of the span tables, ragd's own, and what else the newest spans are."""
    return tuple(dict.fromkeys((*TABLE_TYPES, *OWN_TYPES, *seen_types())))


def check_attribute(name: str, *, field: str) -> None:
    """Raise InvalidInput, with the nearest known names, for an attribute that no span has."""
    numbered = NUMBERED.sub(".N", name)
    if name in WRITTEN or numbered in WRITTEN or numbered in seen_attributes():
        return
    known = known_attributes()
    close = get_close_matches(numbered, known, 3)
    near = close or known[:SHOWN_MAX]
    more = f" and {len(known) - len(near)} more" if len(known) > len(near) else ""
    message = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(near)}{more}"
    raise InvalidInput(f"no span has an attribute {name!r}; {message}", field=field)


def forget_seen() -> None:
    """Look again at the next question."""
    with _lock:
        _kept.clear()


def _read_once(what: str, read: Callable[[], frozenset[str]]) -> frozenset[str]:
    with _lock:
        stored = _kept.get(what)
    if stored is None or time.monotonic() - stored[0] > KEPT_S:
        stored = (time.monotonic(), read())
        with _lock:
            _kept[what] = stored
    return stored[1]


def _column(sql: str) -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"rows": LOOKED_AT})
        return frozenset(value for (value,) in cursor.fetchall())


WRITTEN = written_attributes()
