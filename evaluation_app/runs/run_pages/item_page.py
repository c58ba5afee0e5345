"""The page of one question: what was retrieved and used, what supports the answer, what each chunk is worth."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.http.page_requests import PageRequest, render_page
from collections_app.models import Collection, Document
from evaluation_app.golden.questions import Golden, key_address, split_key
from evaluation_app.judges.feature_model import is_weak
from evaluation_app.judges.protocol import MEASURES as JUDGED
from evaluation_app.measures.catalogue import Measure, measure_of, order_of
from evaluation_app.measures.scores import SUPPORTED_WITHOUT, Score
from evaluation_app.models import EvaluationItem, EvaluationRun, RunScore
from evaluation_app.runs.comparison.changes import openable
from evaluation_app.runs.run_pages.runs_page import ItemList, ItemRow, base_of, row_of
from evaluation_app.runs.summaries import Figure, first_names, make_figure, question_bands, run_figures
from evaluation_app.scoring.modes import Bands, Mode, bands_for, mode_title, stored_table
from ragd.types import HOP_LISTS
from retrieval_app.models import QueryRun
from retrieval_app.plans.forms import address_of_run

# how a sentence of the context is marked -> its word
MARKS = {
    "both": "relevant and used",
    "relevant": "relevant, not used",
    "used": "used, not relevant",
    "neither": "neither",
}
HEADING = re.compile(r"#{1,6} ")
LINE = re.compile(r"#{1,6} |[-*] |[0-9]+\. |\||```|> ")
WITHOUT_SENTENCE = {
    "supported_without_sentence": "supported by the whole context",
    "general": "no claim",
    "well_known_fact": "general knowledge",
    "numerical_reasoning": "arithmetic",
}


@dataclass(frozen=True, slots=True)
class MarkedSentence:
    """mark: one of MARKS, "" where nothing was judged. chances: (what, how likely), as far as the judge tells.

    begins_line: a heading, a point of a list, a row of a table, or what follows a heading: they stood on lines of their
    own, which sentences do not tell any more.
    """

    key: str
    text: str
    mark: str
    words: int
    chances: tuple[tuple[str, float], ...] = ()
    begins_line: bool = False

    @property
    def explanation(self) -> str:
        """The mark and how sure the judge is, for whoever points at the sentence."""
        parts = [MARKS[self.mark]] if self.mark else []
        return ", ".join([*parts, *(f"{name} {chance:.0%}" for name, chance in self.chances)])


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrieved chunk by rank. shares: (mark, words, from, width in percent of the chunk's words).

    href: its page, "" where the document is gone.
    """

    rank: int
    key: str
    doc_id: str
    index: int | None
    sentences: tuple[MarkedSentence, ...]
    is_expected: bool
    worth: Worth | None
    href: str = ""

    @property
    def words(self) -> int:
        return sum(sentence.words for sentence in self.sentences)

    @property
    def shares(self) -> list[tuple[str, int, float, float]]:
        at, result = 0.0, []
        for mark in MARKS:
            words = sum(sentence.words for sentence in self.sentences if sentence.mark == mark)
            if words:
                width = 100 * words / self.words
                result.append((mark, words, round(at, 2), round(width, 2)))
                at += width
        return result

    @property
    def is_idle(self) -> bool:
        """Whether it was judged and nothing of it is relevant or used."""
        return bool(self.sentences) and all(sentence.mark == "neither" for sentence in self.sentences)


