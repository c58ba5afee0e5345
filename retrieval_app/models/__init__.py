"""Runs, saved plans, calibrations, threads of the chat."""

from retrieval_app.chat.models import ChatAssistant, ChatMessage, ChatThread
from retrieval_app.plans.models import Calibration, SavedPlan, SavedPlanQuerySet
from retrieval_app.runs.models import QueryRun, QueryRunQuerySet, RetrievedChunk

__all__ = [
    "Calibration", "ChatAssistant", "ChatMessage", "ChatThread", "QueryRun", "QueryRunQuerySet", "RetrievedChunk",
    "SavedPlan", "SavedPlanQuerySet",
]  # fmt: skip
