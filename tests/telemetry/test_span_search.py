"""Finding stored spans: filters, the filter language, pages, neighbours, counts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from collections_app.access.models import CollectionScope
from evaluation_app.models import EvaluationItem, EvaluationRun, RunScore, Span
from evaluation_app.telemetry.search import search as span_histograms
from evaluation_app.telemetry.search.language import complete, forget_seen
from evaluation_app.telemetry.search.search import (
    BARS_MAX,
    STEPS,
    SlowSearch,
    SpanFilter,
    SpanPage,
    count_spans,
    facet_counts,
    neighbours,
    parse_filter,
    search_spans,
    slowest_spans,
    step_of,
)
from evaluation_app.telemetry.store.exporter import span_columns
from ragd.errors import InvalidInput

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
RUN = UUID("00000000-0000-0000-0000-000000000001")
OTHER_RUN = UUID("00000000-0000-0000-0000-000000000002")
JUDGED_RUN = UUID("00000000-0000-0000-0000-000000000003")
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine that tests run on."""
    monkeypatch.setattr(span_histograms, "STATEMENT_MIN_S", 60)


def make_span(name: str, at_ms: int, took_ms: float, **values: object) -> Span:
    """One stored span with the columns that the exporter would fill. attributes, status, description, scope, ..."""
    attributes = values.pop("attributes", {})
    assert isinstance(attributes, dict)
    started_at = NOON + timedelta(milliseconds=at_ms)
    scope, description = str(values.pop("scope", "ragd")), str(values.pop("description", ""))
    columns = span_columns(name, scope, description, attributes)._asdict()
    return Span.objects.create(
        trace_id="a" * 32, span_id=f"{at_ms:016x}", name=name, kind=values.pop("kind", "INTERNAL"), scope=scope,
        service="ragd-web", started_at=started_at, ended_at=started_at + timedelta(milliseconds=took_ms),
        duration_ms=took_ms, status_code=values.pop("status", "OK"), status_description=description,
        attributes=attributes, collection=attributes.get("ragd.collection", ""), **columns, **values,
    )  # fmt: skip


@pytest.fixture
def spans(module_spans: None, db: None) -> Iterator[None]:
    forget_seen()
    yield
    forget_seen()


@pytest.fixture(scope="module")
def module_spans(module_db: None) -> None:
    house, shed = {"ragd.collection": "house"}, {"ragd.collection": "shed"}
    make_span("GET /v1", 0, 900, scope="opentelemetry.django", kind="SERVER", attributes={"url.path": "/v1"})
    make_span(
        "rag.pipeline house", 1, 800, run_id=RUN,
        attributes=house | {"openinference.span.kind": "CHAIN", "input.value": "Which Pump moves the WATER?",
                            "ragd.api_key": "site", "aitf.security.risk_score": 40.0},
    )  # fmt: skip
    make_span(
        "rag.retrieve postgresql+pgvector", 2, 600, kind="CLIENT",
        attributes=house | {"openinference.span.kind": "RETRIEVER", "aitf.rag.retrieve.top_k": 12,
                            "retrieval.documents.0.document.id": "pump.md#3",
                            "retrieval.documents.0.document.content": "a zebra in the text"},
    )  # fmt: skip
    make_span(
        "chat gpt-4o", 3, 100, kind="CLIENT",
        attributes=house | {"openinference.span.kind": "LLM", "gen_ai.request.model": "gpt-4o",
                            "gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 20,
                            "gen_ai.request.temperature": 0.5, "aitf.cost.total_cost": 0.02,
                            "gen_ai.response.finish_reasons": ["stop", "length"], "gen_ai.request.stream": True},
    )  # fmt: skip
    make_span(
        "chat gpt-4o", 4, 100, kind="CLIENT", status="ERROR", description="TimeoutError: the model was too slow",
        run_id=OTHER_RUN,
        attributes=shed | {"openinference.span.kind": "LLM", "gen_ai.request.model": "gpt-4o",
                           "gen_ai.usage.input_tokens": 5, "error.type": "TimeoutError"},
    )  # fmt: skip
    make_span(
        "rag.lexical", 5, 3, run_id=JUDGED_RUN, attributes=shed | {"openinference.span.kind": "CHAIN", "ragd.pool": 50}
    )
    add_scores()


