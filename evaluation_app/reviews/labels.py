"""What a person is asked about one answer, and what one review says in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragd.errors import InvalidInput

CANNOT_TELL = "cannot tell"
LEVELS: tuple[tuple[float, str], ...] = (
    (0.0, "not at all"), (0.25, "a little"), (0.5, "half"), (0.75, "mostly"), (1.0, "fully"),
)  # fmt: skip
YES_NO: tuple[tuple[float, str], ...] = ((1.0, "yes"), (0.0, "no"))


@dataclass(frozen=True, slots=True)
class LabelRequest:
    """One question to the person. choices: (value, word)."""

    measure: str
    question: str
    choices: tuple[tuple[float, str], ...]


LABEL_REQUESTS: tuple[LabelRequest, ...] = (
    LabelRequest("adherence", "Is the whole answer supported by the context?", YES_NO),
    LabelRequest("answer_relevance", "How well does the answer address the question?", LEVELS),
    LabelRequest("completeness", "How much of the relevant context is in the answer?", LEVELS),
    LabelRequest("context_relevance", "How much of the context is relevant to the question?", LEVELS),
    LabelRequest("context_utilization", "How much of the context does the answer use?", LEVELS),
)
DERIVED = "faithfulness"  # follows from the sentences that are marked
MEASURES = (*(item.measure for item in LABEL_REQUESTS), DERIVED)


def read_verdicts(values: Mapping[str, object]) -> dict[str, float | None]:
    """measure -> a value of its choices, or None for "cannot tell". What was not answered is left out.

    Raises InvalidInput (field: the measure) for anything else.
    """
    if unknown := sorted(set(values) - {item.measure for item in LABEL_REQUESTS}):
        raise InvalidInput(
            f"{unknown[0]!r} is not asked; asked are {', '.join(item.measure for item in LABEL_REQUESTS)}",
            field=unknown[0],
        )
    return {item.measure: _read(item, values[item.measure]) for item in LABEL_REQUESTS if item.measure in values}


def with_faithfulness(
    verdicts: Mapping[str, float | None], unsupported: Sequence[str], sentences: Sequence[Sequence[str]]
) -> dict[str, float | None]:
    """The verdicts with the share of sentences that are not marked as unsupported.

    Without a mark and without a yes to adherence the sentences were not judged one by one: None.
    """
    total = len(sentences)
    details = bool(unsupported) or verdicts.get("adherence") == 1.0
    return {**verdicts, DERIVED: 1 - len(unsupported) / total if details and total else None}


def check_sentences(unsupported: Sequence[str], sentences: Sequence[Sequence[str]]) -> list[str]:
    """The keys, each once, in the answer's order. Raises InvalidInput (field unsupported) for one that it lacks."""
    known = [str(pair[0]) for pair in sentences]
    if strange := sorted(set(unsupported) - set(known)):
        raise InvalidInput(
            f"unsupported names {strange[0]!r}, and the answer's sentences are {', '.join(known) or 'none'}",
            field="unsupported",
        )
    return [key for key in known if key in set(unsupported)]


def format_value(measure: str, value: Any) -> str:
    """A verdict in words."""
    if value is None:
        return CANNOT_TELL
    asked = next((item for item in LABEL_REQUESTS if item.measure == measure), None)
    words = dict(asked.choices) if asked else {}
    return words.get(value, f"{value:.2f}")


def _read(item: LabelRequest, value: object) -> float | None:
    if value is None:
        return None
    allowed = [number for number, _ in item.choices]
    if isinstance(value, bool) or not isinstance(value, int | float) or float(value) not in allowed:
        raise InvalidInput(
            f"{item.measure} must be one of {', '.join(f'{number:g}' for number in allowed)}, or none for "
            f"{CANNOT_TELL!r}, not {value!r}",
            field=item.measure,
        )
    return float(value)
