"""The Traces section: the overview, the list of traces, the spans by filter, and that each number opens its spans."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.web.pages import is_empty, texts


def text(response: Any, status: int = 200) -> str:
    assert response.status_code == status, response.content.decode()[:500]
    return html.unescape(response.content.decode())


def add_span(number: int, name: str, **values: Any) -> Any:
    from evaluation_app.models import Span
    from evaluation_app.telemetry.store.exporter import span_columns

    attributes = values.pop("attributes", {})
    began = timezone.now() - timedelta(minutes=number)
    took_ms = values.pop("took_ms", 20.0)
    columns = span_columns(name, "ragd", values.get("status_description", ""), attributes)._asdict()
    return Span.objects.create(
        trace_id=f"{number:032x}", span_id=f"{number:016x}", name=name, kind="INTERNAL", scope="ragd",
        started_at=began, ended_at=began + timedelta(milliseconds=took_ms), duration_ms=took_ms,
        collection=attributes.get("ragd.collection", ""), attributes=attributes,
        **columns | {"status_code": "OK"} | values,
    )  # fmt: skip


@pytest.fixture(scope="module")
def module_spans(module_db: None) -> None:
    """Ten queries, one of which failed, with a chat call each, and an ingest; spans are a minute apart."""
    from retrieval_app.models import QueryRun

    for number in range(10):
        run = QueryRun.objects.create(
            kind="ask", collection_name="nature", query=f"Question {number}?", channel="api", cost_usd=0.002
        )
        where = {"ragd.collection": "nature", "ragd.api_key": "site"}
        failed = {"status_code": "ERROR", "status_description": "Timeout: too slow"} if number == 3 else {}
        add_span(
            2 * number, "rag.pipeline nature", took_ms=100.0 + number, run_id=run.pk,
            attributes=where | {"input.value": f"Question {number}?"}, **failed,
        )  # fmt: skip
        add_span(
            2 * number + 1, f"chat {['gpt-4o', 'llama3'][number % 2]}", took_ms=80.0,
            attributes=where | {
                "gen_ai.request.model": ["gpt-4o", "llama3"][number % 2], "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.output_tokens": 10, **({} if number % 2 else {"aitf.cost.total_cost": 0.002}),
            },
        )  # fmt: skip
    add_span(
        30, "ragd.ingest", attributes={"ragd.collection": "nature", "ragd.doc_id": "whales.md"}, status_code="ERROR",
        status_description="ParseError: not a PDF",
    )  # fmt: skip


@pytest.fixture
def spans(module_spans: None) -> None:
    """Those of the module, for the tests that ask for them."""


@pytest.fixture(autouse=True)
def no_others(db: None, request: pytest.FixtureRequest) -> None:
    from evaluation_app.models import Span
    from evaluation_app.telemetry.search.language import forget_seen
    from retrieval_app.models import QueryRun

    forget_seen()
    if "spans" not in request.fixturenames:
        Span.objects.all().delete()
        QueryRun.objects.all().delete()


def test_the_overview_tells_what_is_in_it(visitor: Client, spans: None) -> None:
    page = text(visitor.get("/traces/?period=1h"))
    numbers = re.findall(r'<span class="value">([^<]*)</span>', page)
    assert numbers[:2] == ["10", "10 %"] and numbers[3] == "1,100"
    assert "1 of 10 queries" in page and "$0.01 for 5 of 10 calls" in page
    assert re.search(r"Pipeline \(root\)</a>.*?<td class=\"num\"><a href=[^>]*>10</a>", page, re.DOTALL)
    assert "Question 9?" in page, "the slowest queries are told by their question"
    assert page.count("<figure") == 5 and page.count("View data") == 5
    assert "no price" in page and "llama3" in page
    by_key = text(visitor.get("/traces/?period=1h&by=key"))
    assert re.search(r"site</a></th><td class=\"num\">10<", by_key)
    assert is_empty(visitor.get("/traces/?period=1h&collection=elsewhere"))
    assert text(visitor.get("/traces/?period=never&by=moon&stage=x&collection=%00"), 422), "the rest is shown"


def test_the_overview_shows_a_range_and_refreshes_when_asked(visitor: Client, spans: None) -> None:
    now = timezone.now()
    stated = {
        "since": f"{now - timedelta(minutes=30):%Y-%m-%dT%H:%M}",
        "until": f"{now - timedelta(minutes=11):%Y-%m-%dT%H:%M}",
    }
    page = text(visitor.get("/traces/", stated | {"refresh": "30"}))
    for field, value in stated.items():
        assert re.search(rf'name="{field}"[^>]* value="{value}"', page)
    queries = int(re.findall(r'<span class="value">([^<]*)</span>', page)[0])
    assert 0 < queries < 10
    links = re.findall(r'class="number" href="(/activity/spans/[^"]+)"', page)
    assert count_of(visitor, links[0]) == queries, "the figure opens what it counts"
    assert "hx-trigger" not in page.split('id="figures"')[1].split(">")[0], "what has ended stays as it is"
    assert re.search(
        r"previous: [1-9]\d* <span[^>]*>\([+-]?\d+ %\)", text(visitor.get("/traces/", {"since": stated["until"]}))
    )

    figures = re.search(r'<div id="figures"[^>]*>', text(visitor.get("/traces/?period=1h&refresh=30")))
    assert figures is not None
    assert 'hx-get="/traces/?period=1h&refresh=30"' in figures[0] and 'hx-trigger="every 30s"' in figures[0]
    assert "hx-get" not in re.search(r'<div id="figures"[^>]*>', text(visitor.get("/traces/")))[0]  # type: ignore[index]
    for wrong in ("refresh=1", "until=24h", "since=soon", "since=1h&until=2h", "since=99d"):
        page = text(visitor.get(f"/traces/?{wrong}"), 422)
        assert page.count('role="alert"') == 1 and 'class="numbers"' in page, "the rest is shown"


def count_of(visitor: Client, address: str) -> int:
    return text(visitor.get(address)).count("data-drawer>")


def test_every_number_opens_the_spans_that_it_counts(visitor: Client, spans: None) -> None:
    page = text(visitor.get("/traces/?period=1h&collection=nature&key=site"))
    links = dict.fromkeys(re.findall(r'href="(/activity/spans/\?[^"]+)"', page))
    assert len(links) > 10
    for link in links:
        asked = parse_qs(urlsplit(link).query)
        assert asked["collection"] == ["nature"] and asked["api_key"] == ["site"] and "since" in asked
    stages = re.search(r"<h2>Latency by stage</h2>.*?</section>", page, re.DOTALL)
    assert stages is not None
    told = re.findall(r'<td class="num"><a href="(/activity/spans/[^"]+)">(\d+)</a></td>', stages[0])
    assert {int(count) for _, count in told} == {10}
    assert [count_of(visitor, link) for link, _ in told] == [10, 10]
    bars = re.findall(r'<a href="([^"]+)" tabindex="-1"[^>]*>', page.split("<h2>Slowest queries</h2>")[0])
    assert len(bars) == 30 and sum(count_of(visitor, link) for link in bars[14:]) == 10
    failed = next(link for link in links if "status=error" in link and "pipeline" in link)
    assert count_of(visitor, failed) == 1


def test_the_overview_takes_a_fixed_number_of_queries(visitor: Client, spans: None) -> None:
    visitor.get("/traces/")  # the first request of a log-in notes its session
    add_span(60, "rag.pipeline nature")  # where the period begins depends on the first of them
    with CaptureQueriesContext(connection) as few:
        visitor.get("/traces/")
    for number in range(40, 60):
        add_span(number, "rag.pipeline nature", attributes={"ragd.collection": "nature"})
    with CaptureQueriesContext(connection) as many:
        visitor.get("/traces/")
    assert len(many) == len(few) <= 15


def test_traces_are_listed_by_question_and_document(visitor: Client, spans: None) -> None:
    page = text(visitor.get("/activity/traces/"))
    assert page.count('scope="row"') == 11
    assert page.index("Question 0?") < page.index("Question 9?") < page.index("whales.md")
    assert f'href="/traces/{30:032x}/"' in page
    only = text(visitor.get("/activity/traces/?show=ingests&status=error"))
    assert only.count('scope="row"') == 1 and "ParseError: not a PDF" in only
    assert text(visitor.get("/activity/traces/?text=question&min_ms=108")).count('scope="row"') == 2
    assert "Min_ms must be a number" in text(visitor.get("/activity/traces/?min_ms=soon"), 422)
    assert is_empty(visitor.get("/activity/traces/?collection=elsewhere"))
    with CaptureQueriesContext(connection) as taken:
        visitor.get("/activity/traces/")
    assert len(taken) <= 15


def test_spans_are_found_by_filter(visitor: Client, spans: None) -> None:
    page = text(visitor.get("/activity/spans/"))
    assert page.count("data-drawer>") == 21
    assert re.search(r'Chat</span><span class="tally">10<', page), "facets count"
    page = text(visitor.get("/activity/spans/?type=chat&where=gen_ai.request.model+%3D+gpt-4o&min_ms=10"))
    assert page.count("data-drawer>") == 5
    assert "gen_ai.request.model = gpt-4o" in page and "≥ 10 ms" in page
    assert re.search(r'<a class="remove" href="\?type=[^"]*min_ms=10"', page)
    put_together = "/activity/spans/?attr_name=gen_ai.usage.input_tokens&attr_op=%3E%3D&attr_value=100&model=llama3"
    assert text(visitor.get(put_together)).count("data-drawer>") == 5
    row = re.search(r'href="(/traces/[0-9a-f]{32}/\?view=span&span_id=[^"]+)" data-drawer', page)
    assert row is not None
    asked = parse_qs(urlsplit(row[1]).query)
    assert asked["from"] == ["spans"] and asked["type"] == ["gen_ai.inference"] and asked["min_ms"] == ["10"]


def cells_of(page: str, name: str) -> list[str]:
    """The words of the cells of the one row whose span's name begins so."""
    found = [row for row in re.findall(r"<tr[^>]*>(<th scope=\"row\".*?)</tr>", page, re.DOTALL) if f">{name}" in row]
    assert len(found) == 1, name
    cells = re.split(r"</t[hd]>", found[0])
    return [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in cells[:-1]]


