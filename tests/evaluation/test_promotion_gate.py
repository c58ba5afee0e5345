"""An index version serves only if golden questions find what they expect there too, unless a person says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collections_app.collections.deletion import delete_collection
from collections_app.collections.import_stage import import_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.index.services import (
    activate_index_version,
    cancel_index_version,
    drop_index_version,
    list_index_versions,
    start_index_version,
)
from collections_app.models import AuditEvent, Collection, IndexVersion
from evaluation_app.curation import gate as gates
from evaluation_app.curation.gate import find_gate, remove_gate, set_gate
from evaluation_app.models import GoldenSet, PromotionGate
from evaluation_app.transfer_parts import GATES
from ragd.errors import InvalidInput
from ragd.store.store import execute
from tests.collections.conftest import committed, embeddings, notes, openai_server
from tests.collections.test_index_versions import reload, run, states
from tests.evaluation.made_runs import make_set
from tests.exports import export_to_file

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
        with pytest.raises(InvalidInput) as refused:
            set_gate(notes, "basics", **values)
        assert refused.value.field == field
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
    with pytest.raises(InvalidInput) as refused:
        GATES.restore(notes, [{"set_name": "basics"}])
    assert refused.value.field == "promotion_gates"


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
