"""An index version serves only if golden questions find what they expect there too, unless a person says otherwise.
What a preview says of golden questions is what happens to them when the change is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collections_app.chunks.edits import edit_chunk, set_chunk_enabled
from collections_app.collections.deletion import delete_collection
from collections_app.collections.import_stage import import_collection
from collections_app.documents.edits import edit_document
from collections_app.documents.services import change_state, delete_documents, ingest_text
from collections_app.errors import ServiceError
from collections_app.index.services import (
    activate_index_version,
    cancel_index_version,
    drop_index_version,
    list_index_versions,
    start_index_version,
)
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import AuditEvent, Chunk, ChunkOverlay, Collection, Document, IndexVersion
from evaluation_app.curation import expectations, gate
from evaluation_app.curation import gate as gates
from evaluation_app.curation.api import ImpactOut
from evaluation_app.curation.expectations import ProposedChange
from evaluation_app.curation.gate import Impact, find_gate, impact_of, keys_of, questions_of, remove_gate, set_gate
from evaluation_app.models import GoldenQuestion, GoldenSet, PromotionGate
from evaluation_app.transfer_parts import GATES
from ragd.errors import EmptyContent, InvalidInput
from ragd.insight.what_if import Supposed
from ragd.search.retrieval import retrieve
from ragd.store.store import execute
from retrieval_app.plans.services import build_plan, save_plan
from tests.collections.conftest import committed, embeddings, notes, openai_server
from tests.collections.test_index_versions import reload, run, states
from tests.evaluation.made_runs import make_set
from tests.exports import export_to_file
from tests.refusals import raises_with

__all__ = ["committed", "embeddings", "notes", "openai_server"]

TEXTS = {
    "keys": "API keys stay valid for ninety days.",
    "doors": "The front door of the house is painted green.",
    "rivers": "Two rivers meet below the stone bridge.",
    "nights": "At night the lamps along the road are lit.",
}
QUESTIONS = {"How long are API keys valid?": "keys", "Which colour has the front door?": "doors",
             "Where do the rivers meet?": "rivers", "When are the lamps lit?": "nights"}  # fmt: skip


@pytest.fixture
def golden(notes: Collection) -> GoldenSet:
    for name, text in TEXTS.items():
        ingest_text(notes, name, text)
    return make_set("basics", notes.name, QUESTIONS)


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared is without two of the documents: the index that comes has lost them."""
    whole = gates.open_version

    def open_spoiled(collection: Collection, index_version: IndexVersion) -> Any:
        store = whole(collection, index_version)
        names = {"gone": ["rivers", "nights"]}
        execute(store.connection, f"DELETE FROM {store.collection.partition} WHERE doc_id = ANY(%(gone)s)", names)
        return store

    monkeypatch.setattr(gates, "open_version", open_spoiled)


def test_without_a_gate_nothing_is_asked(notes: Collection, golden: GoldenSet, spoiled: None) -> None:
    index_version = start_index_version(notes, {})
    assert run(index_version) == "succeeded"
    assert states(notes) == {2: "serving", 1: "retired"}
    assert (reload(index_version).gate_state, reload(index_version).gate_report) == ("", {})


def test_an_index_version_that_is_as_good_passes_and_keeps_its_report(notes: Collection, golden: GoldenSet) -> None:
    set_gate(notes, "basics", k=2, margin=0.0)
    index_version = start_index_version(notes, {"chunk_policy": {"target_tokens": 40, "overlap_tokens": 0}})
    assert run(index_version) == "succeeded"
    told = reload(index_version)
    assert (told.state, told.gate_state) == ("serving", "passed")
    report = told.gate_report
    assert (report["measure"], report["questions"], report["before"], report["after"]) == ("recall@2", 4, 1.0, 1.0)
    assert report["difference"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "count": 4}
    assert report["compared_with"] == 1 and report["worse"] == 0 and "allowed regression 0" in report["reason"]


def test_a_worse_one_is_held_and_the_other_goes_on_serving(notes: Collection, golden: GoldenSet, spoiled: None) -> None:
    set_gate(notes, "basics", k=3, margin=0.4)
    index_version = start_index_version(notes, {})
    assert run(index_version) == "succeeded"
    told = reload(index_version)
    assert states(notes) == {2: "ready", 1: "serving"}
    assert (told.gate_state, told.automatic) == ("held", False)
    report = told.gate_report
    assert (report["before"], report["after"], report["worse"]) == (1.0, 0.5, 2)
    assert report["difference"]["mean"] == -0.5
    assert {each["question"]: each["rank_after"] for each in report["changed"] if each["after"] < each["before"]} == {
        "Where do the rivers meet?": None,
        "When are the lamps lit?": None,
    }
    assert "falls by 0.500, more than the allowed regression of 0.4" in report["reason"]
    # asked again by hand it is held again; the gate holds for that too
    activate_index_version(told)
    assert run(told) == "succeeded"
    assert reload(told).gate_state == "held" and states(notes)[1] == "serving"


