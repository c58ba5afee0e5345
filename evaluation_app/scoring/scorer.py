"""Everything that is measured of one stored run: the ranking, the answer, TRACe by a judge, eRAG, the outcome.

The citations of an answer against the documents and chunks that are expected (the adherence application).

Which share of an answer the context states, by rules: this decides whether an answer is supported where a judge's
verdict on a single answer is weak.

The `rag.evaluate` span of a stored run: a trace of its own that points at the run's root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from opentelemetry.trace import INVALID_SPAN, Span

from collections_app.chunks.finding_scan import SecurityPolicy, policy_of, redacted_spans
from collections_app.errors import ServiceError, describe
from collections_app.index.stores import LOCAL_MODEL, embedder_for
from collections_app.models import Collection
from evaluation_app.golden.questions import Golden
from evaluation_app.judges.llm_judge import LlmComponents
from evaluation_app.judges.protocol import Case, ComponentJudge, Judgement, JudgementCache, disagree, embed_texts
from evaluation_app.judges.rubrics import RubricScores, read_rubrics, score_rubrics
from evaluation_app.measures.scores import (
    DOWNSTREAM,
    NO_ANSWER,
    NO_CONTEXT,
    NOTHING_RELEVANT,
    REFUSED,
    Score,
    failed,
    scored,
    unscorable,
)
from evaluation_app.models import Span as StoredSpan
from evaluation_app.reviews.calibration import JudgeFit, fit_in_force, fit_named
from evaluation_app.scoring.contributions import NAMES as ERAG_NAMES
from evaluation_app.scoring.contributions import (
    Contributions,
    FirstRanks,
    Outcome,
    RunCase,
    annotation_dict,
    document_of,
    measure_contributions,
    retrieval_scores,
    sentences_of,
    unscorable_contributions,
)
from evaluation_app.scoring.correctness import SUPPORTS, Correctness, measure_correctness, states
from evaluation_app.scoring.judge_selection import (
    RunSettings,
    StoredJudgements,
    judge_endpoint,
    judge_model,
    judging_embedder,
    open_grader,
    open_judge,
)
from evaluation_app.scoring.modes import NOISE, noise_scores, weak_of
from evaluation_app.telemetry.store.span_store import flush_pending
from ragd import telemetry
from ragd.errors import RagdError, UnknownCollection
from ragd.models.embedding import CachingEmbedder
from ragd.types import Embedder
from retrieval_app.answers.chat_answerer import open_answerer
from retrieval_app.answers.protocol import Answerer
from retrieval_app.models import QueryRun

CITATIONS = ("citation_precision", "citation_recall")
NOTHING_CITED = "the answer cites nothing"


def measure_citations(
    citations: Sequence[Mapping[str, Any]], golden: Golden, silent: str = ""
) -> tuple[dict[str, Score], dict[str, list[str]]]:
    """(citation_precision and citation_recall, {"matching", "missing", "foreign"}).

    What is expected are the question's chunks ("doc_id#chunk_index") and those of its documents of which it names no
    chunk. Each is counted once, in the order in which it is cited or expected. precision: matching / cited. recall:
    matching / expected, or 1 for one match where any of them answers the question (`Golden.match`). Both are unscorable
    where nothing is expected, and for the reason `silent` where nothing was answered. An answer that cites nothing has
    no precision and the recall 0.
    """
    with_chunks = {document_of(key) for key in golden.expected_chunks}
    expected = [*golden.expected_chunks, *(item for item in golden.expected_doc_ids if item not in with_chunks)]
    cited = list(dict.fromkeys(_named(item, with_chunks) for item in citations))
    matching = [key for key in cited if key in expected]
    found = {
        "matching": matching,
        "missing": [key for key in expected if key not in matching],
        "foreign": [key for key in cited if key not in expected],
    }
    reason = NOTHING_RELEVANT if not expected else silent
    if reason:
        return dict.fromkeys(CITATIONS, unscorable(reason)), found
    return {
        "citation_precision": scored(len(matching) / len(cited)) if cited else unscorable(NOTHING_CITED),
        "citation_recall": scored(len(matching) / len(expected) if golden.match == "all" else float(bool(matching))),
    }, found


def _named(citation: Mapping[str, Any], with_chunks: Set[str]) -> str:
    """The chunk where one of its document is expected, else the document."""
    doc_id = str(citation["doc_id"])
    return f"{doc_id}#{citation['chunk_index']}" if doc_id in with_chunks else doc_id


def stated_share(
    answer_sentences: Sequence[Sequence[str]], context: Sequence[Mapping[str, Any]], question: str, embedder: Embedder
) -> Score:
    """Sentences of the answer that a sentence of the context states / sentences of the answer, 0 to 1.

    What the question says need not stand in the context. Shapes as in EvaluationItem. Unscorable without an answer or
    context; an error of the kind "embedder" when that fails.
    """
    answer = [str(text) for _, text in answer_sentences if str(text).strip()]
    texts = [str(text) for chunk in context for _, text in chunk["sentences"] if str(text).strip()]
    if not answer or not texts:
        return unscorable(NO_ANSWER if not answer else NO_CONTEXT)
    try:
        vectors = embed_texts(embedder, [*answer, *texts])
    except RagdError:
        return failed("embedder")
    return scored(sum(states(texts, sentence, vectors, SUPPORTS, question) for sentence in answer) / len(answer))


FIELDS = ("context_relevance", "answer_relevance", "faithfulness", "groundedness")  # what AITF names come first
EXPLAINED = ("context_relevance", "groundedness")
JUDGED_NAMES = frozenset(
    {
        "context_relevance", "context_utilization", "completeness", "adherence", "groundedness", "faithfulness",
        "answer_relevance",
    }
)  # fmt: skip


@contextmanager
def judged_span(run: QueryRun) -> Iterator[Span]:
    """Open around the judging, so that a model's calls stand in it. A span that records nothing where the run's root is
    not known: a judgement must point at what it judges."""
    root = root_of(run)
    if not root:
        yield INVALID_SPAN
        return
    with telemetry.evaluate_later_span(
        run.collection_name,
        trace_id=run.trace_id,
        span_id=root,
        query=run.query,
        run_id=str(run.pk) if run.pk else None,
        api_key=run.api_key_label or None,
    ) as span:
        yield span


def root_of(run: QueryRun) -> str:
    """The id of the run's root span, 16 hex digits; "" when nothing was recorded of it."""
    if run.root_span_id or not run.trace_id:
        return run.root_span_id
    flush_pending(run)
    rows = StoredSpan.objects.of_trace(run.trace_id).filter(name__startswith=f"{telemetry.PIPELINE} ")
    return rows.filter(run_id=run.pk).values_list("span_id", flat=True).first() or ""


