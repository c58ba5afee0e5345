"""The corrective step: what was found is weighed, and refined, completed or given up before anything answers from it.

    correct    its passages are taken apart into strips, and what does not bear on the question is left out;
    ambiguous  the same, after passages that another list found were added;
    incorrect  the other list alone answers where it is likelier to; else the answer is that there is none.

The other list is the lexical one, or that of the vectors where the plan was lexical. A search is only weighed.

What a run does without, and says so: keywords alone when the embedder is away, the fused order when the reranker is
or cannot read the candidates, quotations when the model is away, the primary when the read replica is. Evaluation runs
fail where a model is away.

Who may have a question answered by a model, or under instructions, of their own choice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.conf import settings
from django.utils.translation import gettext_lazy

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.chunks.finding_scan import policy_of
from collections_app.endpoints.endpoints import environment_endpoint, stored
from collections_app.endpoints.model_presets import CHAT
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError, RagdError, RerankerError
from ragd.models.embedding import answers
from ragd.normalization import normalize
from ragd.search.candidates import fill
from ragd.search.lexical_search import lexical_candidates
from ragd.search.retrieval import Retrieval, ShortResult, retrieve_detailed
from ragd.search.vector_search import read_state, vector_list
from ragd.store.store import Store
from ragd.text.sentences import split_sentences
from ragd.types import Candidate, RetrievePlan
from retrieval_app.answers.citations import CheckedAnswer
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.answers.protocol import WEAK_EVIDENCE, Answerer, AnswerListener, Draft
from retrieval_app.llm.chat_model import TokenUsage
from retrieval_app.models import QueryRun
from retrieval_app.search.confidence import Action, Measured, Rule

SENTENCES = 3
WORDS_MIN = 5
KEPT_MAX = 10
log = logging.getLogger(__name__)
FALLBACK = "fallback"  # the name of its list on a run, where the plan itself made no such list
Retrieve = Callable[[str, RetrievePlan, Store], Retrieval]


@dataclass(frozen=True, slots=True)
class Strip:
    """candidates[candidate_index].content[start:end]. score: how likely it answers, from 0 to 1."""

    candidate_index: int
    start: int
    end: int
    score: float = 0.0


def cut_strips(content: str) -> list[tuple[int, int]]:
    """Spans (start, end) of the strips of a text, in order: SENTENCES sentences each, the last one what is left.

    A text of two sentences is one strip. A sentence of fewer than WORDS_MIN words (a heading, a scrap) does not count
    as one, so that it goes with what follows. [] for a blank text.
    """
    sentences = split_sentences(content)
    if len(sentences) <= 2:
        return [(sentences[0][0], sentences[-1][1])] if sentences else []
    strips: list[tuple[int, int]] = []
    start, counted = sentences[0][0], 0
    for index, (first, end) in enumerate(sentences):
        counted += len(content[first:end].split()) >= WORDS_MIN
        if counted == SENTENCES or index == len(sentences) - 1:
            strips.append((start, end))
            start, counted = sentences[min(index + 1, len(sentences) - 1)][0], 0
    return strips


def filter_strips(
    candidates: Sequence[Candidate], scores: Sequence[float], rule: Rule, measured: Measured
) -> tuple[list[dict[str, Any]], int]:
    """(spans as `ragd.search.compression.compress` gives them, of the strips that are kept; how many strips there
    were).

    Weak candidates are left out as a whole; of the others the KEPT_MAX best strips that are not weak, at least one; in
    the order of the candidates and of the text. A span's score is the strip's. scores: of the candidates.
    """
    cut = [
        Strip(index, start, end)
        for index, (item, score) in enumerate(zip(candidates, scores, strict=True))
        if not rule.is_weak(score)
        for start, end in cut_strips(item.content)
    ]
    texts = [_in_context(candidates[strip.candidate_index], strip) for strip in cut]
    weighed = [
        Strip(strip.candidate_index, strip.start, strip.end, rule.weights.probability(row))
        for strip, row in zip(cut, measured.of_texts(texts), strict=True)
    ]
    best = sorted(weighed, key=lambda strip: (-strip.score, strip.candidate_index, strip.start))[:KEPT_MAX]
    selected = [strip for strip in best if not rule.is_weak(strip.score)] or best[:1]
    selected.sort(key=lambda strip: (strip.candidate_index, strip.start))
    return [_span(candidates[strip.candidate_index], strip) for strip in selected], len(cut)


def _in_context(candidate: Candidate, strip: Strip) -> str:
    content = candidate.content[strip.start : strip.end]
    return f"{candidate.context}\n{content}" if candidate.context else content


def _span(candidate: Candidate, strip: Strip) -> dict[str, Any]:
    content = candidate.content[strip.start : strip.end]
    return {
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "rank": strip.candidate_index + 1,
        "start": candidate.start + strip.start,
        "end": candidate.start + strip.end,
        "content": content,
        "score": strip.score,
        "tokens_before": len(candidate.content.split()),
        "tokens_after": len(content.split()),
    }


@dataclass(frozen=True, slots=True)
class Assessment:
    """What was thought of one retrieval, and done about it.

    confidence: the highest score. scores: of the first results, in their order, by "doc_id#chunk_index". outcome:
    weighed (nothing was done), refined, completed, replaced or abstained. fallback: {"list", "confidence", "taken"} of
    the other list, {} where it was not looked at; strips: {"kept", "of"}, {} where none were cut.
    """

    confidence: float
    action: Action
    scores: Mapping[str, float]
    outcome: str = "weighed"
    fallback: Mapping[str, Any] = field(default_factory=dict)
    strips: Mapping[str, int] = field(default_factory=dict)


class Corrector:
    """Retrieves like the function that it is given, and weighs what came back by the rule; None: not at all.

    corrects: also act on it. calibration: which one the rule is of, for the run. An embedder that fails while passages
    are weighed leaves the retrieval as it was: it answers without the step, and the run says so.
    """

    def __init__(
        self,
        rule: Rule | None,
        *,
        corrects: bool = False,
        calibration: str = "",
        retrieve: Retrieve = retrieve_detailed,
    ) -> None:
        self.rule = rule
        self.corrects = corrects and rule is not None
        self.calibration = calibration
        self.assessment: Assessment | None = None
        self.error = ""
        self._retrieve = retrieve

    def retrieve(self, query: str, plan: RetrievePlan, store: Store) -> Retrieval:
        self.assessment, self.error = None, ""
        retrieval = self._retrieve(query, plan, store)
        if self.rule is None or store.embedder is None:
            return retrieval
        with telemetry.stage(telemetry.CORRECT, input_count=len(retrieval.candidates), corrects=self.corrects) as span:
            try:
                step = _Step(self.rule, query, plan, store)
                outcome = step.run(retrieval) if self.corrects else step.weigh(retrieval)
            except (EmbedderError, DimensionMismatch) as error:
                self.error = type(error).__name__
                log.warning("what was found in %r could not be weighed: %s", store.collection.name, error)
                telemetry.record_counts(span, outcome="failed")
                return retrieval
            self.assessment, corrected = outcome
            assessment = self.assessment
            telemetry.record_counts(
                span,
                confidence=assessment.confidence,
                action=assessment.action,
                outcome=assessment.outcome,
                output_count=len(corrected.candidates),
                fallback_list=assessment.fallback.get("list") or None,
                fallback_confidence=assessment.fallback.get("confidence"),
                fallback_taken=assessment.fallback.get("taken"),
                strips_kept=assessment.strips.get("kept"),
                strips_count=assessment.strips.get("of"),
            )
        return corrected

    def note(self, run: QueryRun) -> None:
        """Keep on the run what was thought of its retrieval. Nothing without a rule."""
        if self.error:
            run.correction = {"calibration": self.calibration, "error": self.error}
        if self.rule is None or self.assessment is None:
            return
        assessment = self.assessment
        run.retrieval_confidence, run.retrieval_action = assessment.confidence, assessment.action
        run.fallback_triggered = bool(assessment.fallback)
        run.correction = {
            "calibration": self.calibration,
            "upper": self.rule.upper,
            "lower": self.rule.lower,
            "corrects": self.corrects,
            "outcome": assessment.outcome,
            "scores": dict(assessment.scores),
            "fallback": dict(assessment.fallback),
            "strips": dict(assessment.strips),
        }

    def answerer(self, usual: Answerer) -> Answerer:
        """The usual one, or one that only says that there is no answer."""
        if self.rule is None or self.assessment is None or self.assessment.outcome != "abstained":
            return usual
        return Abstainer(usual)


class _Step:
    """One retrieval under one rule."""

    def __init__(self, rule: Rule, query: str, plan: RetrievePlan, store: Store) -> None:
        self.rule, self.plan, self.store, self.query = rule, plan, store, query
        self.measured = Measured(query, store)

    def weigh(self, retrieval: Retrieval) -> tuple[Assessment, Retrieval]:
        scores = self._scores(retrieval.candidates)
        best = max(scores, default=0.0)
        named = {
            f"{item.doc_id}#{item.chunk_index}": score for item, score in zip(retrieval.candidates, scores, strict=True)
        }
        return Assessment(best, self.rule.action(scores), named), retrieval

    def run(self, retrieval: Retrieval) -> tuple[Assessment, Retrieval]:
        assessment, _ = self.weigh(retrieval)
        if assessment.action == "correct":
            return self._refine(replace(assessment, outcome="refined"), retrieval, list(assessment.scores.values()))
        name, others = self._fallback(retrieval)
        weighed = [(item, score) for item, score in zip(others, self._scores(others), strict=True)]
        best = max((score for _, score in weighed), default=0.0)
        fallback = {"list": name, "confidence": best, "taken": 0}
        if assessment.action == "ambiguous":
            return self._complete(replace(assessment, fallback=fallback), retrieval, weighed)
        strong = [item for item, score in weighed if not self.rule.is_weak(score)]
        if best <= assessment.confidence or not strong or self.rule.action([best]) == "incorrect":
            return replace(assessment, outcome="abstained", fallback=fallback), retrieval
        details = replace(assessment, outcome="replaced", fallback=fallback | {"taken": len(strong)})
        stored = {item.key: score for item, score in weighed}
        return self._refine(details, self._with(retrieval, strong, name, others), [stored[item.key] for item in strong])

    def _complete(
        self, assessment: Assessment, retrieval: Retrieval, weighed: Sequence[tuple[Candidate, float]]
    ) -> tuple[Assessment, Retrieval]:
        """What was found and is not weak, in its order, then what the other list has besides, up to k."""
        own = list(zip(retrieval.candidates, assessment.scores.values(), strict=True))
        known = {item.key for item, _ in own}
        first = [pair for pair in own if not self.rule.is_weak(pair[1])] or own
        new = [pair for pair in weighed if pair[0].key not in known and not self.rule.is_weak(pair[1])]
        both = [*first, *new][: self.plan.k]
        taken = max(0, len(both) - len(first))
        details = replace(assessment, outcome="completed", fallback=dict(assessment.fallback) | {"taken": taken})
        others = [item for item, _ in weighed]
        whole = self._with(retrieval, [item for item, _ in both], str(assessment.fallback["list"]), others)
        return self._refine(details, whole, [score for _, score in both])

    def _refine(
        self, assessment: Assessment, retrieval: Retrieval, scores: Sequence[float]
    ) -> tuple[Assessment, Retrieval]:
        """Spans of the strips that bear on the question; those of a plan that compresses stay as they are."""
        if self.plan.compress is not None and retrieval.spans:
            return assessment, retrieval
        spans, cut = filter_strips(retrieval.candidates, scores, self.rule, self.measured)
        before = sum(len(item.content.split()) for item in retrieval.candidates)
        after = sum(int(span["tokens_after"]) for span in spans)
        refined = replace(retrieval, spans=spans, tokens_before=before, tokens_after=after)
        return replace(assessment, strips={"kept": len(spans), "of": cut}), refined

    def _with(
        self, retrieval: Retrieval, candidates: list[Candidate], name: str, others: Sequence[Candidate]
    ) -> Retrieval:
        """The retrieval with other results. Spans of results that are no more would point astray, so they go."""
        short = None
        if len(candidates) < self.plan.k:
            short = retrieval.short_result or ShortResult(
                self.plan.k,
                len(candidates),
                "withheld",
                f"asked for {self.plan.k}, got {len(candidates)}: passages that are unlikely to answer were left out",
            )
            short = replace(short, got=len(candidates))
        lists = retrieval.lists if name in retrieval.lists else {**retrieval.lists, FALLBACK: others}
        return replace(retrieval, candidates=candidates, spans=[], lists=lists, short_result=short)

    def _fallback(self, retrieval: Retrieval) -> tuple[str, Sequence[Candidate]]:
        """(the other list's name, its first k); ("", []) for a collection that keeps no lexical index."""
        name, text = "vector" if self.plan.mode == "lexical" else "lexical", self.measured.query
        if name in retrieval.lists:
            return name, fill(retrieval.lists[name][: self.plan.k], self.store)
        if name == "lexical":
            if not self.store.collection.hybrid_enabled:
                return "", []
            plan = replace(self.plan, mode="lexical", rerank=None, candidate_pool=1)
            with telemetry.stage(telemetry.LEXICAL, query=self.measured.query, pool=plan.pool):
                return name, lexical_candidates(text, plan, self.store, read_state(plan, self.store, text))
        plan = replace(self.plan, mode="vector", rerank=None, candidate_pool=1)
        state = read_state(plan, self.store, text)
        with telemetry.stage(telemetry.VECTOR, pool=plan.pool) as span:
            found, exact = vector_list(self.measured.vector.tolist(), plan, self.store, state)
            telemetry.record_counts(span, exact=exact)
        return name, found

    def _scores(self, candidates: Sequence[Candidate]) -> list[float]:
        return [self.rule.weights.probability(row) for row in self.measured.of_candidates(candidates)]


class Abstainer:
    """Says that there is no answer, without asking anything. How unlikely one is, the assessment tells; the closest
    passages stay listed as sources."""

    name = "corrective"
    instructions = ""

    def __init__(self, usual: Answerer) -> None:
        self.system, self.model = usual.system, usual.model

    def answer(
        self,
        query: str,
        sources: Sequence[Candidate],
        spans: Sequence[Mapping[str, Any]] = (),
        *,
        listener: AnswerListener | None = None,
    ) -> Draft:
        return Draft(CheckedAnswer(WEAK_EVIDENCE), True, TokenUsage(estimated=True), len(sources))


Step = Literal["embedder", "reranker", "model", "replica"]

STEPS: tuple[Step, ...] = ("embedder", "reranker", "model", "replica")
AWAY_S = 15.0  # for how long an embedder that failed is not asked again
REASON_CHARS = 300


@dataclass(slots=True)
class Absences:
    """Embedders that failed just now, so that not each query waits for them. Of this process."""

    _until: dict[str, tuple[float, EmbedderError]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, model: str) -> EmbedderError | None:
        """What it failed with, as long as it is left alone."""
        until, error = self._until.get(model, (0.0, None))
        return error if time.monotonic() < until else None

    def note(self, model: str, error: EmbedderError) -> None:
        with self._lock:
            self._until[model] = (time.monotonic() + AWAY_S, error)

    def clear(self) -> None:
        with self._lock:
            self._until.clear()


absences = Absences()


def may_degrade(run: QueryRun) -> bool:
    return settings.RAGD_DEGRADE and run.environment != QueryRun.Environment.EVALUATION


def note_degraded(run: QueryRun, step: Step, reason: object) -> None:
    """Each step once."""
    if all(each["step"] != step for each in run.degraded):
        log.warning("run %s goes on without its %s: %s", run.pk, step, reason)
        run.degraded.append({"step": step, "reason": normalize(str(reason))[:REASON_CHARS]})


def degrading(run: QueryRun, retrieve: Retrieve) -> Retrieve:
    """`retrieve`, which does without an embedder or a reranker that does not answer, and notes it on the run. Notes too
    which results the reranker left in their places (see `ragd.models.reranking.rerank`).

    Without a vector of its query, whatever the cause, a hybrid search is one by keywords, and a vector search fails.
    Where the reranker answers that asking again would not help, the search fails.
    """

    def call(query: str, plan: RetrievePlan, store: Store) -> Retrieval:
        model = store.collection.embed_model
        embeds = plan.mode == "hybrid"
        try:
            if embeds and (absence := absences.find(model)):
                raise absence
            retrieval = retrieve(query, plan, store)
        except (EmbedderError, RerankerError) as error:
            fallback = _without(error, plan)
            is_embedder = isinstance(error, EmbedderError)
            if fallback is None or not (is_embedder or error.retryable) or not may_degrade(run):
                raise
            if isinstance(error, EmbedderError) and absences.find(model) is None and _is_away(error, store):
                absences.note(model, error)
            note_degraded(run, "embedder" if is_embedder else "reranker", error)
            return call(query, fallback, store)
        _note_unread(run, plan, retrieval)
        return retrieval

    return call


def _note_unread(run: QueryRun, plan: RetrievePlan, retrieval: Retrieval) -> None:
    unread = sum("reranked" not in found.ranks for found in retrieval.candidates)
    if plan.rerank is not None and unread:
        note_degraded(
            run,
            "reranker",
            f"the reranker {plan.rerank!r} was expected to know the language of question and candidates; of"
            f" {len(retrieval.candidates)} results it cannot read {unread}, which keep the places that the search gave"
            " them; choose a reranker for this language, or none",
        )


def _is_away(error: EmbedderError, store: Store) -> bool:
    """Return False where the embedder answered, or where it refuses this one query and embeds a harmless text."""
    if not error.retryable or error.kind == "invalid_vector":
        return False
    return error.kind not in ("server", "malformed") or store.embedder is None or not answers(store.embedder)


def _without(error: RagdError, plan: RetrievePlan) -> RetrievePlan | None:
    """The plan without what failed; None where nothing else would answer."""
    if isinstance(error, EmbedderError):
        return replace(plan, mode="lexical") if plan.mode == "hybrid" else None
    return replace(plan, rerank=None) if plan.rerank is not None else None


def check_overrides(collection: Collection, llm_model: str | None, system_prompt: str | None) -> None:
    """Raise ServiceError 403 for a model that is not set up, or a system prompt, of who may not write in the
    collection, unless its setting security.allow_overrides lets everybody who asks choose."""
    if not (llm_model or system_prompt):
        return
    if policy_of(collection).allow_overrides or current_access().may(Permission.WRITE, collection.pk):
        return
    if system_prompt:
        raise _refused("system_prompt", "replacing the system prompt needs the permission 'write' in the collection")
    if llm_model and llm_model not in known_models():
        raise _refused("llm_model", f"the chat model {llm_model!r} is not set up; leave llm_model out")


def known_models() -> set[str]:
    """The chat models that are set up, by their names and those of their settings; quotations too."""
    named = {name for row in _chat_endpoints() for name in (row.name, row.model)}
    return named | {ExtractiveAnswerer.model, settings.RAGD_LLM_MODEL}


def offered_models() -> list[tuple[str, Any]]:
    """(name, label) of each chat model that is set up, once, by name; quotations last."""
    names = sorted({row.name for row in _chat_endpoints()})
    return [*((name, name) for name in names), (ExtractiveAnswerer.model, gettext_lazy("Quotes"))]


def offered_name(model: str) -> str:
    """The name under which a chat model is offered, given that or the model of its settings; "" where none is."""
    names = [row.name for row in _chat_endpoints() if model in (row.name, row.model)]
    return model if model in names else next(iter(names), "")


def _chat_endpoints() -> list[Any]:
    own = environment_endpoint(CHAT)
    return [*stored.of(CHAT), *([own] if own else [])]


def _refused(field: str, message: str) -> ServiceError:
    return ServiceError(
        f"{message}, or have the collection's setting security.allow_overrides switched on",
        type="override_refused",
        status=403,
        field=field,
    )
