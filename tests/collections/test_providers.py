"""Endpoints in trouble: work waits instead of failing, one at a time tries, one bad text does not take others along."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from collections_app.documents.services import ingest_text
from collections_app.endpoints import providers
from collections_app.endpoints.providers import EndpointWaitsError, ingest_embedder, provider_states
from collections_app.index.stores import embedder_for
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.maintenance import maintain
from collections_app.models import Collection, Document, IngestJob, Provider
from ragd.errors import EmbedderError
from ragd.models.embedding import LocalEmbedder, OpenAIEmbedder
from ragd.models.openai_client import RetryPolicy, Server
from tests.collections.test_jobs import reload, upload
from tests.fakes.faults import Fault, failing, fewer_vectors, rate_limited, with_vectors
from tests.fakes.openai_server import BadRequest, OpenAIServer
from tests.refusals import refuses

MODEL, DIMS = "text-embedding-3-small", 32


@pytest.fixture
def once(embeddings: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> OpenAIServer:
    """Each request is sent once: the endpoint's embedder does not repeat it by itself."""
    embedder = OpenAIEmbedder(
        MODEL, DIMS, Server(embeddings.base_url, embeddings.api_key), policy=RetryPolicy(max_retries=0)
    )
    monkeypatch.setattr(providers, "embedder_for", lambda model, dims, with_tokens=False: embedder)
    return embeddings


def row() -> Provider:
    return Provider.objects.get()


def reach(moment: Any) -> None:
    """Let the pause be over, as if the time had passed."""
    Provider.objects.update(open_until=moment)


def test_the_local_model_has_no_breaker(db: None) -> None:
    assert isinstance(ingest_embedder("all-MiniLM-L6-v2", 384), LocalEmbedder)


