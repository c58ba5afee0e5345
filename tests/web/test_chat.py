"""Chat, runs and one run: answers whose citations open the cited place, ranks, failures, what outlives a collection."""

from __future__ import annotations

import html as html_module
import json
import re
import threading
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from collections_app.access.permissions import Role
from collections_app.collections.deletion import delete_collection
from collections_app.documents.services import change_state
from collections_app.errors import ServiceError
from collections_app.models import RoleGrant
from evaluation_app.models import Review
from retrieval_app.chat.stream_views import PageStream
from retrieval_app.models import ChatMessage, ChatThread, QueryRun
from retrieval_app.search import query_pipeline
from tests.fakes.faults import cut_short
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.web.pages import attribute, has, text, texts, tones, tree

__all__ = ["openai_server"]
pytestmark = pytest.mark.usefixtures("module_nature")
QUESTION = "Which animal is the largest?"


def test_an_answer_has_an_address_of_its_own(visitor: Client, ask: Callable[..., Any]) -> None:
    run = ask(QUESTION)
    html = text(visitor.get(f"/chat/?run={run.pk}", follow=True))
    assert "The blue whale is the largest animal." in html
    thread = visitor.get(f"/chat/?run={run.pk}", follow=True)
    assert texts(thread, ".question") == [QUESTION]
    offered = texts(thread, "[data-follow-ups] button[form=composer][name=starter]")
    titles = re.findall("“(.+?)”", " ".join(offered))
    assert len(titles) == len(offered) <= 3 and {"Trees", "Rivers"} <= set(titles) and "Whales" not in titles
    assert f'href="/runs/{run.pk}/"' in html
    assert type(run).objects.count() == 1, "looking at an answer must not ask again"


def test_each_citation_opens_the_cited_place(visitor: Client, ask: Callable[..., Any]) -> None:
    run = ask(QUESTION)
    html = text(visitor.get(f"/chat/?run={run.pk}", follow=True))
    links = re.findall(r'<a class="cite" href="([^"]+)" data-evidence="citation"', html)
    assert links == [f"/runs/{run.pk}/?citation={number}" for number in range(1, len(run.citations) + 1)] != []
    for link, citation in zip(links, run.citations, strict=True):
        shown = visitor.get(link)
        (passage,) = tree(shown).css("#detail .cited-passage")
        assert "".join(mark.text() for mark in passage.css("mark")) == citation["quote"] != passage.text().strip()
        parts = urlsplit(attribute(shown, ".evidence .actions a", "href") or "")
        place = parse_qs(parts.query)
        assert parts.path == f"/collections/nature/documents/{citation['doc_id']}/"
        assert parts.fragment == "cited"
        assert (int(place["start"][0]), int(place["end"][0])) == (citation["start"], citation["end"])


def test_every_knob_reaches_the_plan_and_comes_back(visitor: Client, ask: Callable[..., Any]) -> None:
    knobs = {
        "mode": "hybrid", "k": "2", "candidate_pool": "7", "rrf_k": "11", "exact": "always", "tags_any": "nature, x",
        "tags_all": "nature", "metadata": '{"year": 2024}', "filter": "metadata.year >= 2024 and tags = 'nature'",
        "weight_vector": "0.25", "rerank": "builtin", "ef_search": "90", "compress": "window", "token_budget": "40",
    }  # fmt: skip
    run = ask(QUESTION, **knobs)
    where = {
        "and": [
            {"field": "metadata.year", "op": "gte", "value": 2024},
            {"field": "tags", "op": "eq", "value": "nature"},
        ]
    }
    tags = {"tags_any": ["nature", "x"], "tags_all": ["nature"]}
    assert run.plan == {
        "mode": "hybrid", "k": 2, "candidate_pool": 7, "rrf_k": 11, "exact": "always", "ef_search": 90,
        "weights": {"vector": 0.25, "lexical": 1.0}, "rerank": "builtin", "compress": "window", "token_budget": 40,
        "filters": tags | {"metadata": {"year": 2024}, "where": where},
    }  # fmt: skip
    page = visitor.get(f"/chat/?run={run.pk}", follow=True)
    for name, value in knobs.items():
        chosen = attribute(page, f"select[name={name}] option[selected]", "value")
        assert value in (chosen, attribute(page, f"[name={name}]", "value"), *texts(page, f"[name={name}]")), name