def record_scores(span: Span, scores: Mapping[str, Score], judge: str | None, details: Mapping[str, Any]) -> None:
    """Each score as one metric. groundedness is adherence under the name that the fields of AITF have for it. judge:
    its name and version."""
    named = dict(scores)
    if "adherence" in named:
        named["groundedness"] = named["adherence"]
    order = [name for name in FIELDS if name in named] + [name for name in named if name not in FIELDS]
    for number, name in enumerate(order):
        score = named[name]
        judged = judge is not None and name in JUDGED_NAMES
        evaluation = telemetry.Evaluation(
            name,
            score=score.value,
            label=score.reason if score.state == "unscorable" else None,
            error_type=score.reason if score.state == "error" else None,
            explanation=details.get("explanation") if name in EXPLAINED else None,
            annotator="LLM" if judged and judge is not None and not judge.startswith("embedded") else "CODE",
            identifier=judge if judged else None,
        )
        telemetry.record_evaluation(span, evaluation, number)


TRACE = ("context_relevance", "context_utilization", "completeness", "adherence")  # the keys of `trace_scores`
JUDGED = (*TRACE, "faithfulness", "answer_relevance")
TURNED_AWAY = "the collection's security turned the question or the answer away"
NOT_ASKED = "no answer was asked for"
SILENT: Mapping[Outcome, str] = {"abstained": REFUSED, "refused": TURNED_AWAY, "searched": NOT_ASKED}
LIKELY_DIGITS = 4


@dataclass(frozen=True)
class ScoredRun:
    """What was found of one run; the shapes are those of EvaluationItem.

    scores: measure -> Score, only what the settings ask for. context, answer_sentences and annotation: what the judge
    read and marked; the first two are there without a judge too. details: {"explanation", "likely", "estimates",
    ...} as far as a judge gives them.
    """

    outcome: Outcome
    scores: dict[str, Score]
    context: list[dict[str, Any]] = field(default_factory=list)
    answer_sentences: list[list[str]] = field(default_factory=list)
    annotation: dict[str, Any] = field(default_factory=dict)
    contributions: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    judge_usage: dict[str, Any] = field(default_factory=dict)


