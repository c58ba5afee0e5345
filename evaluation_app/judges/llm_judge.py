"""A judge that asks a language model for RAGBench's annotation, and one for the components that an answer holds.

The model says which sentences are relevant, used and supported; the figures are counted here, as for every judge. What
it says is checked whole; faults are shown to it a set number of times, and after that each score is an error of the
fault's kind.

Question, expected answer and answer reach it between marks, as quoted material.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collections_app.errors import ServiceError
from evaluation_app.judges.annotation import (
    PROMPT_HASH,
    PROMPTS,
    QUESTION,
    AnnotationFaults,
    Fault,
    JudgedAnswer,
    Message,
    build_messages,
    build_repair,
    check_answer,
    read_reply,
)
from evaluation_app.judges.protocol import (
    MEASURES,
    NO_QUESTION,
    Case,
    HeldComponents,
    Judgement,
    JudgementCache,
    is_refusal,
    judgement_key,
)
from evaluation_app.measures.scores import (
    NO_ANSWER,
    NO_CONTEXT,
    REFUSED,
    Annotation,
    Score,
    Support,
    Unit,
    failed,
    scored,
    trace_scores,
    unscorable,
)
from ragd import telemetry
from ragd.telemetry import hash_prompt
from retrieval_app.llm.chat_model import (
    SEED,
    TEMPERATURE,
    ChatModel,
    Endpoint,
    ModelAnswer,
    ModelParameters,
    TokenCounter,
    call_model,
)

REPAIRS_MAX = 2
JSON_FORMAT = "json_object"
FREE: Mapping[str, Any] = {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0, "cached": False, "calls": 0}


@dataclass(slots=True)
class _Usage:
    """What the calls of one judgement took. A failed call counts the tokens of its prompt as they are counted here."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0

    def add(self, input_tokens: int, output_tokens: int = 0) -> None:
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self.calls += 1

    def as_dict(self, cost_usd: float | None) -> dict[str, Any]:
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": cost_usd,
            "cached": False,
            "calls": self.calls,
        }


