"""All rubrics of a set, of one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluation_app.measures.scores import Score, unscorable
from evaluation_app.rubrics.checks import check_code, check_json, check_regex
from evaluation_app.rubrics.definitions import Rubric
from evaluation_app.rubrics.prompt_rubric import Graded, Grader

NO_MODEL = "no chat model is set up"


@dataclass(frozen=True, slots=True)
class RubricScores:
    """scores: "rubric:NAME" -> Score. reasons: what a model said of its grades, by measure. usages: of its calls."""

    scores: Mapping[str, Score] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    usages: Sequence[Mapping[str, Any]] = ()


def score_rubrics(
    rubrics: Sequence[Rubric],
    grader: Grader | None,
    *,
    question: str,
    answer: str,
    context: Sequence[str],
    expected: str,
    silent: str = "",
) -> RubricScores:
    """grader: None without a chat model, then rubrics in words are unscorable. silent: why nothing was answered, ""
    where something was: then all are unscorable for that reason."""
    graded = {
        rubric.measure: Graded(unscorable(silent))
        if silent
        else _grade(rubric, grader, question, answer, context, expected)
        for rubric in rubrics
    }
    return RubricScores(
        {name: each.score for name, each in graded.items()},
        {name: each.reason for name, each in graded.items() if each.reason},
        [each.usage for each in graded.values() if each.usage],
    )


def _grade(
    rubric: Rubric, grader: Grader | None, question: str, answer: str, context: Sequence[str], expected: str
) -> Graded:
    if rubric.kind == "regex":
        return Graded(check_regex(rubric, answer))
    if rubric.kind == "json":
        return Graded(check_json(rubric, answer))
    if rubric.kind == "code":
        return Graded(check_code(rubric, question, answer, context, expected))
    if grader is None:
        return Graded(unscorable(NO_MODEL))
    return grader.grade(rubric, question, answer, context, expected)
