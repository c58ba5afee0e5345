"""The pages of evaluation over runs that a test has made: what they show, what each number opens, what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.models import AuditEvent
from evaluation_app.experiments.plan_grid import label_of
from evaluation_app.models import EvaluationRun, GoldenQuestion, GoldenSet
from evaluation_app.runs.lifecycle import retry_failed
from evaluation_app.runs.run_pages.runs_page import FILTERS
from evaluation_app.runs.summaries import summarize
from evaluation_app.scoring.judge_selection import RunSettings
from ragd.types import RetrievePlan
from tests.evaluation.made_runs import SETTINGS, make_run
from tests.web.conftest import make_collection
from tests.web.pages import attribute, has, is_empty, numbers, texts, whole

QUESTIONS = 12
CONTEXT = [
    {"key": "whales.md#0", "sentences": [["0a", "The blue whale is the largest animal."], ["0b", "It eats krill."]]},
    {"key": "trees.md#0", "sentences": [["1a", "Redwoods are tall."], ["1b", "They are old."]]},
]
ANNOTATION = {
    "relevant": ["0a", "1a"],
    "utilized": ["0a", "0b"],
    "support": [
        {"key": "a", "by": ["0a"], "supported": True},
        {"key": "b", "by": [], "supported": False},
        {"key": "c", "by": ["general"], "supported": True},
    ],
}
ITEM = {
    "question_text": "Which animal is the largest?",
    "golden": {
        "question": "Which animal is the largest?",
        "expected_doc_ids": ["whales.md", "gone.md"],
        "expected_chunks": ["whales.md#0"],
        "expected_answer": "The blue whale.",
        "thresholds": {"completeness": 0.5},
    },
    "retrieved_ids": ["whales.md#0", "trees.md#0"],
    "context": CONTEXT,
    "annotation": ANNOTATION,
    "answer": "The blue whale. It sings. Good.",
    "answer_sentences": [["a", "The blue whale."], ["b", "It sings."], ["c", "Good."]],
    "contributions": [
        {"key": "whales.md#0", "alone": 1.0, "without": 0.0, "contribution": 1.0, "effect": "helpful"},
        {"key": "trees.md#0", "alone": 0.0, "without": 0.2, "contribution": -0.2, "effect": "harmful"},
    ],
    "modes": ["low_completeness"],
    "details": {"explanation": "Half of it is told.", "likely": {"relevant": {"0a": 0.9}}},
}


def scores_of(base: float) -> list[dict[str, float | None]]:
    """Twelve questions; the third cannot be scored, the first has a completeness of 0.25."""
    rows: list[dict[str, float | None]] = [
        {
            "recall@10": float(number % 2),
            "context_relevance": min(base + number / 20, 1.0),
            "completeness": 0.25 if number == 0 else base,
            "adherence": float(number % 3 == 0),
        }
        for number in range(QUESTIONS)
    ]
    rows[2] |= {"completeness": None, "adherence": None}
    return rows


def summed(run: EvaluationRun) -> EvaluationRun:
    run.summary = summarize(
        run.items.order_by("position"), RunSettings.from_dict(run.settings), thresholds=run.thresholds
    )
    run.save(update_fields=["summary"])
    return run


@pytest.fixture(scope="module")
def module_runs(module_db: None) -> None:
    """Three runs over one set, the oldest first; the first is its baseline, the last has thresholds and an error.

    The collection's default plan and first index version are those of `make_run`.
    """
    make_collection(documents=0)
    golden_set = GoldenSet.objects.create(name="birds", collection_name="nature", version=1, digest="d" * 64)
    GoldenQuestion.objects.create(golden_set=golden_set, question=ITEM["question_text"])
    made = []
    for number, base in enumerate((0.4, 0.5, 0.6)):
        items = {0: ITEM, 1: {"category": "multi-hop"}}
        if number == 2:
            items[3] = {"outcome": "error", "error": "the embedder timed out", "error_type": "timeout"}
        made.append(
            summed(
                make_run(
                    scores_of(base),
                    golden_set=golden_set,
                    items=items,
                    thresholds={"completeness": 0.8} if number == 2 else {},
                    created_at=timezone.now() - timedelta(days=3 - number),
                    name=f"try {number}",
                )
            )
        )
    golden_set.baseline = made[0]
    golden_set.save()


@pytest.fixture
def runs(module_runs: None, db: None) -> list[EvaluationRun]:
    return list(EvaluationRun.objects.order_by("created_at"))


@pytest.fixture
def golden_set(module_runs: None, db: None, request: pytest.FixtureRequest) -> GoldenSet:
    """The set, without the runs where a test does not ask for them."""
    if "runs" not in request.fixturenames:
        EvaluationRun.objects.all().delete()
    return GoldenSet.objects.get(name="birds")


def row_of(html: str, name: str) -> str:
    """The table row whose head is that measure."""
    return next(row for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL) if f">{name}" in row.partition("</th>")[0])


def questions_in(html: str) -> list[int]:
    """Positions of the cards of questions, as listed."""
    return [int(place) for place in re.findall(r'question-link" href="[^"]+/items/(\d+)/', html)]


def test_the_dashboard_shows_the_newest_run_against_the_baseline(visitor: Client, runs: list[EvaluationRun]) -> None:
    html = whole(visitor.get("/evaluation/"))
    newest = runs[2].summary["measures"]["completeness"]
    assert newest["scored"] == QUESTIONS - 1
    panel = html[html.index('<h3 title="share of the relevant context that the answer uses') :]
    panel = panel.partition('class="measure-panel"')[0]
    assert f">{newest['value']:.2f}</a>" in panel
    assert "11 of 12 scored" in panel and "score=unscored" in panel
    assert f"{newest['low']:.2f} to {newest['high']:.2f}" in panel
    assert "RAGBench percentile" in panel
    tiles = visitor.get("/evaluation/").context["panels"]
    assert [len(tile.values) for tile in tiles] == [3] * len(tiles)
    assert html.partition('id="trend"')[0].count('class="score-spark"') == len(tiles) >= 3
    assert panel.count('class="dot') == 3 and 'class="baseline"' in panel
    assert "better</span>" in panel
    assert f"base={runs[0].pk}&amp;other={runs[2].pk}" in html


@pytest.mark.fault("F10")
def test_a_new_sets_run_is_rated_in_all_four_dimensions_by_the_document(visitor: Client, golden_set: GoldenSet) -> None:
    means = {"context_relevance": 0.7, "context_utilization": 0.39, "completeness": 0.81, "adherence": 1.0}
    rated = {"context_relevance": "watch", "context_utilization": "fail", "completeness": "pass", "adherence": "pass"}
    others = {"hit@10": 1.0, "mrr@10": 0.9, "correctness": 0.9, "right_outcome": 1.0}
    run = summed(make_run([means | others] * 3, golden_set=golden_set))
    assert run.judge == "embedded" and golden_set.bands == {}
    for address, name in (("/evaluation/", "numbers"), (run.get_absolute_url(), "headline")):
        shown = {figure.name: figure for figure in visitor.get(address).context[name]}
        assert {key: shown[key].band for key in means} == rated, address
        assert {(shown[key].measure.good, shown[key].measure.poor) for key in means} == {
            (0.7, 0.5), (0.6, 0.4), (0.8, 0.6), (1.0, 1.0),
        }  # fmt: skip
        assert shown["correctness"].band is None, "nobody set one"
    columns = {
        measure.name: measure.has_bands for measure in visitor.get(run.get_absolute_url()).context["all_measures"]
    }
    assert [key for key in means if columns[key]] == ["context_utilization"], "the judge is too weak for one question"


@pytest.mark.fault("UX-F4")
def test_the_dashboard_names_the_run_that_new_weights_made_an_experiment(
    visitor: Client, golden_set: GoldenSet
) -> None:
    plan = RetrievePlan(weights={"vector": 0.5, "lexical": 1.0})
    run = summed(make_run(scores_of(0.9), golden_set=golden_set, plan=plan))
    page = visitor.get("/evaluation/")
    assert page.context["newest"] is None and has(page, f'#reweighted a[href="{run.get_absolute_url()}"]')
    EvaluationRun.objects.update(plan=RetrievePlan(k=7).as_dict(), plan_hash=RetrievePlan(k=7).hash)
    assert not has(visitor.get("/evaluation/"), "#reweighted")


EXPERIMENTS: list[dict[str, Any]] = [
    {"purpose": "fix"},
    {"plan": RetrievePlan(k=7)},
    {"index_version": 2},
    {"purpose": "cli", "settings": {"answers": False, "judge": "none", "cut": 10}},
    {"settings": SETTINGS | {"system_prompt": "Be short."}},
    {"settings": SETTINGS | {"as_of": "2026-01-01T00:00:00Z"}},
]


@pytest.mark.parametrize("values", EXPERIMENTS)
def test_an_experiment_is_neither_headline_nor_trend(
    visitor: Client, runs: list[EvaluationRun], values: dict[str, Any]
) -> None:
    before = visitor.get("/evaluation/")
    tried = summed(make_run(scores_of(0.9), golden_set=runs[2].golden_set, name="an experiment", **values))
    page = visitor.get("/evaluation/")
    assert page.context["newest"] == runs[2]
    assert numbers(page) == numbers(before)
    assert [panel.trend.dots for panel in page.context["panels"]] == [
        panel.trend.dots for panel in before.context["panels"]
    ]
    assert texts(page, "#experiments tbody th a") == ["an experiment"]
    assert texts(page, "#runs tbody th a") == ["try 2", "try 1", "try 0"]
    assert f"other={tried.pk}" not in whole(page)
    assert f"/evaluation/runs/{tried.pk}/" not in whole(visitor.get("/evaluation/last/"))


@pytest.mark.parametrize(
    ("query", "status"), [({"set": "nonsense"}, 404), ({"set": "1"}, 404), ({"group": "nothing"}, 422)]
)
def test_a_wrong_address_of_the_dashboard_shows_no_other_figures(
    visitor: Client, runs: list[EvaluationRun], query: dict[str, str], status: int
) -> None:
    page = visitor.get("/evaluation/", query)
    assert page.status_code == status
    assert has(page, '.banner[role="alert"]') and numbers(page) == []
    assert len(texts(page, "#sets tbody tr")) == 1, "which sets there are"


def test_a_run_shows_each_mean_with_interval_band_coverage_and_threshold(
    visitor: Client, runs: list[EvaluationRun]
) -> None:
    html = whole(visitor.get(f"/evaluation/runs/{runs[2].pk}/"))
    mean = runs[2].summary["measures"]["completeness"]
    row = row_of(html, "Completeness")
    assert f">{mean['value']:.2f}</a>" in row and 'data-band="fail"' in row, "below the document's 0.6"
    GoldenSet.objects.filter(pk=runs[2].golden_set_id).update(bands={"completeness": [0.5, 0.4]})
    assert 'data-band="pass"' in row_of(whole(visitor.get(f"/evaluation/runs/{runs[2].pk}/")), "Completeness")
    assert "11 of 12" in row and "1 unscorable, 0 errors" in row
    assert 'class="missed"' in row and "0.80" in row
    assert "1 threshold missed" in html
    assert "multi-hop" in html and "category=multi-hop" in html
    assert html.count('class="distribution"') == 0
    html = whole(visitor.get(f"/evaluation/runs/{runs[2].pk}/", {"metrics": "all"}))
    assert html.count('class="distribution"') == 3, "recall, relevance, completeness; adherence has two values only"


def test_every_number_of_a_run_opens_the_questions_behind_it(visitor: Client, runs: list[EvaluationRun]) -> None:
    address = f"/evaluation/runs/{runs[2].pk}/"
    html = whole(visitor.get(address, {"metrics": "all"}))
    unscored = re.search(r'href="([^"]+score=unscored[^"]*)"', row_of(html, "Completeness"))
    assert unscored is not None
    assert questions_in(whole(visitor.get(unscored[1].replace("&amp;", "&")))) == [2]
    bars = re.findall(r'<a href="([^"#]+)#questions" tabindex="-1"><title>([\d.]+) to ([\d.]+): (\d+)</title>', html)
    assert bars
    for href, _, _, count in bars:
        assert len(questions_in(whole(visitor.get(href.replace("&amp;", "&"))))) == int(count), href
    mode = re.search(r'href="([^"#]+mode=low_completeness)#questions"', html)
    assert mode is not None and questions_in(whole(visitor.get(mode[1]))) == [0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"text": "LARGEST"}, [0]),
        ({"category": "multi-hop"}, [1]),
        ({"outcome": "error"}, [3]),
        ({"verdict": "passed"}, []),
        ({"measure": "completeness", "low": "0.2", "high": "0.3"}, [0]),
        ({"measure": "completeness", "sort": "completeness", "high": "0.7"}, [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        ({"sort": "-context_relevance"}, [8, 9, 10, 11, 7, 6, 5, 4, 3, 2, 1, 0]),
    ],
)
def test_questions_are_filtered_and_sorted_by_the_address(
    visitor: Client, runs: list[EvaluationRun], query: dict[str, str], expected: list[int]
) -> None:
    assert questions_in(whole(visitor.get(f"/evaluation/runs/{runs[2].pk}/", query))) == expected


def test_a_filter_without_a_match_says_so_and_leads_back(visitor: Client, runs: list[EvaluationRun]) -> None:
    run = runs[2]
    run.summary["measures"] |= dict.fromkeys(("mrr", "hit@10", "ndcg@10"), run.summary["measures"]["completeness"])
    run.save(update_fields=["summary"])
    address = f"/evaluation/runs/{run.pk}/"
    for name in FILTERS:
        page = visitor.get(address, {name: "0" if name == "high" else "1e9" if name == "low" else "nothing like it"})
        assert page.status_code == 200, name
    empty = [
        {"text": "nothing like it"}, {"verdict": "passed"}, {"outcome": "error", "category": "multi-hop"},
        {"measure": "completeness", "low": "5"}, {"measure": "completeness", "score": "error"},
        {"result": "watch"}, {"change": "worse", "text": "x"}, {"text": "x", "judges": "disagree"},
    ]  # fmt: skip
    for query in empty:
        page = visitor.get(address, query)
        assert not questions_in(whole(page)), query
        assert attribute(page, ".no-match a", "href") == "?#questions", query


def test_cards_say_what_is_expected_and_the_comparison_names_modes(visitor: Client, runs: list[EvaluationRun]) -> None:
    runs[2].items.filter(position=1).update(golden={"question": "Why?"})
    runs[2].items.filter(position=2).update(golden={"question": "Where?", "expected_doc_ids": ["whales.md"]})
    cards = texts(visitor.get(f"/evaluation/runs/{runs[2].pk}/", {"sort": "position"}), ".beside div:first-child dd")
    assert cards[:3] == ["The blue whale.", "Should be refused", "no expected answer"]
    EvaluationRun.objects.filter(pk=runs[2].pk).update(plan=runs[2].plan | {"mode": "lexical"})
    page = visitor.get("/evaluation/compare/", {"base": runs[0].pk, "other": runs[2].pk})
    assert {"Hybrid", "Keyword"} <= set(texts(page, "td.prewrap"))
    assert label_of({"mode": "lexical", "k": 5}, ["mode", "k"]) == "Mode Keyword, k 5"


def test_a_question_shows_marks_support_worth_and_ranks(visitor: Client, runs: list[EvaluationRun], fill: Any) -> None:
    fill(documents=2)
    html = whole(visitor.get(f"/evaluation/runs/{runs[2].pk}/items/0/"))
    marks = dict(re.findall(r'id="s-(\w+)" data-mark="(\w+)"', html))
    assert marks == {"0a": "both", "0b": "used", "1a": "relevant", "1b": "neither"}
    assert "relevant and used, relevant 90%" in html
    assert "7 words" in html, "of 0a, relevant and used"
    assert re.search(r'id="a-a">.{0,300}href="#s-0a"', html, re.DOTALL)
    assert "not supported by the context" in html and "no claim" in html
    assert "Half of it is told." in html and "The blue whale." in html
    harmful = html[html.index('id="worth"') :]
    assert harmful.count("Disable and re-run") == 1 and "doc_id=trees.md" in harmful
    expected = html[html.index('id="expected"') :]
    assert 'href="#chunk-1"' in expected and "not in the collection" in expected


def test_a_question_shows_components_citations_and_both_ranks(visitor: Client, runs: list[EvaluationRun]) -> None:
    item = runs[2].items.get(position=0)
    item.retrieved_ids = ["trees.md#0", "trees.md#1", "whales.md#4", "whales.md#0"]
    item.details = item.details | {
        "components": [
            {"text": "The blue whale.", "found": True, "by": "a"},
            {"text": "It has no teeth.", "found": False, "by": ""},
        ],
        "citations": {"matching": ["whales.md#0"], "missing": ["gone.md"], "foreign": []},
        "estimates": {"completeness": {"value": 0.4, "low": 0.2, "high": 0.6}},
    }
    item.save()
    page = visitor.get(f"/evaluation/runs/{runs[2].pk}/items/0/", {"metrics": "all"})
    assert texts(page, '.components li[data-found="yes"] a[href="#a-a"]') == ["a"]
    assert len(texts(page, '.components li[data-found="no"]')) == 1
    cited = {kind: texts(page, f'[data-cited="{kind}"]') for kind in ("matching", "missing", "foreign")}
    assert cited == {"matching": ["whales.md#0"], "missing": ["gone.md"], "foreign": ["none"]}
    ranks = [texts(page, f"#expected tbody tr:nth-child({row}) td")[:2] for row in (1, 2, 3)]
    assert ranks[:2] == [["2", "4"], ["2", "3"]], "of the chunk, then of its document by its best chunk"
    assert ranks[2] == ["not retrieved"] * 2
    assert re.findall(r"[\d.]*\d", texts(page, '[data-estimate="completeness"]')[0]) == ["0.40", "0.20", "0.60"]


def test_a_run_that_goes_on_is_refreshed_whole_from_its_items(visitor: Client, runs: list[EvaluationRun]) -> None:
    """What the run stores of itself lags behind; tiles, bar, table and list agree all the same."""
    run = runs[2]
    run.items.filter(position__gte=4).delete()
    type(run).objects.filter(pk=run.pk).update(state="running", done=1, summary={}, total=QUESTIONS)
    address, part = f"/evaluation/runs/{run.pk}/", {"HX-Request": "true", "HX-Target": "run-body"}
    page = visitor.get(address)
    assert has(page, f'#run-body[hx-get="{address}"][hx-trigger="every 3s"]')
    assert has(page, "input[name=do][value=cancel]")
    answer = visitor.get(address, headers=part)
    assert whole(answer).lstrip().startswith('<div class="stack" id="run-body"') and "HX-Refresh" not in answer
    for each in (page, answer):
        assert attribute(each, ".evaluation-progress progress", "value") == "4"
        assert texts(each, "#sentence b") == ["3 of 4"]
        assert len(questions_in(whole(each))) == 4
        assert "3 of 4" in row_of(whole(each), "Completeness")
    type(run).objects.filter(pk=run.pk).update(state="succeeded", done=4)
    assert visitor.get(address, headers=part)["HX-Refresh"] == "true"


def test_a_run_opens_with_what_became_of_its_questions(visitor: Client, runs: list[EvaluationRun]) -> None:
    """Low completeness alone makes nothing wrong; a wrong answer, a refusal and an error do."""
    for run, position, changes in (
        (runs[2], 1, {"modes": ["wrong_answer", "low_completeness"], "answer": "Ants.",
                      "golden": {"expected_answer": "Whales."}}),
        (runs[2], 5, {"modes": ["wrong_abstention"], "outcome": "abstained"}),
        (runs[0], 5, {"modes": ["wrong_abstention"], "outcome": "abstained"}),
        (runs[0], 6, {"modes": ["wrong_answer"]}),
    ):  # fmt: skip
        run.items.filter(position=position).update(**changes)
        summed(run)
    address = f"/evaluation/runs/{runs[2].pk}/"
    for page in (visitor.get(address), visitor.get("/evaluation/")):
        assert texts(page, "#sentence b") == [f"{QUESTIONS - 3} of {QUESTIONS}"]
        told = whole(page).partition('id="sentence"')[2].partition("</p>")[0]
        hrefs = re.findall(r'href="[^"]+\?(\w+=\w+)#questions"', told)
        assert hrefs == ["result=wrong", "result=silent", "result=error", "change=worse", "change=better"]
        assert questions_in(whole(page))[:3] == [1, 5, 3]
        assert texts(page, ".question-card:first-child dd") == ["Whales.", "Ants."]
        assert texts(page, "#modes > .bar-list .bar-count") == ["1", "1"]
        assert texts(page, "#modes .diagnostics .bar-count") == ["2"]
        assert not has(page, "#modes .diagnostics .bad-bar")
    assert not has(visitor.get("/evaluation/"), '.question-card[data-tone="good"]')
    queries = ("result=bad", "result=silent", "result=watch", "change=worse", "change=better")
    found = [questions_in(whole(visitor.get(f"{address}?{query}"))) for query in queries]
    assert found == [[1, 5, 3], [5], [], [1, 3], [6]]
    weak = {"context_relevance", "completeness", "adherence"}
    cards = visitor.get(address).context["cards"]
    assert not any(card.modes for card in cards), "the result says it already"
    shown = {measure.name for card in cards for measure, _ in card.scores}
    assert shown and not shown & weak
    assert len(texts(visitor.get(f"{address}items/0/", {"metrics": "all"}), "#scores [data-weak]")) == len(weak)


def test_the_list_finds_runs_and_leads_to_a_comparison(visitor: Client, runs: list[EvaluationRun]) -> None:
    swept = make_run([{"recall@10": 1.0}], purpose="experiment", name="one of many")
    html = whole(visitor.get("/evaluation/runs/"))
    assert [name for name in ("try 0", "try 1", "try 2", "one of many") if f">{name}</a>" in html] == [
        "try 0", "try 1", "try 2",
    ]  # fmt: skip
    assert "one of many" in whole(visitor.get("/evaluation/runs/", {"purpose": "all"}))
    make_run([{"recall@10": 1.0}], purpose="cli", name="from a shell")
    by_people = visitor.get("/evaluation/runs/", {"purpose": "manual"}).context["page"]
    assert {run.purpose for run in by_people} == {"manual"}
    assert "from a shell" in whole(visitor.get("/evaluation/runs/"))
    assert "try 1" not in whole(visitor.get("/evaluation/runs/", {"text": "try 2"}))
    assert is_empty(visitor.get("/evaluation/runs/", {"state": "failed"}))
    listed = len(texts(visitor.get("/evaluation/runs/"), "tbody tr"))
    for wrong in ({"set": "nonsense"}, {"set": str(swept.golden_set_id)}, {"state": "odd"}):
        page = visitor.get("/evaluation/runs/", wrong)
        assert len(texts(page, '.banner[role="alert"] p')) == 1 and len(texts(page, "tbody tr")) == listed
    answer = visitor.get("/evaluation/runs/", {"compare": "on", "pick": [runs[2].pk, runs[1].pk, "x"]})
    assert answer.status_code == 302 and answer["Location"].endswith(f"?base={runs[1].pk}&other={runs[2].pk}")
    assert "at least two" in whole(visitor.get("/evaluation/runs/", {"compare": "on", "pick": swept.pk}))


def test_a_baseline_is_made_and_taken_away(visitor: Client, runs: list[EvaluationRun], golden_set: GoldenSet) -> None:
    pin = {"do": "baseline"}
    assert visitor.post(f"/evaluation/runs/{runs[2].pk}/", pin).status_code == 302
    golden_set.refresh_from_db()
    assert golden_set.baseline_id == runs[2].pk
    assert "baseline" in AuditEvent.objects.latest("id").message
    assert has(visitor.get(f"/evaluation/runs/{runs[2].pk}/"), ".ask p.watch")
    made = AuditEvent.objects.count()
    visitor.post(f"/evaluation/runs/{runs[2].pk}/", pin)
    assert AuditEvent.objects.count() == made, "nothing changed"
    type(runs[1]).objects.filter(pk=runs[1].pk).update(state="cancelled")
    html = whole(visitor.post(f"/evaluation/runs/{runs[1].pk}/", pin, follow=True))
    assert "only a run that is done can be a baseline" in html
    visitor.post(f"/evaluation/runs/{runs[1].pk}/", {"do": "unpin"})
    assert GoldenSet.objects.get(pk=golden_set.pk).baseline_id == runs[2].pk, "it is another one"
    visitor.post(f"/evaluation/runs/{runs[2].pk}/", {"do": "unpin"})
    golden_set.refresh_from_db()
    assert golden_set.baseline_id is None
    address = f"/evaluation/runs/{runs[0].pk}/"
    assert "12 questions" in whole(visitor.get(address))
    assert visitor.post(address, {"do": "delete"})["Location"] == "/evaluation/runs/" and whole(
        visitor.get(address), 404
    )


def test_a_harmful_document_is_disabled_and_the_set_run_again(
    visitor: Client, runs: list[EvaluationRun], fill: Any
) -> None:
    collection = fill(documents=2)
    address = f"/evaluation/runs/{runs[2].pk}/"
    assert visitor.post(address, {"do": "without", "doc_id": "missing.md"}).status_code == 404
    assert collection.documents.get(doc_id="trees.md").enabled
    answer = visitor.post(address, {"do": "without", "doc_id": "trees.md"})
    made = EvaluationRun.objects.get(name="without trees.md")
    assert answer["Location"] == made.get_absolute_url()
    assert not collection.documents.get(doc_id="trees.md").enabled
    assert (made.base_run, made.purpose, made.plan) == (runs[2], "fix", runs[2].plan)


def count_queries(act: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as captured:
        act()
    return len(captured)


def test_pages_ask_as_much_for_many_questions_as_for_few(visitor: Client, golden_set: GoldenSet) -> None:
    def counts(questions: int) -> list[int]:
        items = {number: ITEM | {"question_text": f"Question {number}?"} for number in range(questions)}
        items[0] |= {"outcome": "error"}
        base = make_run([{"completeness": 0.25}] * questions, golden_set=golden_set, items=items)
        tried = make_run([{"completeness": 0.5}] * questions, golden_set=golden_set, items=items, base_run=base)
        addresses = [
            f"/evaluation/compare/?base={base.pk}&other={tried.pk}",
            f"/evaluation/compare/?view=question&position=0&base={base.pk}&other={tried.pk}",
            f"/evaluation/board/?run={base.pk}",
            tried.experiment.get_absolute_url(),
            f"/evaluation/runs/{base.pk}/",
        ]
        pages = [count_queries(lambda address=address: whole(visitor.get(address))) for address in addresses]
        return [*pages, count_queries(lambda: retry_failed(tried, None, send=False))]

    counts(1)  # what is cached for good is cached now
    assert counts(3) == counts(30)


def test_pages_ask_as_much_for_many_runs_as_for_few(
    visitor: Client, runs: list[EvaluationRun], golden_set: GoldenSet
) -> None:
    def count(address: str) -> int:
        return count_queries(lambda: whole(visitor.get(address)))

    addresses = ["/evaluation/", "/evaluation/runs/", f"/evaluation/runs/{runs[2].pk}/items/0/"]
    count("/evaluation/")  # the first request of a log-in notes its session
    few = [count(address) for address in addresses]
    for number in range(3):
        made = make_run([{"recall@10": 1.0}], golden_set=golden_set, name=f"more {number}", items={0: ITEM})
        type(made).objects.filter(pk=made.pk).update(created_at=runs[0].created_at - timedelta(days=number + 1))
    assert [count(address) for address in addresses] == few


def test_what_the_judge_estimates_stands_beside_the_figure(visitor: Client, runs: list[EvaluationRun]) -> None:
    run = runs[2]
    assert not has(visitor.get(f"/evaluation/runs/{run.pk}/"), "[data-estimate]")
    for position, value in enumerate((0.2, 0.4, 0.6)):
        item = run.items.get(position=position)
        item.details = {"estimates": {"completeness": {"value": value, "low": 0.0, "high": 1.0}}}
        item.save()
    page = visitor.get(f"/evaluation/runs/{run.pk}/")
    mean, low, high = re.findall(r"[\d.]*\d", texts(page, '[data-estimate="completeness"]')[0])
    assert mean == "0.40" and 0.2 <= float(low) < 0.4 < float(high) <= 0.6


def test_the_dashboard_shows_a_group_and_another_set(visitor: Client, runs: list[EvaluationRun]) -> None:
    html = whole(visitor.get("/evaluation/", {"group": "retrieval"}))
    assert "Recall@10" in html and '<h3 title="share of the relevant' not in html
    other = GoldenSet.objects.create(name="empty", collection_name="nature")
    assert is_empty(visitor.get("/evaluation/", {"set": other.name}))
    assert visitor.get("/evaluation/", {"set": "none\x00"}).status_code == 404