def add_scores() -> None:
    """Of the runs of three spans: as golden questions of an evaluation run, and as a judge found of a stored run."""
    evaluation = EvaluationRun.objects.create(
        set_name="set", set_version=1, set_digest="d", collection_name="house", plan_hash="p"
    )
    for position, (run, values) in enumerate(
        ((RUN, {"correctness": 0.25, "recall@10": 0.5}), (OTHER_RUN, {"correctness": 0.5, "rubric:polite": 1.0}))
    ):
        stored = {name: {"state": "scored", "value": value} for name, value in values.items()}
        unscored = {"mrr@10": {"state": "unscorable", "reason": "no expected documents"}}
        EvaluationItem.objects.create(
            run=evaluation, position=position, question_text="q", query_run=run, outcome="answered",
            scores=stored | unscored,
        )  # fmt: skip
    EvaluationItem.objects.create(run=evaluation, position=9, question_text="q", outcome="error")
    RunScore.objects.create(
        query_run=JUDGED_RUN, collection_name="shed", question_text="q", judge="embedded", outcome="answered",
        scores={"faithfulness": {"state": "scored", "value": 1.0}}, asked_at=NOON,
    )  # fmt: skip


def starts(wanted: SpanFilter) -> list[int]:
    """Milliseconds after NOON at which the found spans start, in the order of the page."""
    return [(span.started_at - NOON) // timedelta(milliseconds=1) for span in search_spans(wanted).spans]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, [5, 4, 3, 2, 1, 0]),
        ({"type": ""}, [5, 4, 3, 2, 1, 0]),
        ({"type": "aitf.rag.retrieve"}, [2]),
        ({"type": ["chat", "rag.lexical"]}, [5, 4, 3]),
        ({"kind": "llm"}, [4, 3]),
        ({"kind": ["RETRIEVER", "SERVER"]}, [2, 0]),
        ({"collection": "shed"}, [5, 4]),
        ({"collection": ["shed", "house"], "model": "gpt-4o"}, [4, 3]),
        ({"api_key": "site"}, [1]),
        ({"status": "error"}, [4]),
        ({"status": "OK", "collection": "shed"}, [5]),
        ({"service": "ragd-web", "name": "chat "}, [4, 3]),
        ({"name": "at gpt"}, []),
        ({"min_ms": "600"}, [2, 1, 0]),
        ({"min_ms": "100", "max_ms": "600"}, [4, 3, 2]),
        ({"since": (NOON + timedelta(milliseconds=3)).isoformat()}, [5, 4, 3]),
        ({"until": (NOON + timedelta(milliseconds=3)).isoformat()}, [2, 1, 0]),
        ({"trace_id": "A" * 32, "run_id": str(RUN)}, [1]),
        ({"text": "pump"}, [2, 1]),
        ({"text": "water WHICH"}, [1]),
        ({"text": "pum*"}, [2, 1]),
        ({"text": "pum"}, []),
        ({"text": "pump -water"}, [2]),
        ({"text": '"pump.md#3"'}, [2]),
        ({"text": "too slow timeouterror"}, [4]),
        ({"text": "zebra"}, []),  # the text of a document is no part of it
        ({"where": "gen_ai.request.model = 'gpt-4o'"}, [4, 3]),
        ({"where": "gen_ai.request.model = 'gpt-4o' and gen_ai.usage.input_tokens > '5'"}, [3]),
        ({"where": "gen_ai.usage.input_tokens <= '5'"}, [4]),
        ({"where": "gen_ai.usage.input_tokens >= '1e1'"}, [3]),
        ({"where": "gen_ai.usage.input_tokens != '5'"}, [3]),
        ({"where": "gen_ai.request.stream = 'true'"}, [3]),
        ({"where": "gen_ai.response.finish_reasons = 'length'"}, [3]),
        ({"where": "gen_ai.request.temperature < '0.6'"}, [3]),
        ({"where": "aitf.cost.total_cost is not none"}, [3]),
        ({"where": "gen_ai.usage.input_tokens is none"}, [5, 2, 1, 0]),
        ({"where": "gen_ai.usage.input_tokens contains '00'"}, []),
        ({"where": "gen_ai.usage.input_tokens = 'many'"}, []),
        ({"where": "gen_ai.request.model = '5'"}, []),
        ({"where": "ragd.collection != 'house'"}, [5, 4]),
        ({"where": "ragd.collection starts with 'sh'"}, [5, 4]),
        ({"where": "ragd.collection > 'house'"}, [5, 4]),
        ({"where": "ragd.collection is none"}, [0]),
        ({"where": "ragd.api_key is not none"}, [1]),
        ({"where": "openinference.span.kind contains 'retr'"}, [2]),
        ({"where": "aitf.security.risk_score > 39.5 and ragd.collection is not none"}, [1]),
        ({"where": "gen_ai.usage.input_tokens == true or gen_ai.usage.output_tokens == 20.0"}, [3]),
        ({"where": "aitf.cost.total_cost is none and gen_ai.request.model is not none"}, [4]),
        ({"where": "input.value contains 'pump MOVES'"}, [1]),
        ({"where": "input.value starts with 'Which'"}, [1]),
        ({"where": "input.value starts with 'which'"}, []),
        ({"where": "retrieval.documents.0.document.id = 'pump.md#3'"}, [2]),
        ({"where": "input.value = '\"; DROP TABLE spans; --'"}, []),
        ({"where": "input.value contains '.*'"}, []),
        ({"where": "kind == 'RETRIEVER' and latency_ms > 500"}, [2]),
        ({"where": "kind == 'retriever' or (status = 'error' and latency_ms >= 100)"}, [4, 2]),
        ({"where": "kind = retriever or status = error and latency_ms >= 100"}, [4, 2]),
        ({"where": "start_time >= 2026-01-06 or collection not in (shed, house)"}, [0]),
        ({"where": "not kind == 'CHAIN' and latency_ms < 1e3"}, [4, 3, 2, 0]),
        ({"where": "collection in ('shed', \"garden\")"}, [5, 4]),
        ({"where": "collection not in ['shed', 'house']"}, [0]),
        ({"where": "gen_ai.request.model == 'gpt-4o' and total_tokens > 900"}, [3]),
        ({"where": "attributes['gen_ai.request.model'] starts with 'gpt' and cost_usd is none"}, [4]),
        ({"where": "total_tokens is not none"}, [4, 3]),
        ({"where": "not gen_ai.usage.input_tokens > 5"}, [5, 4, 2, 1, 0]),
        ({"where": "'pump' in input.value"}, [1]),
        ({"where": "'gpt' not in name and kind == 'CLIENT'"}, [2]),
        ({"where": "text contains 'pump water'"}, [1]),
        ({"where": "risk_score >= 40 and run_id == '00000000-0000-0000-0000-000000000001'"}, [1]),
        ({"where": "start_time >= '2026-01-05T12:00:00.004Z'"}, [5, 4]),
        ({"where": "type == 'rag.lexical' and ragd.pool == 50"}, [5]),
        ({"where": "name contains 'GPT' and status_message contains 'SLOW'"}, [4]),
        ({"where": "cost_usd != 0"}, [3]),
        ({"where": "collection != 'house'"}, [5, 4, 0]),
        ({"where": "input contains 'pump MOVES' and not output contains 'x'"}, [1]),
        ({"where": "output is not none"}, []),
        ({"where": "score.correctness < 0.5"}, [1]),
        ({"where": "score.correctness >= 0.5 or score.faithfulness == 1"}, [5, 4]),
        ({"where": "score.recall@10 in (0.25, 0.5) and latency_ms > 100"}, [1]),
        ({"where": "score.correctness != 0.25"}, [4]),
        ({"where": "score.correctness is not none"}, [4, 1]),
        ({"where": "score.correctness is none and kind == 'LLM'"}, [3]),
        ({"where": "not score.correctness < 0.5"}, [5, 4, 3, 2, 0]),
        ({"where": "score.rubric:polite > 0.9"}, [4]),
        ({"where": "score.mrr@10 <= 1"}, []),
    ],
)  # fmt: skip
def test_a_filter_finds(spans: None, given: dict[str, object], found: list[int]) -> None:
    wanted = parse_filter(given)  # type: ignore[arg-type]
    assert starts(wanted) == found
    params = wanted.as_params()
    again = parse_filter({name: [value for key, value in params if key == name] for name, _ in params})
    assert again == wanted
    assert starts(wanted.only_of(CollectionScope({1: ("shed", datetime(2000, 1, 1, tzinfo=UTC))}))) == [
        at for at in found if at >= 4
    ]


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"typ": "chat"}, "typ", "spans have no filter 'typ'; there are type, kind, collection"),
        ({"type": "rag.retriever"}, "type", "did you mean aitf.rag.retrieve?"),
        ({"kind": "RETREIVER"}, "kind", "there is no kind 'RETREIVER'; there are CHAIN"),
        ({"status": "failed"}, "status", "there are ok, error, unset"),
        ({"min_ms": "-1"}, "min_ms", "a number of milliseconds from 0, not '-1'"),
        ({"max_ms": "nan"}, "max_ms", "not 'nan'"),
        ({"since": "yesterday"}, "since", "an age such as 30m, 24h or 7d, not 'yesterday'"),
        ({"text": "!?"}, "text", "a letter or a digit"),
        ({"run_id": "x"}, "run_id", "a UUID"),
        ({"where": "score.corectness < 1"}, "where", "there is no measure 'corectness'; known are precision@k"),
        ({"where": "score.hit < 1"}, "where", "there is no measure 'hit'"),
        ({"where": "latency_ms > 5 and score.hit < 1"}, "where", "(at position 20)"),
        ({"where": "score.correctness == 'high'"}, "where", "score.correctness is a number"),
        ({"where": "score.correctness contains '1'"}, "where", "score.correctness is a number"),
        ({"where": "inputt contains 'x'"}, "where", "did you mean input?"),
        ({"where": "latancy_ms > 5"}, "where", "did you mean latency_ms? There are type, kind"),
        ({"where": "kind == 'RETREIVER'"}, "where", "there is no kind 'RETREIVER'; there are CHAIN"),
        ({"where": "gen_ai.request.modell == 'x'"}, "where", "did you mean gen_ai.request.model"),
        ({"where": "kind == "}, "where", "ends too early, at position 8: expected a value"),
        ({"where": "kind == is"}, "where", "a number, 'false', 'true' at position 9, but there is 'is'"),
        ({"where": "kind 'LLM'"}, "where", "expected an operator"),
        ({"where": "(kind == 'LLM'"}, "where", "ends too early, at position 15: expected ')', 'or'"),
        ({"where": "kind == 'LLM' kind"}, "where", "expected 'and', 'or', the end at position 15"),
        ({"where": "latency_ms > 'x'"}, "where", "latency_ms is a number"),
        ({"where": "latency_ms > cost_usd"}, "where", "latency_ms is a number"),
        ({"where": "kind in ()"}, "where", "kind: in takes a list of at least one value"),
        ({"where": "name starts with (a, b)"}, "where", "name: starts with takes one text"),
        ({"where": "name > 5"}, "where", "name is a text"),
        ({"where": "latency_ms contains 'x'"}, "where", "is no text"),
        ({"where": "run_id == 'x'"}, "where", "a UUID in quotes"),
        ({"where": "kind == 'LLM"}, "where", "texts need quotes"),
        ({"where": "(" * 60 + "kind == 'LLM'" + ")" * 60}, "where", "at most 40 deep"),
        ({"where": "not " * 60 + "kind == 'LLM'"}, "where", "at most 40 deep"),
        ({"where": "kind == 'LLM' and in"}, "where", "at position 19, but there is 'in'"),
        ({"where": "collection in ('a'"}, "where", "at position 19: expected ')', ','"),
        ({"where": "x" * 1999 + "=1"}, "where", "of 2000 characters"),
        ({"since": "999999w"}, "since", "an age such as 30m"),
    ],
)
def test_what_cannot_be_is_said(spans: None, given: dict[str, str], field: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_filter(given)
    assert says in str(caught.value)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("lat", ["latency_ms"]),
        ("latency_ms >", ["latency_ms >="]),
        ("kind == 'LLM' ", ["kind == 'LLM' and", "kind == 'LLM' or"]),
        ("kind == 'R", ["kind == 'RETRIEVER'", "kind == 'RERANKER'"]),
        ("status == ", ["status == 'OK'", "status == 'ERROR'", "status == 'UNSET'"]),
        ("status == 'error' and not inp", [f"status == 'error' and not {name}" for name in ("input_tokens", "input")]),
        ("score.corr", ["score.correctness"]),
        ("gen_ai.request.top", ["gen_ai.request.top_k", "gen_ai.request.top_p"]),
        ("kynd == 'LLM' and ", []),
        ("latency_ms > 5 5", []),
        ("'pump' in out", ["'pump' in output_tokens", "'pump' in output"]),
    ],
)
def test_an_expression_is_completed(spans: None, text: str, offered: list[str]) -> None:
    found = complete(text)
    assert [each for each in found if "." not in each or "score." in each or "gen_ai." in each] == offered


