"""Golden questions as plain data, and what one may hold: cleaned, measured and named before anything is written.

What golden questions expect: whether it is still there, and searched for to be ticked.

The number of a chunk is its place in its document. A new revision, another policy or an edit can put other text there,
and then a question would expect what nobody chose. Marks of the meant text show when another stands there.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from django.db import transaction
from django.db.models import F, Func, TextField
from django.urls import reverse
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest
from collections_app.index.stores import open_store
from collections_app.models import Chunk, Collection, Document
from evaluation_app.measures.catalogue import find
from ragd import retrieve
from ragd.errors import InvalidInput, RagdError
from ragd.identity import UNSTORABLE, check_doc_id, clean_line
from ragd.normalization import normalize
from ragd.types import Candidate, RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import build_plan

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


# The first 32 hex digits of the text's SHA-256, made where the text is.
MARK = "left(encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex'), 32)"
EXCERPT_CHARS = 240
State = Literal["there", "off", "other", "gone"]


def split_key(key: str) -> tuple[str, int | None]:
    """("guide.md", 3) of "guide.md#3"; a document without a chunk's number has None."""
    doc_id, hash_sign, index = key.rpartition("#")
    if hash_sign and index.isascii() and index.isdecimal():
        return doc_id, int(index)
    return key, None


def key_address(collection: str, key: str) -> str:
    """The page of a chunk ("guide.md#3"), or of a document ("guide.md")."""
    doc_id, index = split_key(key)
    if index is None:
        return reverse("collections:document", args=[collection, doc_id])
    return reverse("collections:chunk", args=[collection, index, doc_id])


@dataclass(frozen=True, slots=True)
class Drift:
    """An expected chunk under whose number another text stands. now: the key of the chunk that has it, "" for none."""

    key: str
    now: str


def read_marks(collection_name: str, keys: Iterable[str]) -> dict[str, str]:
    """The mark of each chunk that is there, in two queries; {} for a collection that is gone."""
    positions = {position: key for key in keys if (position := chunk_of_key(key)) is not None}
    indexes = {index for _, index in positions}
    rows = _chunks(collection_name, {doc_id for doc_id, _ in positions}, indexes) if positions else []
    return {positions[doc_id, index]: mark for doc_id, index, mark in rows if (doc_id, index) in positions}


def choose_marks(keys: Iterable[str], known: Mapping[str, str], results: Mapping[str, str]) -> dict[str, str]:
    """The marks of these keys: those that were known stay, others are as found. A chunk that is not there has none."""
    return {key: mark for key in keys if (mark := known.get(key) or results.get(key))}


def find_drifts(collection_name: str, marks: Iterable[Mapping[str, str]]) -> list[dict[str, Drift]]:
    """Per question: the keys under which another text stands now, or none, where the one that was meant was marked.

    Four queries at most, however many questions there are.
    """
    requested = list(marks)
    present = read_marks(collection_name, {key for item in requested for key in item})
    drifted = {key for item in requested for key, mark in item.items() if present.get(key) != mark}
    doc_ids = {position[0] for key in drifted if (position := chunk_of_key(key)) is not None}
    locations: dict[tuple[str, str], str] = {}
    for doc_id, index, mark in _chunks(collection_name, doc_ids) if doc_ids else []:
        locations.setdefault((doc_id, mark), f"{doc_id}#{index}")
    return [
        {
            key: Drift(key, locations.get((key.rpartition("#")[0], mark), ""))
            for key, mark in item.items()
            if present.get(key) != mark
        }
        for item in requested
    ]


def chunk_of_key(key: str) -> tuple[str, int] | None:
    """(doc_id, chunk_index); None for what is no key."""
    try:
        return split_chunk(key)
    except InvalidInput:
        return None


def _chunks(collection_name: str, doc_ids: set[str], indexes: set[int] | None = None) -> list[tuple[str, int, str]]:
    """(doc_id, chunk_index, mark) of the documents' chunks, or of those with these numbers, by place."""
    collection = Collection.objects.live().filter(name=collection_name).first()
    if collection is None:
        return []
    rows = Chunk.objects.of(collection).filter(doc_id__in=doc_ids).order_by("doc_id", "chunk_index")
    if indexes is not None:
        rows = rows.filter(chunk_index__in=indexes)
    mark = Func(F("content"), template=MARK, output_field=TextField())
    return list(rows.annotate(mark=mark).values_list("doc_id", "chunk_index", "mark"))


@dataclass(frozen=True, slots=True)
class ExpectationState:
    """One expected document or chunk. key: as the question names it. title: of the document, its id without one.

    state: there, off (disabled or archived, so that no search finds it), other (of a chunk: under its number stands
    another text than was chosen) or gone. href: its page, "" when gone. now: the chunk that has the chosen text.
    """

    key: str
    title: str
    state: State
    href: str = ""
    excerpt: str = ""
    is_chunk: bool = False
    now: str = ""


