"""Spans added up by the hour, and the figures that the overview makes of them.
What Home and Operations show."""

from __future__ import annotations

import itertools
import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.models import IngestJob, Status
from evaluation_app.models import GoldenQuestion, GoldenSet, Span, SpanRollup
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE
from evaluation_app.telemetry.overview.figures import (
    BASE,
    ERROR_SHARE,
    OVER_ALL,
    FigureFilter,
    begin_with_data,
    consumption,
    forget_old_rollups,
    lower_edge,
    percentile,
    period_between,
    period_until,
    roll_up,
    rolled_until,
    slowest_queries,
    stage_figures,
)
from evaluation_app.telemetry.overview.pages import Change, changes_since_previous
from ragd.errors import InvalidInput
from ragd_site.operations.summaries import attention_summary, operations_summary
from retrieval_app.models import QueryRun
from tests.refusals import raises_with

pytestmark = pytest.mark.django_db
CHAT = "gen_ai.inference"


def now_hour() -> datetime:
    return timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)


NUMBERS = itertools.count()


def make_span(began: datetime, took_ms: float, **values: Any) -> Span:
    number = next(NUMBERS)
    known: dict[str, Any] = {"name": "rag.pipeline house", "type": PIPELINE_TYPE, "kind": "INTERNAL"}
    return Span(
        trace_id=f"{number:032x}", span_id=f"{number:016x}", started_at=began, duration_ms=took_ms,
        ended_at=began + timedelta(milliseconds=took_ms), **{"status_code": "OK"} | known | values,
    )  # fmt: skip


def add_span(began: datetime, took_ms: float, **values: Any) -> None:
    make_span(began, took_ms, **values).save(force_insert=True)


def counted_spans() -> int:
    return sum(SpanRollup.objects.filter(summed_over=OVER_ALL, hours=1).values_list("spans", flat=True))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("count", [1, 7, 400])
def test_percentiles_are_as_near_as_they_say(share: float, count: int) -> None:
    dice = random.Random(count)
    durations = sorted(dice.lognormvariate(3, 2) for _ in range(count))
    buckets: dict[int, int] = {}
    for duration in durations:
        bucket = math.floor(math.log(duration) / math.log(BASE))
        buckets[bucket] = buckets.get(bucket, 0) + 1
    exact = durations[max(1, math.ceil(share * count)) - 1]
    found = percentile(buckets, share)
    assert found is not None and abs(found / exact - 1) <= ERROR_SHARE + 1e-9
    assert ERROR_SHARE < 0.05


def test_percentiles_of_nothing_and_edges() -> None:
    assert percentile({}, 0.5) is None
    assert lower_edge({0: 3, 10: 2}, 2) == pytest.approx(BASE**10)
    assert lower_edge({0: 3, 10: 2}, 3) == 1.0
    assert lower_edge({0: 3}, 4) == 0.0


def test_hours_that_are_over_are_rolled_up_once_and_again_when_more_came() -> None:
    hour = now_hour()
    for minutes in (90, 100, 170):
        add_span(hour - timedelta(minutes=minutes), 100.0)
    add_span(hour + timedelta(seconds=1), 100.0)  # this hour is not over
    assert rolled_until() is None
    assert roll_up() == 2
    assert counted_spans() == 3
    assert rolled_until() == hour - timedelta(hours=1)
    assert roll_up() == 0
    add_span(hour - timedelta(minutes=95), 100.0)  # it ended long after it began
    assert roll_up() == 1
    assert counted_spans() == 4
    daily = dict(SpanRollup.objects.filter(summed_over=OVER_ALL, hours=24).values_list("hour", "spans"))
    today = hour.replace(hour=0)
    assert sum(daily.values()) == Span.objects.filter(started_at__lt=today).count() and today not in daily
    Span.objects.filter(started_at__lt=hour).delete()
    assert roll_up(everything=True) == 0, "what retention took stays counted"
    assert counted_spans() == 4


def test_spans_of_long_ago_are_found_when_everything_is_looked_at() -> None:
    hour = now_hour()
    add_span(hour - timedelta(hours=3), 5.0)
    assert roll_up() == 1
    add_span(hour - timedelta(days=20), 5.0)
    assert roll_up() == 0
    assert roll_up(everything=True) == 1
    SpanRollup.objects.filter(hour__lt=hour - timedelta(days=10)).update(hour=hour - timedelta(days=500))
    assert forget_old_rollups() == 8, "of all, by collection, by key, by both; of the hour and of the day"
    assert SpanRollup.objects.filter(hours=1).count() == 4  # its day has sums too when that is over