def test_every_completion_of_a_field_can_be_filtered_by(spans: None) -> None:
    fields = [each for each in complete("") if each != "not"]
    assert {"input", "output", "latency_ms", "score.correctness"} <= {*fields}
    for field in fields:
        if field != "text":
            assert parse_filter({"where": f"{field} is not none"}).where
    assert all(operator.startswith("score.hit@10 ") for operator in complete("score.hit@10 "))
    assert "score.hit@10 contains" not in complete("score.hit@10 ") and "name contains" in complete("name ")


def test_pages_hold_every_span_once(spans: None) -> None:
    for number in range(5):  # of one moment: told apart by their ids
        make_span(f"rag.fuse {number}", 7, 1)
    whole = [span.pk for span in search_spans(SpanFilter(), limit=100).spans]
    for limit in (1, 2, 11, 12):
        found: list[int] = []
        cursor = None
        while True:
            page = search_spans(SpanFilter(), cursor, limit)
            found += [span.pk for span in page.spans]
            if page.next_cursor is None:
                break
            assert len(page.spans) == limit
            cursor = page.next_cursor
        assert found == whole
    for wrong in ("x", "W10", "eyJhIjoxfQ"):
        with pytest.raises(InvalidInput, match="cursor is not one"):
            search_spans(SpanFilter(), wrong)
    with pytest.raises(InvalidInput, match="from 1 to 500, not 0"):
        search_spans(SpanFilter(), limit=0)


