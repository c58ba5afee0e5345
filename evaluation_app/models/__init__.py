"""The span store, metrics, golden questions, evaluation runs, reviews."""

from evaluation_app.models.golden import (
    BoardCard,
    GoldenQuestion,
    GoldenSet,
    GoldenSetVersion,
    PromotionGate,
    Review,
    ReviewTask,
)
from evaluation_app.models.runs import (
    EvaluationItem,
    EvaluationRun,
    Experiment,
    GapDismissal,
    KeptJudgement,
    RunComparison,
    RunScore,
    Sampling,
)
from evaluation_app.models.spans import Alert, AlertRule, Span, SpanRollup, Webhook

__all__ = [
    "Alert", "AlertRule", "BoardCard", "EvaluationItem", "EvaluationRun", "Experiment", "GapDismissal",
    "GoldenQuestion", "GoldenSet", "GoldenSetVersion", "KeptJudgement", "PromotionGate", "Review", "ReviewTask",
    "RunComparison", "RunScore", "Sampling", "Span", "SpanRollup", "Webhook",
]  # fmt: skip
