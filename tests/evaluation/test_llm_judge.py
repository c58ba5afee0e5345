"""The judge that asks a model: what it sends, repairs, keeps, costs, and how each failure is classed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from evaluation_app.judges import llm_judge
from evaluation_app.judges.annotation import PROMPT_HASH, build_messages
from evaluation_app.judges.llm_judge import LlmJudge
from evaluation_app.judges.protocol import MEASURES, NO_QUESTION, Case, Judge, judgement_key
from evaluation_app.measures.scores import NO_ANSWER, NO_CONTEXT, REFUSED, failed, unscorable
from ragd import telemetry
from ragd.conventions import validate_all
from retrieval_app.llm import chat_model
from retrieval_app.llm.chat_model import Endpoint
from tests.builders import WordEmbedder
from tests.evaluation.judge_replies import QUESTION, good_reply, make_case, support, without
from tests.fakes.faults import Fault, connection_reset, failing, not_json, out_of_quota, rate_limited, slow
from tests.fakes.faults import without as lacking
from tests.fakes.judgement_cache import MemoryCache
from tests.fakes.openai_server import BadRequest, OpenAIServer, count_words
from tests.telemetry.conftest import Recorder, provider, recorder  # noqa: F401  (fixtures)
from tests.telemetry.test_conventions import as_dict

CHAT = "/v1/chat/completions"
NOW = {"Retry-After": "0.01"}


@pytest.fixture
def priced() -> Iterator[None]:
    """A dollar for each token read and ten for each that is written."""
    telemetry.configure(pricer=lambda system, model, given, made, cached: telemetry.Cost(given, made * 10.0, "table"))
    yield
    telemetry.configure()


def open_judge(server: OpenAIServer, **values: Any) -> LlmJudge:
    limits = {"timeout_s": values.pop("timeout_s", 5.0), "max_tokens": values.pop("max_tokens", 2000)}
    return LlmJudge("judge-1", Endpoint(server.base_url, "test-key", **limits), WordEmbedder(), **values)


def replying(*replies: Any) -> Callable[[list[dict[str, Any]]], str]:
    """One after the other, the last for ever; what is no text is written as JSON."""
    left = list(replies)

    def reply(messages: list[dict[str, Any]]) -> str:
        given = left.pop(0) if len(left) > 1 else left[0]
        return given if isinstance(given, str) else json.dumps(given)

    return reply


def values_of(scores: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: score.value for name, score in scores.items()}


def test_a_good_reply_becomes_scores(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(good_reply())
    judge: Judge = open_judge(openai_server)
    judgement = judge.judge(make_case())
    assert values_of(judgement.scores) == {
        "context_relevance": pytest.approx(9 / 13),
        "context_utilization": pytest.approx(5 / 13),
        "completeness": pytest.approx(5 / 9),
        "adherence": 0.0,
        "faithfulness": 0.5,
        "answer_relevance": 0.75,
    }
    assert judgement.annotation is not None and judgement.annotation.relevant_keys == ("0a", "0b")
    assert judgement.explanation == "The first sentence tells it.\n\nThe colour is invented."
    assert not judgement.usage["cached"] and judgement.usage["calls"] == 1
    by_sentences = open_judge(openai_server, unit="sentences").judge(make_case())
    assert by_sentences.scores["context_relevance"].value == pytest.approx(2 / 3)


def test_what_the_model_is_sent(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(good_reply())
    open_judge(openai_server, seed=11).judge(make_case())
    (body,) = openai_server.bodies(CHAT)
    assert body["messages"] == build_messages(make_case())
    wanted = {"temperature": 0.0, "seed": 11, "max_tokens": 2000, "response_format": {"type": "json_object"}}
    assert body == {"model": "judge-1", "messages": body["messages"], **wanted}


BAD_REPLIES: dict[str, Any] = {
    "bad_json": "I think the answer is fine.",
    "bad_schema": without(good_reply(), "refused"),
    "unknown_key": good_reply(all_relevant_sentence_keys=["4d"]),
    "contradiction": good_reply(overall_supported=True),
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_faulty_reply_is_shown_its_faults_and_repaired(openai_server: OpenAIServer, kind: str) -> None:
    openai_server.chat_reply = replying(BAD_REPLIES[kind], good_reply())
    judgement = open_judge(openai_server).judge(make_case())
    assert judgement.scores["faithfulness"].value == 0.5
    first, second = openai_server.bodies(CHAT)
    assert second["messages"][:2] == first["messages"]
    faulty, faults = second["messages"][2:]
    assert faulty["role"] == "assistant" and faulty["content"] == replying(BAD_REPLIES[kind])([])
    words = {"bad_json": "one JSON object", "bad_schema": "refused", "unknown_key": "'4d'", "contradiction": "'b'"}
    assert words[kind] in faults["content"]
    assert judgement.usage["calls"] == 2


@pytest.mark.parametrize("kind", BAD_REPLIES)
@pytest.mark.parametrize("repairs_max", [0, 2])
def test_what_stays_faulty_is_an_error_of_its_kind(openai_server: OpenAIServer, kind: str, repairs_max: int) -> None:
    openai_server.chat_reply = replying(BAD_REPLIES[kind])
    judgement = open_judge(openai_server, repairs_max=repairs_max).judge(make_case())
    assert judgement.scores == dict.fromkeys(MEASURES, failed(kind)) and judgement.annotation is None
    assert len(openai_server.requests) == 1 + repairs_max == judgement.usage["calls"]
    assert "no usable annotation" in judgement.explanation


def test_a_reply_that_no_request_can_carry_is_repaired_too(
    openai_server: OpenAIServer,
    recorder: Recorder,  # noqa: F811
) -> None:
    openai_server.chat_reply = replying("half a pair: \ud800", good_reply(relevance_explanation="\x00\ud800 it"))
    judgement = open_judge(openai_server).judge(make_case())
    assert judgement.scores["faithfulness"].value == 0.5 and judgement.explanation.startswith("? it")


def test_the_last_reply_names_the_kind(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying("no", BAD_REPLIES["unknown_key"], BAD_REPLIES["contradiction"])
    assert open_judge(openai_server).judge(make_case()).scores["adherence"] == failed("contradiction")


def test_a_reply_that_was_cut_off_says_so(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(good_reply())
    judgement = open_judge(openai_server, max_tokens=20, repairs_max=1).judge(make_case())
    assert judgement.scores["adherence"] == failed("cut_off")
    assert "limit of 20 tokens" in openai_server.bodies(CHAT)[1]["messages"][3]["content"]


@pytest.mark.parametrize(
    ("faults", "kind", "requests"),
    [
        ([slow(2.0)], "llm_timeout", 1),
        ([rate_limited("0.01")] * 3, "llm_rate_limited", 3),
        ([out_of_quota()], "llm_rate_limited", 1),
        ([failing(500, **NOW)] * 3, "llm_failed", 3),
        ([failing(400)], "llm_failed", 1),
        ([failing(401)], "llm_refused", 1),
        ([connection_reset()] * 3, "llm_unreachable", 3),
        ([not_json()], "llm_bad_answer", 1),
    ],
)
def test_each_failure_of_the_server_has_its_kind(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, faults: list[Fault], kind: str, requests: int
) -> None:
    monkeypatch.setattr(chat_model, "BACKOFF_S", 0.01)
    openai_server.chat_reply = replying(good_reply())
    openai_server.script(*faults)
    timeout_s = 0.3 if kind == "llm_timeout" else 5.0
    cache = MemoryCache()
    judge = open_judge(openai_server, timeout_s=timeout_s, cache=cache)
    judgement = judge.judge(make_case())
    assert judgement.scores == dict.fromkeys(MEASURES, failed(kind))
    assert (len(openai_server.requests), cache.values) == (requests, {})
    assert judgement.usage["input_tokens"] > 0 and judgement.usage["cost_usd"] is None
    assert open_judge(openai_server, cache=cache).judge(make_case()).scores["faithfulness"].value == 0.5


def test_passing_trouble_is_no_error(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(good_reply())
    openai_server.script(rate_limited("0.01"), failing(500, **NOW))
    assert open_judge(openai_server).judge(make_case()).scores["faithfulness"].value == 0.5
    assert len(openai_server.requests) == 3


def test_a_failure_in_a_repair_has_the_kind_of_the_failure(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying("no")
    openai_server.script(Fault(), failing(401))
    judgement = open_judge(openai_server).judge(make_case())
    assert judgement.scores["adherence"] == failed("llm_refused") and judgement.usage["calls"] == 2


def test_a_server_that_takes_no_format_is_asked_without(openai_server: OpenAIServer) -> None:
    good = json.dumps(good_reply())

    def reply(messages: list[dict[str, Any]]) -> str:
        if "response_format" in openai_server.requests[-1].body:
            raise BadRequest(400, "'response_format' is not supported by this model")
        return good

    openai_server.chat_reply = reply
    judge, version = open_judge(openai_server), open_judge(openai_server).version
    assert judge.judge(make_case()).scores["faithfulness"].value == 0.5
    assert judge.judge(make_case("And tea?")).scores["faithfulness"].value == 0.5
    assert ["response_format" in body for body in openai_server.bodies(CHAT)] == [True, False, False]
    assert judge.version == version


def test_a_repeated_run_asks_nothing_and_says_the_same(openai_server: OpenAIServer, priced: None) -> None:
    openai_server.chat_reply = replying("no", good_reply(all_relevant_sentence_keys=["0a."]))
    cache = MemoryCache()
    first = open_judge(openai_server, cache=cache).judge(make_case())
    openai_server.chat_reply = replying(good_reply(answer_relevance=0.0))
    again = open_judge(openai_server, cache=cache).judge(make_case())
    assert (again.scores, again.annotation, again.explanation) == (first.scores, first.annotation, first.explanation)
    assert again.usage == {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0, "cached": True, "calls": 0}
    assert len(openai_server.requests) == 2
    assert json.loads(json.dumps(cache.values)) == cache.values and [len(key) for key in cache.values] == [64]


@pytest.mark.parametrize("change", [{"seed": 8}, {"max_tokens": 1999}, {"wants_json_format": False}])
def test_other_parameters_are_another_judgement(openai_server: OpenAIServer, change: dict[str, Any]) -> None:
    openai_server.chat_reply = replying(good_reply())
    cache = MemoryCache()
    before, after = open_judge(openai_server, cache=cache), open_judge(openai_server, cache=cache, **change)
    before.judge(make_case())
    after.judge(make_case())
    assert (len(openai_server.requests), len(cache.values)) == (2, 2)
    assert before.version != after.version


def test_another_server_and_another_prompt_are_other_judges(
    openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = open_judge(openai_server)
    there = LlmJudge("judge-1", Endpoint("http://127.0.0.1:1/v1", "test-key", 5.0, 2000), WordEmbedder())
    monkeypatch.setattr(llm_judge, "PROMPT_HASH", "sha256:another")
    later = open_judge(openai_server)
    others = [open_judge(openai_server, repairs_max=0).version, open_judge(openai_server, unit="sentences").version]
    assert len({here.version, there.version, later.version, *others}) == 5
    keys = {judgement_key([], "judge-1", judge.stated) for judge in (here, there, later)}
    assert len(keys) == 3


def test_what_the_key_is_made_of() -> None:
    messages = build_messages(make_case())
    key = judgement_key(messages, "m", {"seed": 1, "temperature": 0.0})
    assert key == judgement_key(messages, "m", {"temperature": 0.0, "seed": 1})
    others = [
        judgement_key(messages, "n", {"seed": 1, "temperature": 0.0}),
        judgement_key(messages, "m", {"seed": 2, "temperature": 0.0}),
        judgement_key(build_messages(make_case("Why?")), "m", {"seed": 1, "temperature": 0.0}),
    ]
    assert len({key, *others}) == 4


def test_a_kept_annotation_that_no_longer_passes_is_asked_for_again(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(good_reply())
    cache = MemoryCache()
    judge = open_judge(openai_server, cache=cache)
    judge.judge(make_case())
    (key,) = cache.values
    cache.values[key] = {"old": "shape"}
    assert judge.judge(make_case()).scores["faithfulness"].value == 0.5
    assert len(openai_server.requests) == 2


def test_of_two_judgements_at_once_the_first_stays(openai_server: OpenAIServer) -> None:
    cache = MemoryCache()
    other = open_judge(openai_server, cache=cache)

    def reply(messages: list[dict[str, Any]]) -> str:
        openai_server.chat_reply = replying(good_reply(answer_relevance=1.0))
        other.judge(make_case())  # it is done while this one is still being written
        return json.dumps(good_reply(answer_relevance=0.25))

    openai_server.chat_reply = reply
    judgement = open_judge(openai_server, cache=cache).judge(make_case())
    assert judgement.scores["answer_relevance"].value == 1.0


def test_usage_and_cost_are_summed_over_repairs(openai_server: OpenAIServer, priced: None) -> None:
    openai_server.chat_reply = replying("no no", good_reply())
    usage = open_judge(openai_server).judge(make_case()).usage
    asked = [_read_tokens(body) for body in openai_server.bodies(CHAT)]
    assert usage["input_tokens"] == sum(asked) and usage["output_tokens"] > 2
    assert usage["cost_usd"] == usage["input_tokens"] + 10 * usage["output_tokens"]


def _read_tokens(body: Mapping[str, Any]) -> int:
    return sum(count_words(message["content"]) for message in body["messages"])


def test_usage_that_is_not_reported_is_counted_here(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(good_reply())
    openai_server.script(lacking("usage"))
    usage = open_judge(openai_server).judge(make_case()).usage
    counter = WordEmbedder()
    messages = build_messages(make_case())
    assert usage["input_tokens"] == sum(counter.count_tokens(message["content"]) for message in messages)
    assert usage["output_tokens"] == counter.count_tokens(json.dumps(good_reply()))


def test_a_refusal_is_an_outcome_of_its_own(openai_server: OpenAIServer) -> None:
    info = [support("a", ["supported_without_sentence"]), support("b", ["general"])]
    said = good_reply(
        refused=True,
        answer_relevance=None,
        overall_supported=True,
        sentence_support_information=info,
        all_utilized_sentence_keys=[],
    )
    openai_server.chat_reply = replying(said)
    judgement = open_judge(openai_server).judge(make_case())
    assert judgement.refused and judgement.scores["context_relevance"].value == pytest.approx(9 / 13)
    rest = {name: judgement.scores[name] for name in MEASURES if name != "context_relevance"}
    assert rest == dict.fromkeys(rest, unscorable(REFUSED))


def test_what_cannot_be_judged_is_not_asked(openai_server: OpenAIServer) -> None:
    judge = open_judge(openai_server)
    assert judge.judge(Case.of(" ", ["One."], "Two.")).scores["adherence"] == unscorable(NO_QUESTION)
    empty = judge.judge(Case.of(QUESTION, ["", " "], ""))
    assert empty.scores["context_relevance"] == unscorable(NO_CONTEXT)
    assert empty.scores["answer_relevance"] == empty.scores["adherence"] == unscorable(NO_ANSWER)
    assert set(empty.scores) == set(MEASURES) and openai_server.requests == []


@pytest.mark.fault("EVA-07")
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case.of(QUESTION, [], "One. Two."), NO_CONTEXT),
        (Case.of(QUESTION, ["One."], "Das weiß ich nicht."), REFUSED),
        (replace(Case.of(QUESTION, ["One."], "Ask me for rows."), declined=True), REFUSED),
    ],
)
def test_the_model_is_not_asked_where_nothing_was_found_or_answered(
    case: Case, reason: str, openai_server: OpenAIServer
) -> None:
    judgement = open_judge(openai_server).judge(case)
    assert judgement.scores == dict.fromkeys(MEASURES, unscorable(reason))
    assert judgement.refused is (reason == REFUSED) and openai_server.requests == []


def test_without_an_answer_the_context_alone_is_judged(openai_server: OpenAIServer) -> None:
    openai_server.chat_reply = replying(good_reply(sentence_support_information=[], answer_relevance=None))
    silent = open_judge(openai_server).judge(Case.of(QUESTION, ["One two. Three."], ""))
    assert silent.scores["answer_relevance"] == silent.scores["adherence"] == unscorable(NO_ANSWER)
    assert silent.scores["context_relevance"].value == 1.0


def test_repairs_are_counted_from_nought(openai_server: OpenAIServer) -> None:
    with pytest.raises(ValueError, match="repairs_max"):
        open_judge(openai_server, repairs_max=-1)


def test_every_call_has_a_conformant_span(
    openai_server: OpenAIServer,
    recorder: Recorder,  # noqa: F811
) -> None:
    openai_server.chat_reply = replying("no", good_reply())
    openai_server.script(Fault(), Fault(), failing(401))
    judge = open_judge(openai_server)
    judge.judge(make_case())
    judge.judge(make_case("And tea?"))
    spans = [as_dict(span) for span in recorder.spans]
    assert [span["name"] for span in spans] == ["chat judge-1"] * 3
    assert [span["status"] for span in spans][2] != spans[0]["status"]
    attributes = spans[1]["attributes"]
    assert attributes["gen_ai.request.response_format"] == "json_object"
    assert attributes["gen_ai.request.temperature"] == 0.0 and attributes["gen_ai.request.seed"] == 7
    assert attributes["llm.prompt_template.version"] == PROMPT_HASH
    violations = [item.message for report in validate_all(spans).values() for item in report.violations]
    assert violations == []
