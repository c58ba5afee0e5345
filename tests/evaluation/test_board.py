"""The board of failing questions: columns, decisions that outlast runs, and fixes that are run on the set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.errors import ServiceError
from collections_app.models import AuditEvent, Collection
from evaluation_app.experiments.services import try_fix
from evaluation_app.failures.board import Decision, Filters, decide, read_board
from evaluation_app.failures.fixes import propose_fixes, quartiles, read_outcome, refresh_modes
from evaluation_app.golden.sets import keep_version
from evaluation_app.measures.catalogue import DOCUMENT_BANDS
from evaluation_app.models import BoardCard, EvaluationRun, GoldenQuestion, GoldenSet
from evaluation_app.scoring.modes import bands_for, find_mode, keep_bands, thresholds_for
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.models import SavedPlan
from retrieval_app.plans.services import choose_plan
from tests.evaluation.made_runs import make_run, make_set
from tests.refusals import raises_with
from tests.web.pages import attribute, texts

pytestmark = pytest.mark.django_db
QUESTIONS = ("Question 0?", "Question 1?", "Question 2?")
MODES = {0: ["retrieval_miss", "low_completeness"], 1: ["low_completeness"], 2: []}
SCORES = [{"hit@10": 0.0, "completeness": 0.5}, {"hit@10": 1.0, "completeness": 0.1}, {"completeness": 0.9}]


@pytest.fixture
def golden_set() -> GoldenSet:
    made = make_set("birds", "nature", dict.fromkeys(QUESTIONS, "owl.md"), expected_answer="Yes.")
    keep_version(made)
    return made


@pytest.fixture
def collection() -> Collection:
    return create_collection(name="nature")


Make = Callable[..., EvaluationRun]


@pytest.fixture
def make(golden_set: GoldenSet) -> Make:
    def made(modes: dict[int, list[str]] = MODES, **values: Any) -> EvaluationRun:
        items = {
            place: {
                "modes": keys,
                "golden": {"question": QUESTIONS[place], "expected_doc_ids": ["owl.md"]},
                "retrieved_ids": ["a#0"],
            }
            for place, keys in modes.items()
        }
        now = timezone.now()
        whole = {"golden_set": golden_set, "set_digest": golden_set.digest, "started_at": now}
        given = whole | {"judge": "llm", "judge_version": ""} | values  # whose verdict on one question counts
        return make_run(SCORES, items=items, **given)

    return made


def placed(run: EvaluationRun, **filters: Any) -> dict[str, list[int]]:
    """Mode -> positions of its cards, as the board shows them."""
    board = read_board(run, Filters(**filters))
    return {column.mode.key: [entry.item.position for entry in column.entries] for column in board.columns}


def test_failure_modes_come_before_diagnostics(make: Make) -> None:
    board = read_board(make({0: ["low_completeness"], 1: ["wrong_answer"], 2: ["chunk_miss"]}))
    assert [column.mode.kind for column in board.columns] == ["failure", "diagnostic", "diagnostic"]


def test_failing_questions_stand_under_each_of_their_modes_the_worst_first(make: Make) -> None:
    board = read_board(make())
    assert [(column.mode.key, column.total) for column in board.columns] == [
        ("retrieval_miss", 1),
        ("low_completeness", 2),
    ]
    assert [entry.item.position for entry in board.columns[1].entries] == [1, 0]
    assert (board.failing, board.question_count) == (2, 3)
    assert "low_faithfulness" in {mode.key for mode in board.quiet}
    miss = board.columns[0].entries[0]
    assert (miss.culprit, miss.role) == ("owl.md", "expected")
    assert [(measure.name, score.value) for measure, score in miss.scores] == [("hit@10", 0.0)]


def test_a_question_that_could_not_be_asked_has_a_column_of_its_own(make: Make) -> None:
    run = make({})
    run.items.filter(position=2).update(outcome="error", error="the model is away")
    assert placed(run) == {"run_error": [2]}


def test_a_mode_that_the_table_does_not_have_any_more_is_left_out(make: Make) -> None:
    assert placed(make({0: ["of_old", "low_completeness"]})) == {"low_completeness": [0]}


def test_a_column_shows_so_many_and_tells_how_many_more(make: Make) -> None:
    column = read_board(make(), per_column=1).columns[1]
    assert (len(column.entries), column.total, column.more) == (1, 2, 1)


def test_filters_choose_cards(make: Make, golden_set: GoldenSet, django_user_model: Any) -> None:
    run = make()
    run.items.filter(position=1).update(category="global")
    assert placed(run, category="global") == {"low_completeness": [1]}
    assert placed(run, mode="retrieval_miss") == {"retrieval_miss": [0]}
    django_user_model.objects.create_user("ada")
    decide(golden_set, QUESTIONS[1], "low_completeness", Decision("assign", assignee="ada"))
    assert placed(run, assignee="ada") == {"low_completeness": [1]}


def test_what_is_put_away_comes_back_when_its_day_has_come(make: Make, golden_set: GoldenSet) -> None:
    run = make()
    tomorrow = timezone.localdate() + timedelta(days=1)
    decide(golden_set, QUESTIONS[0], "retrieval_miss", Decision("snooze", until=tomorrow))
    assert placed(run) == {"retrieval_miss": [], "low_completeness": [1, 0]}
    assert placed(run, show="away") == {"retrieval_miss": [0]}
    assert read_board(run).columns[0].away == 1
    BoardCard.objects.update(until=timezone.localdate())
    assert placed(run)["retrieval_miss"] == [0]


def test_what_was_resolved_comes_back_when_a_later_run_fails(make: Make, golden_set: GoldenSet) -> None:
    before = make()
    decide(golden_set, QUESTIONS[0], "retrieval_miss", Decision("resolve", note="The document was disabled."))
    assert placed(before)["retrieval_miss"] == []
    later = make()
    entry = read_board(later).columns[0].entries[0]
    assert entry.came_back
    assert entry.card is not None
    assert entry.card.note == "The document was disabled."
    decide(golden_set, QUESTIONS[0], "retrieval_miss", Decision("reopen"))
    assert placed(before)["retrieval_miss"] == [0]


def test_decisions_are_audited(golden_set: GoldenSet, django_user_model: Any) -> None:
    ada = django_user_model.objects.create_user("ada")
    card = decide(golden_set, QUESTIONS[0], "retrieval_miss", Decision("resolve"), actor=ada)
    assert card.changed_by == "ada"
    assert "resolved retrieval_miss of 'Question 0?'" in AuditEvent.objects.latest("id").message


def test_wrong_decisions_are_named(golden_set: GoldenSet) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"decision": "burn"}, "decision"),
        ({"mode": "boredom"}, "mode"),
        ({"question": "Never asked?"}, "question"),
        ({"decision": "snooze"}, "until"),
        ({"decision": "snooze", "until": timezone.localdate()}, "until"),
        ({"assignee": "nobody-here"}, "assignee"),
        ({"note": "x" * 2001}, "note"),
    ]
    for values, field in cases:
        given = {"question": QUESTIONS[0], "mode": "retrieval_miss", "decision": "assign"} | values
        with raises_with(InvalidInput, field=field):
            decide(golden_set, given.pop("question"), given.pop("mode"), Decision(given.pop("decision"), **given))
        assert not BoardCard.objects.exists()


def proposals(run: EvaluationRun, mode: str) -> dict[str, Any]:
    return {item.fix.key: item for item in propose_fixes(find_mode(mode), run)}


def test_a_fix_changes_the_plan_of_the_run(make: Make, collection: Collection) -> None:
    run = make(plan=RetrievePlan(mode="vector", k=8, candidate_pool=40))
    found = proposals(run, "retrieval_miss")
    assert found["double_k"].plan == RetrievePlan(mode="vector", k=16, candidate_pool=80)
    assert [(c.field, c.before, c.after) for c in found["double_k"].changes] == [
        ("k", "8", "16"),
        ("candidate_pool", "40", "80"),
    ]
    assert found["hybrid"].plan.mode == "hybrid"
    assert found["hybrid"].reason == ""


def test_a_fix_that_cannot_be_tried_says_why(make: Make, collection: Collection) -> None:
    run = make(plan=RetrievePlan(k=100, candidate_pool=1000))
    assert proposals(run, "retrieval_miss")["double_k"].reason == "already set"
    assert proposals(run, "retrieval_miss")["hybrid"].reason == "already set"
    assert "chat model" in proposals(run, "unsupported_claims")["faithful_prompt"].reason
    assert "not calibrated" in proposals(run, "unwarranted_answer")["corrective"].reason
    searched = make(settings={"answers": False, "judge": "none"})
    assert proposals(searched, "wrong_abstention")["no_corrective"].reason == "search-only run"
    with pytest.raises(ServiceError, match="already set"):
        try_fix(run, "retrieval_miss", "hybrid")
    with pytest.raises(InvalidInput, match="it has deeper_lists"):
        try_fix(run, "retrieval_miss", "prayer")


def test_every_fix_makes_a_valid_plan(make: Make, collection: Collection) -> None:
    from evaluation_app.scoring.modes import stored_table

    runs = [
        make(plan=plan)
        for plan in (
            RetrievePlan(k=1, candidate_pool=1, compress="window", token_budget=50),
            RetrievePlan(k=1000, candidate_pool=1000),
        )
    ]
    for run in runs:
        old = RetrievePlan.from_dict(run.plan)
        for mode in stored_table().modes.values():
            for proposal in propose_fixes(mode, run):
                assert replace(proposal.plan) == proposal.plan  # checked again when it is made again
                if proposal.fix.plan and not proposal.reason:
                    assert proposal.plan != old


def test_trying_a_fix_runs_the_set_with_it(make: Make, collection: Collection, golden_set: GoldenSet) -> None:
    base = make({0: [], 1: [], 2: []}, thresholds={"completeness": 0.5})
    tried = try_fix(base, "retrieval_miss", "double_k", send=False).runs.get()
    assert (tried.purpose, tried.base_run, tried.golden_set) == ("fix", base, golden_set)
    assert tried.name == "Retrieval miss: 2x results (k)"
    assert tried.thresholds == {"completeness": 0.5}
    assert tried.plan["k"] == 2 * base.plan["k"]
    assert tried.set_digest == base.set_digest
    assert "retrieval_miss" in placed(base)  # found again, by the same bands


def test_a_set_that_asks_other_questions_now_is_not_compared(make: Make, collection: Collection) -> None:
    base = make()
    GoldenQuestion.objects.filter(question=QUESTIONS[0]).update(question="Question 0 reworded?")
    with raises_with(ServiceError, type="set_changed", status=409):
        try_fix(base, "retrieval_miss", "double_k", send=False)


def test_what_a_fix_did_is_told_by_mode(make: Make) -> None:
    base = make()
    after = make({0: ["low_completeness"], 2: ["unsupported_claims"]}, base_run=base, plan=RetrievePlan(k=99))
    outcome = read_outcome(after)
    assert outcome is not None
    assert {mode.key: (move.before, move.after, move.cured, move.new) for mode, move in outcome.moves} == {
        "retrieval_miss": (1, 0, 1, 0),
        "low_completeness": (2, 1, 1, 0),
        "unsupported_claims": (0, 1, 0, 1),
    }
    failing = outcome.failing
    assert (outcome.question_count, failing.before, failing.after, failing.cured, failing.new) == (3, 1, 1, 1, 1)
    assert "k" in {change.field for change in outcome.changes}
    assert read_outcome(base) is None
    assert read_outcome(make(base_run=base, set_digest="e" * 64)) is None


def test_only_questions_that_both_runs_have_done_count(make: Make) -> None:
    base = make()
    after = make({}, base_run=base)
    after.items.filter(position=0).delete()
    outcome = read_outcome(after)
    assert outcome is not None
    assert outcome.question_count == 2
    assert [(mode.key, move.before, move.cured) for mode, move in outcome.moves] == [("low_completeness", 1, 1)]


def test_a_set_has_bands_of_its_own(golden_set: GoldenSet, settings: Any, make: Make) -> None:
    settings.RAGD_EVALUATION_BANDS = '{"adherence": [1.0, 0.5], "completeness": [0.7, 0.3]}'
    keep_bands(golden_set, {"completeness": [0.5, 0.05]})
    assert bands_for(golden_set)["completeness"] == (0.5, 0.05)
    assert bands_for(golden_set)["adherence"] == (1.0, 0.5)
    assert bands_for()["completeness"] == (0.7, 0.3)
    assert read_board(make()).columns[1].band == "completeness below 0.05"
    with pytest.raises(InvalidInput):
        keep_bands(golden_set, {"completeness": [0.1, 0.5]})
    keep_bands(golden_set, {})
    assert bands_for() == {"adherence": (1.0, 0.5), "completeness": (0.7, 0.3)}
    assert bands_for(golden_set) == dict(DOCUMENT_BANDS) | bands_for()
    assert thresholds_for()["context_relevance"] == (0.7, 0.5), "of reference, where nobody set any"


def test_modes_are_found_again_by_other_bands(make: Make, golden_set: GoldenSet) -> None:
    run = make(summary={"modes": {"retrieval_miss": 1, "low_completeness": 2}, "failed_questions": 1})
    assert refresh_modes(run) == 0  # they are what the stored scores say already
    keep_bands(golden_set, {"completeness": [0.5, 0.2]})
    assert refresh_modes(run) == 2
    assert placed(run) == {"retrieval_miss": [0], "low_completeness": [1], "below_threshold": [1]}
    run.refresh_from_db()
    assert run.summary == {
        "modes": {"retrieval_miss": 1, "low_completeness": 1, "below_threshold": 1}, "failed_questions": 1,
        "failing": 2,
    }  # fmt: skip


def test_a_threshold_of_the_run_counts_when_modes_are_found_again(make: Make) -> None:
    run = make(thresholds={"completeness": 0.95})
    assert refresh_modes(run) == 3
    assert placed(run)["below_threshold"] == [1, 0, 2]


def test_a_run_that_goes_on_keeps_its_modes(make: Make) -> None:
    with pytest.raises(ServiceError, match="not finished"):
        refresh_modes(make(state="running"))


def test_a_bound_that_nearly_all_questions_miss_is_doubted(make: Make, golden_set: GoldenSet) -> None:
    scores = [{"completeness": 0.5}] * 5
    items = {place: {"modes": ["low_completeness"]} for place in range(4)}
    run = make_run(scores, items=items, golden_set=golden_set)
    assert [column.is_nearly_all for column in read_board(run).columns] == [True]
    run.items.filter(position=3).update(modes=[])
    assert [column.is_nearly_all for column in read_board(run).columns] == [False]


def test_quartiles_are_of_what_was_scored(make: Make) -> None:
    found = quartiles(make(), ["completeness", "adherence"])
    assert found == {"completeness": pytest.approx((0.3, 0.5, 0.7))}


def test_the_page_shows_cards_and_takes_decisions(admin_client: Client, make: Make, collection: Collection) -> None:
    run = make()
    page = admin_client.get("/evaluation/board/").content.decode()
    assert page.count('class="question-card"') == 3
    assert "2 questions" in page
    assert "completeness below 0.6" in page
    sent = {"question": QUESTIONS[1], "mode": "low_completeness", "decision": "resolve", "note": "<b>told</b>"}
    answer = admin_client.post(
        f"/evaluation/runs/{run.pk}/", sent | {"do": "decide", "next": "/evaluation/board/?show=all"}
    )
    assert answer["Location"] == "/evaluation/board/?show=all"
    page = admin_client.get(f"/evaluation/board/?run={run.pk}&show=all").content.decode()
    assert "&lt;b&gt;told&lt;/b&gt;" in page
    assert page.count('class="question-card"') == 3
    assert admin_client.get("/evaluation/board/").content.decode().count('class="question-card"') == 2


def test_one_click_tries_a_fix_and_leads_to_its_page(admin_client: Client, make: Make, collection: Collection) -> None:
    base = make()
    page = admin_client.get("/evaluation/board/").content.decode()
    assert 'name="do" value="fix"' in page
    answer = admin_client.post(
        f"/evaluation/runs/{base.pk}/", {"do": "fix", "mode": "retrieval_miss", "fix": "double_k"}
    )
    tried = EvaluationRun.objects.get(purpose="fix")
    assert answer["Location"] == tried.experiment.get_absolute_url()
    shown = admin_client.get(answer["Location"]).content.decode()
    assert f"/evaluation/compare/?base={base.pk}&amp;other={tried.pk}" in shown
    assert 'hx-trigger="every 2s"' in shown
    assert admin_client.get(f"/evaluation/experiments/{base.pk}/").status_code == 404


def test_the_plan_of_a_fix_is_kept_for_the_collection(admin_client: Client, make: Make, collection: Collection) -> None:
    base = make()
    tried = make({}, base_run=base, plan=RetrievePlan(k=33))
    address = tried.experiment.get_absolute_url()
    page = admin_client.get(address).content.decode()
    assert 'name="is_default"' in page
    admin_client.post(address, {"do": "save", "name": "wider", "is_default": "1"})
    kept = choose_plan(collection, None, {})
    assert (kept.name, kept.plan) == ("wider", RetrievePlan(k=33))
    admin_client.post(address, {"do": "save", "name": "a/b"})
    assert SavedPlan.objects.count() == 1


@pytest.mark.usefixtures("collection")
def test_the_address_names_the_set(admin_client: Client, make: Make, golden_set: GoldenSet) -> None:
    run = make()
    golden_set.name = "birds & co"
    golden_set.save()
    trees = GoldenSet.objects.create(name="trees", collection_name="nature")
    make(golden_set=trees)
    page = admin_client.get("/evaluation/board/", {"set": "birds & co"})
    assert page.context["run"] == run
    assert texts(page, "#filter-set summary .clip") == ["birds & co"]
    assert admin_client.get("/evaluation/board/", {"set": "nonsense"}).status_code == 404
    GoldenQuestion.objects.create(golden_set=golden_set, question="Another?", expected_answer="Yes.")
    start = attribute(admin_client.get("/evaluation/board/", {"set": "birds & co"}), '.banner a[href*="new"]', "href")
    assert start and admin_client.get(start).status_code == 200
    answer = admin_client.post(f"/evaluation/runs/{run.pk}/", {"do": "decide"})
    assert answer["Location"] == "/evaluation/board/?set=birds+%26+co"


def test_the_table_of_modes_and_the_bands_are_pages(admin_client: Client, golden_set: GoldenSet) -> None:
    assert "completeness below 0.6" in admin_client.get("/evaluation/board/?view=modes").content.decode()
    address = f"/evaluation/sets/{golden_set.pk}/?view=thresholds"
    shown = admin_client.get(address)
    assert shown.status_code == 200 and f"/evaluation/sets/{golden_set.pk}/?view=versions" in shown.content.decode()
    assert admin_client.post(address, {"completeness_good": "0.5"}).status_code == 422
    assert admin_client.post(address, {"completeness_good": "0.2", "completeness_poor": "0.5"}).status_code == 422
    assert admin_client.post(address, {"completeness_good": "0.5", "completeness_poor": "0.2"}).status_code == 302
    golden_set.refresh_from_db()
    assert golden_set.bands == {"completeness": [0.5, 0.2]}


def test_new_bands_can_be_applied_to_the_newest_run(admin_client: Client, make: Make, golden_set: GoldenSet) -> None:
    run = make()
    address = f"/evaluation/sets/{golden_set.pk}/?view=thresholds"
    assert "0.30 to 0.70" in admin_client.get(address).content.decode()
    answer = admin_client.post(address, {"completeness_good": "0.5", "completeness_poor": "0.2", "again": "1"})
    assert answer["Location"] == f"/evaluation/board/?run={run.pk}"
    assert placed(run)["low_completeness"] == [1]
