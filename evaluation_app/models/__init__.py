"""The span store, metrics, golden questions, evaluation runs, reviews."""

from evaluation_app.models.alerts import Alert, AlertRule, Webhook
from evaluation_app.models.golden import GoldenQuestion, GoldenSet, GoldenSetVersion, PromotionGate
from evaluation_app.models.results import Experiment, GapDismissal, RunComparison
from evaluation_app.models.reviews import BoardCard, Review, ReviewTask
from evaluation_app.models.runs import EvaluationItem, EvaluationRun, KeptJudgement, RunScore, Sampling
from evaluation_app.models.spans import Span, SpanRollup, SpanWriter

__all__ = [
    "Alert",
    "AlertRule",
    "BoardCard",
    "EvaluationItem",
    "EvaluationRun",
    "Experiment",
    "GapDismissal",
    "GoldenQuestion",
    "GoldenSet",
    "GoldenSetVersion",
    "KeptJudgement",
    "PromotionGate",
    "Review",
    "ReviewTask",
    "RunComparison",
    "RunScore",
    "Sampling",
    "Span",
    "SpanRollup",
    "SpanWriter",
    "Webhook",
]
