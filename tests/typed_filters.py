"""Random chunks and random typed filters over them, for tests and benchmarks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ragd.conditions import FIELDS, ORDER_OPS

TAGS = ("a", "b", "a b", "Ä", "ab", "z")
TEXTS = (
    "alpha", "Alpha", "alpha beta", "éclair", "10", "2024-02-29", "2023-02-29", "2024-02-29T23:30:00-05:00", "", "Ω",
)  # fmt: skip
NUMBERS = (0, 1, 3, 3.0, -2, 2.5, 0.1, 10, 1e23, 10**17)
TIMES = (
    "2024-02-29", "2024-03-01", "2024-02-29T12:00:00Z", "2024-03-01T00:00:00+02:00", "2024-02-29T23:59:59.999999Z",
    "2024-03-01 04:30:00-0500", "1999-12-31T23:59Z",
)  # fmt: skip
HEADINGS = ("Guide", "Install", "Linux", "Guidelines")
KEYS = ("k", "n.m", "n", "list", 'quo"te', "Ä")


def random_value(chance: random.Random, depth: int = 0) -> Any:
    """A value of metadata: of any type, sometimes a list or an object."""
    kind = chance.random()
    if depth < 2 and kind < 0.15:
        return [random_value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    if depth < 2 and kind < 0.3:
        return {key: random_value(chance, depth + 1) for key in chance.sample(("m", "k"), chance.randint(0, 2))}
    return chance.choice((*TEXTS, *NUMBERS, *TIMES, True, False, None))


def random_record(chance: random.Random, number: int) -> dict[str, Any]:
    """A chunk as `ragd.conditions.matches` takes it; records of one number in five share a document."""
    attributes: dict[str, Any] = {}
    if chance.random() < 0.8:
        attributes["page"] = chance.randint(1, 6)
        if chance.random() < 0.5:
            attributes["page_end"] = attributes["page"] + chance.randint(0, 2)
    optional: Mapping[str, Any] = {
        "section": chance.sample(HEADINGS, chance.randint(1, 3)), "block": chance.choice(("text", "table")),
        "sheet": chance.choice(TEXTS), "row": chance.randint(1, 4), "slide": chance.randint(1, 3),
        "sent_at": chance.choice(TIMES), "language": chance.choice(("en", "de")),
        "media_type": chance.choice(("text/plain", "text/csv")), "speaker": chance.choice(TEXTS),
    }  # fmt: skip
    attributes |= {name: value for name, value in optional.items() if chance.random() < 0.5}
    document = random.Random(number // 5)
    moment = datetime(2024, 2, 28, tzinfo=UTC) + timedelta(hours=document.randint(0, 72))
    return {
        "doc_id": f"{document.choice(('d', 'D', 'é'))}{number // 5}",
        "title": document.choice(("", "Guide", "Annual report")),
        "created_at": moment,
        "updated_at": moment + timedelta(days=1),
        "media_type": document.choice(("text/plain", "application/pdf")),
        "language": document.choice(("", "de", "fr")),
        "tags": chance.sample(TAGS, chance.randint(0, 3)),
        "metadata": {key: random_value(chance) for key in chance.sample(KEYS, chance.randint(0, 4))},
        "attributes": attributes,
    }


def random_filter(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """The JSON of a filter that can be read."""
    if depth < 3 and chance.random() < 0.35:
        name = chance.choice(("and", "or", "not"))
        if name == "not":
            return {"not": random_filter(chance, depth + 1)}
        return {name: [random_filter(chance, depth + 1) for _ in range(chance.randint(1, 3))]}
    if chance.random() < 0.4:
        field = "metadata." + chance.choice((*KEYS, "n.k", "list.m", "gone"))
        kind = "json"
    else:
        field = chance.choice([name for name in FIELDS if name not in ("file_created_at", "message", "recipient")])
        kind = FIELDS[field]
    ops = ["eq", "ne", "in", "nin", "exists", *ORDER_OPS]
    op = chance.choice(ops if kind in ("number", "pages", "time") else [*ops, "prefix"])
    if op == "exists":
        return {"field": field, "op": op, "value": chance.random() < 0.5}
    if op in ("in", "nin"):
        return {
            "field": field,
            "op": op,
            "value": [_value(chance, field, kind, "eq") for _ in range(chance.randint(0, 3))],
        }
    return {"field": field, "op": op, "value": _value(chance, field, kind, op)}


def _value(chance: random.Random, field: str, kind: str, op: str) -> Any:
    if kind == "time":
        return chance.choice(TIMES)
    if kind in ("number", "pages"):
        return chance.randint(0, 7)
    if op == "prefix":
        if field == "section" and chance.random() < 0.5:
            return chance.sample(HEADINGS, chance.randint(1, 2))
        return chance.choice(("a", "alp", "A", "", "d1", "2024", "text/", "Gui", "é"))
    if kind == "json":
        return chance.choice((*TEXTS, *NUMBERS, *TIMES, *(() if op in ORDER_OPS else (True, False))))
    texts = {
        "tags": TAGS, "section": HEADINGS, "media_type": ("text/plain", "application/pdf"), "language": ("en", "de"),
        "title": ("", "Guide", "Annual report"), "doc_id": ("d1", "é3", "D2"), "block": ("text", "table"),
    }  # fmt: skip
    return chance.choice(texts.get(field, TEXTS))