def test_a_row_shows_input_output_environment_trace_and_table(visitor: Client) -> None:
    texts = {"input.value": "How long may a lease be?" + " x" * 400, "output.value": "A year."}
    add_span(1, "rag.pipeline nature", attributes=texts)
    add_span(2, "chat gpt-4o", attributes={"input.value": "__REDACTED__", "output.value": "sha256:" + "a" * 64})
    statement = {"db.query.text": 'SELECT "golden_sets"."id" FROM "golden_sets" WHERE 1 = 1'}
    add_span(3, "SELECT", attributes=statement | {"ragd.environment": "evaluation"})
    page = text(visitor.get("/activity/spans/?environment=all"))
    cells = cells_of(page, "rag.pipeline nature")
    assert cells[3].startswith("How long may a lease be? x") and len(cells[3]) <= 200 and cells[4] == "A year."
    assert cells[5:7] == [f"{1:032x}"[:8], "production"]
    assert f'href="/traces/{1:032x}/"' in page
    assert cells_of(page, "chat gpt-4o")[3:5] == ["–", "–"], "what the content switch kept out is not shown"
    assert "a" * 64 not in page
    assert cells_of(page, "SELECT")[0] == "SELECT golden_sets" and cells_of(page, "SELECT")[6] == "evaluation"
    with CaptureQueriesContext(connection) as few:
        visitor.get("/activity/spans/?environment=all")
    for number in range(4, 40):
        add_span(number, "chat gpt-4o", attributes=texts)
    with CaptureQueriesContext(connection) as many:
        visitor.get("/activity/spans/?environment=all")
    assert len(many) == len(few)


