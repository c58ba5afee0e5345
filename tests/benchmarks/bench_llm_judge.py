"""The judge that asks a model, against a server that answers well, badly formed, slowly, with errors, or not at all.

`python -m tests.benchmarks.bench_llm_judge` gives CASES cases, each with a script of its own drawn from MIX with SEED,
to one judge in THREADS threads. The server is a fake on the loopback that keeps to the scripts, so it is known what
each case must come to: its scores, or an error of one kind. Printed: how many of each script came out as what, whether
every score is a finite number or says why not, whether each figure is the one of the annotation that was sent, whether
the calls and tokens of the judgements are those that the server gave out, and the same once more with what was kept.
Nothing here measures how well a model judges.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from django.conf import settings

if not settings.configured:
    settings.configure()  # what reads requests asks for settings; there are no requests and no database here

from evaluation_app.judges.annotation_json import GRADES
from evaluation_app.judges.llm_judge import LlmJudge
from evaluation_app.judges.protocol import MEASURES, Case, Judgement
from evaluation_app.measures.scores import mean
from evaluation_app.measures.trace import Annotation, Support, trace_scores
from retrieval_app.llm.chat_endpoint import Endpoint
from tests.builders import WordEmbedder
from tests.fakes.judgement_cache import MemoryCache
from tests.fakes.openai_server import BadRequest, Message, OpenAIServer, count_words

CASES, THREADS, SEED = 600, 12, 20
TIMEOUT_S, LATE_S, TOO_LATE_S = 4.0, 0.4, 6.0
MAX_TOKENS = 900
SCORED, REFUSAL = "scored", "unscorable: refused"
NUMBER = re.compile(r"case number (\d+)")

# Each call of a case meets the next step; the last one holds for all that follow. Then what the case must come to.
MIX: dict[str, tuple[int, tuple[str, ...], str]] = {
    "good": (28, ("good",), SCORED),
    "good in a code fence, dots in keys": (6, ("fenced",), SCORED),
    "refusal": (6, ("refusal",), REFUSAL),
    "late, in time": (4, ("late",), SCORED),
    "too late": (3, ("too late",), "llm_timeout"),
    "429, then good": (4, ("429", "good"), SCORED),
    "429 for ever": (4, ("429",), "llm_rate_limited"),
    "500 twice, then good": (4, ("500", "500", "good"), SCORED),
    "500 for ever": (4, ("500",), "llm_failed"),
    "400": (2, ("400",), "llm_failed"),
    "reset, then good": (3, ("reset", "good"), SCORED),
    "reset for ever": (2, ("reset",), "llm_unreachable"),
    "a gateway's page": (2, ("page",), "llm_bad_answer"),
    "key refused": (2, ("401",), "llm_refused"),
    "no JSON, then good": (3, ("prose", "good"), SCORED),
    "no JSON for ever": (3, ("prose",), "bad_json"),
    "broken JSON for ever": (2, ("broken",), "bad_json"),
    "cut off for ever": (2, ("long",), "cut_off"),
    "field missing, then good": (3, ("schema", "good"), SCORED),
    "field missing for ever": (2, ("schema",), "bad_schema"),
    "NaN and a grade between, then good": (2, ("nan", "grade", "good"), SCORED),
    "unknown key, then good": (3, ("key", "good"), SCORED),
    "unknown key for ever": (2, ("key",), "unknown_key"),
    "contradiction, then good": (3, ("contradiction", "good"), SCORED),
    "contradiction for ever": (2, ("contradiction",), "contradiction"),
    "no JSON, then 500 for ever": (2, ("prose", "500"), "llm_failed"),
}


@dataclass
class Scripted:
    """One case, what the server says to it, and what it must come to."""

    name: str
    steps: tuple[str, ...]
    expected: str
    case: Case
    good: dict[str, Any]
    met: int = 0
    answered: list[tuple[int, int]] = field(default_factory=list)  # tokens of each call that got a completion

    @property
    def figures(self) -> dict[str, float | None]:
        """What the annotation comes to, counted without the judge."""
        support = tuple(
            Support(item["response_sentence_key"], tuple(item["supporting_sentence_keys"]), item["fully_supported"])
            for item in self.good["sentence_support_information"]
        )
        keys = (self.good["all_relevant_sentence_keys"], self.good["all_utilized_sentence_keys"])
        annotation = Annotation(tuple(keys[0]), tuple(keys[1]), support)
        scores = trace_scores(self.case.context, self.case.answer, annotation)
        values = {name: getattr(scores, name).value for name in MEASURES[:-1]}
        return values | {"answer_relevance": self.good["answer_relevance"]}


def main() -> int:
    cases = draw_cases()
    server = OpenAIServer().start()
    server.chat_reply = Script(cases, server).reply
    cache = MemoryCache()
    endpoint = Endpoint(server.base_url, "test-key", TIMEOUT_S, MAX_TOKENS)
    judge = LlmJudge("judge", endpoint, WordEmbedder(), cache=cache)
    began = time.perf_counter()
    judgements = judge_all(judge, cases)
    took_s = time.perf_counter() - began
    right = print_outcomes(cases, judgements)
    print(f"{len(cases)} cases in {took_s:.1f} s, {len(server.requests)} requests, {THREADS} threads")
    share = f"{right} of {len(cases)}"
    print(f"target every outcome classed rightly: {share}: {_met(right == len(cases))}")
    print_soundness(cases, judgements)
    print_tokens(cases, judgements)
    print_repeat(judge, server, cases, judgements)
    server.stop()
    return 0


def scored_judgements(count: int) -> list[tuple[Case, Judgement]]:
    """The first cases that the server gives an annotation of, and what the judge says of them."""
    cases = [item for item in draw_cases() if item.expected == SCORED]
    server = OpenAIServer().start()
    server.chat_reply = Script(draw_cases(), server).reply
    judge = LlmJudge("judge", Endpoint(server.base_url, "test-key", TIMEOUT_S, MAX_TOKENS), WordEmbedder())
    judgements = judge_all(judge, cases)
    server.stop()
    pairs = [(item.case, judgement) for item, judgement in zip(cases, judgements, strict=True)]
    return [(case, judgement) for case, judgement in pairs if judgement.annotation is not None][:count]


def draw_cases() -> list[Scripted]:
    """CASES cases, each script of MIX at least once."""
    draw = random.Random(SEED)
    weights = [weight for weight, _, _ in MIX.values()]
    names = [*MIX, *draw.choices(list(MIX), weights, k=CASES - len(MIX))]
    draw.shuffle(names)
    return [_draw_case(draw, name, number) for number, name in enumerate(names)]


def _draw_case(draw: random.Random, name: str, number: int) -> Scripted:
    def text(sentences: int) -> str:
        words = ("water", "pump", "filter", "valve", "pressure", "oil", "lasts", "turns", "months", "bar")
        return " ".join(
            " ".join(draw.choices(words, k=draw.randint(3, 9))).capitalize() + "." for _ in range(sentences)
        )

    documents = [text(draw.randint(1, 5)) for _ in range(draw.randint(1, 5))]
    case = Case.of(f"What of case number {number}?", documents, text(draw.randint(1, 4)))
    _, steps, expected = MIX[name]
    return Scripted(name, steps, expected, case, _annotate(draw, case, refused=expected == REFUSAL))


def _annotate(draw: random.Random, case: Case, *, refused: bool) -> dict[str, Any]:
    known = [sentence.key for document in case.context for sentence in document]

    def some() -> list[str]:
        return [key for key in known if draw.random() < 0.4]

    support = []
    for sentence in case.answer:
        keys = draw.choice([some(), ["general"], ["well_known_fact"], []])
        support.append(
            {
                "response_sentence_key": sentence.key,
                "explanation": "so it is",
                "supporting_sentence_keys": keys,
                "fully_supported": bool(keys) and draw.random() < 0.8,
            }
        )
    return {
        "relevance_explanation": "these tell of it",
        "all_relevant_sentence_keys": some(),
        "overall_supported_explanation": "sentence by sentence",
        "overall_supported": all(item["fully_supported"] for item in support),
        "sentence_support_information": support,
        "all_utilized_sentence_keys": some(),
        "refused": refused,
        "answer_relevance": None if refused else draw.choice(GRADES),
    }


class Script:
    """What the server says to each call, by the case that the question names."""

    def __init__(self, cases: Sequence[Scripted], server: OpenAIServer) -> None:
        self.cases = cases
        self.server = server
        self.lock = Lock()

    def reply(self, messages: list[Message]) -> str:
        """The text of the completion; raises what the server answers instead of one."""
        found = NUMBER.search(messages[1]["content"])
        assert found is not None
        item = self.cases[int(found[1])]
        with self.lock:
            step = item.steps[min(item.met, len(item.steps) - 1)]
            item.met += 1
        text = self._meet(step, item)
        written = min(count_words(text), MAX_TOKENS)
        with self.lock:
            item.answered.append((sum(count_words(message["content"]) for message in messages), written))
        return text

    def _meet(self, step: str, item: Scripted) -> str:
        if step.isdigit():
            raise BadRequest(int(step), "the server had an error")
        if step == "reset":
            raise ConnectionResetError
        if step == "page":
            raise BadRequest(200, "", raw=b"<html><body>Gateway</body></html>")
        if step in ("late", "too late"):
            self.server.stopping.wait(LATE_S if step == "late" else TOO_LATE_S)
        return TEXTS[step](item.good)


def _change(**changes: Any) -> Callable[[dict[str, Any]], str]:
    return lambda good: json.dumps(good | changes)


def _lack_field(good: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in good.items() if name != "refused"})


def _fence(good: dict[str, Any]) -> str:
    dotted = [f"{key}." for key in good["all_relevant_sentence_keys"]]
    return f"```json\n{json.dumps(good | {'all_relevant_sentence_keys': dotted}, indent=1)}\n```"


def _contradict(good: dict[str, Any]) -> str:
    return json.dumps(good | {"overall_supported": not good["overall_supported"]})


TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "good": json.dumps,
    "late": json.dumps,
    "too late": json.dumps,
    "refusal": json.dumps,
    "fenced": _fence,
    "prose": lambda good: "The answer rests on the documents as far as I can see.",
    "broken": lambda good: json.dumps(good)[:-2],
    "long": _change(relevance_explanation="very " * (MAX_TOKENS + 1)),
    "schema": _lack_field,
    "nan": _change(answer_relevance=math.nan),
    "grade": _change(answer_relevance=0.6),
    "key": _change(all_utilized_sentence_keys=["0a", "99z"]),
    "contradiction": _contradict,
}


def judge_all(judge: LlmJudge, cases: Sequence[Scripted]) -> list[Judgement]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda item: judge.judge(item.case), cases))


def outcome_of(judgement: Judgement) -> str:
    """SCORED, REFUSAL, the one kind of all errors, or what is wrong about it."""
    states = {score.state for score in judgement.scores.values()}
    reasons = {score.reason for score in judgement.scores.values() if score.state == "error"}
    if states == {"scored"}:
        return SCORED
    if judgement.refused and "error" not in states and judgement.scores["context_relevance"].is_scored:
        return REFUSAL
    return reasons.pop() if states == {"error"} and len(reasons) == 1 else f"mixed: {sorted(states)}"


def print_outcomes(cases: Sequence[Scripted], judgements: Sequence[Judgement]) -> int:
    """How many came out as they had to."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for item, judgement in zip(cases, judgements, strict=True):
        found[item.name][outcome_of(judgement)] += 1
    print(f"{'the server':38} {'cases':>5}  {'must be':20} {'right':>5}  otherwise")
    for name, (_, _, expected) in MIX.items():
        others = ", ".join(f"{times} {other}" for other, times in found[name].items() if other != expected)
        print(f"{name:38} {found[name].total():5}  {expected:20} {found[name][expected]:5}  {others or '-'}")
    return sum(found[name][expected] for name, (_, _, expected) in MIX.items())


