"""Golden questions as plain data, and what one may hold: cleaned, measured and named before anything is written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from collections_app.domain.identity import UNSTORABLE, check_doc_id, clean_line
from evaluation_app.measures.catalogue import find
from ragd.errors import InvalidInput
from ragd.normalization import normalize

if TYPE_CHECKING:
    from evaluation_app.models import GoldenQuestion

GLOBAL, MULTI_HOP = "global", "multi-hop"
CATEGORIES = ("factual", "how-to", "why", "how-it-works", "troubleshooting", MULTI_HOP, GLOBAL, "abstain")
QUESTION_MAX_CHARS = 20_000
ANSWER_MAX_CHARS = 20_000
NOTES_MAX_CHARS = 20_000
CATEGORY_MAX_CHARS = 60
EXPECTED_MAX = 200
THRESHOLDS_MAX = 40
WEIGHT_MAX = 1_000_000.0
CHUNK = re.compile(r"(?s)(.+)#(0|[1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Golden:
    """expected_doc_ids: any of them answers it. expected_chunks: "doc_id#chunk_index".

    Neither: nothing in the collection answers it, and the right thing is to abstain. thresholds: measure -> the least
    that passes. weight: its share in means, 0 or more.
    """

    question: str
    expected_doc_ids: tuple[str, ...] = ()
    expected_chunks: tuple[str, ...] = ()
    expected_answer: str = ""
    category: str = "factual"
    weight: float = 1.0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    notes: str = ""

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise InvalidInput("question must hold at least one visible character; it is empty", field="question")
        if not math.isfinite(self.weight) or self.weight < 0:
            raise InvalidInput(f"weight must be a finite number of at least 0, not {self.weight!r}", field="weight")

    @property
    def expects_nothing(self) -> bool:
        return not self.expected_doc_ids and not self.expected_chunks

    @property
    def relevant_docs(self) -> tuple[str, ...]:
        """The expected documents, with those of the expected chunks, each once, in order."""
        of_chunks = (chunk.rpartition("#")[0] for chunk in self.expected_chunks)
        return tuple(dict.fromkeys((*self.expected_doc_ids, *of_chunks)))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; lists for tuples."""
        values = asdict(self)
        return values | {name: list(values[name]) for name in ("expected_doc_ids", "expected_chunks")}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Golden:
        """The reverse of `as_dict`; fields that are missing have their defaults. InvalidInput for an unknown field."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidInput(
                f"a golden question has no field {unknown[0]!r}; its fields are {', '.join(sorted(known))}",
                field=unknown[0],
            )
        lists = {name: tuple(values[name]) for name in ("expected_doc_ids", "expected_chunks") if name in values}
        return cls(**{**values, **lists})

    @classmethod
    def of(cls, row: GoldenQuestion) -> Golden:
        return cls.from_dict({item.name: getattr(row, item.name) for item in fields(cls)})


FIELDS = tuple(item.name for item in fields(Golden))


def clean_golden(explicit: Mapping[str, Any], base: Golden | None = None) -> Golden:
    """The question with the stated fields over those of `base`, or over the defaults. None stands for the default.

    Texts are normalized and stripped, repeated ids are dropped, an empty category is "factual". Raises InvalidInput
    that names the field for anything that no question may hold.
    """
    if unknown := sorted(set(explicit) - set(FIELDS)):
        raise InvalidInput(
            f"a golden question has no field {unknown[0]!r}; its fields are {', '.join(FIELDS)}", field=unknown[0]
        )
    values = {name: _CLEAN[name](value) for name, value in explicit.items() if value is not None}
    default = base or Golden("question")
    if base is None and "question" not in values:
        raise InvalidInput("a golden question needs a question; it is missing", field="question")
    reset = {name: getattr(Golden("question"), name) for name, value in explicit.items() if value is None}
    if "question" in reset:
        raise InvalidInput("question must hold at least one visible character; it is empty", field="question")
    return replace(default, **(reset | values))


def split_chunk(key: str) -> tuple[str, int]:
    """(doc_id, chunk_index) of "doc_id#chunk_index". Raises InvalidInput for what is no such key."""
    match = CHUNK.fullmatch(key)
    if match is None:
        raise InvalidInput(
            f"expected_chunks must hold document and number, such as 'guide.md#3', not {key!r}", field="expected_chunks"
        )
    return check_doc_id(match[1]), int(match[2])


def _text(name: str, most: int) -> Any:
    def clean(value: Any) -> str:
        if not isinstance(value, str):
            raise InvalidInput(f"{name} must be a text, not {type(value).__name__}", field=name)
        cleaned = normalize(value).strip()
        if len(cleaned) > most:
            raise InvalidInput(f"{name} must have at most {most:,} characters; it has {len(cleaned):,}", field=name)
        return cleaned

    return clean


def _category(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"category must be a text, not {type(value).__name__}", field="category")
    cleaned = clean_line(value)
    if len(cleaned) > CATEGORY_MAX_CHARS:
        raise InvalidInput(
            f"category must have at most {CATEGORY_MAX_CHARS} characters; it has {len(cleaned)}", field="category"
        )
    return cleaned or "factual"


def _texts(name: str, value: Any) -> Sequence[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"{name} must be a list of texts, not {type(value).__name__}", field=name)
    if wrong := next((item for item in value if not isinstance(item, str)), None):
        raise InvalidInput(f"{name} must hold texts; {wrong!r} is none", field=name)
    stored = tuple(dict.fromkeys(value))
    if len(stored) > EXPECTED_MAX:
        raise InvalidInput(f"{name} must hold at most {EXPECTED_MAX}, not {len(stored):,}", field=name)
    return stored


def _doc_ids(value: Any) -> tuple[str, ...]:
    stored = []
    for doc_id in _texts("expected_doc_ids", value):
        try:
            stored.append(check_doc_id(doc_id))
        except InvalidInput as error:
            raise InvalidInput(f"expected_doc_ids: {error.message}", field="expected_doc_ids") from None
    return tuple(stored)


def _chunks(value: Any) -> tuple[str, ...]:
    stored = []
    for key in _texts("expected_chunks", value):
        try:
            doc_id, index = split_chunk(key)
        except InvalidInput as error:
            raise InvalidInput(error.message, field="expected_chunks") from None
        stored.append(f"{doc_id}#{index}")
    return tuple(stored)


def _weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(f"weight must be a number, not {value!r}", field="weight")
    if not 0 <= value <= WEIGHT_MAX:  # NaN neither
        raise InvalidInput(f"weight must be a number from 0 to {WEIGHT_MAX:,.0f}, not {value!r}", field="weight")
    return float(value)


def _thresholds(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f'thresholds must be an object such as {{"recall@10": 1}}, not {type(value).__name__}', field="thresholds"
        )
    if len(value) > THRESHOLDS_MAX:
        raise InvalidInput(f"thresholds must name at most {THRESHOLDS_MAX} measures", field="thresholds")
    stored = {}
    for name, least in value.items():
        try:
            measure = find(str(name))
        except InvalidInput as error:
            raise InvalidInput(f"thresholds: {error.message}", field="thresholds") from None
        if isinstance(least, bool) or not isinstance(least, (int, float)) or not 0 <= least <= 1:
            raise InvalidInput(f"thresholds: {name} must be a number from 0 to 1, not {least!r}", field="thresholds")
        stored[measure.name] = float(least)
    return dict(sorted(stored.items()))


def clean_name(name: str) -> str:
    """The name of a set: one line of 1 to 200 characters without those that an address cannot hold."""
    cleaned = clean_line(name)
    if not 1 <= len(cleaned) <= 200:
        raise InvalidInput(f"name must have 1 to 200 characters; this one has {len(cleaned)}", field="name")
    if result := next((mark for mark in "/\\?#%" if mark in cleaned), None):
        raise InvalidInput(f"name is part of addresses: it must not contain {result}", field="name")
    if cleaned in (".", ".."):
        raise InvalidInput(f"{cleaned!r} cannot be the name of a set, because addresses use it", field="name")
    return cleaned


def clean_description(text: str) -> str:
    if len(text) > NOTES_MAX_CHARS:
        raise InvalidInput(f"description must have at most {NOTES_MAX_CHARS:,} characters", field="description")
    return normalize(UNSTORABLE.sub("", text)).strip()


_CLEAN: Mapping[str, Any] = {
    "question": _text("question", QUESTION_MAX_CHARS),
    "expected_doc_ids": _doc_ids,
    "expected_chunks": _chunks,
    "expected_answer": _text("expected_answer", ANSWER_MAX_CHARS),
    "category": _category,
    "weight": _weight,
    "thresholds": _thresholds,
    "notes": _text("notes", NOTES_MAX_CHARS),
}
