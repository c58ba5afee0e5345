"""Which column of a file holds which field of a golden question: proposed by the names that other tools use. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from evaluation_app.golden.questions import FIELDS
from ragd.errors import InvalidInput

SUGGESTED = "suggested"
COLUMNS = (*FIELDS, SUGGESTED)
LEFT_OUT = ""
Mapped = Mapping[str, str]  # name of a column -> field, LEFT_OUT for one that is not read

# The names under which Ragas, DeepEval, LangSmith, Langfuse, Phoenix, promptfoo and hand-made sheets keep the same; of
# several columns for one field the earlier name here is proposed.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "question": ("input", "query", "user_input", "prompt", "questions", "user_query", "q"),
    "expected_answer": (
        "expected_output", "ground_truth", "ground_truths", "reference", "reference_answer", "reference_output",
        "gold_answer", "ideal", "expected", "answer", "target", "correct_answer", "output", "outputs",
    ),
    "expected_doc_ids": (
        "doc_ids", "doc_id", "expected_documents", "expected_sources", "relevant_docs", "relevant_doc_ids",
        "reference_ids", "reference_context_ids", "documents", "sources", "source", "document", "document_id",
    ),
    "expected_chunks": ("chunks", "chunk_ids", "expected_chunk_ids"),
    "category": ("type", "question_type", "evolution_type", "synthesizer_name", "topic"),
    "notes": ("note", "comment", "comments"),
    "weight": ("importance",),
}  # fmt: skip


def plain_name(name: str) -> str:
    """As names are compared: "Expected Output" is "expected_output"."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def propose_columns(names: Iterable[str]) -> dict[str, str]:
    """A field for each column, each field once: by its own name first, then by the first alias. LEFT_OUT for others."""
    by_name = {plain_name(name): name for name in reversed(list(names))}
    found = {by_name[field]: field for field in COLUMNS if field in by_name}
    for field, aliases in ALIASES.items():
        if field not in found.values() and (alias := next((each for each in aliases if each in by_name), None)):
            found[by_name[alias]] = field
    return {name: found.get(name, LEFT_OUT) for name in names}


def unmapped(names: Sequence[str]) -> list[str]:
    """The columns for which nothing is proposed."""
    return [name for name, field in propose_columns(names).items() if not field]


def check_columns(columns: Mapped, names: Sequence[str]) -> dict[str, str]:
    """The stated columns over what is proposed for the others. Raises InvalidInput (field columns) for a column that
    the file does not have, an unknown field, and a field that two columns have; and where no column is the question."""
    if missing := next((name for name in columns if name not in names), None):
        raise InvalidInput(f"the file has no column {missing!r}; it has {', '.join(names)}", field="columns")
    if unknown := next((field for field in columns.values() if field not in (*COLUMNS, LEFT_OUT)), None):
        raise InvalidInput(
            f"there is no field {unknown!r}; known are {', '.join(COLUMNS)}, and an empty one for a column that is not"
            " read",
            field="columns",
        )
    stated = set(columns.values())
    proposed = {name: field for name, field in propose_columns(names).items() if field not in stated}
    result = {name: columns.get(name, proposed.get(name, LEFT_OUT)) for name in names}
    fields = [field for field in result.values() if field]
    if twice := next((field for field in fields if fields.count(field) > 1), None):
        raise InvalidInput(f"two columns are mapped to {twice}; leave one out", field="columns")
    if "question" not in fields:
        raise InvalidInput(
            f"no column is mapped to question; the file has {', '.join(names)}. State which holds it", field="columns"
        )
    return result


def read_columns(text: str | None) -> dict[str, str] | None:
    """Of {"input": "question", "id": ""} as JSON text; None stays. Raises InvalidInput (field columns) for others."""
    if text is None:
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(field, str) for field in values.values()):
        raise InvalidInput(
            'columns must be a JSON object such as {"input": "question", "id": ""}, an empty field for a column that is'
            f" not read; not {text[:200]!r}",
            field="columns",
        )
    return values