def test_a_person_may_overrule_with_a_reason_that_is_kept(
    notes: Collection, golden: GoldenSet, spoiled: None, admin_user: Any
) -> None:
    set_gate(notes, "basics", k=3, margin=0.1)
    index_version = start_index_version(notes, {})
    with pytest.raises(ServiceError, match="no gate holds index version 2"):
        activate_index_version(index_version, overrule="because")
    run(index_version)
    held = reload(index_version)
    with pytest.raises(InvalidInput, match="reason"):
        activate_index_version(held, overrule="  ", actor=admin_user)
    activate_index_version(held, overrule="Two questions  are out of date.", actor=admin_user)
    assert run(held) == "succeeded"
    told = reload(held)
    assert (told.state, told.gate_state) == ("serving", "overruled")
    assert (told.gate_reason, told.gate_by) == ("Two questions are out of date.", admin_user.get_username())
    assert told.gate_at is not None and told.gate_report["after"] == 0.5
    entries = AuditEvent.objects.filter(collection_name="notes", actor_name=admin_user.get_username())
    assert entries.filter(action="index_version.overrule", message__contains="overruled the gate").exists()


def test_the_way_back_is_asked_too_and_a_held_one_can_be_dropped(
    notes: Collection, golden: GoldenSet, monkeypatch: pytest.MonkeyPatch, spoiled: None
) -> None:
    first = list_index_versions(notes)[0]
    run(start_index_version(notes, {}))
    set_gate(notes, "basics", k=3, margin=0.1)
    activate_index_version(reload(first))
    assert run(first) == "succeeded"
    assert states(notes) == {2: "serving", 1: "retired"}
    assert (reload(first).gate_state, reload(first).automatic) == ("held", False)
    drop_index_version(reload(first))
    assert states(notes)[1] == "dropped"


def test_a_gate_that_cannot_be_asked_holds(notes: Collection, golden: GoldenSet) -> None:
    set_gate(notes, "basics")
    golden.questions.update(expected_doc_ids=[])
    index_version = start_index_version(notes, {})
    run(index_version)
    assert "no question of 'basics' expects a document" in reload(index_version).gate_report["reason"]
    golden.delete()
    activate_index_version(reload(index_version))
    run(index_version)
    told = reload(index_version)
    assert told.gate_state == "held" and "'basics' was deleted" in told.gate_report["reason"]
    assert remove_gate(notes) and not remove_gate(notes)
    activate_index_version(told)
    run(told)
    assert (reload(told).state, reload(told).gate_state, reload(told).gate_report) == ("serving", "", {})


def test_the_margin_itself_is_allowed(notes: Collection, golden: GoldenSet, spoiled: None) -> None:
    set_gate(notes, "basics", k=3, margin=0.5)
    index_version = start_index_version(notes, {})
    run(index_version)
    assert (reload(index_version).state, reload(index_version).gate_state) == ("serving", "passed")


def test_what_a_gate_may_be(notes: Collection, golden: GoldenSet) -> None:
    with pytest.raises(ServiceError, match="no golden set 'others'"):
        set_gate(notes, "others")
    for values, field in (({"measure": "adherence"}, "measure"), ({"k": 0}, "k"), ({"margin": float("nan")}, "margin"),
                          ({"margin": 1.5}, "margin"), ({"k": True}, "k")):  # fmt: skip
        with raises_with(InvalidInput, field=field):
            set_gate(notes, "basics", **values)
    assert find_gate(notes) is None


def test_a_gate_travels_with_its_collection_and_goes_with_it(
    committed: None, golden: GoldenSet, notes: Collection, tmp_path: Path
) -> None:
    set_gate(notes, "basics", measure="mrr", k=7, margin=0.05)
    export_to_file(notes, tmp_path / "notes.zip")
    import_collection(tmp_path / "notes.zip", name="copy")
    gate = PromotionGate.objects.get(collection_name="copy")
    assert (gate.measure, gate.k, gate.margin) == ("mrr", 7, 0.05)
    # the name of the set was taken, so the copy's has another, and the gate means that one
    assert gate.golden_set is not None and gate.golden_set.collection_name == "copy"
    assert gate.set_name == gate.golden_set.name == "basics"
    delete_collection(Collection.objects.live().get(name="copy"))
    assert list(PromotionGate.objects.values_list("collection_name", flat=True)) == ["notes"]
    with raises_with(InvalidInput, field="promotion_gates"):
        GATES.restore(notes, [{"set_name": "basics"}])


def test_a_job_that_is_cancelled_while_the_gate_is_asked_lets_nothing_serve(
    notes: Collection, golden: GoldenSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_gate(notes, "basics")
    index_version = start_index_version(notes, {})
    compared = gates.compare_index_versions

    def cancel_first(*args: Any, **values: Any) -> Any:
        cancel_index_version(reload(index_version))
        return compared(*args, **values)

    monkeypatch.setattr(gates, "compare_index_versions", cancel_first)
    assert run(index_version) == "cancelled"
    assert states(notes) == {2: "cancelled", 1: "serving"} and reload(index_version).gate_state == ""


_all___impact = ["embeddings", "notes", "openai_server"]

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
