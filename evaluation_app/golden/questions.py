"""Golden questions as plain data, and what one may hold: cleaned, measured and named before anything is written."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from evaluation_app.measures.catalogue import find
from ragd.errors import InvalidInput
from ragd.identity import UNSTORABLE, check_doc_id, clean_line
from ragd.normalization import normalize

if TYPE_CHECKING:
    from evaluation_app.models import GoldenQuestion

GLOBAL, MULTI_HOP = "global", "multi-hop"
CATEGORIES = ("factual", "how-to", "why", "how-it-works", "troubleshooting", MULTI_HOP, GLOBAL, "abstain")
Match = Literal["any", "all"]
TEXT_MAX_CHARS = 20_000
EXPECTED_MAX = 200
CHUNK = re.compile(r"(?s)(.+)#(0|[1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Golden:
    """expected_doc_ids, expected_chunks ("doc_id#chunk_index"): what answers it, by `match` any of them or all.

    A record that does not state `match` was measured as "all"; a new question has "any" (`clean_golden`).

    Neither: nothing in the collection answers it, and the right thing is to abstain. thresholds: measure -> the least
    that passes. weight: its share in means, 0 or more. by_construction: it was chosen because a search had found its
    document in the top 10, so that such a search finds it again.
    """

    question: str
    expected_doc_ids: tuple[str, ...] = ()
    expected_chunks: tuple[str, ...] = ()
    expected_answer: str = ""
    category: str = "factual"
    weight: float = 1.0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    notes: str = ""
    match: Match = "all"
    by_construction: bool = False

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise InvalidInput("question must hold at least one visible character; it is empty", field="question")
        if not math.isfinite(self.weight) or self.weight < 0:
            raise InvalidInput(f"weight must be a finite number of at least 0, not {self.weight!r}", field="weight")

    @property
    def expects_nothing(self) -> bool:
        return not self.expected_doc_ids and not self.expected_chunks

    @property
    def expects_several(self) -> bool:
        """Whether `match` makes a difference: more than one document or more than one chunk."""
        return len(self.relevant_docs) > 1 or len(self.expected_chunks) > 1

    @property
    def relevant_docs(self) -> tuple[str, ...]:
        """The expected documents, with those of the expected chunks, each once, in order."""
        of_chunks = (chunk.rpartition("#")[0] for chunk in self.expected_chunks)
        return tuple(dict.fromkeys((*self.expected_doc_ids, *of_chunks)))

    def deciding(self) -> dict[str, Any]:
        """The fields that decide a figure, as plain JSON: no notes, and `match` only where "any" and "all" differ, so
        that sets from before it keep their digests. How the question was chosen decides none."""
        values = self.as_dict()
        del values["notes"], values["by_construction"]
        if self.match == "all" or not self.expects_several:
            del values["match"]
        return values

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


def split_chunk(key: str) -> tuple[str, int]:
    """(doc_id, chunk_index) of "doc_id#chunk_index". Raises InvalidInput for what is no such key."""
    match = CHUNK.fullmatch(key)
    if match is None:
        raise InvalidInput(
            f"expected_chunks must hold document and number, such as 'guide.md#3', not {key!r}", field="expected_chunks"
        )
    return check_doc_id(match[1]), int(match[2])


def _cleaned(clean: Callable[[Any], Any]) -> AfterValidator:
    """By a function that raises InvalidInput, of which pydantic knows nothing."""

    def validate(value: Any) -> Any:
        try:
            return clean(value)
        except InvalidInput as error:
            raise ValueError(error.message) from None

    return AfterValidator(validate)


def _unique(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


Text = Annotated[str, AfterValidator(lambda text: normalize(text).strip()), Field(max_length=TEXT_MAX_CHARS)]
DocId = Annotated[str, _cleaned(check_doc_id)]
ChunkKey = Annotated[str, _cleaned(lambda key: "{}#{}".format(*split_chunk(key)))]
Expected = (
    BeforeValidator(lambda ids: list(ids) if isinstance(ids, tuple) else ids),
    AfterValidator(_unique),
    Field(max_length=EXPECTED_MAX),
)
MeasureName = Annotated[str, _cleaned(lambda name: find(name).name)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Fields(BaseModel):
    """The fields of `Golden` as a caller may state them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    question: Text = "question"
    expected_doc_ids: Annotated[list[DocId], *Expected] = []
    expected_chunks: Annotated[list[ChunkKey], *Expected] = []
    expected_answer: Text = ""
    category: Annotated[
        str, AfterValidator(clean_line), Field(max_length=60), AfterValidator(lambda name: name or "factual")
    ] = "factual"
    weight: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    thresholds: Annotated[
        Mapping[MeasureName, Share], Field(max_length=40), AfterValidator(lambda least: dict(sorted(least.items())))
    ] = Field(default_factory=dict)
    notes: Text = ""
    match: Match = "any"
    by_construction: bool = False


def clean_golden(explicit: Mapping[str, Any], base: Golden | None = None) -> Golden:
    """The question with the stated fields over those of `base`, or over the defaults. None stands for the default.
    A new question is answered by any of what it expects. `by_construction` ends with the question or the documents that
    were searched for, unless it is stated.

    Texts are normalized and stripped, repeated ids are dropped, an empty category is "factual". Raises InvalidInput
    that names the field for anything that no question may hold.
    """
    if "question" not in explicit and base is None:
        raise InvalidInput("a golden question needs a question; it is missing", field="question")
    if explicit.get("question", "") is None:
        raise InvalidInput("question must hold at least one visible character; it is empty", field="question")
    stated = {name: value for name, value in explicit.items() if value is not None or name not in FIELDS}
    try:
        checked = _Fields.model_validate(stated)
    except ValidationError as error:
        raise _explain(error) from None
    before = base or Golden("question", match="any")
    golden = replace(before, **{name: getattr(checked, name) for name in explicit})
    same = (golden.question, golden.relevant_docs) == (before.question, before.relevant_docs)
    return golden if same or "by_construction" in explicit else replace(golden, by_construction=False)


def _explain(error: ValidationError) -> InvalidInput:
    first = error.errors()[0]
    field = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return InvalidInput(
            f"a golden question has no field {field!r}; its fields are {', '.join(FIELDS)}", field=field
        )
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"]).removeprefix(f"{field} ")
        return InvalidInput(f"{field}: {message}", field=field)
    where = ".".join(map(str, first["loc"]))
    return InvalidInput(f"{where}: {first['msg']}, not {reprlib.repr(first['input'])}", field=field)


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
    if len(text) > TEXT_MAX_CHARS:
        raise InvalidInput(f"description must have at most {TEXT_MAX_CHARS:,} characters", field="description")
    return normalize(UNSTORABLE.sub("", text)).strip()
