"""What a preview says of golden questions is what happens to them when the change is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collections_app.chunks.edits import edit_chunk, set_chunk_enabled
from collections_app.documents.edits import edit_document
from collections_app.documents.services import change_state, delete_documents, ingest_text
from collections_app.errors import ServiceError
from collections_app.index.services import start_index_version
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import Chunk, ChunkOverlay, Collection, Document
from evaluation_app.curation import expectations, gate
from evaluation_app.curation.api import ImpactOut
from evaluation_app.curation.expectations import ProposedChange
from evaluation_app.curation.gate import Impact, impact_of, keys_of, questions_of
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import EmptyContent, InvalidInput
from ragd.insight.what_if import Supposed
from ragd.search.retrieval import retrieve
from retrieval_app.plans.services import build_plan, save_plan
from tests.collections.conftest import embeddings, notes, openai_server
from tests.evaluation.made_runs import make_set

__all__ = ["embeddings", "notes", "openai_server"]

SUBJECTS = ("keys", "doors", "rivers", "lamps", "bridges", "gardens")


def text_of(subject: str) -> str:
    return "\n\n".join(
        f"Paragraph {number} tells of {subject}: the {subject} of the town are seen to in month {number}, "
        f"and {subject} that are older than {number} years are made anew by the {SUBJECTS[number % 6]} people."
        for number in range(6)
    )


@pytest.fixture
def asked(notes: Collection) -> Collection:
    """Six documents of some chunks each, a question about each, and one that expects nothing."""
    for subject in SUBJECTS:
        ingest_text(notes, subject, text_of(subject), policy={"target_tokens": 40, "overlap_tokens": 0})
    golden = GoldenSet.objects.create(name="town", collection_name=notes.name)
    for place, subject in enumerate(SUBJECTS):
        GoldenQuestion.objects.create(
            golden_set=golden, position=place, question=f"Who makes the old {subject} anew?",
            expected_doc_ids=[subject], expected_chunks=[f"{subject}#1"] if place % 2 else [],
        )  # fmt: skip
    GoldenQuestion.objects.create(golden_set=golden, position=9, question="What is the price of bread?")
    GoldenQuestion.objects.create(
        golden_set=golden, position=10, question="Not looked at yet?", expected_doc_ids=["keys"], suggested=True
    )
    save_plan(notes, "narrow", build_plan(notes, k=4, candidate_pool=8), is_default=True)
    return notes


def rankings(collection: Collection) -> dict[str, list[str]]:
    collection = Collection.objects.get(pk=collection.pk)
    plan, store = build_plan(collection), open_store(collection)
    return {each.text: keys_of(retrieve(each.text, plan, store)) for each in questions_of(collection)}


def told_and_made(collection: Collection, proposal: ProposedChange, make: Callable[[], object]) -> Impact:
    """The preview, checked against what is found before and after the change is really made."""
    before = rankings(collection)
    rows = sorted(Chunk.objects.values_list("doc_id", "chunk_index", "content", "enabled"))
    told = impact_of(collection, proposal.supposed, by_document=proposal.renumbers, budget_s=30)
    assert sorted(Chunk.objects.values_list("doc_id", "chunk_index", "content", "enabled")) == rows
    assert rankings(collection) == before
    make()
    after = rankings(collection)
    assert (told.total, told.looked, told.k, told.plan_name) == (7, 7, 4, "narrow")
    changed = {each.question.text: each for each in told.changed}
    assert set(changed) == {text for text in before if before[text] != after[text]}
    for text, each in changed.items():
        assert set(each.left) == set(before[text]) - set(after[text])
        assert set(each.came) == set(after[text]) - set(before[text])
    assert sum(told.counts.values()) == 7 and told.counts["same"] == 7 - len(changed)
    return told


def test_deleted_documents_take_their_questions_along(asked: Collection) -> None:
    told = told_and_made(
        asked, expectations.documents_changed(asked, "delete", ["rivers", "absent"]),
        lambda: delete_documents(asked, ["rivers"]),
    )  # fmt: skip
    (lost,) = [each for each in told.changed if each.effect == "lost"]
    assert lost.question.golden.relevant_docs == ("rivers",) and lost.touched and lost.before is not None
    assert told.changed[0] is lost and told.documents == 1 and told.counts["lost"]
    before, after = told.means["hit@4"]
    assert (before.value, before.scored, after.value) == (1.0, 6, pytest.approx(5 / 6))


def test_disabled_and_archived_documents_are_hidden_alike(asked: Collection) -> None:
    assert expectations.documents_changed(asked, "archive", ["lamps"]) == expectations.documents_changed(
        asked, "disable", ["lamps"]
    )
    told = told_and_made(
        asked, expectations.documents_changed(asked, "disable", ["lamps", "keys"]),
        lambda: change_state(asked, ["lamps", "keys"], "disabled"),
    )  # fmt: skip
    assert told.counts["lost"] == 2
    # what is disabled already changes nothing
    assert expectations.documents_changed(asked, "disable", ["lamps"]).supposed == Supposed()
    with pytest.raises(InvalidInput, match="action must be one of"):
        expectations.documents_changed(asked, "enable", ["lamps"])


def test_an_edited_chunk(asked: Collection) -> None:
    content = "Bread costs a price that nobody knows; who makes the old gardens anew is not told."
    told_and_made(
        asked, expectations.chunk_edited(asked, "doors", 2, content), lambda: edit_chunk(asked, "doors", 2, content)
    )
    assert ChunkOverlay.objects.count() == 1
    # taken back, it is found as it was
    original = Document.objects.get(doc_id="doors").text
    chunk = Chunk.objects.get(doc_id="doors", chunk_index=2)
    back = original[chunk.start_char : chunk.end_char]
    told_and_made(
        asked, expectations.chunk_edited(asked, "doors", 2, back), lambda: edit_chunk(asked, "doors", 2, back)
    )
    with pytest.raises(EmptyContent):
        expectations.chunk_edited(asked, "doors", 2, "  ")
    with pytest.raises(ServiceError, match="has the chunks"):
        expectations.chunk_edited(asked, "doors", 99, "words")


def test_a_chunk_that_is_disabled_and_enabled(asked: Collection) -> None:
    told = told_and_made(
        asked, expectations.chunk_switched(asked, "lamps", 1, enabled=False),
        lambda: set_chunk_enabled(asked, "lamps", 1, enabled=False),
    )  # fmt: skip
    assert any(each.effect in ("lost", "worse") and each.touched for each in told.changed)
    told_and_made(
        asked, expectations.chunk_switched(asked, "lamps", 1, enabled=True),
        lambda: set_chunk_enabled(asked, "lamps", 1, enabled=True),
    )  # fmt: skip


def test_another_policy_of_one_document_and_of_all(asked: Collection) -> None:
    policy = {"target_tokens": 90, "overlap_tokens": 10}
    told_and_made(
        asked, expectations.document_policy_changed(asked, "gardens", policy),
        lambda: edit_document(asked, "gardens", {"chunk_policy": policy}),
    )  # fmt: skip
    Document.objects.update(chunk_policy_stated={})
    whole = expectations.policy_changed(asked, policy, budget_s=30)
    assert whole.estimate == "" and whole.renumbers

    def build() -> None:
        index_version = start_index_version(asked, {"chunk_policy": policy})
        assert run_job(index_version.jobs.newest()[0].pk) == "succeeded"

    told_and_made(asked, whole, build)


def test_a_policy_that_is_not_tried_on_every_document_says_so(
    asked: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    Document.objects.update(chunk_policy_stated={})
    monkeypatch.setattr(expectations, "RECUT_CHUNKS_MAX", 1)
    proposal = expectations.policy_changed(asked, {"target_tokens": 90, "overlap_tokens": 10}, budget_s=30)
    assert proposal.estimate.startswith("1 of 6 documents were cut by the other policy")
    assert proposal.supposed.documents == ("keys",)


def test_a_preview_out_of_time_has_looked_at_what_matters_first(
    asked: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    supposed = Supposed(hidden_documents=("bridges",))
    monkeypatch.setattr(gate, "vectors_of", lambda texts, embedder, until=None: {
        text: embedder.embed_query(text) for text in texts
    })  # fmt: skip
    told = impact_of(asked, supposed, budget_s=0.0)
    assert (told.looked, told.total, told.is_whole) == (1, 7, False)
    assert [each.effect for each in told.changed] == ["lost"]
    assert ImpactOut.from_orm(told).looked_at == 1


def test_without_golden_questions_there_is_nothing_to_say(notes: Collection) -> None:
    told = impact_of(notes, Supposed(hidden_documents=("keys",)))
    assert (told.total, told.looked, told.changed, told.means, told.is_whole) == (0, 0, [], {}, True)


def test_one_set_alone(asked: Collection) -> None:
    other = make_set("other", asked.name, {"Who makes keys?": "keys"})
    told: Any = impact_of(asked, Supposed(gone_documents=("keys",)), golden_set=other)
    assert (told.total, told.sets, told.counts["lost"]) == (1, ("other",), 1)
    assert impact_of(asked, Supposed(gone_documents=("keys",))).total == 8