class Scorer:
    """Scores the runs of one collection under one setting. May be used by several threads.

    collection: None when it is gone; then single chunks cannot be answered from, and all else is scored. cache: for a
    chat model's judgements; None: those kept in the database. version: of the judge of a run that has begun, by whose
    calibration it goes on; None: by the one in force. Raises ServiceError (422, "no_judge_model") when the settings ask
    for a chat model as judge and none is set up.
    """

    def __init__(
        self,
        settings: RunSettings,
        collection: Collection | None,
        *,
        cache: JudgementCache | None = None,
        version: str | None = None,
    ) -> None:
        self.settings = settings
        self.collection = collection
        self.judge = open_judge(settings, cache)
        self.fit = self._open_fit(version)
        self.rubrics = read_rubrics(settings.rubrics)
        model = next(iter(settings.chat_judges), settings.judge_model)
        self.grader = open_grader(model, cache) if self.rubrics else None
        self.component_judge = self._open_component_judge(cache)
        self._remembering = _embedder_of(collection)

    def _open_fit(self, version: str | None) -> JudgeFit | None:
        if self.judge is None or self.collection is None:
            return None
        if version is not None:
            return fit_named(self.collection, version)
        return fit_in_force(self.collection, self.settings.judge, self.judge.version)

    def _open_component_judge(self, cache: JudgementCache | None) -> ComponentJudge | None:
        """The judge itself where it can, the judging chat model, or None: rules decide."""
        judge: object = self.judge
        if isinstance(judge, ComponentJudge):
            return judge
        if not self.settings.chat_judges:
            return None
        kept = cache if cache is not None else StoredJudgements()
        model = self.settings.chat_judges[0]
        return LlmComponents(judge_model(model), judge_endpoint(model), judging_embedder(), kept)

    @property
    def _is_weak(self) -> bool:
        return self.judge is not None and bool(weak_of(self.judge_identity))

    @property
    def judge_identity(self) -> str:
        """Name and version of the judge; "none" without one."""
        return f"{self.settings.judge} {self.judge_version}".rstrip()

    @property
    def judge_version(self) -> str:
        """Changes when the same run may get other figures from the judge; "" without a judge."""
        return "" if self.judge is None else self.judge.version + (self.fit.suffix if self.fit else "")

    def score(self, run: QueryRun, golden: Golden | None) -> ScoredRun:
        """Everything that can be measured of the run. golden: None for traffic that nobody expected anything of.

        Never raises for what a run holds. A run that failed has the failed score of its kind for everything. The run's
        trace_scores and doc_contribution_scores are written, and the figures leave as a `rag.evaluate` span that points
        at the run's root, where something was judged and that root is known.
        """
        case = RunCase.of(run, policy_of(self.collection) if self.collection else SecurityPolicy())
        if case.outcome == "error":
            return self._lost(run, case, golden)
        with redacted_spans(self.collection) if self.collection else nullcontext(), judged_span(run) as span:
            judgement = self._judge(case)
            contributions = self._contributions(run, case, golden)
            result = self._gather(run, case, golden, judgement, contributions)
            record_scores(span, result.scores, self.judge_identity if self.judge else None, result.details)
        self._keep(run, result, contributions)
        return result

    def _judge(self, case: RunCase) -> tuple[Case, Judgement | None]:
        as_case = case.as_case()
        if self.judge is None or case.outcome == "refused":
            return as_case, None
        return as_case, self.judge.judge(as_case)

    def _contributions(self, run: QueryRun, case: RunCase, golden: Golden | None) -> Contributions | None:
        if not self.settings.contributions or golden is None or case.outcome == "searched":
            return None
        if case.outcome == "refused":
            return unscorable_contributions(case.results, TURNED_AWAY)
        try:
            answerer = self._answerer_of(run)
        except (ServiceError, RagdError) as error:
            return Contributions(dict.fromkeys(ERAG_NAMES, failed(describe(error)[1]["error"]["type"])))
        return measure_contributions(
            answerer,
            case.question,
            case.results,
            golden.expected_answer,
            self.settings.downstream,
            self.settings.label_threshold,
        )

    def _answerer_of(self, run: QueryRun) -> Answerer:
        """The answerer that answered the run, with its prompt and its earlier turns."""
        if self.collection is None:
            raise UnknownCollection(f"the collection {run.collection_name!r} is gone")
        return open_answerer(
            self._remembering,
            llm_model=run.answerer or None,
            system_prompt=run.system_prompt or None,
            history=run.history,
        )

    def _gather(
        self,
        run: QueryRun,
        case: RunCase,
        golden: Golden | None,
        judged: tuple[Case, Judgement | None],
        contributions: Contributions | None,
    ) -> ScoredRun:
        as_case, judgement = judged
        outcome: Outcome = case.outcome
        if outcome == "answered" and judgement is not None and judgement.refused:
            outcome = "abstained"  # it declined in words of its own
        annotation = annotation_dict(judgement.annotation if judgement else None)
        context, sentences = _context(case, as_case), sentences_of(as_case.answer)
        scores: dict[str, Score] = {}
        details, correctness = _details(judgement), None
        if golden is not None:
            scores |= retrieval_scores(run.retrieved_ids, golden, self.settings.cut)
            details["ranks"] = asdict(FirstRanks.of(run.retrieved_ids, golden))
        scores |= self._trace_scores(outcome, judgement)
        if self.fit is not None:
            scores, details = self.fit.apply(scores, details)
        silent = SILENT.get(outcome, "")
        if self._is_weak:
            scores["stated"] = (
                unscorable(silent) if silent else stated_share(sentences, context, case.question, judging_embedder())
            )
        if golden is not None and outcome != "searched":
            scores |= answer_scores(case.answer, outcome, golden)
            scores["right_outcome"] = right_outcome(outcome, golden)
            correctness = measure_correctness(
                sentences, outcome, golden, judging_embedder(), silent=silent, judge=self.component_judge
            )
            scores["correctness"], details["components"] = correctness.score, correctness.components
            cited, details["citations"] = measure_citations(run.citations, golden, silent)
            scores |= cited
            if self.judge is not None:
                scores |= (
                    dict.fromkeys(NOISE, unscorable(silent))
                    if silent
                    else noise_scores(annotation, context, sentences, golden, judging_embedder(), correctness.holding)
                )
        rubrics = self._rubric_scores(case, golden, outcome)
        scores |= rubrics.scores
        if rubrics.reasons:
            details["rubrics"] = dict(rubrics.reasons)
        if contributions is not None:
            scores |= contributions.scores
            details["erag"] = {
                "downstream": self.settings.downstream, "label_threshold": self.settings.label_threshold,
            }  # fmt: skip
        return ScoredRun(
            outcome=outcome,
            scores=scores,
            context=context,
            answer_sentences=sentences,
            annotation=annotation,
            contributions=contributions.records if contributions else [],
            details=details,
            judge_usage=_usage(judgement, contributions, correctness, rubrics),
        )

    def _rubric_scores(self, case: RunCase, golden: Golden | None, outcome: Outcome) -> RubricScores:
        if golden is None or outcome == "searched":
            return RubricScores()
        return score_rubrics(
            self.rubrics,
            self.grader,
            question=case.question,
            answer=case.answer,
            context=case.texts,
            expected=golden.expected_answer,
            silent=SILENT.get(outcome, ""),
        )

    def _trace_scores(self, outcome: Outcome, judgement: Judgement | None) -> dict[str, Score]:
        """Of what was not answered only context relevance can be scored."""
        if self.judge is None:
            return {}
        if judgement is None:
            return dict.fromkeys(JUDGED, unscorable(TURNED_AWAY))
        silent = SILENT.get(outcome)
        return {
            name: unscorable(silent) if silent and name != "context_relevance" else judgement.scores[name]
            for name in JUDGED
        }

    def _lost(self, run: QueryRun, case: RunCase, golden: Golden | None) -> ScoredRun:
        """An error is a hole, never a zero: every measure that the settings ask for is failed."""
        kind = run.error_type or "internal_error"
        names: list[str] = []
        if golden is not None:
            names += retrieval_scores([], golden, self.settings.cut)
        if self.judge is not None:
            names += [*JUDGED, *(["stated"] if self._is_weak else [])]
        if golden is not None and run.kind == QueryRun.Kind.ASK:
            names += ["correctness", *CITATIONS, *DOWNSTREAM, "right_outcome"]
            names += NOISE if self.judge is not None else ()
            names += ERAG_NAMES if self.settings.contributions else ()
            names += [rubric.measure for rubric in self.rubrics]
        return ScoredRun("error", dict.fromkeys(names, failed(kind)), details={"error": run.error})

    def _keep(self, run: QueryRun, results: ScoredRun, contributions: Contributions | None) -> None:
        """Onto the run, as far as it was stored; a run is not given back a figure that this setting did not make."""
        values: dict[str, Any] = {}
        if self.judge is not None:
            values["trace_scores"] = trace_record(results.scores)
        if contributions is not None and contributions.records:
            values["doc_contribution_scores"] = contributions.labels
        for name, value in values.items():
            setattr(run, name, value)
        if values and run.pk is not None:
            QueryRun.objects.filter(pk=run.pk).update(**values)


