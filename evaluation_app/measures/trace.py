"""TRACe: context relevance, context utilization, completeness, adherence (arXiv 2407.11005), and faithfulness.

Lengths are counted in tokens, which here are words between white space, or in sentences.

    context relevance    Len(relevant) / Len(context)
    context utilization  Len(utilized) / Len(context)
    completeness         Len(relevant and utilized) / Len(relevant); 1.0 when nothing is relevant
    adherence            1.0 when every sentence of the answer is supported, else 0.0
    faithfulness         supported sentences of the answer / sentences of the answer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from evaluation_app.measures.annotations import Annotation, Sentence, check_annotation
from evaluation_app.measures.scores import Score, scored, unscorable

Unit = Literal["tokens", "sentences"]
UNITS: tuple[Unit, ...] = ("tokens", "sentences")
NO_CONTEXT = "no context was retrieved"
NO_ANSWER = "there is no answer"
REFUSED = "the question was not answered"


@dataclass(frozen=True, slots=True)
class TraceScores:
    context_relevance: Score
    context_utilization: Score
    completeness: Score
    adherence: Score
    faithfulness: Score

    def as_dict(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name).as_dict() for item in fields(self)}


def trace_scores(
    context: Sequence[Sequence[Sentence]],
    answer: Sequence[Sentence],
    annotation: Annotation,
    *,
    unit: Unit = "tokens",
    refused: bool = False,
) -> TraceScores:
    """The five figures of one answer over its retrieved context (documents of sentences).

    An empty context makes the first three unscorable, an empty answer all but context relevance, a refusal too.
    Raises ValueError for an unknown unit or an annotation that does not fit (see `check_annotation`).
    """
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
    checked = check_annotation(annotation, context, answer)
    length = _length_in(unit)
    sentences = {sentence.key: sentence for document in context for sentence in document}
    total = length(sentences.values())
    relevant, utilized = set(checked.relevant_keys), set(checked.utilized_keys)

    def of(keys: set[str]) -> int:
        return length(sentences[key] for key in keys)

    silent = unscorable(REFUSED) if refused else None if answer else unscorable(NO_ANSWER)
    supported = sum(item.is_supported for item in checked.support)
    if not total:
        nothing = unscorable(NO_CONTEXT)
        relevance = utilization = completeness = nothing
    else:
        relevance = scored(of(relevant) / total)
        utilization = silent or scored(of(utilized) / total)
        requested = of(relevant)
        completeness = silent or scored(of(relevant & utilized) / requested if requested else 1.0)
    return TraceScores(
        context_relevance=relevance,
        context_utilization=utilization,
        completeness=completeness,
        adherence=silent or scored(float(supported == len(answer))),
        faithfulness=silent or scored(supported / len(answer)),
    )


def _length_in(unit: Unit) -> Callable[[Iterable[Sentence]], int]:
    if unit == "sentences":
        return lambda sentences: sum(1 for _ in sentences)
    return lambda sentences: sum(len(sentence.text.split()) for sentence in sentences)