@dataclass(frozen=True, slots=True)
class ExpectationStatus:
    """What of many questions is there, by key."""

    documents: Mapping[str, ExpectationState]
    chunks: Mapping[str, ExpectationState]

    def of(self, golden: Golden, drifts: Mapping[str, Drift] | None = None) -> list[ExpectationState]:
        """Documents first, each in the question's order. A chunk of an expected document is called by its number.

        drifts: of the question, as `find_drifts` gives them.
        """
        return [
            *(self.documents[doc_id] for doc_id in golden.expected_doc_ids),
            *(self._chunk_of(golden, key, (drifts or {}).get(key)) for key in golden.expected_chunks),
        ]

    def _chunk_of(self, golden: Golden, key: str, drift: Drift | None) -> ExpectationState:
        doc_id, _, index = key.rpartition("#")
        result = self.chunks[key]
        if doc_id in golden.expected_doc_ids:
            result = replace(result, title=f"#{index}")
        if drift is None:
            return result
        return replace(result, state="gone" if result.state == "gone" else "other", now=drift.now)

    def lost(self, golden: Golden, drifts: Mapping[str, Drift] | None = None) -> list[str]:
        """The keys of what is gone, switched off or another text now, in the question's order."""
        return [item.key for item in self.of(golden, drifts) if item.state != "there"]


def read_status(collection_name: str, questions: Iterable[Golden]) -> ExpectationStatus:
    """Three queries, however many questions there are. Of a collection that is gone everything is gone."""
    requested = list(questions)
    doc_ids = {doc_id for golden in requested for doc_id in golden.expected_doc_ids}
    keys = {key for golden in requested for key in golden.expected_chunks}
    positions = {key: position for key in keys if (position := chunk_of_key(key)) is not None}
    collection = Collection.objects.live().filter(name=collection_name).first()
    result = _read_documents(collection, doc_ids | {doc_id for doc_id, _ in positions.values()})
    chunks = _read_chunks(collection, positions)
    return ExpectationStatus(
        documents={doc_id: _document(collection_name, doc_id, result.get(doc_id)) for doc_id in doc_ids},
        chunks={
            key: _chunk(
                collection_name,
                key,
                positions.get(key),
                result,
                chunks.get(positions[key]) if key in positions else None,
            )
            for key in keys
        },
    )


def _read_documents(collection: Collection | None, doc_ids: set[str]) -> dict[str, tuple[str, bool]]:
    """doc_id -> (what people call it, whether it is retrieved)."""
    if collection is None or not doc_ids:
        return {}
    rows = Document.objects.filter(collection=collection, doc_id__in=doc_ids)
    return {row[0]: (row[1] or row[0], row[2]) for row in rows.values_list("doc_id", "title", "enabled")}


def _read_chunks(
    collection: Collection | None, locations: Mapping[str, tuple[str, int]]
) -> dict[tuple[str, int], tuple[str, bool]]:
    """(doc_id, chunk_index) -> (content, whether it is retrieved)."""
    if collection is None or not locations:
        return {}
    rows = Chunk.objects.of(collection).filter(
        doc_id__in={doc_id for doc_id, _ in locations.values()},
        chunk_index__in={index for _, index in locations.values()},
    )
    return {
        (row[0], row[1]): (row[2], row[3]) for row in rows.values_list("doc_id", "chunk_index", "content", "enabled")
    }


def _document(collection_name: str, doc_id: str, results: tuple[str, bool] | None) -> ExpectationState:
    if results is None:
        return ExpectationState(doc_id, doc_id, "gone")
    href = reverse("collections:document", args=[collection_name, doc_id])
    return ExpectationState(doc_id, results[0], "there" if results[1] else "off", href)


def _chunk(
    collection_name: str,
    key: str,
    position: tuple[str, int] | None,
    documents: Mapping[str, tuple[str, bool]],
    results: tuple[str, bool] | None,
) -> ExpectationState:
    if position is None or results is None:
        return ExpectationState(key, key, "gone", is_chunk=True)
    doc_id, index = position
    title = documents.get(doc_id, (doc_id, True))[0]
    href = reverse("collections:chunk", args=[collection_name, index, doc_id])
    excerpt = " ".join(results[0].split())[:EXCERPT_CHARS]
    return ExpectationState(key, f"{title} #{index}", "there" if results[1] else "off", href, excerpt, is_chunk=True)


UNKEPT = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(0))
FOUND_CHUNKS, FOUND_DOCUMENTS = 8, 5
CHOSEN_MAX = 400
EXPECTED = ("expected_doc_ids", "expected_chunks")
Chosen = dict[str, list[str]]


@contextmanager
def unkept_spans() -> Iterator[None]:
    """What runs inside belongs to a trace that is not sampled: a look ahead is no traffic."""
    with use_span(NonRecordingSpan(UNKEPT)):
        yield


