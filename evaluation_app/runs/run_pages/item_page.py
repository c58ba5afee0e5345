"""The page of one question: what was retrieved and used, what supports the answer, what each chunk is worth."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.http.page_requests import PageRequest, render_page
from evaluation_app.judges.estimates import is_weak
from evaluation_app.measures.catalogue import Measure, measure_of, order_of
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.figures import Figure, first_names, make_figure, question_bands, run_figures
from evaluation_app.runs.run_pages.item_rows import ItemList, ItemRow, base_of, row_of
from evaluation_app.runs.run_pages.marked_answer import (
    citations_of,
    components_of,
    document_addresses,
    find_expected,
    mark_answer,
    mark_context,
    mark_tally,
    worth_of,
)
from evaluation_app.scoring.modes import Bands, Mode, bands_for, mode_title, stored_table
from ragd.types import HOP_LISTS
from retrieval_app.models import QueryRun
from retrieval_app.plans.forms import address_of_run

EARLIER_RUNS = 12
EARLIER_COLUMNS = 2
HEADLINE_SCORES = 5
SHOWN_ELSEWHERE = ("explanation", "likely", "store_state", "components", "citations", "estimates")
LIST_NAMES = ("vector", "lexical", "codes", *HOP_LISTS, "fused", "reranked")


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One measure of the question. mean: the run's figure. bound: the threshold that holds for the question.

    measure: with the bands that hold for single questions. earlier: its values in earlier runs and this one, oldest
    first. estimate: {"value", "low", "high"} that the judge estimates beside the figure of the formula, None without.
    is_weak: the judge says too little of one question, so that only the mean is shown.
    """

    mean: Figure
    measure: Measure
    score: Score
    bound: float | None
    misses: bool
    earlier: tuple[float | None, ...]
    estimate: Mapping[str, float] | None
    is_weak: bool


@dataclass(frozen=True, slots=True)
class EarlierItem:
    """The same question in another run over the same set, or in this one (is_this)."""

    run: EvaluationRun
    position: int
    outcome: str
    scores: Mapping[str, Score]
    is_this: bool


def _neighbour(run: EvaluationRun, listed: ItemList, row: ItemRow | None) -> tuple[str, str] | None:
    """(question, address) of a question in the same list."""
    address = row and reverse("evaluation:evaluation-item", args=[run.pk, row.position])
    return (row.question, f"{address}{listed.query}") if row is not None else None


@needs(READ, EVALUATE, methods="GET")
def show_item(request: PageRequest, pk: uuid.UUID, position: int) -> HttpResponse:
    """With the filter of the run's list in the address: walk: its neighbours there. metrics=all: all."""
    item = get_object_or_404(
        EvaluationItem.objects.select_related("run__golden_set", "question"), run_id=pk, position=position
    )
    listed = ItemList.read(item.run, request.GET, base_of(item.run) if request.GET.get("change") else None)
    context = describe_item(item, listed) | {"all_metrics": request.GET.get("metrics") == "all"}
    return render_page(request, "evaluation/dashboard/item.html", context)


def describe_item(item: EvaluationItem, listed: ItemList) -> dict[str, Any]:
    run = item.run
    bands = bands_for(run.golden_set)
    query_run = QueryRun.objects.filter(pk=item.query_run).first() if item.query_run else None
    before, after, position = listed.beside(item.position)
    earlier = earlier_items(item)
    row = row_of(item)
    addresses = document_addresses(run.collection_name, _named_keys(item))
    passages = mark_context(item, addresses)
    expected = find_expected(item, _lists_of(query_run), addresses)
    scores = score_rows(item, row, earlier, bands)
    headline = first_names(row.scores, HEADLINE_SCORES, run.answerer)
    named = {shown.mean.name: shown for shown in scores}
    failing = set(row.failures)
    query_ms = query_run.timings_ms.get("total") if query_run is not None else None
    return {
        "item": item,
        "row": row,
        "run": run,
        "listed": listed,
        "walk": [_neighbour(run, listed, each) for each in (before, after)],
        "place": position,
        "query_run": query_run,
        "lives": addresses is not None,
        "passages": passages,
        "is_judged": bool(item.annotation),
        "tally": mark_tally(passages),
        "answer": mark_answer(item),
        "expected": expected,
        "list_names": [name for name, _ in expected[0].ranks] if expected else [],
        "worth": worth_of(item, addresses),
        "components": components_of(item),
        "cited": citations_of(item, addresses),
        "query_ms": query_ms,
        "judging_ms": max(item.took_ms - query_ms, 0.0) if query_ms is not None else None,
        "headline": [named[name] for name in headline],
        "others": [shown for shown in scores if shown.mean.name not in headline],
        "earlier": list(reversed(earlier)),
        "earlier_heads": [named[name].measure for name in headline[:EARLIER_COLUMNS]],
        "modes": [_mode(run, key) for key in item.modes if key in failing],
        "diagnostics": [_mode(run, key) for key in item.modes if key not in failing],
        "bounds": {**run.thresholds, **(item.golden.get("thresholds") or {})},
        "question_href": _question_address(item),
        "playground_href": address_of_run(query_run) if query_run is not None and addresses is not None else "",
        "trace_href": reverse("evaluation:trace", args=[item.trace_id]) if item.trace_id else "",
        "ask_href": _ask_address(run, item) if addresses is not None else "",
        "other_details": {name: value for name, value in item.details.items() if name not in SHOWN_ELSEWHERE},
    }


