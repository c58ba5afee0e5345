"""A thread as a file: Markdown to read, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from retrieval_app.models import ChatMessage, ChatThread, QueryRun


def as_markdown(thread: ChatThread, messages: Sequence[ChatMessage]) -> str:
    """The title as a heading, then each question as one, its answer and its cited sources as a numbered list."""
    parts = [f"# {thread.title}\n"]
    for message in messages:
        parts.append(f"## {' '.join(message.question.split())}\n")
        run = message.run
        if run is None:
            continue
        parts.append(f"{run.answer if run.answer is not None else run.error}\n")
        cited = [source for source in run.sources if source["cited"]]
        if cited:
            parts.append("\n".join(f"{source['marker']}. {name_source(source)}" for source in cited) + "\n")
    return "\n".join(parts)


def as_json(thread: ChatThread, messages: Sequence[ChatMessage]) -> str:
    """{"id", "title", "created_at", "messages": [{"question", "query", "answer", "status", "citations", ...}]}."""
    body = {
        "id": str(thread.pk),
        "title": thread.title,
        "created_at": thread.created_at.isoformat(),
        "messages": [describe_message(message) for message in messages],
    }
    return json.dumps(body, ensure_ascii=False, indent=2) + "\n"


def describe_message(message: ChatMessage) -> dict[str, Any]:
    """A message with what its run says; only the question and the run's id where the run cannot be read."""
    run = message.run
    body: dict[str, Any] = {
        "question": message.question,
        "run_id": str(message.run_id),
        "created_at": message.created_at.isoformat(),
    }
    return body if run is None else body | _describe_run(run)


def _describe_run(run: QueryRun) -> dict[str, Any]:
    return {
        "query": run.query,
        "collection": run.collection_name,
        "status": run.status,
        "answer": run.answer,
        "answerer": run.answerer,
        "error": run.error,
        "citations": run.citations,
        "sources": run.sources,
    }


def name_source(source: dict[str, Any]) -> str:
    """Title, document ID and place of a source, in one line."""
    title, place = source.get("title") or "", source.get("place") or ""
    named = f"{title} ({source['doc_id']})" if title and title != source["doc_id"] else source["doc_id"]
    return f"{named}, {place}" if place else str(named)