def look(collection: Collection, text: str, k: int) -> list[Candidate]:
    """The best k chunks by the collection's default plan without its filters; [] for a blank text. Raises RagdError."""
    if not text.strip():
        return []
    plan = build_plan(collection, k=k, tags_any=[], tags_all=[], metadata={}, compress="none", rerank="none")
    return look_by(collection, text, plan)


def look_by(collection: Collection, text: str, plan: RetrievePlan) -> list[Candidate]:
    """The same by a plan of the caller's."""
    with unkept_spans(), transaction.atomic():
        return retrieve(text, plan, open_store(collection))


def documents_named(collection: Collection, text: str, limit: int) -> list[Document]:
    """Documents whose id or title holds the text, by id; [] for a blank text."""
    words = text.replace("\x00", "").strip()
    if not words:
        return []
    rows = Document.objects.filter(collection=collection).only("doc_id", "title", "enabled", "collection_id")
    records = rows.filter(doc_id__icontains=words) | rows.filter(title__icontains=words)
    return list(records.order_by("doc_id")[:limit])


@dataclass(frozen=True, slots=True)
class ChunkMatch:
    """What the search finds: a document and one chunk of it, each to be ticked. rank: from 1."""

    rank: int
    doc_id: str
    key: str
    title: str
    excerpt: str
    href: str
    score: float
    has_doc: bool
    has_chunk: bool


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """chunks: by rank. documents: whose name holds the words. problem: why there was no search, "" for none."""

    text: str
    chunks: Sequence[ChunkMatch] = ()
    documents: Sequence[tuple[str, str, bool]] = ()
    problem: str = ""


def read_chosen(request: PageRequest) -> Chosen:
    """What is ticked in the form: ids under the names of the fields of `Golden`."""
    return {name: list(dict.fromkeys(request.POST.getlist(name)[:CHOSEN_MAX])) for name in EXPECTED}


def chosen_context(collection_name: str, chosen: Chosen, marks: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What is ticked, with what became of it, for the part that shows the boxes. marks: of the question's chunks."""
    ticked = Golden("any", tuple(chosen["expected_doc_ids"]), tuple(chosen["expected_chunks"]))
    status = read_status(collection_name, [ticked])
    drifts = find_drifts(collection_name, [marks or {}])[0]
    of_chunks = status.of(Golden("any", (), ticked.expected_chunks), drifts)
    return {
        "expected_docs": [status.documents[doc_id] for doc_id in chosen["expected_doc_ids"]],
        "expected_chunks": of_chunks,
        "can_keep": any(item.state == "other" for item in of_chunks),
    }


def find_expected(collection_name: str, text: str, chosen: Chosen) -> SearchOutcome:
    """What the collection's search finds for the text, and documents that are called so."""
    collection = Collection.objects.live().filter(name=collection_name).first()
    if collection is None:
        return SearchOutcome(text, problem=f"The collection {collection_name} is deleted.")
    named = [
        (row.doc_id, row.name, row.doc_id in chosen["expected_doc_ids"])
        for row in documents_named(collection, text, FOUND_DOCUMENTS)
    ]
    try:
        candidates = look(collection, text, FOUND_CHUNKS)
    except (ServiceError, RagdError) as error:
        return SearchOutcome(text, documents=named, problem=describe(error)[1]["error"]["message"])
    chunks = []
    for rank, item in enumerate(candidates, 1):
        key = f"{item.doc_id}#{item.chunk_index}"
        chunks.append(
            ChunkMatch(
                rank=rank,
                doc_id=item.doc_id,
                key=key,
                title=" › ".join((item.context or item.doc_id).split(" > ")),
                excerpt=" ".join(item.content.split())[:EXCERPT_CHARS],
                href=reverse("collections:chunk", args=[collection.name, item.chunk_index, item.doc_id]),
                score=item.unit_score,
                has_doc=item.doc_id in chosen["expected_doc_ids"],
                has_chunk=key in chosen["expected_chunks"],
            )
        )
    return SearchOutcome(text, chunks, named)


def retrieved_of(run: QueryRun, chosen: Chosen) -> SearchOutcome:
    """The run's own results instead of a new search."""
    chunks = [
        ChunkMatch(
            rank=item["rank"],
            doc_id=item["doc_id"],
            key=f"{item['doc_id']}#{item['chunk_index']}",
            title=" › ".join((item["context"] or item["doc_id"]).split(" > ")),
            excerpt=" ".join(item["content"].split())[:EXCERPT_CHARS],
            href=reverse("collections:chunk", args=[run.collection_name, item["chunk_index"], item["doc_id"]]),
            score=float(item.get("unit_score") or 0.0),
            has_doc=item["doc_id"] in chosen["expected_doc_ids"],
            has_chunk=f"{item['doc_id']}#{item['chunk_index']}" in chosen["expected_chunks"],
        )
        for item in run.results
    ]
    return SearchOutcome("", chunks)