def test_spans_are_found_by_a_score(visitor: Client, spans: None) -> None:
    from evaluation_app.models import EvaluationItem, Span
    from tests.evaluation.made_runs import make_run

    runs = list(Span.objects.exclude(run_id=None).order_by("started_at").values_list("run_id", flat=True))
    made = make_run([{"correctness": 0.2}, {"correctness": 0.9}, {"correctness": None}])
    for item, run in zip(EvaluationItem.objects.filter(run=made).order_by("position"), runs, strict=False):
        EvaluationItem.objects.filter(pk=item.pk).update(query_run=run)
    assert count_of(visitor, "/activity/spans/?where=score.correctness+<+0.5") == 1
    assert count_of(visitor, "/activity/spans/?where=score.correctness+>=+0.2") == 2
    by_fields = "/activity/spans/?measure=correctness&score_below=0.5"
    assert count_of(visitor, by_fields) == 1 and count_of(visitor, f"{by_fields}&score_above=0.3") == 0
    assert count_of(visitor, f"{by_fields}&where=kind+==+'LLM'+or+latency_ms+>+1") == 1
    assert count_of(visitor, "/activity/spans/?measure=correctness") == 2
    assert 'value="score.correctness < 0.5"' in text(visitor.get(by_fields)), "the expression says it"
    for wrong in ("score_below=0.5", "measure=correctness&score_below=low", "measure=corectness"):
        assert 'id="spans-error"' in text(visitor.get(f"/activity/spans/?{wrong}"), 422)
    Span.objects.filter(run_id=runs[1]).update(environment="evaluation")
    nothing = text(visitor.get("/activity/spans/?where=score.correctness+>+0.5"))
    assert re.search(r'href="\?[^"]*environment=evaluation[^"]*">', nothing), (
        "golden questions are of another environment"
    )
    assert "there is no measure" in text(visitor.get("/activity/spans/?where=score.corect+<+1"), 422).lower()