@pytest.mark.parametrize("year", [1, 9999])
def test_a_search_reaches_the_ends_of_the_calendar(spans: None, year: int) -> None:
    moment = datetime(year, 12, 31, tzinfo=UTC) if year > 1 else datetime(year, 1, 1, tzinfo=UTC)
    expected = [span.pk for span in search_spans(SpanFilter()).spans] if year > 1 else []
    assert [span.pk for span in search_spans(SpanFilter(until=moment)).spans] == expected
    behind = f'["{moment.isoformat()}",1]'.encode()
    page = search_spans(SpanFilter(), base64.urlsafe_b64encode(behind).decode().rstrip("="))
    assert [span.pk for span in page.spans] == expected


def test_neighbours_stand_in_the_filtered_list(spans: None) -> None:
    chats = parse_filter({"kind": "LLM"})
    newest, oldest = search_spans(chats).spans
    assert neighbours(chats, newest) == neighbours(chats, newest).__class__(None, oldest)
    assert neighbours(chats, oldest).newer == newest
    outside = Span.objects.get(name="rag.pipeline house")
    between = neighbours(chats, outside)
    assert (between.newer, between.older) == (oldest, None)


def test_counts_by_value(spans: None) -> None:
    facets = facet_counts(parse_filter({"kind": "LLM"}))
    assert (facets.counted, facets.is_whole) == (2, True)
    assert facets.by_field["collections"] == [("house", 1), ("shed", 1)]
    assert facets.by_field["statuses"] == [("ERROR", 1), ("OK", 1)]
    assert facets.by_field["kinds"] == [("CHAIN", 2), ("LLM", 2), ("RETRIEVER", 1)]  # what else could be chosen