def fill() -> None:
    """Two collections, three keys, three models, over a day; one query in four failed."""
    hour, spans = now_hour(), []
    for number in range(45):
        began = hour - timedelta(minutes=30 * number)
        who = {"collection": "house" if number % 3 else "shed", "api_key": ["", "site", "bot"][number % 3]}
        failed = "ERROR" if number % 4 == 0 else "OK"
        spans.append(make_span(began, 100.0 + number, status_code=failed, **who))
        spans.append(make_span(began, 2.0, name="rag.lexical", type="rag.lexical", **who))
        spans.append(make_span(
            began, 50.0, name="chat", type=CHAT, model=["gpt-4o", "llama3"][number % 2], input_tokens=100,
            output_tokens=None if failed == "ERROR" else 10, cost_usd=None if number % 2 else 0.01, **who,
        ))  # fmt: skip
        spans.append(make_span(began, 9.0, name="GET /", type="", status_code="UNSET"))
    Span.objects.bulk_create(spans)


def figures(wanted: FigureFilter) -> dict[str, Any]:
    """Everything that the overview would show, to compare."""
    return {
        "stages": [
            (stage.type, stage.spans, stage.failed, stage.failed_steps, stage.p50, stage.p99, stage.over_time(0.9))
            for stage in stage_figures(wanted).values()
        ],
        "model": [(part.name, part.calls, part.priced, part.input_steps, part.output_steps, part.cost_usd)
                  for part in consumption(wanted, "model")],
        "key": [(part.name, part.calls, part.input_tokens) for part in consumption(wanted, "key")],
    }  # fmt: skip


def test_figures_are_the_same_from_spans_and_from_rollups() -> None:
    fill()
    all_raw = [(wanted, figures(wanted)) for wanted in (FigureFilter(period_until(name)) for name in ("24h", "30d"))]
    for _, raw in all_raw:
        assert raw["stages"][0][:3] == (PIPELINE_TYPE, 45, 12)
        assert [row[0] for row in raw["stages"]] == [PIPELINE_TYPE, "rag.lexical", CHAT]
        priced = [(name, calls, priced) for name, calls, priced, *_ in raw["model"]]
        assert priced == [("llama3", 22, 0), ("gpt-4o", 23, 23)]
        assert raw["model"][0][5] is None and raw["model"][1][5] == pytest.approx(0.23)
    roll_up()
    assert SpanRollup.objects.exists()
    for wanted, raw in all_raw:
        rolled = figures(wanted)
        assert rolled["stages"] == raw["stages"] and rolled["key"] == raw["key"]
        assert [row[:5] for row in rolled["model"]] == [row[:5] for row in raw["model"]]
    Span.objects.filter(started_at__lt=rolled_until()).delete()
    for wanted, raw in all_raw:
        assert figures(wanted)["stages"] == raw["stages"], "what was rolled up outlives its spans"


def test_a_range_has_the_spans_that_began_in_it() -> None:
    fill()
    now, found = timezone.now(), []
    for hours, until_minutes, step in ((1.4, 0, 2), (20, 75, 60), (200, 75, 360), (600, 75, 1440), (600, 1440, 1440)):
        since, until = now - timedelta(hours=hours), now - timedelta(minutes=until_minutes)
        period = period_between(since, until)
        assert period.step == timedelta(minutes=step) and 1 <= period.count <= 63
        assert period.since <= since and period.until == until <= period.begins()[-1] + period.step
        wanted = FigureFilter(period)
        queries = Span.objects.filter(type=PIPELINE_TYPE, started_at__gte=period.since, started_at__lt=until).count()
        raw = figures(wanted)
        assert raw["stages"][0][1] == queries
        found.append((wanted, raw["stages"], figures(wanted.previous())["stages"]))
        assert wanted.previous().period.until - wanted.previous().period.since == until - period.since
    roll_up()
    for wanted, stages, before in found:
        assert figures(wanted)["stages"] == stages, "the hour in which it ends is read from the spans"
        assert figures(wanted.previous())["stages"] == before


