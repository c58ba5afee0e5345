"""What a list of spans shows of their content: how input and output begin, the table of a statement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Left

from evaluation_app.models import Span
from ragd import telemetry
from ragd.telemetry import names

BEGINNING = 200  # characters of an input or output that are read; the page clips them to its column
FIRST_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+\"?([A-Za-z_][\w.]*)", re.IGNORECASE)
HASH_PREFIX = "sha256:"


@dataclass(frozen=True, slots=True)
class SpanTexts:
    """How input and output begin, "" where the span recorded none or its hash alone. table: see `first_table`."""

    input: str = ""
    output: str = ""
    table: str = ""

    @property
    def shown(self) -> tuple[str, str]:
        return self.input, self.output


def read_texts(spans: Sequence[Span]) -> Mapping[int, SpanTexts]:
    """By the span's id. One query, by the times of the spans, which the primary key begins with; none for no span."""
    if not spans:
        return {}
    rows = Span.objects.filter(started_at__in={span.started_at for span in spans}).order_by()
    read = rows.values_list(
        "pk",
        Left(KeyTextTransform(names.INPUT_VALUE, F("attributes")), BEGINNING),
        Left(KeyTextTransform(names.OUTPUT_VALUE, F("attributes")), BEGINNING),
        KeyTextTransform(names.DB_QUERY_TEXT, F("attributes")),
    )
    return {pk: SpanTexts(_shown(given), _shown(made), first_table(statement)) for pk, given, made, statement in read}


def first_table(statement: Any) -> str:
    """The first table that a statement names; "" without one and for what is no text."""
    match = FIRST_TABLE.search(statement) if isinstance(statement, str) else None
    return match[1] if match else ""


def is_kept(text: str) -> bool:
    """Whether it is the text itself: the content switch keeps a mark or a hash instead."""
    return text != telemetry.REDACTED and not (text.startswith(HASH_PREFIX) and len(text) == 71)


def _shown(text: str | None) -> str:
    return text if text and is_kept(text) else ""