def _embedder_of(collection: Collection | None) -> CachingEmbedder:
    """One that remembers: the sentences of a chunk are read for the list and again for the chunk alone. What the judge
    has read serves too, where the collection has the model of the judge."""
    if collection is None or collection.embed_model == LOCAL_MODEL:
        return judging_embedder()
    return CachingEmbedder(embedder_for(collection.embed_model, collection.embed_dims))


def trace_record(scores: Mapping[str, Score]) -> dict[str, float | None]:
    """`trace_scores` of the minimal logging fields: all four figures, None for one that could not be told."""
    return {name: scores[name].value if name in scores else None for name in TRACE}


def answer_scores(answer: str, outcome: Outcome, golden: Golden) -> dict[str, Score]:
    """The answer against the expected one by every downstream measure. What was not answered is unscorable."""
    expected = [golden.expected_answer] if golden.expected_answer.strip() else []
    silent = SILENT.get(outcome) or ("" if answer else NO_ANSWER)
    return {
        name: unscorable(silent) if silent and expected else measure(answer, expected)
        for name, measure in DOWNSTREAM.items()
    }


def right_outcome(outcome: Outcome, golden: Golden) -> Score:
    """1.0 when a question that expects something was answered, or one that expects nothing was not; else 0.0.

    A question that the collection's security turned away is unscorable: nobody tried to answer it.
    """
    if outcome not in ("answered", "abstained"):
        return unscorable(TURNED_AWAY if outcome == "refused" else NOT_ASKED)
    wants_answer = not golden.expects_nothing or bool(golden.expected_answer.strip())
    return scored(float((outcome == "answered") == wants_answer))