def test_spans_are_counted_by_time_and_latency(spans: None) -> None:
    counts = count_spans(parse_filter({"since": NOON.isoformat(), "until": (NOON + timedelta(seconds=30)).isoformat()}))
    assert counts.step == timedelta(seconds=1) and counts.begins[0] == NOON and len(counts.begins) == 30
    assert (counts.total[NOON], counts.failed[NOON], counts.reached) == (6, 1, None)
    # 3 ms; 100 ms twice, which begin their bucket; 600, 800 and 900 ms
    assert dict(counts.durations) == {2: 1, 7: 2, 9: 3}
    assert count_spans(parse_filter({"where": "kind == 'LLM'"})).total.total() == 2
    everything = count_spans(SpanFilter())
    assert 1 <= len(everything.begins) <= BARS_MAX
    assert everything.begins[0] <= NOON < everything.begins[0] + everything.step
    only = SpanFilter().only_of(CollectionScope({1: ("shed", datetime(2000, 1, 1, tzinfo=UTC))}))
    assert count_spans(only).total.total() == 2, "a limited key counts its own"


@pytest.mark.parametrize(
    "given", [{"until": "0001-01-01T00:00:00Z"}, {"since": "9999-12-31T00:00:00Z"}, {"since": "1h", "until": "2h"}]
)
def test_nothing_is_counted_outside_of_what_is_stored(
    spans: None, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_histograms, "HISTOGRAM_BUDGET_S", 100.0)  # a busy machine shall not end it early
    counts = count_spans(parse_filter(given))
    assert counts.total.total() == 0 and len(counts.begins) <= BARS_MAX
    calendar = count_spans(parse_filter({"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T00:00:00Z"}))
    assert calendar.total.total() == 6


