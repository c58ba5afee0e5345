"""What the doors answer with, built from a run: one shape for REST, MCP and the command line."""

from __future__ import annotations

from typing import Any

from ragd.types import canonical_json
from retrieval_app.models import QueryRun, SavedPlan


def search_response(run: QueryRun) -> dict[str, Any]:
    """results in rank order. run_id is None when the run could not be stored."""
    return {
        "results": run.results,
        "run_id": str(run.pk) if run.pk else None,
        "mode": run.plan["mode"],
        "short_result": run.short_result,
        "exact": run.exact_used,
        "generation": run.generation,
        "timings_ms": run.timings_ms,
        "trace_id": run.trace_id or None,
        "plan_name": run.plan_name or None,
        "plan_hash": run.plan_hash,
        "compression": run.compression,
        "cost_usd": run.cost_usd,
    }


def ask_response(run: QueryRun) -> dict[str, Any]:
    """The answer, its sources by marker, its checked citations, and the results that it was made from."""
    return {
        "answer": run.answer,
        "status": run.status,
        "sources": run.sources,
        "citations": run.citations,
        "sentences": run.sentences,
        "removed_citations": run.removed_citations,
        "answerer": run.answerer,
        "evidence": run.evidence,
        "retrieval_confidence": run.retrieval_confidence,
        "retrieval_action": run.retrieval_action or None,
        "fallback_triggered": run.fallback_triggered,
        "token_usage": run.token_usage,
    } | search_response(run)


def run_summary(run: QueryRun) -> dict[str, Any]:
    """A run as it stands in a list: without the texts of its results."""
    return {
        "run_id": str(run.pk),
        "kind": run.kind,
        "collection": run.collection_name,
        "query": run.query,
        "answer": run.answer,
        "status": run.status,
        "error": {"type": run.error_type, "message": run.error} if run.error else None,
        "mode": run.plan.get("mode"),
        "plan_hash": run.plan_hash,
        "plan_name": run.plan_name or None,
        "answerer": run.answerer or None,
        "retrieved_ids": run.retrieved_ids,
        "token_usage": run.token_usage,
        "cost_usd": run.cost_usd,
        "risk_score": run.risk_score,
        "took_ms": run.took_ms,
        "door": run.door,
        "user": run.user.get_username() if run.user else None,
        "api_key": run.api_key_label or None,
        "trace_id": run.trace_id or None,
        "created_at": run.created_at.isoformat(),
    }


def run_response(run: QueryRun) -> dict[str, Any]:
    """A whole run: the minimal logging fields under their own names, and everything else that was kept.

    citations are document ids, each once; citation_details says where each one stands and points.
    """
    return run_summary(run) | {
        "citations": run.cited_ids,
        "citation_details": run.citations,
        "trace_scores": run.trace_scores,
        "retrieval_confidence": run.retrieval_confidence,
        "doc_contribution_scores": run.doc_contribution_scores,
        "retrieval_action": run.retrieval_action or None,
        "fallback_triggered": run.fallback_triggered,
        "correction": run.correction,
        "evidence": run.evidence,
        "plan": run.plan,
        "generation": run.generation,
        "embed_model": run.embed_model,
        "spec_version": run.spec_version,
        "results": run.results,
        "lists": run.lists,
        "short_result": run.short_result,
        "exact": run.exact_used,
        "compression": run.compression,
        "sources": run.sources,
        "sentences": run.sentences,
        "removed_citations": run.removed_citations,
        "system_prompt": run.system_prompt or None,
        "history": run.history,
        "replay_of": str(run.replay_of) if run.replay_of else None,
        "findings": run.findings,
        "timings_ms": run.timings_ms,
    }


def plan_response(saved: SavedPlan) -> dict[str, Any]:
    """A saved plan under its collection's name."""
    return {
        "collection": saved.collection.name,
        "name": saved.name,
        "plan": saved.plan,
        "plan_hash": saved.retrieve_plan.hash,
        "description": saved.description,
        "is_default": saved.is_default,
        "created_by": saved.created_by,
        "created_at": saved.created_at.isoformat(),
        "updated_at": saved.updated_at.isoformat(),
    }


def encode(body: Any) -> str:
    """The body as every door sends it: sorted keys, no spaces."""
    return canonical_json(body)
