"""What every judge is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluation_app.measures.annotations import Annotation, Sentence, key_answer, key_documents
from evaluation_app.measures.scores import Score


@dataclass(frozen=True, slots=True)
class Case:
    """One answer over its retrieved context. context: per document (or chunk) its sentences with their keys."""

    question: str
    context: Sequence[Sequence[Sentence]]
    answer: Sequence[Sentence]

    @classmethod
    def of(cls, question: str, documents: Sequence[str], answer: str) -> Case:
        """Split into sentences here. A blank document keeps its number and has no sentence."""
        return cls(question, key_documents(documents), key_answer(answer))

    @property
    def answer_text(self) -> str:
        return " ".join(sentence.text for sentence in self.answer)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge says of one case.

    scores: context_relevance, context_utilization, completeness, adherence, faithfulness, answer_relevance. annotation:
    which sentences are relevant, utilized and supported, for marks in texts; None when the judge could not give one.
    refused: the answer declines to answer. likely: probabilities by sentence key, {"relevant", "utilized",
    "unsupported"}, where the judge has them. usage: what the judging took, {"input_tokens", "output_tokens",
    "cost_usd", "cached"}; {} for a judge that asks no model.
    """

    scores: Mapping[str, Score]
    annotation: Annotation | None
    refused: bool = False
    likely: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    explanation: str = ""


class Judge(Protocol):
    """name: "embedded" or "llm". version: changes when the same case may get another judgement."""

    name: str
    version: str

    def judge(self, case: Case) -> Judgement:
        """Never raises for what a case holds: what cannot be judged is an unscorable or failed score in the result."""
        ...