def test_an_endpoint_that_is_well_costs_one_query_and_no_row(
    notes: Collection, once: OpenAIServer, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(1):
        ingest_embedder(MODEL, DIMS).embed(["text"])
    assert not Provider.objects.exists()


def test_after_three_failures_nobody_asks_until_one_may_try(notes: Collection, once: OpenAIServer) -> None:
    embedder = ingest_embedder(MODEL, DIMS)
    once.script(*[failing(500)] * 6)  # a text and the harmless one, three times
    for _ in range(2):
        with pytest.raises(EmbedderError) as failure:
            embedder.embed(["text"])
        assert not isinstance(failure.value, EndpointWaitsError)
    with pytest.raises(EndpointWaitsError, match="500"):
        embedder.embed(["text"])
    assert [state.state for state in provider_states(timezone.now())] == ["open"]
    with pytest.raises(EndpointWaitsError):
        embedder.embed(["text"])
    assert len(once.requests) == 6

    reach(timezone.now())
    Provider.objects.update(probe_until=timezone.now() + timedelta(minutes=1))
    with pytest.raises(EndpointWaitsError):  # somebody else tries it
        embedder.embed(["text"])
    Provider.objects.update(probe_until=None)
    once.script(*[failing(503)] * 2)
    with pytest.raises(EndpointWaitsError):
        embedder.embed(["text"])
    first = row().open_until - timezone.now()
    assert timedelta(seconds=25) < first <= timedelta(seconds=30)  # twice as long as the first pause

    reach(timezone.now())
    assert len(embedder.embed(["text"])) == 1
    assert (row().failures, row().open_until, row().probe_until, row().error) == (0, None, None, "")


def test_a_pause_that_the_endpoint_asks_for_holds_for_all_workers(notes: Collection, once: OpenAIServer) -> None:
    once.script(rate_limited("40"))
    with pytest.raises(EndpointWaitsError) as failure:
        ingest_embedder(MODEL, DIMS).embed(["text"])
    assert 38 < (failure.value.retry_after_s or 0) <= 40
    with pytest.raises(EndpointWaitsError):
        ingest_embedder(MODEL, DIMS).embed(["text"])
    assert len(once.requests) == 1


def test_a_refusal_is_not_repeated_and_shows_that_the_endpoint_answers(notes: Collection, once: OpenAIServer) -> None:
    once.script(failing(500), failing(500), failing(401))
    embedder = ingest_embedder(MODEL, DIMS)
    for _ in range(2):
        with pytest.raises(EmbedderError):
            embedder.embed(["text"])
    assert len(once.requests) == 3
    assert (row().failures, row().open_until) == (0, None)


def test_jobs_wait_for_the_endpoint_without_losing_attempts_and_go_on_when_it_answers(
    notes: Collection, once: OpenAIServer, settings: Any
) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    once.script(rate_limited("40"))
    first, second = upload(notes, name="a.txt"), upload(notes, name="b.txt")
    assert run_job(first.pk) == "queued"
    waiting = reload(first)
    assert waiting.waits_for_endpoint and waiting.tries == 0
    assert "waiting for the embedding endpoint" in waiting.error
    assert run_job(second.pk) == "queued"  # it is not even parsed
    assert [row.state for row in reload(second).stage_rows] == ["failed", "waiting", "waiting", "waiting"]
    assert len(once.requests) == 1
    assert maintain()["woken"] == 0

    past = timezone.now() - timedelta(seconds=1)
    reach(past)
    IngestJob.objects.update(sent_at=past)
    assert maintain()["woken"] == 1  # one tries
    tried = IngestJob.objects.get(error_type="", state="queued")
    assert run_job(tried.pk) == "succeeded"
    assert maintain()["woken"] == 1
    assert run_job((second if tried.pk == first.pk else first).pk) == "succeeded"
    assert Document.objects.count() == 2


def test_a_long_wait_is_not_a_lost_job(notes: Collection, once: OpenAIServer) -> None:
    job = upload(notes)
    IngestJob.objects.update(error_type="waiting_for_endpoint", sent_at=timezone.now() + timedelta(minutes=5))
    assert (maintain()["resent"], maintain()["woken"]) == (0, 0)
    IngestJob.objects.update(sent_at=timezone.now() - timedelta(minutes=5))
    assert maintain()["woken"] == 1
    assert reload(job).error_type == ""


def test_one_text_that_is_refused_does_not_take_others_along(
    notes: Collection, once: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = once.answer
    long_text = "too long " * 200

    def refuse_long(request: Any) -> Any:
        if any(len(text) > 1000 for text in request.body["input"]):
            raise BadRequest(400, "a text is too long")
        return answer(request)

    monkeypatch.setattr(once, "answer", refuse_long)
    texts = [f"text {number}" for number in range(7)] + [long_text] + ["last"]
    vectors = ingest_embedder(MODEL, DIMS).embed(texts)
    plain = providers.embedder_for(MODEL, DIMS)
    assert [list(vector) for vector in vectors[:7]] == [list(vector) for vector in plain.embed(texts[:7])]
    assert list(vectors[8]) == list(plain.embed(["last"])[0])
    assert sum(float(value) ** 2 for value in vectors[7]) == pytest.approx(1)
    assert len(vectors) == 9


def test_a_text_that_is_refused_even_in_pieces_is_named(
    notes: Collection, once: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = once.answer

    def refuse_bad(request: Any) -> Any:
        if any("bad" in text for text in request.body["input"]):
            raise BadRequest(400, "not this one")
        return answer(request)

    monkeypatch.setattr(once, "answer", refuse_bad)
    with pytest.raises(EmbedderError, match="'bad words'") as failure:
        ingest_embedder(MODEL, DIMS).embed(["good", "bad words", "good too"])
    assert not failure.value.retryable


WRONG_ANSWERS = {
    "count": fewer_vectors(),
    "invalid_vector": with_vectors([float("nan")] * DIMS),
    "dimensions": with_vectors([0.5] * (DIMS - 1)),
}


@pytest.mark.parametrize("kind", WRONG_ANSWERS)
def test_a_wrong_answer_is_tried_again_as_often_as_a_job_may_be(
    kind: str, notes: Collection, once: OpenAIServer, settings: Any
) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 2
    Provider.objects.create(name=providers.provider_name(MODEL), failures=3, error="500", open_until=timezone.now())
    once.script(WRONG_ANSWERS[kind])
    passing, lasting = upload(notes, name="a.txt"), upload(notes, name="b.txt")
    assert (run_job(passing.pk), reload(passing).error_type.removeprefix("embedder_failed_")) == ("queued", kind)
    assert (row().open_until, row().probe_until) == (None, None)  # it answered: nobody waits for this try
    assert (run_job(passing.pk), reload(passing).tries) == ("succeeded", 2)
    once.script(*[WRONG_ANSWERS[kind], Fault()] * 2)  # the harmless text is embedded
    assert [run_job(lasting.pk) for _ in range(2)] == ["queued", "failed"]
    assert sorted(Document.objects.filter(collection=notes).values_list("doc_id", flat=True)) == ["a.txt"]


def test_the_bucket_makes_the_second_request_wait_for_its_share(
    notes: Collection, once: OpenAIServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(providers.time, "sleep", slept.append)
    settings.RAGD_EMBED_REQUESTS_PER_MINUTE = 6  # one in ten seconds
    embedder = ingest_embedder(MODEL, DIMS)
    embedder.embed(["one"])
    assert slept == []
    embedder.embed(["two"])
    assert slept == [pytest.approx(10, abs=0.5)]
    embedder.embed(["three"])
    embedder.embed(["four"])
    with pytest.raises(EndpointWaitsError):
        embedder.embed(["five"])
    assert len(once.requests) == 4


def test_tokens_are_limited_too(
    notes: Collection, once: OpenAIServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(providers.time, "sleep", slept.append)
    settings.RAGD_EMBED_TOKENS_PER_MINUTE = 60
    embedder = ingest_embedder(MODEL, DIMS)
    tokens = embedder.count_tokens("one two three")
    embedder.embed(["one two three"] * 10)
    assert slept == [pytest.approx(10 * tokens - 10, abs=0.5)]


def test_a_text_sent_while_the_endpoint_is_down_is_answered_at_once(notes: Collection, once: OpenAIServer) -> None:
    once.script(rate_limited("40"))
    for _ in range(2):
        with pytest.raises(EndpointWaitsError):
            ingest_text(notes, "a", "text")
    assert len(once.requests) == 1


def refuse(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], Any], word: str) -> None:
    """Let every request with the word in a text meet the fault; all others are answered."""
    answer = server.answer

    def meet(request: Any) -> Any:
        if any(word in text for text in request.body.get("input", ())):
            return fault(answer(request))
        return answer(request)

    monkeypatch.setattr(server, "answer", meet)


def _raise(status: int, message: str) -> Callable[[Any], Any]:
    def fault(_: Any) -> Any:
        raise BadRequest(status, message)

    return fault


def _vector(values: list[float]) -> Callable[[Any], Any]:
    def fault(body: Any) -> Any:
        body["data"][-1]["embedding"] = values
        return body

    return fault


REFUSALS = {
    "500": _raise(500, "failed to encode response: json: unsupported value: NaN"),
    "413": _raise(413, "Payload too large"),
    "429": _raise(429, "Request too large for this model on tokens per min"),
    "400": _raise(400, "das ist zu lang"),
    "NaN": _vector([float("nan")] * DIMS),
    "short": _vector([0.5] * (DIMS - 1)),
}


@pytest.mark.fault("EMB-05")
@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refused_text_fails_by_name_and_stops_no_other_document(
    kind: str, notes: Collection, once: OpenAIServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 2
    refuse(once, monkeypatch, REFUSALS[kind], "POISON")
    paragraphs = [f"paragraph {number} " + "word " * 140 for number in range(15)]
    paragraphs[13] = "POISON " + "word " * 140
    bad = upload(notes, "\n\n".join(paragraphs), name="bad.txt")
    ends = [run_job(bad.pk)]
    assert ingest_text(notes, "healthy", "a healthy text").chunks_written == 1
    first_try = len(once.bodies("/v1/embeddings"))
    while ends[-1] == "queued":
        ends.append(run_job(bad.pk))
        assert run_job(upload(notes, name=f"healthy-{len(ends)}.txt").pk) == "succeeded"
    assert ends[-1] == "failed" and len(ends) <= 2
    failed = reload(bad)
    assert "POISON" in failed.error and "chunk 3 of 'bad.txt'" in failed.error
    assert not Provider.objects.filter(open_until__isnull=False).exists()
    texts = [text for body in once.bodies("/v1/embeddings")[first_try:] for text in body["input"]]
    assert not [text for text in texts if "paragraph 0 " in text]  # what was embedded is not embedded again


@pytest.mark.fault("EMB-04")
def test_a_text_that_is_too_long_for_an_endpoint_that_says_500_is_embedded_in_pieces(
    notes: Collection, once: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = once.answer

    def limited(request: Any) -> Any:
        if any(len(text.split()) > 50 for text in request.body["input"]):
            raise BadRequest(500, "input is too large to process. increase the physical batch size")
        return answer(request)

    monkeypatch.setattr(once, "answer", limited)
    assert run_job(upload(notes, "a short text and more words " * 150).pk) == "succeeded"
    assert Document.objects.get(collection=notes).chunk_count > 1


def test_without_an_endpoint_no_text_leaves_the_machine(db: None, settings: Any) -> None:
    settings.RAGD_EMBED_BASE_URL = settings.RAGD_EMBED_API_KEY = ""
    embedder = embedder_for("text-embedding-3-small", 1536)
    assert (embedder.model, embedder.dims) == ("text-embedding-3-small", 1536)
    assert embedder.embed([]) == []
    for ask in (lambda: embedder.embed(["a"]), lambda: embedder.embed_query("a")):
        with refuses("embedder_failed_not_configured", None, "EMBED_BASE_URL") as caught:
            ask()
        assert (caught.value.kind, caught.value.retryable) == ("not_configured", False)