@dataclass(frozen=True, slots=True)
class AnswerSentence:
    """supported: None where nothing was judged. by: keys of the context; reason: words where no sentence is needed."""

    key: str
    text: str
    supported: bool | None
    by: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Worth:
    """What a chunk alone is worth, as the item keeps it; None for what is not known."""

    rank: int
    key: str
    alone: float | None
    without: float | None
    contribution: float | None
    effect: str
    error: str
    href: str = ""

    @property
    def doc_id(self) -> str:
        return split_key(self.key)[0]


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expected document or chunk. rank: among the retrieved chunks, a document by its best one; doc_rank: of its
    document among the retrieved documents, which is what hit, recall and the like count. None: it was not retrieved.

    ranks: (list, rank or None) of the lists behind the result, where the stored query run still tells.
    """

    key: str
    rank: int | None
    doc_rank: int | None
    ranks: tuple[tuple[str, int | None], ...] = ()
    href: str = ""


def document_addresses(collection: str, keys: Iterable[str]) -> dict[str, str] | None:
    """Key -> the page of the chunk or document, of those whose document is there; None where the collection is gone.

    "guide.md#3" may also be a document of that very name.
    """
    record = Collection.objects.live().filter(name=collection).first()
    if record is None:
        return None
    requested = set(keys)
    rows = Document.objects.filter(
        collection=record, doc_id__in={*requested, *(split_key(key)[0] for key in requested)}
    )
    live = set(rows.values_list("doc_id", flat=True))
    documents = {key: reverse("collections:document", args=[collection, key]) for key in requested & live}
    chunks = {key: key_address(collection, key) for key in requested - live if split_key(key)[0] in live}
    return documents | chunks


def context_keys(item: EvaluationItem | RunScore) -> list[str]:
    return [str(chunk["key"]) for chunk in item.context]


def mark_context(item: EvaluationItem | RunScore, addresses: Mapping[str, str] | None = None) -> list[Passage]:
    """The retrieved chunks by rank; what was not judged has no marks. addresses: as `document_addresses` gives them."""
    hrefs = addresses or {}
    golden = Golden.from_dict(item.golden) if item.golden else None
    relevant, used = set(item.annotation.get("relevant", ())), set(item.annotation.get("utilized", ()))
    chances: Mapping[str, Mapping[str, float]] = item.details.get("likely") or {}
    worth = {each.key: each for each in worth_of(item)}
    passages = []
    for rank, chunk in enumerate(item.context, 1):
        key = str(chunk["key"])
        doc_id, index = split_key(key)
        lines = [str(text) for _, text in chunk["sentences"]]
        sentences = tuple(
            MarkedSentence(
                key=sentence,
                text=text,
                mark=_mark(sentence, relevant, used) if item.annotation else "",
                words=len(text.split()),
                chances=tuple((name, known[sentence]) for name, known in chances.items() if sentence in known),
                begins_line=position > 0 and bool(LINE.match(text) or HEADING.match(lines[position - 1])),
            )
            for position, (sentence, text) in enumerate(chunk["sentences"])
        )
        is_expected = _is_expected(golden, key)
        passages.append(Passage(rank, key, doc_id, index, sentences, is_expected, worth.get(key), hrefs.get(key, "")))
    return passages


def _mark(key: str, relevant: set[str], used: set[str]) -> str:
    if key in relevant:
        return "both" if key in used else "relevant"
    return "used" if key in used else "neither"


def _is_expected(golden: Golden | None, key: str) -> bool:
    return golden is not None and (key in golden.expected_chunks or split_key(key)[0] in golden.relevant_docs)


def mark_answer(item: EvaluationItem | RunScore) -> list[AnswerSentence]:
    judged = {entry["key"]: entry for entry in item.annotation.get("support", ())}
    return [_answer_sentence(key, text, judged.get(key)) for key, text in item.answer_sentences]


def _answer_sentence(key: str, text: str, entry: Mapping[str, Any] | None) -> AnswerSentence:
    if entry is None:
        return AnswerSentence(key, text, None, (), "")
    keys = [str(each) for each in entry.get("by", ())]
    reasons = [WITHOUT_SENTENCE[each] for each in keys if each in SUPPORTED_WITHOUT]
    named = tuple(each for each in keys if each not in SUPPORTED_WITHOUT)
    return AnswerSentence(key, text, bool(entry["supported"]), named, ", ".join(reasons))


def worth_of(item: EvaluationItem | RunScore, addresses: Mapping[str, str] | None = None) -> list[Worth]:
    return [
        Worth(
            rank=rank,
            key=str(each["key"]),
            alone=each.get("alone"),
            without=each.get("without"),
            contribution=each.get("contribution"),
            effect=str(each.get("effect") or ""),
            error=str(each.get("error") or ""),
            href=(addresses or {}).get(str(each["key"]), ""),
        )
        for rank, each in enumerate(item.contributions, 1)
    ]


def mark_tally(passages: Iterable[Passage]) -> list[tuple[str, str, int]]:
    """(mark, its word, words of the context) in the order of MARKS; [] where nothing was judged."""
    counts = dict.fromkeys(MARKS, 0)
    for passage in passages:
        for sentence in passage.sentences:
            if sentence.mark:
                counts[sentence.mark] += sentence.words
    return [(mark, MARKS[mark], count) for mark, count in counts.items()] if any(counts.values()) else []


def find_expected(
    item: EvaluationItem, lists: Mapping[str, Sequence[Any]], addresses: Mapping[str, str] | None = None
) -> list[Expectation]:
    """Expected chunks, then expected documents. lists: name -> [[key, score]] of the query run; {} without it."""
    golden = Golden.from_dict(item.golden) if item.golden else None
    if golden is None:
        return []
    ranked = {name: [str(entry[0]) for entry in entries] for name, entries in lists.items()}
    documents = list(dict.fromkeys(split_key(key)[0] for key in item.retrieved_ids))
    requested = [*golden.expected_chunks, *(doc_id for doc_id in golden.expected_doc_ids)]
    return [
        Expectation(
            key=key,
            rank=_rank_in(item.retrieved_ids, key),
            doc_rank=_rank_in(documents, key if key in documents else split_key(key)[0]),
            ranks=tuple((name, _rank_in(keys, key)) for name, keys in ranked.items()),
            href=(addresses or {}).get(key, ""),
        )
        for key in dict.fromkeys(requested)
    ]


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the expected answer. by: key of the answer's sentence that holds it, "" for one that is missing."""

    text: str
    found: bool
    by: str


