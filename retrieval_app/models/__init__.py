"""Runs, saved plans, calibrations, threads of the chat."""

from retrieval_app.models.calibrations import Calibration
from retrieval_app.models.chats import ChatAssistant, ChatMessage, ChatThread
from retrieval_app.models.plans import SavedPlan, SavedPlanQuerySet
from retrieval_app.models.runs import QueryRun, QueryRunQuerySet, RetrievedChunk

__all__ = [
    "Calibration",
    "ChatAssistant",
    "ChatMessage",
    "ChatThread",
    "QueryRun",
    "QueryRunQuerySet",
    "RetrievedChunk",
    "SavedPlan",
    "SavedPlanQuerySet",
]
