"""A judge that asks no language model: sentences are weighed by a small model fitted on labelled rows.

It marks sentences of the context as relevant and utilized and sentences of the answer as supported, and the
five figures of TRACe are counted over these marks by `trace_scores`, as for every judge. Beside them are estimates,
what its probabilities P make it expect, where Len is words (or 1, with unit "sentences"):

    context relevance    sum of Len * P(relevant) / sum of Len, over the sentences of the context
    context utilization  sum of Len * P(utilized) / sum of Len
    completeness         what a model of the whole case expects, which reads the means of P(relevant), P(utilized) and
                         P(relevant and utilized) over its sentences, sizes, and how near the best sentences come;
                         of sentences, whatever the unit
    adherence            what a model of the whole answer expects, which reads P(unsupported) of its sentences
    faithfulness         mean of 1 - P(unsupported) over the sentences of the answer

    answer relevance     0.7 * highest cosine of a sentence of the answer with the question
                         + 0.3 * share of the question's content words that the answer holds; no estimate

A sentence of the answer is supported when its P(unsupported) is below the stored threshold and the context does not
contradict it (`protocol.refute`). A `SupportModel` may give
P(unsupported) instead, with a threshold of its own; adherence and faithfulness then have no estimates. The same case
gets the same judgement: the embedder's vectors depend on a text alone, and nothing is drawn by chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.feature_model import JudgeModel, Marks, Mask, mark_case, stored_model
from evaluation_app.judges.features import measure_case
from evaluation_app.judges.protocol import (
    MEASURES,
    NO_QUESTION,
    Case,
    Judgement,
    Numbers,
    Vectors,
    embed_texts,
    is_refusal,
    texts_of,
)
from evaluation_app.judges.support_model import SupportModel
from evaluation_app.measures.scores import (
    NO_ANSWER,
    NO_CONTEXT,
    REFUSED,
    UNITS,
    Annotation,
    Score,
    Sentence,
    Support,
    Unit,
    failed,
    scored,
    trace_scores,
    unscorable,
)
from ragd.errors import RagdError
from ragd.models.embedding import CachingEmbedder
from ragd.types import Embedder

NEED_ANSWER = ("context_utilization", "completeness", "adherence", "faithfulness")
NO_CLAIM = "general"  # of `SUPPORTED_WITHOUT`


class EmbeddedJudge:
    """Threads may share one. model: fitted coefficients, by default those stored beside this module. support: gives
    P(unsupported) instead of them.

    Raises ValueError for an unknown unit and for an embedder that the coefficients were not fitted with.
    """

    name = "embedded"

    def __init__(
        self,
        embedder: Embedder,
        *,
        model: JudgeModel | None = None,
        unit: Unit = "tokens",
        support: SupportModel | None = None,
    ) -> None:
        if unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
        self.embedder = embedder if isinstance(embedder, CachingEmbedder) else CachingEmbedder(embedder)
        self.model = model or stored_model()
        if embedder.model != self.model.embedder:
            raise ValueError(
                f"the judge was fitted with vectors of {self.model.embedder}, not of {embedder.model}: give it that "
                "embedder, whatever the collection uses"
            )
        self.unit = unit
        self.support = support
        self.version = f"{self.model.version}-{unit}" + (f" {support.version}" if support else "")

    def judge(self, case: Case) -> Judgement:
        return self.judge_many([case])[0]

    def judge_many(self, cases: Sequence[Case]) -> list[Judgement]:
        """One judgement per case, in order, the same as one by one; the texts are embedded in one call.

        An embedder that fails gives every case scores of state "error" of the kind "embedder", a model of support that
        fails the case "judge_model".
        """
        try:
            vectors = embed_texts(self.embedder, [text for case in cases for text in texts_of(case)])
        except RagdError as error:
            return [_lost("embedder", error) for _ in cases]
        return [self._judge(case, vectors) for case in cases]

    def _judge(self, case: Case, vectors: Vectors) -> Judgement:
        features = measure_case(case, vectors)
        sentences = [sentence for document in case.context for sentence in document]
        is_blank = np.array([not sentence.text.strip() for sentence in case.answer], dtype=np.bool_)
        try:
            doubt = self.support.doubt(case) if self.support else None
        except RagdError as error:
            return _lost("judge_model", error)
        marks = mark_case(self.model, features, self._lengths(sentences), is_blank, doubt)
        annotation = _annotation(sentences, case.answer, marks, features.nearest)
        refused = is_refusal(case)
        scores = self._scores(case, annotation, features.addressed, has_context=bool(marks.expected), refused=refused)
        return Judgement(
            scores=scores,
            annotation=annotation,
            refused=refused,
            estimates={
                name: self.model.spreads[name].around(value)
                for name, value in marks.expected.items()
                if scores[name].is_scored
            },
            likely={
                "relevant": _by_key(sentences, marks.likely["relevant"]),
                "utilized": _by_key(sentences, marks.likely["utilized"]),
                "unsupported": _by_key(case.answer, marks.unsupported),
            },
            refuted={each.key: found for each, found in zip(case.answer, features.refuted, strict=True) if found},
        )

    def _scores(
        self, case: Case, annotation: Annotation, addressed: float, *, has_context: bool, refused: bool
    ) -> dict[str, Score]:
        """`trace_scores`, less what this judge cannot score: all five without words of context, and without a question
        relevance and completeness."""
        no_question = None if case.question.strip() else unscorable(NO_QUESTION)
        silent = unscorable(REFUSED) if refused else None if case.answer_text.strip() else unscorable(NO_ANSWER)
        answer_relevance = silent or no_question or scored(addressed)
        if not has_context:
            return dict.fromkeys(MEASURES, unscorable(NO_CONTEXT)) | {"answer_relevance": answer_relevance}
        scores = trace_scores(case.context, case.answer, annotation, unit=self.unit, refused=refused).by_name()
        if silent:
            scores |= dict.fromkeys(NEED_ANSWER, silent)
        if no_question:
            scores["context_relevance"] = no_question
            scores["completeness"] = silent or no_question
        return scores | {"answer_relevance": answer_relevance}

    def _lengths(self, sentences: Sequence[Sentence]) -> Numbers:
        words = np.array([len(sentence.text.split()) for sentence in sentences], dtype=np.float64)
        return words if self.unit == "tokens" else np.ones(len(sentences)) if words.any() else words


def _lost(kind: str, error: RagdError) -> Judgement:
    return Judgement(dict.fromkeys(MEASURES, failed(kind)), None, explanation=str(error))


def _annotation(
    context: Sequence[Sentence], answer: Sequence[Sentence], marks: Marks, nearest: npt.NDArray[np.int64]
) -> Annotation:
    """The marks by key. A supported sentence names the one sentence of the context that is nearest by meaning."""
    support = []
    for index, sentence in enumerate(answer):
        supported = bool(marks.supported[index])
        if not sentence.text.strip():
            keys: tuple[str, ...] = (NO_CLAIM,)
        else:
            keys = (context[nearest[index]].key,) if supported else ()
        support.append(Support(sentence.key, keys, supported))
    return Annotation(_marked(context, marks.relevant), _marked(context, marks.utilized), tuple(support))


def _marked(sentences: Sequence[Sentence], mask: Mask) -> tuple[str, ...]:
    return tuple(sentence.key for sentence, is_marked in zip(sentences, mask, strict=True) if is_marked)


def _by_key(sentences: Sequence[Sentence], chances: Numbers) -> dict[str, float]:
    return {sentence.key: float(chance) for sentence, chance in zip(sentences, chances, strict=True)}
