"""Whether an answer is right: which components of the expected answer it holds (the completeness application).

The expected answer is cut into components, and each is found in a sentence of the answer or missing. No language model
is asked: see `statements`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluation_app.golden.questions import Golden
from evaluation_app.measures.downstream import NOTHING_EXPECTED
from evaluation_app.measures.scores import Score, failed, scored, unscorable
from evaluation_app.measures.trace import key_answer
from evaluation_app.scoring.cases import Outcome
from evaluation_app.scoring.statements import embed_texts, place_of
from ragd.errors import RagdError
from ragd.models.embedding import Embedder

Component = dict[str, Any]


def list_components(expected: str) -> list[str]:
    """The parts of an expected answer that can be found one by one, in its order; [] for a blank one."""
    return [item.text.strip() for item in key_answer(expected) if item.text.strip()]


def measure_correctness(
    answer_sentences: Sequence[Sequence[str]], outcome: Outcome, golden: Golden, embedder: Embedder, silent: str = ""
) -> tuple[Score, list[Component]]:
    """(the score, its components [{"text", "found", "by": key of the answer's sentence or ""}]).

    The share of the components that the answer holds; 0 where an expected answer was declined. Of a question that must
    be declined 1 when it was, 0 when it was answered. Unscorable without an expected answer, and for the reason
    `silent` where nobody tried to answer. An error of the kind "embedder" when that fails.
    """
    components = list_components(golden.expected_answer)
    if silent and outcome != "abstained":
        return unscorable(silent), []
    if not components:
        if not golden.expects_nothing:
            return unscorable(NOTHING_EXPECTED), []
        return scored(float(outcome == "abstained")), []
    if outcome == "abstained":
        return scored(0.0), [_component(text, "") for text in components]
    try:
        found = _find_components(components, [(str(key), str(text)) for key, text in answer_sentences], embedder)
    except RagdError:
        return failed("embedder"), []
    return scored(sum(bool(by) for by in found) / len(found)), list(map(_component, components, found))


def _component(text: str, by: str) -> Component:
    return {"text": text, "found": bool(by), "by": by}


def _find_components(components: Sequence[str], answer: Sequence[tuple[str, str]], embedder: Embedder) -> list[str]:
    """Per component the key of the answer's sentence that holds it, "" for none."""
    filled = [(key, text) for key, text in answer if text.strip()]
    texts = [text for _, text in filled]
    vectors = embed_texts(embedder, [*components, *texts])
    places = [place_of(texts, component, vectors) for component in components]
    return ["" if place is None else filled[place][0] for place in places]