def test_a_range_that_cannot_be() -> None:
    now = datetime(2026, 3, 4, 10, 31, tzinfo=UTC)
    day = timedelta(days=1)
    for since, until in ((None, now), (now, now), (now, now - day), (now + day, None), (now - 63 * day, now)):
        with raises_with(InvalidInput, field="since"):
            period_between(since, until, now)
    assert period_between(now - day, now + day, now).until == now


def test_figures_stand_beside_those_of_the_time_before() -> None:
    now = timezone.now()
    for minutes in (10, 20, 30, 70, 80):
        add_span(now - timedelta(minutes=minutes), 200.0 if minutes < 60 else 100.0,
                 status_code="ERROR" if minutes == 70 else "OK")  # fmt: skip
        add_span(now - timedelta(minutes=minutes), 5.0, name="chat", type=CHAT, input_tokens=minutes)
    wanted = FigureFilter(period_between(now - timedelta(hours=1), None))

    def changes(wanted: FigureFilter) -> dict[str, Change]:
        before = wanted.previous()
        whole, parts = stage_figures(wanted)[PIPELINE_TYPE], consumption(wanted, "model")
        return changes_since_previous(stage_figures(before), consumption(before, "model"), whole, parts)

    told = changes(wanted)
    assert (told["queries"], told["errors"].before) == (Change("2", "+50 %"), "50 %")
    assert told["tokens"] == Change("150", "-60 %") and told["latency"].change == "+95 %"
    assert set(changes(FigureFilter(wanted.period, "elsewhere")).values()) == {Change("")}


@pytest.mark.parametrize("name", ["24h", "7d", "30d"])
def test_a_period_begins_where_its_data_begins(name: str, admin_client: Client) -> None:
    now = timezone.now()
    for minutes in (3, 25):
        add_span(now - timedelta(minutes=minutes), 100.0)
    wanted = FigureFilter(period_until(name))
    shown, stages = begin_with_data(wanted, stage_figures(wanted))
    assert timedelta(hours=1) <= now - shown.period.since <= timedelta(hours=1, minutes=2), "an hour at least"
    assert stages == stage_figures(shown) and stages[PIPELINE_TYPE].spans == 2
    context = admin_client.get("/traces/", {"period": name}).context
    assert context["is_shortened"] and len(context["times"].columns) in (30, 31)

    since = (now - timedelta(hours=23)).isoformat()
    context = admin_client.get("/traces/", {"since": since}).context
    assert not context["is_shortened"] and len(context["times"].columns) == 24, "a range is shown as it was asked for"

    add_span(now - timedelta(hours=5), 100.0)
    assert (
        timedelta(hours=5) <= now - begin_with_data(wanted, stage_figures(wanted))[0].period.since <= timedelta(hours=6)
    )
    add_span(wanted.period.since - wanted.period.step, 100.0)
    context = admin_client.get("/traces/", {"period": name}).context
    assert len(context["times"].columns) == wanted.period.count, "after data there is quiet"


def test_figures_of_one_collection_and_key() -> None:
    fill()
    roll_up()
    period = period_until("24h")
    assert stage_figures(FigureFilter(period, "house"))[PIPELINE_TYPE].spans == 30
    assert stage_figures(FigureFilter(period, "house", "site"))[PIPELINE_TYPE].spans == 15
    assert stage_figures(FigureFilter(period, "house", "nobody"))[PIPELINE_TYPE].spans == 0
    assert [part.name for part in consumption(FigureFilter(period, "shed"), "collection")] == ["shed"]


def test_the_last_hour_is_read_from_the_spans_minute_by_minute() -> None:
    now = datetime(2026, 3, 4, 10, 31, 30, tzinfo=UTC)
    period = period_until("1h", now)
    assert period.since == now.replace(minute=32, second=0) - timedelta(hours=1)
    assert period.begins()[-1] == now.replace(minute=30, second=0)
    add_span(now - timedelta(minutes=3), 10.0)
    add_span(now - timedelta(minutes=59, seconds=40), 10.0)  # before the first step
    stage = stage_figures(FigureFilter(period))[PIPELINE_TYPE]
    assert stage.spans == 1 and stage.steps[-2].total() == 1


