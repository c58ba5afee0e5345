"""Scores of evaluations as conditions on query runs and on their spans, by `score.correctness` or `score.recall@10`."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from evaluation_app.measures.catalogue import CUTS, HEADLINE, MEASURES, find
from evaluation_app.models import EvaluationItem, RunScore
from retrieval_app.runs.score_filter import register_scores

PREFIX = "score."
LOOKUPS = {"==": "", ">": "__gt", ">=": "__gte", "<": "__lt", "<=": "__lte"}
USUAL_CUT = 10
# what a field offers, headline metrics first; others are found by their names
OFFERED = tuple(
    f"{name}@{USUAL_CUT}" if name in CUTS else name
    for name in (*HEADLINE, *(each for each in MEASURES if each not in HEADLINE))
)


def score_condition(column: str, measure: str, op: str = "exists", value: float = 0.0) -> Q:
    """Rows whose query run, named by `column`, has a score that compares so: as a golden question of an evaluation run,
    or from a judge of stored runs. Of several evaluations of one run any will do.

    op: one of LOOKUPS, "!=" or "exists", which asks for a score whatever it is. Raises InvalidInput (field "measure")
    for a measure that the catalogue does not know.
    """
    stored = f"scores__{find(measure).name}__value"
    conditions: dict[str, Any] = {f"{stored}{LOOKUPS[op]}": value} if op in LOOKUPS else {f"{stored}__isnull": False}
    condition = Q(**conditions) & ~Q(**{stored: value}) if op == "!=" else Q(**conditions)
    items = EvaluationItem.objects.filter(condition, query_run__isnull=False).order_by()
    judged = RunScore.objects.filter(condition).order_by()
    runs = items.values_list("query_run").union(judged.values_list("query_run"), all=True)
    return Q(**{f"{column}__in": runs})


def _of_runs(measure: str, below: float | None, above: float | None) -> Q:
    bounds = [(op, bound) for op, bound in (("<", below), (">", above)) if bound is not None]
    condition = Q() if bounds else score_condition("pk", measure)
    for op, bound in bounds:
        condition &= score_condition("pk", measure, op, bound)
    return condition


register_scores("evaluations", OFFERED, _of_runs)