def _mode(run: EvaluationRun, key: str) -> tuple[str, str, Mode | None, str]:
    """(key, its title, the mode, what opens the run's questions in it)."""
    return key, mode_title(key), stored_table().modes.get(key), _board_address(run, key)


def score_rows(item: EvaluationItem, row: ItemRow, earlier: Sequence[EarlierItem], bands: Bands) -> list[ScoreRow]:
    """Every measure of the question in the catalogue's order."""
    means = {figure.name: figure for figure in run_figures(item.run, bands)}
    of_one = question_bands(item.run.judge_identity, bands)
    bounds = {**item.run.thresholds, **(item.golden.get("thresholds") or {})}
    missed = {miss.measure for miss in row.misses or ()}
    estimates: Mapping[str, Mapping[str, float]] = item.details.get("estimates") or {}
    return [
        ScoreRow(
            mean=means.get(name) or make_figure(name, {}, bands),
            measure=measure_of(name, of_one),
            score=row.scores[name],
            bound=bounds.get(name),
            misses=name in missed,
            earlier=tuple(each.scores[name].value if name in each.scores else None for each in earlier),
            estimate=estimates.get(name),
            is_weak=is_weak(item.run.judge_identity, name),
        )
        for name in sorted(row.scores, key=order_of)
    ]


def earlier_items(item: EvaluationItem) -> list[EarlierItem]:
    """The same question in runs up to this one, oldest first, this one last; at most EARLIER_RUNS before it.

    The same question is the same row, or the same words in a run over a set of the same name.
    """
    run = item.run
    same = Q(question_text=item.question_text, run__set_name=run.set_name)
    if item.question_id is not None:
        same |= Q(question_id=item.question_id)
    before = Q(run__created_at__lt=run.created_at) | Q(run__created_at=run.created_at, run_id__lt=run.pk)
    records = EvaluationItem.objects.filter(same & before).order_by("-run__created_at", "-run_id")
    fields = (
        "position",
        "outcome",
        "scores",
        "run__id",
        "run__name",
        "run__set_name",
        "run__created_at",
        "run__plan_name",
    )
    rows = list(records.select_related("run").only(*fields)[:EARLIER_RUNS])
    return [_earlier(each, is_this=False) for each in reversed(rows)] + [_earlier(item, is_this=True)]


def _earlier(item: EvaluationItem, *, is_this: bool) -> EarlierItem:
    scores = {name: Score.from_dict(values) for name, values in item.scores.items()}
    return EarlierItem(item.run, item.position, item.outcome, scores, is_this)


def _lists_of(query_run: QueryRun | None) -> dict[str, Any]:
    """The lists behind the result in the order of the work; {} where the query run is gone."""
    if query_run is None:
        return {}
    return {name: query_run.lists[name] for name in LIST_NAMES if query_run.lists.get(name)}


def _named_keys(item: EvaluationItem) -> list[str]:
    """Of the chunks and documents that were retrieved, are expected or were answered from alone."""
    golden = item.golden
    keys = [*item.retrieved_ids, *golden.get("expected_chunks", ()), *golden.get("expected_doc_ids", ())]
    return [str(key) for key in (*keys, *(each["key"] for each in item.contributions))]


def _board_address(run: EvaluationRun, mode: str) -> str:
    return reverse("evaluation:board", query={"run": run.pk, "mode": mode})


def _question_address(item: EvaluationItem) -> str:
    """The question as it is now; "" where it or its set was deleted."""
    if item.question_id is None or item.run.golden_set_id is None:
        return ""
    query = {"view": "question", "question_id": item.question_id}
    return reverse("evaluation:golden-set", args=[item.run.golden_set_id], query=query)


def _ask_address(run: EvaluationRun, item: EvaluationItem) -> str:
    return reverse("retrieval:chat", query={"collection": run.collection_name, "q": item.question_text})
