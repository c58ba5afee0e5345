"""What each retrieved chunk is worth alone: eRAG over one stored run, with the answerer that answered it.

Every chunk is given alone to the answerer, and its answer, held against the expected one, labels the chunk (Salemi and
Zamani, arXiv 2404.13781). An abstention is worth 0: nothing was said. What a chunk contributes is its label less what
an answer without any chunk is worth. Quotations need something to quote, so that answer is worth 0; a chat model is
asked for what it knows by itself, and a chunk that misleads it is found by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from collections_app.errors import ServiceError
from evaluation_app.measures import ranking
from evaluation_app.measures.ranking import DOWNSTREAM
from evaluation_app.measures.scores import Score, failed, unscorable
from evaluation_app.scoring.cases import candidate_of, spans_of, without_markers
from ragd import telemetry
from ragd.errors import RagdError
from retrieval_app.answers.chat_answerer import ChatAnswerer
from retrieval_app.answers.protocol import Answerer
from retrieval_app.llm.chat_model import ChatModel, call_model

NO_EXPECTED = "no expected answer is known"
NO_RESULTS = "no document was retrieved"
NAMES = tuple(f"erag_{name}" for name in ranking.AGGREGATES)
DIGITS = 6
CALLS_AT_ONCE = 4
UNKNOWN = "I do not know."
BY_ITSELF = (
    "You answer questions precisely and briefly, in the language of the question, from what you know. If you do not "
    f"know the answer, reply with exactly this sentence and nothing else: {UNKNOWN}"
)

Said = tuple[str | None, dict[str, int]]  # the answer, None for an abstention; its tokens


@dataclass(frozen=True, slots=True)
class Contributions:
    """records: by rank {"key", "alone", "without", "contribution", "effect"}, of every retrieved chunk. What is not
    known of it is None: where the answerer failed "error" is the kind, where nothing could be compared "unscorable"
    says why. scores: the measures erag_*. usage: of a chat model's answers,
    {"input_tokens", "output_tokens", "cost_usd", "calls"}; {} where none was asked."""

    scores: Mapping[str, Score]
    records: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, float]:
        """ "doc_id#chunk_index" -> its label."""
        return {item["key"]: item["alone"] for item in self.records if item["alone"] is not None}


def measure_contributions(
    answerer: Answerer,
    query: str,
    results: Sequence[Mapping[str, Any]],
    expected: str,
    measure: str,
    threshold: float = ranking.LABEL_THRESHOLD,
) -> Contributions:
    """results: of a stored run, in rank order. measure: of DOWNSTREAM, by which answers are labelled. threshold: see
    `downstream.aggregate`.

    Without an expected answer or without results the scores are unscorable and nothing is asked. An answerer that fails
    for one chunk leaves that label out, and the scores are errors of its kind: a list with a hole has no figure. One
    that fails without any chunk leaves only the effects unknown.
    """
    if not expected.strip():
        return unscorable_contributions(results, NO_EXPECTED)
    if not results:
        return unscorable_contributions(results, NO_RESULTS)
    labeller = _Labeller(answerer, query, expected, measure)
    with labeller.counting() as usage:
        without, *alone = labeller.label([None, *results])
    records = [_record(result, label, without) for result, label in zip(results, alone, strict=True)]
    kinds = [label.error for label in alone if label.error]
    if kinds:
        return Contributions(dict.fromkeys(NAMES, failed(kinds[0])), records, usage)
    return Contributions(aggregates([item["alone"] for item in records], threshold), records, usage)


def aggregates(labels: Sequence[float], threshold: float) -> dict[str, Score]:
    """erag_precision, erag_success, erag_map, erag_mrr, erag_ndcg over the whole list."""
    return {f"erag_{name}": ranking.aggregate(labels, name, threshold=threshold) for name in ranking.AGGREGATES}


def unscorable_contributions(results: Sequence[Mapping[str, Any]], reason: str) -> Contributions:
    """A record of every chunk that says why nothing is known of it."""
    unknown = dict.fromkeys(("alone", "without", "contribution", "effect"))
    records = [{"key": _key(result), **unknown, "unscorable": reason} for result in results]
    return Contributions(dict.fromkeys(NAMES, unscorable(reason)), records)


@dataclass(frozen=True, slots=True)
class _Label:
    """worth: None where there is an error."""

    worth: float | None
    error: str = ""
    tokens: Mapping[str, int] = field(default_factory=dict)


class _Labeller:
    def __init__(self, answerer: Answerer, query: str, expected: str, measure: str) -> None:
        self.answerer, self.query, self.expected = answerer, query, [expected]
        self.worth = DOWNSTREAM[measure]
        self.chat = answerer if isinstance(answerer, ChatAnswerer) else None
        self.labels: list[_Label] = []

    @contextmanager
    def counting(self) -> Iterator[dict[str, Any]]:
        """What a chat model's answers inside took, filled in at the end."""
        usage: dict[str, Any] = {}
        with telemetry.spending() as spent:
            yield usage
        if self.chat is not None:
            calls = [label.tokens for label in self.labels if label.tokens]
            sums = {name: sum(tokens[name] for tokens in calls) for name in ("input_tokens", "output_tokens")}
            usage.update(sums, cost_usd=spent.total_usd if spent.priced or spent.unpriced else 0.0, calls=len(calls))

    def label(self, results: Sequence[Mapping[str, Any] | None]) -> list[_Label]:
        """One label per result, in their order; None is an answer without any. A chat model is asked several at once,
        and its calls have spans; quotations are so many and so cheap that theirs are left out."""
        if self.chat is None:
            with telemetry.silenced():
                self.labels = [self._label(result) for result in results]
            return self.labels
        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            waiting = [pool.submit(copy_context().run, _closing, self._label, result) for result in results]
            self.labels = [future.result() for future in waiting]
        return self.labels

    def _label(self, result: Mapping[str, Any] | None) -> _Label:
        try:
            message, tokens = self._answer(result)
        except ServiceError as error:
            return _Label(None, error.type)
        except RagdError:
            return _Label(None, "answerer")
        if message is None:
            return _Label(0.0, tokens=tokens)
        score = self.worth(message, self.expected)
        return _Label(score.value, score.reason, tokens)

    def _answer(self, result: Mapping[str, Any] | None) -> Said:
        spans = spans_of(result, 1) if result is not None else []
        is_readable = result is not None and ("spans" not in result or bool(spans))  # compression may leave nothing
        if not is_readable and self.chat is not None:
            return answer_by_itself(self.chat, self.query) if result is None else (None, {})
        sources = [candidate_of(result)] if result is not None and is_readable else []
        draft = self.answerer.answer(self.query, sources, spans)
        tokens = {"input_tokens": draft.usage.context_tokens, "output_tokens": draft.usage.generation_tokens}
        citations = [citation.as_dict() for citation in draft.checked.citations]
        return (None if draft.abstained else without_markers(draft.checked.answer, citations)[0]), tokens