def test_one_leads_to_the_next_in_the_filtered_list(visitor: Client, spans: None) -> None:
    page = text(visitor.get("/activity/spans/?type=chat&model=gpt-4o"))
    rows = re.findall(r'href="(/traces/[0-9a-f]{32}/\?view=span&span_id=[^"]+)" data-drawer', page)
    assert len(rows) == 5
    seen = [rows[0]]
    while after := re.search(r'rel="next" href="([^"]+)"', text(visitor.get(seen[-1]))):
        seen.append(after[1])
    assert [address.partition("&from=")[0] for address in seen] == [row.partition("&from=")[0] for row in rows]
    last = text(visitor.get(seen[-1]))
    assert re.search(r'rel="prev" href="([^"]+)"', last)
    broken = text(visitor.get(f"{rows[0].partition('&from=')[0]}&from=spans&kynd=x"))
    assert "chat gpt-4o" in broken, "a filter that says nothing does not hide the span"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("wher=1", "no filter 'wher'"),
        ("where=kynd+%3D%3D+'LLM'", "did you mean kind"),
        ("type=chatt", "there is no type 'chatt'"),
        ("where=gen_ai.modell+=+x", "no span has an attribute 'gen_ai.modell'"),
        ("since=yesterday", "since must be a time"),
        ("cursor=nonsense", "cursor is not one"),
    ],
)
def test_what_is_unknown_is_told(visitor: Client, spans: None, query: str, said: str) -> None:
    page = text(visitor.get(f"/activity/spans/?{query}&text=keep+this"), 422)
    assert said.lower() in page.lower() and 'value="keep this"' in page
    assert "data-drawer>" not in page
    part = visitor.get(f"/activity/spans/?{query}", headers={"HX-Request": "true", "HX-Target": "spans"})
    assert part.headers["Ragd-Part"] == "spans" and part.content.decode().lstrip().startswith('<div id="spans"')


