"""The earlier turns of a conversation, as a chat model reads them."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval_app.models import ChatMessage, QueryRun

HISTORY_CHARS_MAX = 20_000


def fit_history(history: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The latest turns that have at most HISTORY_CHARS_MAX characters together, in their order."""
    selected: list[dict[str, str]] = []
    chars = 0
    for turn in reversed(history):
        chars += len(turn["content"])
        if chars > HISTORY_CHARS_MAX:
            break
        selected.append(turn)
    return selected[::-1]


def turns_of(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """[{"role", "content"}] of the messages that were answered, the latest as far as they fit."""
    turns = []
    for message in messages:
        if message.run is not None and message.run.status == QueryRun.Status.OK and message.run.answer:
            turns.append({"role": "user", "content": message.question})
            turns.append({"role": "assistant", "content": message.run.answer})
    return fit_history(turns)