def test_the_slowest_come_first_also_when_those_that_were_counted_are_gone() -> None:
    fill()
    roll_up()
    wanted = FigureFilter(period_until("24h"))
    whole = stage_figures(wanted)[PIPELINE_TYPE]
    slowest = slowest_queries(wanted, whole)
    durations = [query.duration_ms for query in slowest]
    assert len(durations) == 10 and durations == sorted(durations, reverse=True)
    assert durations[0] == max(Span.objects.filter(type=PIPELINE_TYPE, started_at__gte=wanted.period.since)
                               .values_list("duration_ms", flat=True))  # fmt: skip
    Span.objects.filter(duration_ms__gte=120, type=PIPELINE_TYPE).delete()
    assert slowest_queries(wanted, whole)[0].duration_ms == 119.0


def test_nothing_is_there() -> None:
    assert roll_up() == 0 and roll_up(everything=True) == 0
    wanted = FigureFilter(period_until("30d"))
    stages = stage_figures(wanted)
    assert list(stages) == [PIPELINE_TYPE]
    whole = stages[PIPELINE_TYPE]
    assert (whole.spans, whole.p50, whole.failed_share) == (0, None, None)
    assert consumption(wanted, "model") == [] and slowest_queries(wanted, whole) == []


def test_the_worker_adds_up_and_forgets_whatever_becomes_of_the_field_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    from ragd_site import worker

    add_span(now_hour() - timedelta(hours=3), 5.0)
    worker.roll_up_spans()
    assert counted_spans() == 1
    SpanRollup.objects.update(hour=now_hour() - timedelta(days=100))
    Span.objects.all().delete()

    def fail() -> bool:
        raise OperationalError("statement timeout")

    monkeypatch.setattr(worker, "refresh_usual", fail)
    with pytest.raises(OperationalError):
        worker.roll_up_spans(everything=True)
    assert not SpanRollup.objects.exists()


def fill_of_summaries(rows: int) -> None:
    now = timezone.now()
    for number in range(rows):
        collection = create_collection(name=f"house{number}")
        for state in ("failed", "queued"):
            IngestJob.objects.create(
                collection=collection, doc_id=f"d{number}", state=state, created_at=now - timedelta(minutes=5)
            )
        QueryRun.objects.create(kind="search", collection_name=collection.name, query="q", channel="api")
        Status.objects.create(kind="worker", name=f"w{number}", made_at=now - timedelta(seconds=100 * number))
        GoldenQuestion.objects.create(golden_set=GoldenSet.objects.create(name=f"set{number}"), question="q?")
    for name, written, lost, error, at in (("web", 10, 2, "Error: away", str(now)), ("worker", 5, 0, "", "")):
        values = {"endpoint": "", "written": written, "lost": lost, "last_error": error, "last_error_at": at}
        Status.objects.create(kind="span_writer", name=name, values=values)


def test_nothing_is_there_of_summaries() -> None:
    home, operations = attention_summary(), operations_summary()
    assert (home.active_jobs_count, home.failed_jobs_count, home.workers_alive_count) == (0, 0, 0)
    assert operations.jobs_by_state == dict.fromkeys(
        ("queued", "running", "succeeded", "failed", "cancelled", "quarantined"), 0
    )
    assert (operations.oldest_queued_s, operations.spans.counts.sent, operations.spans.newest_at) == (None, 0, None)


def test_what_is_there() -> None:
    fill_of_summaries(3)
    home, operations = attention_summary(), operations_summary()
    assert (home.active_jobs_count, home.failed_jobs_count, home.workers_alive_count) == (3, 3, 1)
    assert [(state.worker.name, state.alive) for state in operations.workers] == [
        ("w0", True),
        ("w1", False),
        ("w2", False),
    ]
    assert operations.oldest_queued_s is not None and 295 < operations.oldest_queued_s < 400
    assert operations.runs_by_status == {"ok": 3, "abstained": 0, "refused": 0, "error": 0}
    assert (operations.spans.counts.sent, operations.spans.counts.lost) == (15, 2)
    assert operations.spans.counts.last_error == "Error: away"


@pytest.mark.parametrize("summary", [attention_summary, operations_summary])
def test_more_rows_take_no_more_queries(summary: object) -> None:
    assert callable(summary)
    counts = []
    for rows in (1, 3):
        QueryRun.objects.all().delete()
        GoldenSet.objects.all().delete()
        Status.objects.all().delete()
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM ingest_jobs; UPDATE collections SET deleted_at = now()")
        fill_of_summaries(rows)
        with CaptureQueriesContext(connection) as queries:
            found = summary()
            [str(job.collection) for job in (*getattr(found, "jobs", ()), *getattr(found, "failed_jobs", ()))]
        counts.append(len(queries))
    assert counts[0] == counts[1]
