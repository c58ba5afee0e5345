"""Runs, saved plans, calibrations."""

from retrieval_app.models.calibrations import Calibration
from retrieval_app.models.plans import SavedPlan, SavedPlanQuerySet
from retrieval_app.models.runs import QueryRun, QueryRunQuerySet, RetrievedChunk

__all__ = ["Calibration", "QueryRun", "QueryRunQuerySet", "RetrievedChunk", "SavedPlan", "SavedPlanQuerySet"]
