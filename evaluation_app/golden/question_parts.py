"""What this floor keeps of a collection and what travels with it: its golden sets with their questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg

from collections_app.models import Collection
from collections_app.services.collections.export_parts import Part, Row, register
from evaluation_app.golden.question_rules import FIELDS, clean_golden
from evaluation_app.golden.version_parts import make_restored, register_versions
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput

READ_QUESTIONS = """
SELECT s.name, s.description, s.version, q.position, q.question, q.expected_doc_ids, q.expected_chunks,
       q.expected_answer, q.category, q.weight, q.thresholds, q.notes, q.suggested, q.chunk_marks
FROM golden_questions q JOIN golden_sets s ON s.id = q.golden_set_id
WHERE s.collection_name = %s ORDER BY s.name, q.position, q.id
"""
SET_FIELDS = ("set", "set_description", "set_version")
QUESTION_FIELDS = (
    "position", "question", "expected_doc_ids", "expected_chunks", "expected_answer", "category", "weight",
    "thresholds", "notes", "suggested",
)  # fmt: skip
LATER_FIELDS = ("chunk_marks",)  # an older export has none
WRITTEN_AT_ONCE = 500


def read_questions(connection: psycopg.Connection[Any], collection_id: int, name: str) -> Iterator[Row]:
    """By set and place. A set without questions travels by its versions."""
    for row in connection.execute(READ_QUESTIONS, [name]):
        yield dict(zip((*SET_FIELDS, *QUESTION_FIELDS, *LATER_FIELDS), row, strict=True))


def restore_questions(collection: Collection, rows: Iterable[Row]) -> int:
    """Into sets of their names; a name that another collection's set has gets the collection's name behind it.

    Raises InvalidInput for a row that is none.
    """
    sets: dict[str, GoldenSet] = {}
    waiting: list[GoldenQuestion] = []
    count = 0
    for row in rows:
        if set(row) - set(LATER_FIELDS) != {*SET_FIELDS, *QUESTION_FIELDS}:
            raise InvalidInput(f"a golden question has not the fields {', '.join(map(str, row))}", field="questions")
        name = str(row["set"])
        if name not in sets:
            sets[name] = make_restored(collection, row)
        clean_golden({field: row[field] for field in FIELDS})
        if not isinstance(row["suggested"], bool) or not isinstance(row.get("chunk_marks", {}), dict):
            raise InvalidInput(
                "suggested of a golden question is true or false, chunk_marks an object", field="questions"
            )
        values = {field: row[field] for field in (*QUESTION_FIELDS, *LATER_FIELDS) if field in row}
        waiting.append(GoldenQuestion(golden_set=sets[name], **values))
        count += 1
        if len(waiting) == WRITTEN_AT_ONCE:
            GoldenQuestion.objects.bulk_create(waiting)
            waiting = []
    GoldenQuestion.objects.bulk_create(waiting)
    return count


def count_questions(collection_id: int, name: str) -> int:
    return GoldenQuestion.objects.filter(golden_set__collection_name=name).count()


def forget_questions(collection: Collection) -> None:
    """With their sets."""
    GoldenSet.objects.filter(collection_name=collection.name).delete()


def register_parts() -> None:
    """The questions, then the versions: parts are restored by their names' order."""
    register(Part("golden_questions", read_questions, restore_questions, count_questions, forget_questions))
    register_versions()