def components_of(item: EvaluationItem) -> list[Component]:
    """As correctness found them; [] where it was not measured."""
    return [
        Component(str(each["text"]), bool(each["found"]), str(each.get("by") or ""))
        for each in item.details.get("components") or ()
    ]


CITED = (("matching", "expected and cited"), ("missing", "expected, not cited"), ("foreign", "cited, not expected"))


def citations_of(item: EvaluationItem, addresses: Mapping[str, str] | None = None) -> list[tuple[str, str, Any]]:
    """(kind, its words, [(key, href or "")]) of CITED; [] where no citation was compared with what is expected."""
    found = item.details.get("citations")
    if not found:
        return []
    hrefs = addresses or {}
    return [(kind, words, [(key, hrefs.get(key, "")) for key in found.get(kind, ())]) for kind, words in CITED]


def _rank_in(keys: Sequence[str], requested: str) -> int | None:
    """Of a chunk its own place from 1, of a document that of its best chunk."""
    for rank, key in enumerate(keys, 1):
        if requested in (key, split_key(key)[0]):
            return rank
    return None


EARLIER_RUNS = 12
EARLIER_COLUMNS = 2
HEADLINE_SCORES = 5
SHOWN_ELSEWHERE = (
    "explanation", "likely", "store_state", "components", "citations", "estimates", "calibration", "panel", "disagree",
)  # fmt: skip
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
        "panel": item.details.get("panel") or [],
        "panel_measures": [measure_of(name) for name in JUDGED],
        "raw": (item.details.get("calibration") or {}).get("raw", {}),
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
        "trace_href": reverse("evaluation:trace", args=[item.trace_id]) if item.trace_id in openable([item]) else "",
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
        "position", "outcome", "scores", "run__id", "run__name", "run__set_name", "run__created_at", "run__plan_name",
    )  # fmt: skip
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
