"""What the API takes and answers about golden sets, their questions, suggestions, versions and imports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Field, Schema
from pydantic import ConfigDict, PlainSerializer, WithJsonSchema

from collections_app.http.schemas import ChunkKey, DocId, Name, Request, Stored, Text, read_from
from collections_app.http.validation import WHOLE, SomeUuid, StrictInt
from evaluation_app.golden.formats import Planned
from evaluation_app.golden.questions import Golden, Match
from evaluation_app.judges.rubrics import Kind
from evaluation_app.models import GoldenSet, GoldenSetVersion

# What creates a set or a question answers with microseconds, what reads one with milliseconds.
Moment = Annotated[
    datetime,
    PlainSerializer(datetime.isoformat, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class GoldenSetRequest(Request):
    name: Name = Field(..., description="Unique; part of the set's address")
    collection: str
    description: str = ""


class RubricFields(Request):
    """A check of the answer, which runs of the set score as the measure "rubric:NAME"."""

    name: str = Field(description="Lower-case letters, digits, _ and -")
    kind: Kind
    definition: str = Field(
        "", description="By kind: a regular expression, a JSON schema, instructions to a chat model, an entry point"
    )
    must_match: bool = Field(True, description="Of a regular expression: whether it must occur, or must not")


class GoldenSetChanges(Request):
    """What is left out stays. A new name changes the address."""

    name: Name | None = None
    description: str | None = None
    primary_measure: str | None = Field(
        None, description='Decides whether a run is better; "": correctness where scored, else hit at the cut'
    )
    guardrails: dict[str, float] | None = Field(None, description="Measure to the largest drop that is allowed")
    relevant_effect: float | None = Field(None, description="A smaller difference of the primary measure is none")

    version: StrictInt | None = Field(None, description="A version whose questions the set is to hold again")
    rubrics: list[RubricFields] | None = Field(None, description="All rubrics of the set, in place of those it has")

    def criteria(self) -> dict[str, Any]:
        """The stated fields of `golden.criteria`."""
        return self.model_dump(exclude_none=True, exclude={"name", "description", "rubrics", "version"})


class GoldenSetOut(Schema):
    name: str
    collection: str = Field(validation_alias="collection_name")
    description: str
    version: int = Field(description="Grows with every change of what decides a figure")
    digest: str = Field(description="SHA-256 of the questions; runs are compared only over equal ones")
    questions: int
    suggested: int = Field(description="Suggestions that nobody has decided on; they are never evaluated")
    baseline: UUID | None = Field(None, validation_alias="baseline_id")
    primary_measure: str = Field(description='"": correctness where all runs scored it, else hit at the cut')
    guardrails: dict[str, float] = Field(
        description="Measure to the largest drop that is allowed; {}: recall and right_outcome, 0.05 each"
    )
    relevant_effect: float = Field(description="A smaller difference of the primary measure is none")
    rubrics: Stored[list[RubricFields]]
    created_at: Moment
    updated_at: Moment

    @staticmethod
    def resolve_questions(golden_set: GoldenSet) -> int:
        """As `sets.listed_sets` counted them; a new set has none."""
        return getattr(golden_set, "questions_total", 0)

    @staticmethod
    def resolve_suggested(golden_set: GoldenSet) -> int:
        return getattr(golden_set, "suggested_total", 0)


class GoldenSetDeleted(Schema):
    questions: int
    versions: int
    runs: int = Field(description="Evaluation runs that stay without their set")


class QuestionFields(Request):
    expected_doc_ids: list[str] | None = Field(None, description="Documents that answer it; none: it should abstain")
    expected_chunks: list[ChunkKey] | None = Field(None, description='"doc_id#chunk_index"')
    match: Match | None = Field(None, description="Whether any or all of what is expected is needed; any by default")
    expected_answer: str | None = None
    category: str | None = Field(None, description="factual by default")
    weight: float | None = Field(None, description="In means; 1 by default")
    thresholds: dict[str, float] | None = Field(None, description="Measure name to the least that passes")
    notes: str | None = None
    by_construction: bool | None = Field(None, description="Chosen because a search had found its document")

    def stated(self) -> dict[str, Any]:
        """The fields of a golden question that the caller sent."""
        return self.model_dump(exclude_unset=True, exclude={"run_id", "position"})


class QuestionRequest(QuestionFields):
    """A question, or a run that a suggestion is made of: then what is stated counts over what the run proposes."""

    model_config = ConfigDict(
        json_schema_extra={"allOf": [{"required": ["question"], "properties": {"question": {"not": {"type": "null"}}}}]}
    )

    question: Text | None = None
    run_id: SomeUuid | None = None


class QuestionChanges(QuestionFields):
    """What is left out stays; null sets the default."""

    question: str | None = None
    position: Annotated[int, Field(ge=0), WHOLE] | None = Field(
        None, description="Its place among the accepted questions, from 0"
    )


class GoldenQuestionOut(Schema):
    model_config = ConfigDict(alias_generator=read_from("row", own=("lost",)))

    id: int
    position: int
    question: str
    expected_doc_ids: list[str]
    expected_chunks: list[str]
    match: Match
    expected_answer: str
    category: str
    weight: float
    thresholds: dict[str, float]
    notes: str
    suggested: bool
    by_construction: bool = Field(
        description="Suggested because the search had found its document in the top 10: hit@10 is 1 by construction"
    )
    source_run: UUID | None
    lost: list[str] = Field(description="Expected documents and chunks that are gone, off, or another text now")
    created_at: Moment
    updated_at: Moment


class QuestionsCounted(Schema):
    count: int


class SuggestionChanges(Request):
    """Ids of suggestions."""

    accept: list[StrictInt] = Field([], max_length=1000)
    discard: list[StrictInt] = Field([], max_length=1000)


class SuggestionsChanged(Schema):
    accepted: int
    discarded: int


class SuggestRequest(Request):
    count: StrictInt = Field(20, ge=1, le=200, description="At most so many")
    doc_ids: list[DocId] = Field([], max_length=400, description="Of these documents only")
    include_unfound: bool = Field(False, description="Also questions whose document the search does not find")


class SuggestOut(Schema):
    items: list[GoldenQuestionOut]
    tried: int
    lost: int = Field(description="Questions that were left out because the search did not find their document")
    alike: int = Field(description="Questions that the set asks already")
    documents: int
    out_of_time: bool


class VersionOut(Schema):
    version: int
    digest: str
    questions: int
    reason: str
    made_by: str
    created_at: datetime

    @staticmethod
    def resolve_questions(version: GoldenSetVersion) -> int:
        return len(version.questions)


class VersionDetail(Schema):
    version: int
    digest: str
    reason: str
    made_by: str
    created_at: datetime
    questions: Stored[list[Golden]]
    difference: VersionDifferenceOut | None = Field(description="From the version `since`, where that is stated")


class FieldChangeOut(Schema):
    field: str = Field(validation_alias="name")
    before: Any
    after: Any


class QuestionChangeOut(Schema):
    kind: Literal["added", "removed", "changed"]
    place: int
    question: str = Field(validation_alias="golden.question")
    fields: list[FieldChangeOut]


class VersionDifferenceOut(Schema):
    before: int
    counts: dict[str, int]
    changes: list[QuestionChangeOut]


class ImportedLine(Schema):
    line: int = Field(validation_alias="number")
    status: Literal["added", "changed", "unchanged", "error"]
    question: str
    fields: list[str]
    error: str
    unknown: list[str] = Field(description="Documents and chunks that it expects and the collection does not have")

    @staticmethod
    def resolve_question(row: Planned) -> str:
        return row.golden.question if row.golden else ""


class ImportOut(Schema):
    """What an import did, or with dry_run would do. `lines` leaves out those that change nothing."""

    dry_run: bool
    counts: dict[str, int]
    columns: dict[str, str] = Field(description="Column of the file to field; an empty one: not read")
    lines: list[ImportedLine]
    removed: list[str]
    version: int