def _context(case: RunCase, as_case: Case) -> list[dict[str, Any]]:
    return [
        {"key": key, "sentences": sentences_of(sentences)}
        for key, sentences in zip(case.keys, as_case.context, strict=True)
    ]


def _usage(
    judgement: Judgement | None,
    contributions: Contributions | None,
    correctness: Correctness | None,
    rubrics: RubricScores,
) -> dict[str, Any]:
    """Of the judge, of the answers from single chunks, of the model that decided components and of rubrics together.

    A cost is None when one of them is not known. "cached": nothing was asked of the judge.
    """
    usage = dict(judgement.usage) if judgement else {}
    others = (contributions.usage if contributions else {}, correctness.usage if correctness else {}, *rubrics.usages)
    for more in others:
        if not more or not more["calls"]:
            continue
        if not usage:
            usage = dict(more) | {"cached": False}
            continue
        costs = (usage.get("cost_usd"), more["cost_usd"])
        sums = {name: usage.get(name, 0) + more[name] for name in ("input_tokens", "output_tokens", "calls")}
        usage |= sums | {"cost_usd": None if None in costs else sum(cost or 0.0 for cost in costs)}
    return usage


def _details(judgement: Judgement | None) -> dict[str, Any]:
    if judgement is None:
        return {}
    details: dict[str, Any] = {}
    if judgement.explanation:
        details["explanation"] = judgement.explanation
    if judgement.refuted:
        details["contradictions"] = {key: asdict(found) for key, found in judgement.refuted.items()}
    if judgement.members:
        details["panel"] = list(judgement.members)
        details["disagree"] = disagree(judgement.members)
    if judgement.estimates:
        details["estimates"] = {name: estimate.as_dict() for name, estimate in judgement.estimates.items()}
    if judgement.likely:
        details["likely"] = {
            name: {key: round(chance, LIKELY_DIGITS) for key, chance in chances.items()}
            for name, chances in judgement.likely.items()
        }
    return details
