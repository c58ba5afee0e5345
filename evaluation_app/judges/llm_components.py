"""A language model says which components of an expected answer an answer holds. What it said is kept like judgements.

Question, expected answer and answer reach it between marks, as quoted material."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collections_app.errors import ServiceError
from evaluation_app.judges.annotation import PROMPTS, AnnotationFaults, read_reply
from evaluation_app.judges.protocol import HeldComponents, JudgementCache, judgement_key
from ragd import telemetry
from ragd.telemetry import hash_prompt
from retrieval_app.llm.chat_model import (
    SEED,
    TEMPERATURE,
    ChatModel,
    Endpoint,
    ModelParameters,
    TokenCounter,
    call_model,
)

ROLE, RULES = PROMPTS["components"]["role"], PROMPTS["components"]["rules"]
PROMPT_HASH = hash_prompt(f"{ROLE}\n{RULES}")
ATTEMPTS = 2


class LlmComponents:
    """A `ComponentJudge` behind any OpenAI-compatible endpoint, at temperature 0 with a seed.

    Errors have the kinds of the model call (see `chat_model.complete`), "bad_json" for a reply that is no JSON
    object, and "bad_schema" for one that does not name a known key, or "", per component; both after ATTEMPTS.
    """

    def __init__(self, model: str, endpoint: Endpoint, counter: TokenCounter, cache: JudgementCache | None) -> None:
        self.model, self.endpoint, self.counter, self.cache = model, endpoint, counter, cache
        self.stated: dict[str, Any] = {
            "temperature": TEMPERATURE, "seed": SEED, "max_tokens": endpoint.max_tokens,
            "base_url": endpoint.base_url, "prompt_hash": PROMPT_HASH,
        }  # fmt: skip

    def components_held(
        self, question: str, expected: Sequence[str], answer: Sequence[tuple[str, str]]
    ) -> HeldComponents:
        messages = _messages(question, expected, answer)
        keys = {key for key, _ in answer}
        cache_key = judgement_key(messages, self.model, self.stated)
        kept = self.cache.get(cache_key) if self.cache is not None else None
        if kept is not None and (by := _read(kept, len(expected), keys)) is not None:
            return HeldComponents(by, usage={"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0, "calls": 0})
        usage = {"input_tokens": 0, "output_tokens": 0, "calls": 0}
        with telemetry.spending() as spent:
            by, error = self._ask(messages, len(expected), keys, usage)
        if not error and self.cache is not None:
            first = self.cache.put(cache_key, self.model, {"held_by": list(by)})
            by = _read(first, len(expected), keys) or by
        return HeldComponents(by, error, usage | {"cost_usd": spent.total_usd})

    def _ask(
        self, messages: Sequence[Mapping[str, str]], count: int, keys: set[str], usage: dict[str, int]
    ) -> tuple[tuple[str, ...], str]:
        """(per component the key, the kind of the error); one of the two is empty."""
        prompt, error = list(messages), "bad_schema"
        for _ in range(ATTEMPTS):
            estimated = sum(self.counter.count_tokens(message["content"]) for message in prompt)
            usage["calls"] += 1
            try:
                reply = call_model(ChatModel(self.endpoint, self.model, self.counter), prompt, estimated=estimated,
                    parameters=ModelParameters(temperature=TEMPERATURE, seed=SEED),
                )  # fmt: skip
            except ServiceError as failure:
                usage["input_tokens"] += estimated
                return (), failure.type
            usage["input_tokens"] += reply.usage.context_tokens
            usage["output_tokens"] += reply.usage.generation_tokens
            try:
                value = read_reply(reply.completion.text)
            except AnnotationFaults as faults:
                error = faults.kind
            else:
                if (by := _read(value, count, keys)) is not None:
                    return by, ""
                error = "bad_schema"
            fault = f'"held_by" must be a list of {count} texts, each one of {", ".join(sorted(keys))}, or "".'
            prompt = [*messages, {"role": "user", "content": f"Your reply could not be used. {fault}"}]
        return (), error


def _messages(question: str, expected: Sequence[str], answer: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    components = "\n".join(f"[{number}] {_one_line(text)}" for number, text in enumerate(expected, 1))
    sentences = "\n".join(f"[{key}] {_one_line(text)}" for key, text in answer)
    text = (
        f"<question>\n{_one_line(question)}\n</question>\n<expected>\n{components}\n</expected>\n"
        f"<answer>\n{sentences}\n</answer>"
    )
    return [{"role": "system", "content": f"{ROLE}\n\n{RULES}"}, {"role": "user", "content": text}]


def _one_line(text: str) -> str:
    """Without line breaks and marks, so that no text can look like another part."""
    return " ".join(text.split()).replace("<", "\u2039")


def _read(value: Mapping[str, Any], count: int, keys: set[str]) -> tuple[str, ...] | None:
    """Per component the key, "" for none; None for an object of another shape."""
    by = value.get("held_by")
    if not isinstance(by, list) or len(by) != count or not all(isinstance(item, str) for item in by):
        return None
    named = tuple(item.strip().strip("[]") for item in by)
    return named if all(item in keys or not item for item in named) else None