@pytest.mark.parametrize("do", ["ask", "search"])
def test_a_question_as_of_an_earlier_time_meets_the_documents_of_then(
    visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any], do: str
) -> None:
    collection = fill()
    before = ask(QUESTION, do=do)
    at = timezone.localtime()
    change_state(collection, ["whales.md"], "disabled")
    assert "whales.md" not in {row["doc_id"] for row in ask(QUESTION, do=do).results}
    then = ask(QUESTION, do=do, as_of=at.replace(tzinfo=None).isoformat())
    assert then.results == before.results
    assert then.as_of == at.astimezone(UTC).isoformat()
    assert f'name="as_of" value="{at:%Y-%m-%dT%H:%M:%S}"' in text(visitor.get(f"/chat/?run={then.pk}", follow=True))
    wrong = visitor.post("/chat/", {"query": QUESTION, "collection": "nature", "do": do, "as_of": "no time"})
    assert wrong.status_code == 422
    assert "as_of" in wrong.context["form"].errors


def test_a_saved_plan_is_picked_and_what_is_filled_in_goes_over_it(
    visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    from ragd.types import RetrievePlan
    from retrieval_app.plans.services import save_plan

    collection = fill()
    fill("other", 1)
    assert 'optgroup label="nature"' not in text(visitor.get("/chat/"))
    save_plan(collection, "words", RetrievePlan(mode="lexical", k=2, weights={"vector": 2.0}))
    assert 'optgroup label="nature"' in text(visitor.get("/chat/"))
    run = ask(QUESTION, plan="words")
    assert (run.plan_name, run.plan["mode"], run.plan["k"]) == ("words", "lexical", 2)
    html = text(visitor.get(f"/chat/?run={run.pk}", follow=True))
    assert '<option value="words" selected>' in html
    assert 'name="k" value=' not in html, "the saved plan says it already"
    assert "words: Keyword, k 2" in html
    over = ask(QUESTION, plan="words", k="1", mode="hybrid", weight_lexical="3")
    assert (over.plan_name, over.plan["k"], over.plan["weights"]) == ("words", 1, {"vector": 2.0, "lexical": 3.0})
    assert 'name="weight_vector" value="2"' in text(visitor.get(f"/chat/?run={over.pk}", follow=True))
    save_plan(collection, "words", RetrievePlan(mode="lexical", k=2), is_default=True)
    assert ask(QUESTION).plan_name == "words"
    assert ask(QUESTION, plan="server").plan_name == ""
    refused = visitor.post("/chat/", {"query": QUESTION, "collection": "other", "plan": "words"})
    assert refused.status_code == 404
    assert "no saved plan" in html_module.unescape(text(refused))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"query": "x", "rerank": "magic"}, "magic is not one of the available choices"),
        ({"query": "x", "weight_vector": "0", "weight_lexical": "0"}, "at least one value above 0"),
        ({"query": "x", "token_budget": "5"}, "token_budget bounds what compress keeps"),
        ({"query": ""}, "This field is required."),
        ({"query": " \n "}, "query must hold at least one visible character"),
        ({"query": "x" * 20_001}, "at most 20000 characters"),
        ({"query": "x", "k": "0"}, "greater than or equal to 1"),
        ({"query": "x", "k": "many"}, "Enter a whole number."),
        ({"query": "x", "mode": "magic"}, "magic is not one of the available choices"),
        ({"query": "x", "metadata": "{bad"}, "this must be a JSON object"),
        ({"query": "x", "collection": "none"}, "not one of the available choices"),
        ({"query": "x", "filter": "pages = 3"}, "position 1"),
    ],
)
def test_a_wrong_question_is_refused_and_kept(visitor: Client, values: dict[str, str], said: str) -> None:
    response = visitor.post("/chat/", {"collection": "nature", "tags_any": "kept"} | values)
    assert response.status_code == 422
    assert said in html_module.unescape(text(response))
    assert 'value="kept"' in text(response)