class _JudgingError(Exception):
    """No annotation. kind: of the model call's error, or of what is wrong with the last reply."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class LlmJudge:
    """Judges with a chat model behind any OpenAI-compatible endpoint, at temperature 0 with a seed.

    endpoint: its timeout_s bounds each call (a judgement makes at most 1 + repairs_max, one more where the server does
    not take `response_format`), its max_tokens the annotation. cache: None keeps nothing. Only accepted annotations
    are kept, so a run asks again for what failed. unit: of the lengths in TRACe, see `trace_scores`.

    Errors have the kinds "llm_timeout", "llm_rate_limited", "llm_refused" (the key), "llm_unreachable", "llm_failed",
    "llm_bad_answer" (see `chat_model.complete`), and after the last repair "bad_json", "cut_off" (at max_tokens),
    "bad_schema", "unknown_key" or "contradiction". May be used by several threads.
    """

    name = "llm"

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        counter: TokenCounter,
        *,
        cache: JudgementCache | None = None,
        repairs_max: int = REPAIRS_MAX,
        seed: int = SEED,
        unit: Unit = "tokens",
        wants_json_format: bool = True,
    ) -> None:
        if repairs_max < 0:
            raise ValueError(f"repairs_max must be at least 0, not {repairs_max}")
        self.model = model
        self.endpoint = endpoint
        self.counter = counter
        self.cache = cache
        self.repairs_max = repairs_max
        self.seed = seed
        self.unit = unit
        self.takes_format = wants_json_format  # until the server says that it does not
        # The server's address counts, because two servers may call different models by one name.
        self.stated: dict[str, Any] = {
            "temperature": TEMPERATURE,
            "seed": seed,
            "max_tokens": endpoint.max_tokens,
            "response_format": JSON_FORMAT if wants_json_format else None,
            "base_url": endpoint.base_url,
            "prompt_hash": PROMPT_HASH,
        }
        self.version = f"{model} {self._digest()}"

    def judge(self, case: Case) -> Judgement:
        """The model is not asked, and everything is unscorable, without a question, without words of context, and where
        the answer declines."""
        without = _unscorables(case, self.unit)
        if not case.question.strip():
            return Judgement(dict.fromkeys(MEASURES, unscorable(NO_QUESTION)), None, usage=FREE)
        refused = is_refusal(case)
        if refused or without.get("context_relevance"):
            reason = unscorable(REFUSED if refused else NO_CONTEXT)
            return Judgement({name: without.get(name, reason) for name in MEASURES}, None, refused=refused, usage=FREE)
        if len(without) == len(MEASURES):
            return Judgement(without, None, usage=FREE)
        messages = build_messages(case)
        key = judgement_key(messages, self.model, self.stated)
        if (judged_answer := self._find_kept(key, case)) is not None:
            return self._judgement(case, judged_answer, {**FREE, "cached": True})
        usage = _Usage()
        try:
            with telemetry.spending() as spent:
                value, answer = self._ask(case, messages, usage)
        except _JudgingError as error:
            scores = {name: without.get(name, failed(error.kind)) for name in MEASURES}
            return Judgement(scores, None, usage=usage.as_dict(spent.total_usd), explanation=str(error))
        if self.cache is not None and (first := self.cache.put(key, self.model, value)) != value:
            answer = _accepted(first, case) or answer
        return self._judgement(case, answer, usage.as_dict(spent.total_usd))

    def _digest(self) -> str:
        statements = [self.model, self.stated, self.unit, self.repairs_max]
        return hashlib.sha256(json.dumps(statements, sort_keys=True).encode()).hexdigest()[:12]

    def _find_kept(self, key: str, case: Case) -> JudgedAnswer | None:
        stored = self.cache.get(key) if self.cache is not None else None
        return None if stored is None else _accepted(stored, case)

    def _ask(self, case: Case, messages: list[Message], usage: _Usage) -> tuple[dict[str, Any], JudgedAnswer]:
        """The object that the model gave, and what it says. Raises _JudgingError."""
        prompt, faults = messages, AnnotationFaults([])
        for _ in range(1 + self.repairs_max):
            reply = self._call(case, prompt, usage)
            try:
                value = read_reply(reply.completion.text)
                return value, check_answer(value, case)
            except AnnotationFaults as result:
                faults = self._named(result, reply)
            prompt = build_repair(messages, reply.completion.text, faults.faults)
        raise _JudgingError(faults.kind, f"the model {self.model!r} gave no usable annotation: {faults}")

    def _named(self, annotation_faults: AnnotationFaults, reply: ModelAnswer) -> AnnotationFaults:
        """No JSON because the limit of tokens cut it off is a fault of its own: other words help, other JSON not."""
        if annotation_faults.kind != "bad_json" or reply.usage.finish_reason != "length":
            return annotation_faults
        limit = self.endpoint.max_tokens
        message = f"the reply was cut off at the limit of {limit} tokens; keep every explanation to a few words"
        return AnnotationFaults([Fault("cut_off", message)])

    def _call(self, case: Case, messages: Sequence[Message], usage: _Usage) -> ModelAnswer:
        """Asks for a JSON object as long as the server takes that option. Raises _JudgingError."""
        estimated = sum(self.counter.count_tokens(message["content"]) for message in messages)
        with_format = self.takes_format
        try:
            answer = self._send(case, messages, estimated, with_format=with_format)
        except ServiceError as error:
            usage.add(estimated)
            if not (with_format and error.type == "llm_failed" and "response_format" in error.message):
                raise _JudgingError(error.type, error.message) from error
            self.takes_format = False
            return self._call(case, messages, usage)
        usage.add(answer.usage.context_tokens, answer.usage.generation_tokens)
        return answer

    def _send(self, case: Case, messages: Sequence[Message], estimated: int, *, with_format: bool) -> ModelAnswer:
        parameters = ModelParameters(
            temperature=TEMPERATURE, seed=self.seed, response_format=JSON_FORMAT if with_format else None
        )
        return call_model(
            ChatModel(self.endpoint, self.model, self.counter),
            messages,
            estimated=estimated,
            parameters=parameters,
            template=telemetry.PromptTemplate(QUESTION, {"question": case.question}, PROMPT_HASH),
        )

    def _judgement(self, case: Case, answer: JudgedAnswer, usage: Mapping[str, Any]) -> Judgement:
        scores = _trace(case, answer.annotation, self.unit, refused=answer.refused)
        if not case.answer:
            relevance = unscorable(NO_ANSWER)
        elif answer.answer_relevance is None:
            relevance = unscorable(REFUSED)
        else:
            relevance = scored(answer.answer_relevance)
        explanation = "\n\n".join(filter(None, (answer.relevance_explanation, answer.support_explanation)))
        return Judgement(
            scores | {"answer_relevance": relevance}, answer.annotation, answer.refused, usage=usage,
            explanation=explanation,
        )  # fmt: skip


def _accepted(value: Mapping[str, Any], case: Case) -> JudgedAnswer | None:
    """What a kept annotation says; None when today's checks no longer accept it, and the model is asked again."""
    try:
        return check_answer(value, case)
    except AnnotationFaults:
        return None


def _trace(case: Case, annotation: Annotation, unit: Unit, *, refused: bool) -> dict[str, Score]:
    return trace_scores(case.context, case.answer, annotation, unit=unit, refused=refused).by_name()


def _unscorables(case: Case, unit: Unit) -> dict[str, Score]:
    """The scores that no annotation could give, because the case has no context or no answer."""
    support = tuple(Support(key) for key in dict.fromkeys(sentence.key for sentence in case.answer))
    scores = _trace(case, Annotation(support=support), unit, refused=False)
    if not case.answer:
        scores["answer_relevance"] = unscorable(NO_ANSWER)
    return {name: score for name, score in scores.items() if not score.is_scored}


ROLE, RULES = PROMPTS["components"]["role"], PROMPTS["components"]["rules"]
COMPONENTS_PROMPT_HASH = hash_prompt(f"{ROLE}\n{RULES}")
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
            "base_url": endpoint.base_url, "prompt_hash": COMPONENTS_PROMPT_HASH,
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
