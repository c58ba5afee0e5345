"""The facts of one asked question, measures of its rankings, and what each retrieved document contributes.

Every chunk is given alone to the answerer, and its answer, held against the expected one, labels the chunk (Salemi and
Zamani, arXiv 2404.13781). An abstention is worth 0: nothing was said. What a chunk contributes is its label less what
an answer without any chunk is worth. Quotations need something to quote, so that answer is worth 0; a chat model is
asked for what it knows by itself, and a chunk that misleads it is found by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from collections_app.chunks.finding_scan import SecurityPolicy
from collections_app.endpoints.providers import at_once
from collections_app.errors import ServiceError
from evaluation_app.golden.questions import Golden
from evaluation_app.judges.protocol import Case
from evaluation_app.measures import scores as formulas
from evaluation_app.measures.catalogue import CHUNK
from evaluation_app.measures.scores import DOWNSTREAM, MEASURES, Annotation, Score, Sentence, failed, unscorable
from ragd import telemetry
from ragd.errors import RagdError
from ragd.types import Candidate
from retrieval_app.answers.chat_answerer import ChatAnswerer
from retrieval_app.answers.protocol import Answerer
from retrieval_app.llm.chat_model import ChatModel, call_model
from retrieval_app.models import QueryRun

TRAILING = " \t"
Outcome = Literal["answered", "abstained", "refused", "searched", "error"]


def without_markers(answer: str, citations: Iterable[Mapping[str, Any]]) -> tuple[str, list[tuple[int, str]]]:
    """The answer without the markers [n] of these citations and the blanks before them: they are no words of it.

    Also where each marker stood in it, with the key "doc_id#chunk_index" of what it cites.
    """
    ordered = sorted(citations, key=lambda item: int(item["answer_start"]))
    text, position = "", len(answer) - len(answer.lstrip())
    cited: list[tuple[int, str]] = []
    for item in ordered:
        start, end = int(item["answer_start"]), int(item["answer_end"])
        if start < position or end > len(answer):  # a record of another text
            continue
        text += answer[position:start].rstrip(TRAILING)
        position = end
        cited.append((len(text), f"{item['doc_id']}#{item['chunk_index']}"))
    return (text + answer[position:]).rstrip(), cited


@dataclass(frozen=True, slots=True)
class RunCase:
    """keys: "doc_id#chunk_index" of each retrieved chunk, by rank. texts: what of each the answerer could read.
    results: the stored results as a model may read them. cited: where in the answer which of the keys is cited."""

    keys: tuple[str, ...]
    texts: tuple[str, ...]
    question: str
    answer: str
    outcome: Outcome
    results: Sequence[Mapping[str, Any]] = ()
    cited: Sequence[tuple[int, str]] = ()

    @classmethod
    def of(cls, run: QueryRun, policy: SecurityPolicy = SecurityPolicy()) -> RunCase:  # noqa: B008  (frozen)
        """The whole retrieved list, also what an answerer with a limit left unread; of a plan that compresses, the
        spans that were kept, joined by newlines ("" for a chunk of which none was kept). policy: of the collection; see
        `readable_results`."""
        results = readable_results(run.results, policy)
        answer, cited = without_markers(policy.hide(run.answer or ""), run.citations)
        pairs = [(f"{item['doc_id']}#{item['chunk_index']}", text_of(item)) for item in results]
        return cls(
            keys=tuple(key for key, _ in pairs),
            texts=tuple(text for _, text in pairs),
            question=policy.hide(run.query),
            answer=answer,
            outcome=outcome_of(run),
            results=results,
            cited=cited,
        )

    def as_case(self) -> Case:
        case = Case.of(self.question, self.texts, self.answer)
        return replace(case, declined=self.outcome == "abstained", cited=self._cited_by(case.answer))

    def _cited_by(self, sentences: Sequence[Sentence]) -> dict[str, tuple[int, ...]]:
        """By the key of each sentence that cites: the places of what it cites among the retrieved chunks."""
        places = {key: place for place, key in enumerate(self.keys)}
        cited: dict[str, tuple[int, ...]] = {}
        start = 0
        for sentence in sentences:
            end = self.answer.find(sentence.text, start) + len(sentence.text)
            found = [places[key] for position, key in self.cited if start < position <= end and key in places]
            if found:
                cited[sentence.key] = tuple(dict.fromkeys(found))
            start = max(start, end)
        return cited


def outcome_of(run: QueryRun) -> Outcome:
    """answered, abstained (the answerer declined), refused (by the collection's security), searched or error."""
    if run.status == QueryRun.Status.ERROR:
        return "error"
    if run.status == QueryRun.Status.REFUSED:
        return "refused"
    if run.kind == QueryRun.Kind.SEARCH:
        return "searched"
    return "abstained" if run.status == QueryRun.Status.ABSTAINED else "answered"


def readable_results(results: Sequence[Mapping[str, Any]], policy: SecurityPolicy) -> list[Mapping[str, Any]]:
    """Stored results as a collection lets a model read them; as they are where it only flags.

    Its secrets and personal data are hidden, also in runs that were stored before it hid them. A passage with orders to
    a model, which was withheld from the answerer, has no text here either.
    """
    return [_readable(item, policy) for item in results] if policy.acts else list(results)


def _readable(result: Mapping[str, Any], policy: SecurityPolicy) -> Mapping[str, Any]:
    content, context, spans = str(result["content"]), str(result.get("context") or ""), result.get("spans")
    if policy.withholds(content) or policy.withholds(context):
        return {**result, "content": "", "context": "", "spans": []}
    hidden = {**result, "content": policy.hide(content), "context": policy.hide(context)}
    if spans is not None:
        hidden["spans"] = [{**span, "content": policy.hide(str(span["content"]))} for span in spans]
    return hidden


def unique_documents(retrieved_ids: Iterable[str]) -> list[str]:
    """The documents of these chunks, each once, by its best chunk. An id without "#" is that of a document."""
    return list(dict.fromkeys(document_of(key) for key in retrieved_ids))


def document_of(key: str) -> str:
    """ "guide.md#3" -> "guide.md"; an id may hold "#" itself, so the last one counts."""
    document, mark, index = key.rpartition("#")
    return document if mark and index.isdecimal() else key


def text_of(result: Mapping[str, Any]) -> str:
    """The content of one stored result, or its spans where the plan compressed."""
    spans = result.get("spans")
    return str(result["content"]) if spans is None else "\n".join(span["content"] for span in spans)


def candidate_of(result: Mapping[str, Any]) -> Candidate:
    """A stored result as the candidate that it was, for an answerer."""
    return Candidate(
        doc_id=result["doc_id"],
        chunk_index=result["chunk_index"],
        content=result["content"],
        score=result["score"],
        tags=tuple(result.get("tags") or ()),
        metadata=result.get("metadata") or {},
        attributes=result.get("attributes") or {},
        start=result.get("start") or 0,
        end=result.get("end") or 0,
        context=result.get("context") or "",
        score_kind=result.get("score_kind") or "cosine",
        unit_score=result.get("unit_score") or 0.0,
        revision=result.get("revision") or 1,
    )


def spans_of(result: Mapping[str, Any], rank: int) -> list[dict[str, Any]]:
    """The kept spans of a stored result as an answerer reads them, for a list in which it stands at the rank."""
    return [span | {"rank": rank} for span in result.get("spans") or ()]


def annotation_dict(annotation: Annotation | None) -> dict[str, Any]:
    """{"relevant": [key], "utilized": [key], "support": [{"key", "by": [key], "supported"}]}; {} for none."""
    if annotation is None:
        return {}
    return {
        "relevant": list(annotation.relevant_keys),
        "utilized": list(annotation.utilized_keys),
        "support": [
            {"key": item.key, "by": list(item.supporting_keys), "supported": item.is_supported}
            for item in annotation.support
        ],
    }


def sentences_of(sentences: Sequence[Any]) -> list[list[str]]:
    """[[key, text]] of keyed sentences."""
    return [[sentence.key, sentence.text] for sentence in sentences]


COMPLETE_BY_ONE = ("recall", "map", "ndcg")  # what one found result completes where any of them answers the question


def retrieval_scores(retrieved_ids: Sequence[str], golden: Golden, cut: int) -> dict[str, Score]:
    """Every ranking measure at the cut: "recall@10" over documents, "chunk_recall@10" over chunks.

    retrieved_ids: "doc_id#chunk_index", best first. A document stands where its best chunk stands; so a list of ten
    chunks may hold fewer than ten documents, and precision still divides by the cut. The chunk_* measures are there
    only where the question expects chunks. Where any of what is expected answers the question (`Golden.match`), recall,
    MAP and nDCG are those of the first that is found, as if it alone were expected; precision, hit and MRR are the same
    either way. A question that expects nothing makes all unscorable. Raises ValueError for a cut below 1 or a chunk
    that is there twice.
    """
    scores = _measure("", unique_documents(retrieved_ids), golden.relevant_docs, cut, golden)
    if golden.expected_chunks:
        scores |= _measure(CHUNK, retrieved_ids, golden.expected_chunks, cut, golden)
    return scores


def _measure(
    prefix: str, ranking: Sequence[str], expected: Sequence[str], cut: int, golden: Golden
) -> dict[str, Score]:
    relevant = dict.fromkeys(expected, 1.0)
    first = next((item for item in ranking if item in relevant), next(iter(expected), ""))
    by_one = {first: 1.0} if golden.match == "any" and expected else relevant
    return {
        f"{prefix}{name}@{cut}": measure(ranking, by_one if name in COMPLETE_BY_ONE else relevant, cut)
        for name, measure in MEASURES.items()
    }


@dataclass(frozen=True, slots=True)
class FirstRanks:
    """Where the first expected result stands, from 1; None where none was retrieved or nothing is expected.

    document: among the documents, each once. chunk: among the chunks, of an expected chunk, or of any chunk of an
    expected document where the question expects no chunks.
    """

    document: int | None
    chunk: int | None

    @classmethod
    def of(cls, retrieved_ids: Sequence[str], golden: Golden) -> FirstRanks:
        documents = set(golden.relevant_docs)
        found = [item in documents for item in unique_documents(retrieved_ids)]
        return cls(found.index(True) + 1 if True in found else None, first_rank(retrieved_ids, golden))


def first_rank(keys: Sequence[str], golden: Golden, *, by_document: bool = False) -> int | None:
    """The best rank, from 1, of anything that the question expects among "doc_id#index" keys; None where none is there.

    Expected chunks count where the question names some, else documents; by_document: always documents.
    """
    if golden.expected_chunks and not by_document:
        requested = set(golden.expected_chunks)
        return next((rank for rank, key in enumerate(keys, 1) if key in requested), None)
    documents = set(golden.relevant_docs)
    return next((rank for rank, key in enumerate(keys, 1) if document_of(key) in documents), None)


NO_EXPECTED = "no expected answer is known"
NO_RESULTS = "no document was retrieved"
NAMES = tuple(f"erag_{name}" for name in formulas.AGGREGATES)
DIGITS = 6
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
    threshold: float = formulas.LABEL_THRESHOLD,
) -> Contributions:
    """results: of a stored run, in rank order. measure: of DOWNSTREAM, by which answers are labelled. threshold: see
    `formulas.aggregate`.

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
    return {f"erag_{name}": formulas.aggregate(labels, name, threshold=threshold) for name in formulas.AGGREGATES}


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
        self.labels = list(at_once(self._label, results))
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

    Raises ServiceError, see `chat_model.complete`.
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
        contributed = formulas.contribution(label.worth, without.worth)
        return record | {"contribution": round(contributed, DIGITS), "effect": formulas.effect(contributed)}
    return record | {"error": label.error or without.error}