def test_runs_are_filtered_by_their_address(visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any]) -> None:
    fill("other", 1)
    first, second = ask(QUESTION), ask("Another question?", collection="other", do="search")

    def found(query: str) -> set[str]:
        return set(re.findall(r'href="/runs/([0-9a-f-]{36})/["?]', text(visitor.get(f"/activity/?{query}"))))

    assert found("") == {str(first.pk), str(second.pk)}
    assert found("collection=other") == {str(second.pk)}
    assert found("kind=ask") == {str(first.pk)}
    assert found("text=ANOTHER") == {str(second.pk)}
    assert found("channel=api") == set()
    assert found("status=magic&kind=x") == {str(first.pk), str(second.pk)}


def test_a_run_outlives_its_collection(visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any]) -> None:
    collection = fill()
    run = ask(QUESTION)
    delete_collection(collection)
    for address in (f"/runs/{run.pk}/", "/activity/", "/"):
        html = text(visitor.get(address))
        assert "/collections/nature/" not in html
    assert "nature, deleted" in text(visitor.get(f"/runs/{run.pk}/"))
    assert visitor.get(f"/chat/?run={run.pk}", follow=True).status_code == 200


def test_a_hostile_question_is_text_everywhere(visitor: Client, ask: Callable[..., Any]) -> None:
    run = ask('<script>alert(1)</script>"><img src=x>')
    for address in (f"/chat/?run={run.pk}", f"/runs/{run.pk}/", "/activity/", "/", "/go/?q=<script>alert", "/chat/"):
        html = text(visitor.get(address, follow=True))
        assert "<script>alert" not in html
        assert "<img" not in html