def answer_by_itself(answerer: ChatAnswerer, query: str) -> Said:
    """What the model answers without any source, with the same model, server, parameters and earlier turns.

    Raises ServiceError, see `chat_endpoint.complete`.
    """
    messages = [{"role": "system", "content": BY_ITSELF}, *answerer.history, {"role": "user", "content": query}]
    estimated = sum(answerer.counter.count_tokens(message["content"]) for message in messages)
    reply = call_model(
        ChatModel(answerer.endpoint, answerer.model, answerer.counter),
        messages,
        estimated=estimated,
        parameters=answerer.parameters,
    )
    tokens = {"input_tokens": reply.usage.context_tokens, "output_tokens": reply.usage.generation_tokens}
    text = reply.completion.text
    return (None if UNKNOWN.rstrip(".") in text else text), tokens


def _closing(act: Callable[[Mapping[str, Any] | None], _Label], result: Mapping[str, Any] | None) -> _Label:
    """In a thread of its own, whose connections nobody else would close."""
    try:
        return act(result)
    finally:
        connections.close_all()


def _key(result: Mapping[str, Any]) -> str:
    return f"{result['doc_id']}#{result['chunk_index']}"


def _record(result: Mapping[str, Any], label: _Label, without: _Label) -> dict[str, Any]:
    record: dict[str, Any] = {
        "key": _key(result),
        "alone": None if label.worth is None else round(label.worth, DIGITS),
        "without": None if without.worth is None else round(without.worth, DIGITS),
        "contribution": None,
        "effect": None,
    }
    if label.worth is not None and without.worth is not None:
        contributed = ranking.contribution(label.worth, without.worth)
        return record | {"contribution": round(contributed, DIGITS), "effect": ranking.effect(contributed)}
    return record | {"error": label.error or without.error}