def print_soundness(cases: Sequence[Scripted], judgements: Sequence[Judgement]) -> None:
    scores = [score for judgement in judgements for score in judgement.scores.values()]
    odd = sum(score.is_scored and not (score.value is not None and 0 <= score.value <= 1) for score in scores)
    holes = sum(set(judgement.scores) != set(MEASURES) for judgement in judgements)
    print(f"target no NaN, no value outside 0..1: {odd} of {len(scores)} scores: {_met(odd == 0)}")
    print(f"target nothing lost: {holes} judgements without all {len(MEASURES)} scores: {_met(holes == 0)}")
    judged = [(item, found) for item, found in zip(cases, judgements, strict=True) if item.expected == SCORED]
    wrong = sum({name: score.value for name, score in found.scores.items()} != item.figures for item, found in judged)
    print(f"target the figures of the annotation that was sent: {wrong} of {len(judged)} differ: {_met(wrong == 0)}")
    coverage = mean(judgement.scores["adherence"] for judgement in judgements)
    parts = f"{coverage.scored} scored, {coverage.unscorable} unscorable, {coverage.errors} errors of {coverage.total}"
    print(f"adherence: mean {coverage.value}, {parts}")


def print_tokens(cases: Sequence[Scripted], judgements: Sequence[Judgement]) -> None:
    """Of cases in which no call failed for good, because only those calls have counts of the server."""
    pairs = [(item, found) for item, found in zip(cases, judgements, strict=True) if "llm_" not in item.expected]
    given = sum(sum(tokens) for item, _ in pairs for tokens in item.answered)
    counted = sum(found.usage["input_tokens"] + found.usage["output_tokens"] for _, found in pairs)
    print(f"target tokens counted as the server gave them out: {counted} of {given}: {_met(counted == given)}")


def print_repeat(
    judge: LlmJudge, server: OpenAIServer, cases: Sequence[Scripted], judgements: Sequence[Judgement]
) -> None:
    kept = [
        (item, found) for item, found in zip(cases, judgements, strict=True) if outcome_of(found) in (SCORED, REFUSAL)
    ]
    before = len(server.requests)
    again = judge_all(judge, [item for item, _ in kept])
    asked = len(server.requests) - before
    same = sum(
        new.scores == old.scores and new.annotation == old.annotation for new, (_, old) in zip(again, kept, strict=True)
    )
    met = _met(asked == 0 and same == len(kept))
    print(f"target a repeated run asks nothing, same numbers: {asked} requests, {same} of {len(kept)} the same: {met}")


def _met(holds: bool) -> str:
    return "met" if holds else "missed"


if __name__ == "__main__":
    sys.exit(main())
