"""A judge that asks no language model: sentences are weighed by a small model fitted on labelled rows.

Its figures are expectations over its probabilities P per sentence, where Len is words (or 1, with unit "sentences"):

    context relevance    sum of Len * P(relevant) / sum of Len, over the sentences of the context
    context utilization  sum of Len * P(utilized) / sum of Len
    completeness         what a model of the whole case expects, which reads the means of P(relevant), P(utilized) and
                         P(relevant and utilized) over its sentences, sizes, and how near the best sentences come;
                         of sentences, whatever the unit
    adherence            1.0 when no sentence of the answer has P(unsupported) from the stored threshold on, else 0.0
    faithfulness         mean of 1 - P(unsupported) over the sentences of the answer
    answer relevance     0.7 * highest cosine of a sentence of the answer with the question
                         + 0.3 * share of the question's content words that the answer holds

The same case gets the same judgement: the embedder's vectors depend on a text alone, and nothing is drawn by chance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.feature_model import JudgeModel, stored_model
from evaluation_app.judges.features import Features, measure_case
from evaluation_app.judges.protocol import MEASURES, NO_QUESTION, Case, Judgement, Numbers, is_refusal, texts_of
from evaluation_app.measures.scores import Score, failed, scored, unscorable
from evaluation_app.measures.trace import NO_ANSWER, NO_CONTEXT, REFUSED, UNITS, Annotation, Sentence, Support, Unit
from ragd.errors import RagdError
from ragd.models.embedding import Embedder

VECTORS_KEPT = 50_000  # some 90 MB with their texts; golden questions over one collection meet the same sentences again

Vectors = Mapping[str, npt.NDArray[np.float32]]


class EmbeddedJudge:
    """Threads may share one. model: fitted coefficients, by default those stored beside this module.

    Raises ValueError for an unknown unit and for an embedder that the coefficients were not fitted with.
    """

    name = "embedded"

    def __init__(self, embedder: Embedder, *, model: JudgeModel | None = None, unit: Unit = "tokens") -> None:
        if unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
        self.embedder = embedder
        self.model = model or stored_model()
        if embedder.model != self.model.embedder:
            raise ValueError(
                f"the judge was fitted with vectors of {self.model.embedder}, not of {embedder.model}: give it that "
                "embedder, whatever the collection uses"
            )
        self.unit = unit
        self.version = f"{self.model.version}-{unit}"
        self._kept: OrderedDict[str, npt.NDArray[np.float32]] = OrderedDict()
        self._lock = Lock()

    def judge(self, case: Case) -> Judgement:
        return self.judge_many([case])[0]

    def judge_many(self, cases: Sequence[Case]) -> list[Judgement]:
        """One judgement per case, in order, the same as one by one; the texts are embedded in one call.

        An embedder that fails gives every case scores of state "error" of the kind "embedder".
        """
        try:
            vectors = self._embed(list(dict.fromkeys(text for case in cases for text in texts_of(case))))
        except RagdError as error:
            lost = dict.fromkeys(MEASURES, failed("embedder"))
            return [Judgement(lost, None, explanation=str(error)) for _ in cases]
        return [self._judge(case, vectors) for case in cases]

    def _judge(self, case: Case, vectors: Vectors) -> Judgement:
        features = measure_case(case, vectors)
        likely = {name: head.predict(features.context, features.documents) for name, head in self.model.heads.items()}
        sentences = [sentence for document in case.context for sentence in document]
        unsupported = self.model.unsupported.predict(features.answer) if sentences else np.ones(len(case.answer))
        refused = is_refusal(case)
        return Judgement(
            scores=self._scores(case, features, likely, unsupported, refused=refused),
            annotation=self._annotation(case, features, likely, unsupported),
            refused=refused,
            likely={
                "relevant": _by_key(sentences, likely["relevant"]),
                "utilized": _by_key(sentences, likely["utilized"]),
                "unsupported": _by_key(case.answer, unsupported),
            },
        )

    def _scores(
        self,
        case: Case,
        features: Features,
        likely: Mapping[str, Numbers],
        unsupported: Numbers,
        *,
        refused: bool,
    ) -> dict[str, Score]:
        lengths = self._lengths([sentence for document in case.context for sentence in document])
        total = float(lengths.sum())
        no_question = None if case.question.strip() else unscorable(NO_QUESTION)
        silent = unscorable(REFUSED) if refused else None if case.answer_text.strip() else unscorable(NO_ANSWER)
        answer_relevance = silent or no_question or scored(features.addressed)
        if not total:
            return dict.fromkeys(MEASURES, unscorable(NO_CONTEXT)) | {"answer_relevance": answer_relevance}
        relevant, utilized = (float(lengths @ likely[name]) for name in ("relevant", "utilized"))
        # a blank sentence of the answer says nothing that would need support
        message = unsupported[[bool(sentence.text.strip()) for sentence in case.answer]]
        highest = float(message.max(initial=0.0))
        return {
            "context_relevance": no_question or scored(relevant / total),
            "context_utilization": silent or scored(utilized / total),
            "completeness": silent or no_question or scored(self.model.complete(likely, features.context)),
            "adherence": silent or scored(float(highest < self.model.thresholds["adherence"])),
            "faithfulness": silent or scored(float(1 - message.mean())),
            "answer_relevance": answer_relevance,
        }

    def _annotation(
        self, case: Case, features: Features, likely: Mapping[str, Numbers], unsupported: Numbers
    ) -> Annotation:
        """What the probabilities call relevant, utilized and supported by the stored thresholds. A supported sentence
        names the one sentence of the context that is nearest to it by meaning."""
        limits = self.model.thresholds
        keys = [sentence.key for document in case.context for sentence in document]
        support = []
        for index, sentence in enumerate(case.answer):
            supported = bool(keys) and float(unsupported[index]) < limits["unsupported"]
            nearest = (keys[features.nearest[index]],) if supported else ()
            support.append(Support(sentence.key, nearest, supported))
        return Annotation(
            tuple(key for key, chance in zip(keys, likely["relevant"], strict=True) if chance >= limits["relevant"]),
            tuple(key for key, chance in zip(keys, likely["utilized"], strict=True) if chance >= limits["utilized"]),
            tuple(support),
        )

    def _lengths(self, sentences: Sequence[Sentence]) -> Numbers:
        words = np.array([len(sentence.text.split()) for sentence in sentences], dtype=np.float64)
        return words if self.unit == "tokens" else np.ones(len(sentences)) if words.any() else words

    def _embed(self, texts: Sequence[str]) -> Vectors:
        with self._lock:
            known = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in texts if text not in known]
        fresh = self.embedder.embed(missing) if missing else []
        added = {text: np.asarray(vector, dtype=np.float32) for text, vector in zip(missing, fresh, strict=True)}
        with self._lock:
            self._kept.update(added)
            for text in known:
                if text in self._kept:
                    self._kept.move_to_end(text)
            while len(self._kept) > VECTORS_KEPT:
                self._kept.popitem(last=False)
        return known | added


def _by_key(sentences: Sequence[Sentence], chances: Numbers) -> dict[str, float]:
    return {sentence.key: float(chance) for sentence, chance in zip(sentences, chances, strict=True)}