@pytest.mark.parametrize("address", ["/traces/", "/activity/traces/?text=whale", "/activity/spans/?text=whale"])
def test_what_cannot_be_read_in_time_is_told(visitor: Client, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(
        "evaluation_app.telemetry.explorer.span_links.READ_BRIEFLY",
        "SET LOCAL statement_timeout = '50ms'; SELECT pg_sleep(5)",
    )
    page = text(visitor.get(address), 503)
    assert "timed out." in page and 'role="alert"' in page
    assert "whale" not in address or 'value="whale"' in page
    assert "timed out." not in text(visitor.get("/evaluation/")), "the connection is as it was"


def test_runs_are_found_by_model_time_and_cost(visitor: Client) -> None:
    from retrieval_app.models import QueryRun

    for number in range(4):
        QueryRun.objects.create(
            kind="ask", collection_name="nature", query=f"Question {number}?", channel="api", embed_model="minilm",
            answerer=["gpt-4o", "llama3"][number % 2], timings_ms={"total": 100.0 * number},
            cost_usd=[0.001, None, 0.003, None][number],
        )  # fmt: skip

    def found(query: str) -> str:
        page = text(visitor.get(f"/activity/?{query}"))
        return "".join(sorted(re.findall(r">Question (\d)\?<", page)))

    dear = QueryRun.objects.get(query="Question 2?")
    assert "<dt>Cost</dt><dd>$0.003</dd>" in text(visitor.get(f"/runs/{dear.pk}/"))
    assert found("") == found("model=minilm") == found("min_ms=soon") == "0123"
    assert "<b>Latency</b> is ignored: Enter a number" in text(visitor.get("/activity/?min_ms=soon"))
    assert texts(visitor.get("/traces/?collection=gone"), "#filter-collection summary .clip") == ["gone"]
    assert found("model=llama3") == "13" and found("model=other") == ""
    assert found("min_ms=100&max_ms=200") == "12" and found("max_ms=0") == "0"
    assert found("min_cost=0") == "02" and found("min_cost=0.002") == "2" and found("max_cost=0.002") == "0"
    assert found("min_cost=0.001&model=gpt-4o&min_ms=50&status=ok") == "2"
    page = text(visitor.get("/activity/?max_cost=0.002"))
    assert "$0.001" in page and "≤ 0.002 $" in page
    assert is_empty(visitor.get("/activity/?min_ms=99999"))


def test_runs_are_found_by_score(visitor: Client) -> None:
    from evaluation_app.models import EvaluationItem, RunScore
    from retrieval_app.models import QueryRun
    from tests.evaluation.made_runs import make_run

    runs = [
        QueryRun.objects.create(kind="ask", collection_name="nature", query=f"Question {number}?", channel="api")
        for number in range(5)
    ]
    made = make_run([{"correctness": 0.2, "recall@10": 1.0}, {"correctness": 0.5}, {"correctness": None}])
    for item, run in zip(EvaluationItem.objects.filter(run=made).order_by("position"), runs, strict=False):
        EvaluationItem.objects.filter(pk=item.pk).update(query_run=run.pk)
    RunScore.objects.create(
        query_run=runs[3].pk, collection_name="nature", question_text="q", judge="embedded", outcome="answered",
        scores={"adherence": {"state": "scored", "value": 0.0}}, asked_at=timezone.now(),
    )  # fmt: skip

    def found(query: str) -> str:
        return "".join(sorted(re.findall(r">Question (\d)\?<", text(visitor.get(f"/activity/?{query}")))))

    assert found("measure=correctness") == "01", "a score that could not be told is none"
    assert found("measure=correctness&score_below=0.5") == "0" and found("measure=correctness&score_above=0.2") == "1"
    assert found("measure=correctness&score_above=0.1&score_below=0.4") == "0"
    assert found("measure=recall@10&score_above=0.99") == "0" and found("measure=recall@5") == ""
    assert found("measure=adherence&score_below=0.5") == "3"
    for wrong in ("measure=corectness", "score_below=0.5", "measure=correctness&score_below=low"):
        page = text(visitor.get(f"/activity/?{wrong}"))
        assert "is ignored:" in page and "Question 1" in page
    assert found("measure=corectness") == found("score_below=0.5") == "01234"
    page = text(visitor.get("/activity/?measure=correctness&score_below=0.5"))
    assert f'href="/runs/{runs[0].pk}/?measure=correctness&score_below=0.5"' in page, "the filter goes along"
    with CaptureQueriesContext(connection) as taken:
        visitor.get("/activity/?measure=correctness&score_below=0.5")
    assert len(taken) <= 12


def test_pages_go_back_in_time(visitor: Client) -> None:
    for number in range(60):
        add_span(number, "rag.lexical")
    first = text(visitor.get("/activity/spans/?type=rag.lexical"))
    assert first.count("data-drawer>") == 50
    older = re.search(r'href="(\?[^"]+)" rel="next"', first)
    assert older is not None
    second = text(visitor.get(f"/activity/spans/{older[1]}"))
    assert second.count("data-drawer>") == 10 and "Newest" in second
    slowest = text(visitor.get("/activity/spans/?sort=slowest"))
    assert "from=spans" not in slowest