def test_a_source_whose_document_is_gone_has_no_link_to_its_chunk(
    visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    from collections_app.documents.services import delete_documents

    collection = fill()
    run = ask(QUESTION)
    gone = run.results[0]["doc_id"]
    for address in (f"/chat/?run={run.pk}", f"/runs/{run.pk}/", f"/runs/{run.pk}/?view=ranking"):
        selector = f".source[data-doc-id='{gone}'] a[data-drawer], th a[data-drawer][href*='/{gone}/']"
        assert has(visitor.get(address, follow=True), selector), address
        with transaction.atomic():
            delete_documents(collection, [gone])
            page = visitor.get(address, follow=True)
            transaction.set_rollback(True)
        assert gone in text(page) and not has(page, selector), address
    delete_documents(collection, [gone])
    assert visitor.get(f"/runs/{run.pk}/?result=1").status_code == 200, "what the answer was made from is kept"


def test_a_replay_says_on_its_page_what_differs(
    visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    from collections_app.documents.services import delete_documents

    REPLAYS = 'input[name="do"][value="replay"]'
    collection = fill()
    run = ask(QUESTION)
    assert has(visitor.get(f"/runs/{run.pk}/"), REPLAYS)
    same = visitor.post(f"/runs/{run.pk}/", {"do": "replay"})
    assert same.status_code == 302
    page = text(visitor.get(same["Location"]))
    assert 'data-same="true"' in page
    assert f'href="/runs/{run.pk}/"' in page
    delete_documents(collection, [run.results[0]["doc_id"]])
    page = text(visitor.get(visitor.post(f"/runs/{run.pk}/", {"do": "replay"})["Location"]))
    assert 'data-same="false"' in page
    assert re.search(rf"{run.results[0]['doc_id']} · chunk \d+</th><td class=\"num\">1</td><td class=\"num\">–", page)
    delete_collection(collection)
    assert not has(visitor.get(f"/runs/{run.pk}/"), REPLAYS)
    refused = visitor.post(f"/runs/{run.pk}/", {"do": "replay"}, follow=True)
    assert tones(refused) == ["bad"]


@pytest.fixture
def model(openai_server: OpenAIServer, settings: Any) -> OpenAIServer:
    settings.RAGD_LLM_BASE_URL = openai_server.base_url
    settings.RAGD_LLM_API_KEY = openai_server.api_key
    openai_server.chat_reply = lambda messages: "The <b>blue</b> whale [1]. A rumour [9]."
    return openai_server


def stream(visitor: Client, **values: Any) -> list[tuple[str, Any]]:
    """The events that the Ask page's script reads."""
    response = visitor.post("/chat/stream/", {"query": QUESTION, "collection": "nature", **values})
    assert response["Content-Type"].startswith("text/event-stream")
    body = b"".join(response.streaming_content).decode()  # type: ignore[attr-defined]
    blocks = [block.split("\n") for block in body.split("\n\n") if block.startswith("event")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def test_the_page_hears_of_the_answer_while_it_is_written(visitor: Client, model: OpenAIServer) -> None:
    events = stream(visitor, k="2")
    names = [name for name, _ in events]
    assert (names[0], names[-1], set(names[1:-1])) == ("search_results", "final", {"answer"})
    found = events[0][1]["html"]
    assert found.count('<li class="source"') == 2
    assert "data-growing" in found
    drawn = [data["html"] for name, data in events if name == "answer"][-1]
    assert "The &lt;b&gt;blue&lt;/b&gt; whale" in drawn and "<b>" not in drawn
    (link,) = re.findall(r'<a class="cite" href="([^"]+)" data-evidence="citation"', drawn)
    link = html_module.unescape(link)
    assert link.startswith(f"{events[0][1]['href'].partition('#')[0]}?source=nature&")
    source = visitor.get(link, follow=True)
    assert len(tree(source).css("#detail .evidence .cited-passage mark")) == 1
    assert (attribute(source, ".evidence .actions a", "href") or "").startswith("/collections/nature/documents/")
    assert visitor.get(link.replace("doc_id=", "doc_id=x")).status_code == 404
    href = events[-1][1]["href"]
    part = visitor.get(href, headers={"HX-Request": "true", "HX-Target": "chat"})
    assert (part["HX-Push-Url"], part["Ragd-Part"]) == (href.partition("#")[0], "chat")
    assert "The &lt;b&gt;blue&lt;/b&gt; whale" in text(part)


def test_where_the_model_fails_quotations_answer_and_it_can_be_tried_again(
    visitor: Client, model: OpenAIServer
) -> None:
    model.script(cut_short(3))
    name, data = stream(visitor)[-1]
    run = QueryRun.objects.get()
    assert (name, run.status, run.answerer, run.error_type) == ("final", "ok", "extractive", "llm_broken_stream")
    page = visitor.get(data["href"])
    assert has(page, ".message .banner button[name=retry]") and has(page, ".answer .cite")
    message = ChatMessage.objects.get()
    again = visitor.post(message.thread.get_absolute_url(), {"collection": "nature", "query": "", "retry": message.pk})
    assert again.status_code == 302
    assert [row.run_id for row in ChatMessage.objects.all()] == [QueryRun.objects.latest("created_at").pk] != [run.pk]
    assert QueryRun.objects.latest("created_at").error == ""


def test_what_has_no_support_is_corrected_where_a_person_asks_for_it(visitor: Client, model: OpenAIServer) -> None:
    good, invented = "The blue whale is the largest animal [1].", "It was discovered in Norway by chance."
    model.chat_reply = lambda messages: good if messages[-2]["role"] == "assistant" else f"{good} {invented}"
    page = visitor.get(stream(visitor)[-1][1]["href"])
    assert len(model.bodies("/v1/chat/completions")) == 1 and has(page, ".message button[name=repair]")
    thread = ChatMessage.objects.get().thread.get_absolute_url()
    sent = {"collection": "nature", "query": "", "repair": ChatMessage.objects.get().pk}
    page = visitor.post(thread, sent, follow=True)
    run = QueryRun.objects.latest("created_at")
    assert (run.answer, run.token_usage["repaired"]) == (good, 1)
    assert not has(page, ".message button[name=repair]") and invented not in text(page)


@pytest.mark.fault("UX-F5")
def test_a_reader_that_leaves_stops_nothing_and_a_person_does(
    visitor: Client, model: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.chat_reply = lambda messages: "Whales [1] sing. " * 50
    tell = PageStream.tell

    def after_30_characters(act: Callable[[PageStream], None]) -> None:
        def read(self: PageStream, text: str) -> None:
            tell(self, text)
            if len(self.text) > 30:
                act(self)

        monkeypatch.setattr(PageStream, "tell", read)

    after_30_characters(PageStream.leave)
    stream(visitor)
    run = QueryRun.objects.get()
    assert run.status == "ok" and run.token_usage["finish_reason"] == "stop"
    assert run.answer is not None and run.answer.count("sing") == 50
    assert not ChatMessage.objects.exclude(writing_until=None).exists()

    ended = threading.Event()  # the model goes on writing until then
    model.pause = lambda sent: None if sent < 30 else ended.wait(30)
    after_30_characters(lambda self: self.question.writing.stopped.set())
    stream(visitor)
    ended.set()
    run = QueryRun.objects.exclude(pk=run.pk).get()
    assert run.status == "ok" and run.token_usage["finish_reason"] == "stopped"
    assert run.answer is not None and 30 < len(run.answer) < 200


@pytest.mark.fault("UX-F5")
def test_a_message_says_whether_its_answer_is_written_or_was_cut(
    visitor: Client, ask: Callable[..., Any], django_user_model: Any
) -> None:
    ask(QUESTION)
    message = ChatMessage.objects.get()
    address = message.thread.get_absolute_url()
    stop = f"/chat/messages/{message.pk}/stop/"
    QueryRun.objects.all().delete()
    assert not has(visitor.get(address), f"form[action='{stop}']") and not has(visitor.get(address), "[data-cut]")

    ChatMessage.objects.update(writing_until=timezone.now() + timedelta(seconds=20))
    page = visitor.get(address)
    assert attribute(page, "[hx-trigger='load delay:1s']", "hx-target") == f"#message-{message.pk}"
    assert has(page, f"form[action='{stop}']") and not has(page, "[data-cut]")
    stranger = Client()
    eve = django_user_model.objects.create_user("eve")
    RoleGrant.objects.create(user=eve, role=Role.ASKER)  # of all collections: only the thread is not hers
    stranger.force_login(eve)
    assert stranger.post(stop).status_code == 404
    assert not ChatMessage.objects.get().stop_requested
    assert visitor.post(stop).status_code == 302 and ChatMessage.objects.get().stop_requested
    assert has(visitor.get(address), f"form[action='{stop}'] button[disabled]")

    ChatMessage.objects.update(writing_until=timezone.now() - timedelta(seconds=1))
    page = visitor.get(address)
    assert has(page, "[data-cut] button[name=retry]") and not has(page, f"form[action='{stop}']")
    assert not has(page, "[hx-trigger='load delay:1s']")


@pytest.mark.parametrize(
    ("values", "status"), [({"query": ""}, 422), ({"query": " \n"}, 422), ({"k": "0"}, 422), ({"collection": "x"}, 422)]
)
def test_what_the_form_refuses_is_no_stream(visitor: Client, values: dict[str, str], status: int) -> None:
    response = visitor.post("/chat/stream/", {"query": QUESTION, "collection": "nature", **values})
    assert response.status_code == status and not response["Content-Type"].startswith("text/event-stream")
    assert visitor.get("/chat/stream/").status_code == 405


def test_what_fails_before_there_are_results_is_told_once(
    visitor: Client, model: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page as the script shows it, and one run. Only where no stream is free is the script to ask again."""

    def stands_still(*_: object, **__: object) -> None:
        raise ServiceError("the embedding endpoint stands still", type="embedder_failed_server", status=502)

    monkeypatch.setattr("retrieval_app.search.query_pipeline.retrieve_detailed", stands_still)
    monkeypatch.setattr("retrieval_app.search.query_pipeline.read_store", stands_still)
    given = {"query": QUESTION, "collection": "nature"}
    response = visitor.post("/chat/stream/", given, headers={"HX-Request": "true", "HX-Target": "chat"})
    assert (response.status_code, response["Ragd-Part"]) == (502, "chat")
    page = text(response)
    assert page.startswith('<div id="chat"') and "the embedding endpoint stands still" in page and QUESTION in page
    failed = QueryRun.objects.get()
    assert failed.status == "error"
    assert not ChatThread.objects.exists()
    monkeypatch.setattr("retrieval_app.answers.streams.readers_max", lambda: 0)
    response = visitor.post("/chat/stream/", given, headers={"HX-Request": "true", "HX-Target": "chat"})
    assert (response.status_code, response["Content-Type"]) == (503, "application/json")
    assert QueryRun.objects.count() == 1


def test_a_run_is_opened_under_four_tabs_the_answer_first(visitor: Client, ask: Callable[..., QueryRun]) -> None:
    older, run = ask("What does the blue whale eat?"), ask("What does the blue whale eat?")
    base = f"/runs/{run.pk}/"
    marks = {
        "": ("div.answer", "#results li.source.cited", "details.more-sources li.source"),
        "view=ranking&": ("#ranking tbody tr", "#plan-json"),
        "view=trace&": ("[data-split] #waterfall", "[data-split] [data-pane]"),
        "view=evaluation&": ("#run-score", "#golden-of-run"),
    }
    for tab in marks:
        page = visitor.get(f"{base}?{tab}kind=ask")
        tabs = tree(page).css("nav.tabs a")
        assert [node.attributes["href"] for node in tabs] == [f"{base}?{name}kind=ask" for name in marks]
        assert [node.attributes["href"] for node in tabs if "aria-current" in node.attributes] == [
            f"{base}?{tab}kind=ask"
        ]
        found = {name for name, selectors in marks.items() if all(has(page, selector) for selector in selectors)}
        assert found == {tab}
        assert attribute(page, 'a[rel="next"]', "href") == f"/runs/{older.pk}/?{tab}kind=ask"
        assert attribute(page, 'a[rel="next"]', "data-key") == "j"
        assert len(tree(page).css(".head .actions > .button")) == 2
    assert not has(visitor.get(f"{base}?kind=ask"), ".source .ranks .mono"), "ranks stand under Ranking"
    ranks = [
        node.attributes["data-rank"] for node in tree(visitor.get(f"{base}?view=ranking")).css("#ranking tbody tr")
    ]
    assert ranks == [str(rank) for rank in range(1, len(run.results) + 1)]
    assert visitor.get(f"{base}?view=nonsense").status_code == 404


def test_two_runs_stand_beside_each_other_and_one_is_pinned(visitor: Client, ask: Callable[..., QueryRun]) -> None:
    from evaluation_app.models import Span

    before, after = ask("What does the blue whale eat?", k=2), ask("What does the blue whale eat?")
    for number, (run, took_ms) in enumerate(((before, 100), (after, 400))):
        Span.objects.create(
            trace_id=str(number) * 32, span_id=f"{number:016x}", name="rag.pipeline nature", kind="INTERNAL",
            type="aitf.rag.pipeline", status_code="OK", run_id=run.pk, started_at=run.created_at,
            ended_at=run.created_at + timedelta(milliseconds=took_ms), duration_ms=took_ms,
        )  # fmt: skip
        QueryRun.objects.filter(pk=run.pk).update(trace_id=str(number) * 32)
    assert not has(visitor.get(f"/runs/{after.pk}/"), 'a[href*="/compare/"]')
    assert visitor.post(f"/runs/{before.pk}/", {"do": "pin"}).status_code == 302
    assert not has(visitor.get(f"/runs/{before.pk}/"), 'a[href*="/compare/"]'), "not with itself"
    address = attribute(visitor.get(f"/runs/{after.pk}/"), 'a[href*="/compare/"]', "href")
    assert address == f"/runs/{after.pk}/compare/{before.pk}/"
    page = visitor.get(address)
    assert [len(column.css("ol > li")) for column in tree(page).css("#rankings .stage")] == [2, len(after.results)]
    assert len(tree(page).css("#rankings .rank-lines path")) == 2
    bars = [node.attributes["width"] for node in tree(page).css("#traces .wf-row rect.bar")]
    assert bars == ["25.0%", "100.0%"], "one axis"
    assert "k" in [text.lower() for text in texts(page, "table th[scope=row]")]
    assert visitor.get(f"/runs/{after.pk}/compare/00000000-0000-4000-8000-000000000000/").status_code == 404
    visitor.post(f"/runs/{before.pk}/", {"do": "pin"})
    assert not has(visitor.get(f"/runs/{after.pk}/"), 'a[href*="/compare/"]')


def test_an_answer_whose_run_could_not_be_stored_is_shown(visitor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_pipeline, "_store_run", lambda run: setattr(run, "pk", None))
    page = visitor.post("/chat/", {"collection": "nature", "query": QUESTION, "do": "ask"})
    assert page.status_code == 200 and has(page, "div.answer")
    assert not has(page, ".message a[href^='/runs/']")
    assert not QueryRun.objects.exists()


def test_a_follow_up_question_is_searched_for_whole_unless_it_is_wanted_as_typed(
    visitor: Client, ask: Callable[..., Any], model: OpenAIServer, settings: Any
) -> None:
    model.chat_reply = lambda messages: (
        "What do blue whales eat?" if "Conversation:" in messages[-1]["content"] else "They eat krill [1]."
    )
    ask(QUESTION)
    thread = ChatThread.objects.get()
    address, form = thread.get_absolute_url(), {"collection": "nature", "query": "What does it eat?"}
    visitor.post(address, form)
    by_model = QueryRun.objects.latest("created_at")
    assert (by_model.query, ChatMessage.objects.latest("position").question) == (
        "What do blue whales eat?",
        form["query"],
    )
    assert by_model.history[0]["content"] == QUESTION
    assert has(visitor.get(address), ".rewritten button[name=literal]")
    visitor.post(address, form | {"query": "", "literal": ChatMessage.objects.latest("position").pk})
    assert QueryRun.objects.latest("created_at").query == form["query"]
    assert ChatMessage.objects.count() == 2 and not has(visitor.get(address), ".rewritten")

    settings.RAGD_LLM_BASE_URL = settings.RAGD_LLM_API_KEY = ""
    visitor.post(address, form | {"query": "And the largest tree?"})
    assert QueryRun.objects.latest("created_at").query != "And the largest tree?"
    visitor.post(address, form | {"query": "And the largest river?", "as_typed": "on"})
    assert QueryRun.objects.latest("created_at").query == "And the largest river?"
    thread.refresh_from_db()
    assert not thread.rewrites and has(visitor.get(address), "[name=as_typed][checked]")


def test_feedback_says_what_is_wrong_and_leads_to_a_golden_question(
    visitor: Client, ask: Callable[..., QueryRun]
) -> None:
    run = ask(QUESTION)
    address = f"/runs/{run.pk}/feedback/"
    assert visitor.post(address, {"correct": "no", "reason": "bored"}).status_code == 422
    assert visitor.post(address, {"correct": "no", "reason": "outdated"}).status_code == 302
    review = Review.objects.get()
    assert (review.reason, review.verdicts, review.task.query_run) == ("outdated", {"correctness": 0.0}, run.pk)
    assert has(visitor.get(address), f"a[href='/evaluation/sets/from-run/{run.pk}/']")
    assert has(visitor.get("/evaluation/review/?state=feedback"), f"a[href='/evaluation/sets/from-run/{run.pk}/']")
    visitor.post(address, {"correct": "yes", "reason": "outdated"})
    review.refresh_from_db()
    assert (review.reason, review.verdicts) == ("", {"correctness": 1.0})


def test_two_models_answer_side_by_side_until_one_is_kept(visitor: Client, model: OpenAIServer) -> None:
    events = stream(visitor, other_model="extractive")
    assert {data.get("column") for name, data in events if name == "answer"} == {None, 1}
    message = ChatMessage.objects.get()
    runs = {run.pk: run for run in QueryRun.objects.all()}
    first, other = runs[message.run_id], runs[message.other_run_id]
    assert (first.answerer != "extractive", other.answerer, len(runs)) == (True, "extractive", 2)
    address = message.thread.get_absolute_url()
    columns = tree(visitor.get(address)).css(".answers .answer-column")
    for column, run in zip(columns, (first, other), strict=True):
        links = [node.attributes["href"] for node in column.css("a.cite")]
        assert links == [f"/runs/{run.pk}/?citation={number}" for number in range(1, len(run.citations) + 1)] != []
    assert json.loads(text(visitor.get(f"{address}thread.json")))["messages"][0]["other"]["answer"] == other.answer

    for value in ("x", str(QueryRun(pk=message.thread_id).pk)):
        visitor.post(address, {"keep": value})
    assert ChatMessage.objects.get().other_run_id == other.pk, "no such answer"
    assert visitor.post(address, {"keep": str(other.pk)}).status_code == 302
    message.refresh_from_db()
    assert (message.run_id, message.other_run_id) == (other.pk, None) and not has(visitor.get(address), ".answers")
    assert QueryRun.objects.count() == 2, "what is not kept stays a query run"
