"""A golden question out of a real run: a suggestion with the question as it was asked and what the answer cites. What
the answer said is expected only where a person says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collections_app.errors import ServiceError
from collections_app.services.governance import audit
from evaluation_app.golden.edits import add_question
from evaluation_app.golden.questions import TEXT_MAX_CHARS
from evaluation_app.golden.sets import create_set, free_name
from evaluation_app.golden.suggestions.document_questions import plain
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.normalization import normalize
from retrieval_app.citations.answer_html import cut_answer
from retrieval_app.models import QueryRun


@dataclass(frozen=True, slots=True)
class QuestionDraft:
    """What a run proposes. stated: fields of `Golden`, without an expected answer. answer: what the run answered, ""
    for none: wrong as often as the system is, so it is expected only where a person approves it."""

    stated: dict[str, Any]
    answer: str


def propose(run: QueryRun) -> QuestionDraft:
    """Proposed as expected is what the answer cites: its documents and chunks. A search cites nothing.

    An abstention is proposed as one that is right: expecting nothing, of the category "abstain".
    """
    # what it cites of other collections is no expectation for a set of this one
    elsewhere = {source["marker"] for source in run.sources if source.get("collection")}
    own = [item for item in run.citations if item["marker"] not in elsewhere]
    cited = list(dict.fromkeys(f"{item['doc_id']}#{item['chunk_index']}" for item in own))
    abstained = run.status == QueryRun.Status.ABSTAINED
    answered = run.status == QueryRun.Status.OK and run.answer is not None
    explicit = {
        "question": run.query,
        "expected_doc_ids": [] if abstained else list(dict.fromkeys(item["doc_id"] for item in own)),
        "expected_chunks": [] if abstained else cited,
        "category": "abstain" if abstained else "factual",
    }
    return QuestionDraft(explicit, bare_answer(run) if answered else "")


def bare_answer(run: QueryRun) -> str:
    """The answer without its citations and without Markdown's marks, as long as an expected answer may be."""
    pieces = (piece.text for piece in cut_answer(run.answer or "", run.citations) if piece.citation is None)
    return plain("".join(pieces))[:TEXT_MAX_CHARS].strip()


def golden_of(run: QueryRun) -> list[GoldenQuestion]:
    """The questions of its collection's sets that ask the same, by set."""
    rows = GoldenQuestion.objects.filter(
        golden_set__collection_name=run.collection_name, question=normalize(run.query).strip()
    )
    return list(rows.select_related("golden_set").order_by("golden_set__name"))


def sets_for(run: QueryRun) -> list[GoldenSet]:
    """The sets over its collection, by name."""
    return list(GoldenSet.objects.filter(collection_name=run.collection_name).order_by("name"))


def new_set_for(run: QueryRun, *, actor: audit.Actor = None) -> GoldenSet:
    """An empty set over the run's collection, named after it."""
    return create_set(free_name(run.collection_name, run.collection_name), run.collection_name, actor=actor)


def make_from_run(
    run: QueryRun,
    golden_set: GoldenSet,
    explicit: dict[str, Any] | None = None,
    *,
    accepted: bool = False,
    actor: audit.Actor = None,
) -> GoldenQuestion:
    """Put the run's question into the set as a suggestion, which no run asks; accepted: as a question.

    explicit: over what the run proposes. Raises ServiceError: 409 where the set has the question, 422 for a set over
    another collection.
    """
    if golden_set.collection_name != run.collection_name:
        raise ServiceError(
            f"the set {golden_set.name!r} is about {golden_set.collection_name!r},"
            f" and this run asked {run.collection_name!r}",
            type="other_collection",
            status=422,
            field="golden_set",
        )
    stated = propose(run).stated | (explicit or {})
    return add_question(golden_set, stated, source_run=run.pk, suggested=not accepted, actor=actor)