@pytest.mark.parametrize("seconds", [0.1, 59, 61, 3600, 86_400, 30 * 86_400, 365 * 86_400])
def test_steps_are_round_and_few(seconds: float) -> None:
    length = timedelta(seconds=seconds)
    step = step_of(length)
    assert step in STEPS and length <= step * (BARS_MAX - 1)


def test_counting_ends_in_time(spans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_histograms, "HISTOGRAM_BUDGET_S", 0.0)
    counts = count_spans(SpanFilter())
    assert counts.reached is not None and counts.total.total() == 0


def test_the_slowest(spans: None) -> None:
    assert [span.duration_ms for span in slowest_spans(parse_filter({"kind": "LLM"}), 1)] == [100]
    assert [span.name for span in slowest_spans(SpanFilter(), 2)] == ["GET /v1", "rag.pipeline house"]


def test_a_search_that_takes_too_long_says_how_far_it_came(spans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of four days; the clock of the second search stops after two stretches."""
    for day in range(4):
        make_span(f"old {day}", -86_400_000 * (day + 1), 1)
    whole = [span.pk for span in search_spans(SpanFilter(), limit=100).spans]
    done = 0

    def tired(action: Callable[[], object], limit_s: float) -> object:
        nonlocal done
        done += 1
        if done > 2:
            raise TimeoutError
        return action()

    for limit in ("INSTANT_S", "QUICK_S"):
        monkeypatch.setattr(span_histograms, limit, 0)  # each stretch is a day
    monkeypatch.setattr(span_histograms, "in_time", tired)
    page = search_spans(SpanFilter(), limit=100)
    assert page.searched_until == NOON + timedelta(milliseconds=5, days=-2)
    assert [span.pk for span in page.spans] == whole[: len(page.spans)]
    assert len(page.spans) == 7
    done = -100
    rest = search_spans(SpanFilter(), page.next_cursor, limit=100)
    assert [span.pk for span in page.spans + rest.spans] == whole
    assert (rest.next_cursor, rest.searched_until) == (None, None)
    done = 2
    with pytest.raises(SlowSearch, match="within 3 s"):
        search_spans(SpanFilter())


def test_a_statement_is_ended_in_time(db: None) -> None:
    def read(seconds: float) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s), current_setting('statement_timeout')", [seconds])
            return str(cursor.fetchall()[0][1])

    assert span_histograms.in_time(lambda: read(0), 2.5) == "2500ms"
    with pytest.raises(TimeoutError, match="no answer within"):
        span_histograms.in_time(lambda: read(5), 0.1)
    assert read(0) == "0"


def test_a_search_goes_no_further_back_than_it_must(spans: None) -> None:
    make_span("chat gpt-4o", -400 * 86_400_000, 1)
    since = {"since": (NOON - timedelta(hours=1)).isoformat(), "type": "rag.fuse"}
    with CaptureQueriesContext(connection) as bounded:
        assert not search_spans(parse_filter(since)).spans
    with CaptureQueriesContext(connection) as unbounded:
        assert not search_spans(parse_filter({"type": "rag.fuse"})).spans
    reads = [
        sum('FROM "spans"' in query["sql"] and "ORDER BY" in query["sql"] for query in taken)
        for taken in (bounded, unbounded)
    ]
    assert reads[0] == 1 < reads[1]


def test_nothing_is_stored() -> None:
    Span.objects.all().delete()
    assert search_spans(SpanFilter()) == SpanPage([], None)
    assert facet_counts(SpanFilter()).counted == 0
    assert slowest_spans(SpanFilter()) == []
