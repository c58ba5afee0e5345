"""Embedding models tried on the same questions over the same sample before one is switched to."""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from itertools import product
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from collections_app.chunks.edits import edit_chunk
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.endpoints.providers import EndpointWaitsError
from collections_app.errors import ServiceError
from collections_app.index.services import resolve_target, start_index_version
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, IndexVersion
from evaluation_app.experiments import model_trial
from evaluation_app.experiments.model_trial import Candidate, Trial, parse_candidate
from evaluation_app.experiments.ranking import draw_sample, make_questions, rank, rank_trials, trials_of, winner_of
from evaluation_app.experiments.services import cancel_experiment, progress_of, start_models
from evaluation_app.golden.questions import Golden
from evaluation_app.models import EvaluationRun, Experiment, GoldenSet
from evaluation_app.runs import runner
from evaluation_app.runs.lifecycle import process_run, send_waiting
from evaluation_app.scoring.contributions import retrieval_scores
from ragd import index, retrieve
from ragd.errors import InvalidInput
from ragd.insight.list_weights import EVEN
from ragd.store.store import fetch_all
from ragd.store.tables import scratch_schema
from ragd.types import RetrievePlan
from retrieval_app.plans.services import build_plan, save_plan
from tests.builders import make_chunks
from tests.collections.conftest import embeddings, notes_of_module, openai_server
from tests.evaluation.made_runs import make_set
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with

__all__ = ["embeddings", "notes_of_module", "openai_server"]

GOOD = {"embed_model": "text-embedding-3-small", "embed_dims": 64}
SUBJECTS = ["heron", "otter", "beaver", "kestrel", "badger", "salmon", "lynx", "marten", "plover", "adder"]


@pytest.fixture(scope="module")
def poor_of_module(notes_of_module: Collection) -> Collection:
    """Ten documents under vectors of two dimensions, without keyword search."""
    collection = create_collection(name="animals", embed_dims=2, hybrid_enabled=False)
    for number, name in enumerate(SUBJECTS):
        ingest_text(
            collection, name, f"The {name} lives by river {number}. It was seen {number} times near the {name} mill."
        )
    return collection


@pytest.fixture(scope="module")
def asked_of_module(poor_of_module: Collection) -> GoldenSet:
    questions = {f"Where lives the {name} mill": name for name in SUBJECTS}
    return make_set("animals", poor_of_module.name, questions | {"Who is gone?": "gone"})


@pytest.fixture
def poor(poor_of_module: Collection, db: None) -> Collection:
    return copy(poor_of_module)


@pytest.fixture
def asked(asked_of_module: GoldenSet, db: None) -> GoldenSet:
    return copy(asked_of_module)


def finish(experiment: Experiment) -> Experiment:
    for run in experiment.runs.filter(state="queued").order_by("place"):
        process_run(str(run.pk))
    return experiment


def test_the_better_model_wins_and_becomes_a_index_version(poor: Collection, asked: GoldenSet) -> None:
    tables = fetch_all(connection, "SELECT count(*) FROM pg_class")
    done = finish(start_models(poor, [GOOD, GOOD | {"vector_type": "halfvec"}], golden_set=asked, k=3))
    assert (progress_of(done).state, len(trials_of(done)), len(done.questions)) == ("succeeded", 3, 10)
    standings = rank(done)
    assert [each.is_current for each in standings] == [False, False, True]
    winner = winner_of(standings)
    assert winner is not None and winner.candidate.embed_dims == 64
    assert (
        winner.gain is not None
        and winner.gain.low > 0
        and winner.gain.mean == pytest.approx(winner.ndcg.mean - standings[-1].ndcg.mean)
    )
    assert winner.index_bytes > 0 and winner.by_mode.keys() == {"vector", "lexical", "hybrid"}
    # half precision: the same ranking here; and nothing of any trial is left
    whole, half = (trials_of(done)[number] for number in (1, 2))
    assert half["ndcg"]["vector"] == whole["ndcg"]["vector"]
    assert fetch_all(connection, "SELECT count(*) FROM pg_class") == tables
    index_version = start_index_version(poor, done.variants[winner.number])
    assert run_job(index_version.jobs.newest()[0].pk) == "succeeded"
    poor.refresh_from_db()
    assert (poor.embed_dims, poor.vector_type) == (64, winner.candidate.vector_type)


def test_an_index_of_half_precision_is_measured_as_smaller(poor: Collection) -> None:
    chunks = make_chunks("heron", *(f"Sighting {number}." for number in range(300)))
    vectors = list(np.random.default_rng(1).standard_normal((300, 64)).astype(np.float32))
    sizes = []
    for kind in ("vector", "halfvec"):
        spec = resolve_target(poor, GOOD | {"vector_type": kind}).spec
        with transaction.atomic(), scratch_schema(connection):
            sizes.append(model_trial.measure_size(model_trial.fill(poor, spec, chunks, vectors)))
    assert 0 < sizes[1] < sizes[0]


def test_a_trial_ranks_as_the_collection_does_after_the_switch(db: None, embeddings: OpenAIServer) -> None:
    """Its chunks, its measured weights and its ranking, where the sample is all there is."""
    collection = create_collection(name="river", embed_dims=64)
    for number, (place, name) in enumerate(product(("mill", "weir", "pond", "ford"), SUBJECTS)):
        text = f"The {name} lives by the old {place}. It was seen {number} times near river {number % 7} at dawn."
        ingest_text(collection, f"{name}-{place}", text)
    ingest_text(collection, "own-policy", "One two three. " * 40, policy={"target_tokens": 20})
    ingest_text(collection, "edited", "Nothing of note. The lynx sleeps.")
    edit_chunk(collection, "edited", 0, content="A crane flies over the mill.")
    index(make_chunks("textless", "A stork stands on the roof."), open_store(collection))
    questions = {f"Which mill has a {name}?": f"{name}-mill" for name in SUBJECTS}
    golden = make_set("river", collection.name, questions | {"Which mill has a crane?": "edited"})
    done = finish(start_models(collection, [GOOD | {"embed_dims": 2}], golden_set=golden, k=3))
    assert (progress_of(done).state, done.settings["mode"], len(done.doc_ids)) == ("succeeded", "hybrid", 43)
    own, poor = trials_of(done).values()
    index_version = start_index_version(collection, done.variants[1])
    assert run_job(index_version.jobs.newest()[0].pk) == "succeeded"
    index_version.refresh_from_db()
    collection.refresh_from_db()
    store = open_store(collection)
    assert (poor["chunks"], own["chunks"]) == (store.state().chunk_count,) * 2
    assert poor["weights"] == index_version.list_weights != EVEN
    served = build_plan(collection, k=15, candidate_pool=30)
    for place, question in enumerate(done.questions):
        with transaction.atomic():
            found = retrieve(question["question"], served, store)
        scores = retrieval_scores(
            [f"{item.doc_id}#{item.chunk_index}" for item in found], Golden.from_dict(question), 3
        )
        assert scores["ndcg@3"].value == pytest.approx(poor["ndcg"]["hybrid"][place], abs=1e-6)


def test_the_default_plan_of_the_collection_decides_mode_and_fusion(poor: Collection, asked: GoldenSet) -> None:
    Collection.objects.update(hybrid_enabled=True)  # only its mode and plan are read
    poor.refresh_from_db()
    plan = RetrievePlan(mode="hybrid", weights={"vector": 0.25, "lexical": 0.75})
    save_plan(poor, "ours", plan, is_default=True)
    done = finish(start_models(poor, [GOOD], golden_set=asked))
    assert [each["weights"] for each in trials_of(done).values()] == [{"vector": 0.25, "lexical": 0.75}] * 2
    assert done.settings["mode"] == "hybrid"
    save_plan(poor, "ours", RetrievePlan(mode="vector"), is_default=True)
    assert start_models(poor, [GOOD], golden_set=asked).settings["mode"] == "vector"


def test_an_endpoint_that_asks_for_a_pause_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(model_trial.time, "sleep", slept.append)
    refusals = [EndpointWaitsError("later", timezone.now() + timedelta(seconds=40)) for _ in range(2)]

    def ask() -> str:
        if refusals:
            raise refusals.pop()
        return "done"

    assert model_trial.wait_for(ask) == "done"
    assert slept == [pytest.approx(40, abs=2)] * 2
    refusals = [EndpointWaitsError("later", timezone.now() + timedelta(seconds=2 * model_trial.WAIT_MAX_S))]
    with pytest.raises(EndpointWaitsError):
        model_trial.wait_for(ask)


def test_equal_models_have_no_winner() -> None:
    trial = Trial(
        "a", 10, 1.0, 1.0, 10, None, 100.0, 1.0, {}, {"vector": [1.0, 0.5] * 6}, {"vector": [1.0] * 12}
    ).as_dict()
    experiment = Experiment(
        variants=[Candidate("a", 3).as_dict(), Candidate("b", 3).as_dict()],
        settings={"mode": "vector", "chunks_total": 20},
    )
    standings = rank_trials(experiment, {0: trial, 1: trial})
    assert winner_of(standings) is None
    assert [each.p for each in standings if not each.is_current] == [1.0]
    assert [each.index_bytes for each in standings] == [2000, 2000]
    assert rank_trials(experiment, {1: trial}) == [], "all are compared with the model in use"


def test_one_that_lost_its_worker_goes_on_with_the_model_that_was_not_finished(
    poor: Collection, asked: GoldenSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = start_models(poor, [GOOD], golden_set=asked)
    tried: list[str] = []
    real = runner.try_candidate

    def fail_at_second(collection: Collection, candidate: Candidate, *args: Any, **kwargs: Any) -> Trial:
        tried.append(candidate.label)
        if len(tried) == 2:
            raise SystemExit
        return real(collection, candidate, *args, **kwargs)

    monkeypatch.setattr(runner, "try_candidate", fail_at_second)
    with pytest.raises(SystemExit):
        finish(experiment)
    assert progress_of(experiment).state == "running"
    EvaluationRun.objects.filter(state="queued").update(sent_at=timezone.now() - timedelta(hours=1))
    assert send_waiting() == 1, "the same maintenance as of all evaluation runs"
    done = finish(experiment)
    assert (progress_of(done).state, len(trials_of(done)), len(tried)) == ("succeeded", 2, 3)
    assert tried[1] == tried[2] != tried[0]


def test_a_model_that_ends_its_worker_again_and_again_is_given_up(poor: Collection, asked: GoldenSet) -> None:
    experiment = start_models(poor, [GOOD], golden_set=asked)
    experiment.runs.filter(place=1).update(attempts=runner.LOSSES_MAX)
    done = finish(experiment)
    assert (progress_of(done).state, list(trials_of(done))) == ("failed", [0])
    assert done.runs.get(place=1).error_type == "worker_lost"


def test_a_model_that_fails_ends_its_run_with_the_reason(
    poor: Collection, asked: GoldenSet, embeddings: OpenAIServer
) -> None:
    experiment = start_models(poor, [GOOD], golden_set=asked)
    embeddings.script(failing(401))
    progress = progress_of(finish(experiment))
    assert progress.state == "failed" and progress.error
    assert rank(experiment) == [], "nothing is compared without the model in use"


def test_a_cancelled_one_is_left_alone_and_a_second_one_waits(poor: Collection, asked: GoldenSet) -> None:
    experiment = start_models(poor, [GOOD], golden_set=asked)
    with raises_with(ServiceError, status=409):
        start_models(poor, [GOOD], golden_set=asked)
    leased = experiment.runs.get(place=0)
    EvaluationRun.objects.filter(pk=leased.pk).update(
        state="running", lease_until=timezone.now() + timedelta(minutes=5)
    )
    cancel_experiment(experiment, None)
    assert progress_of(experiment).state == "cancelled", "the one at work too, at once"
    assert trials_of(finish(experiment)) == {}
    with pytest.raises(ServiceError):
        cancel_experiment(experiment, None)
    assert progress_of(start_models(poor, [GOOD], golden_set=asked)).is_active


def test_expected_documents_are_always_in_the_sample(poor: Collection, asked: GoldenSet) -> None:
    for number in range(5):
        lines = [f"Nothing of note stands in line {line} of paper {number}." for line in range(40)]
        ingest_text(poor, f"other-{number}", "\n\n".join(lines), policy={"target_tokens": 15, "overlap_tokens": 0})
    drawn = draw_sample(poor, asked, 100)
    assert set(SUBJECTS) < set(drawn.doc_ids)
    assert drawn.chunks >= 100 and len(SUBJECTS) < len(drawn.doc_ids) < len(SUBJECTS) + 5
    assert drawn == draw_sample(poor, asked, 100)


def test_questions_are_made_from_documents_of_any_language(db: None, embeddings: OpenAIServer) -> None:
    collection = create_collection(name="tiere")
    for name in SUBJECTS:
        ingest_text(
            collection, name, f"Der {name} wohnt seit vielen Jahren am Ufer des kleinen Flusses bei der Brücke."
        )
    questions = make_questions(collection)
    assert len(questions) == 10
    assert {doc_id for question in questions for doc_id in question.relevant_docs} == set(SUBJECTS)
    assert all(question.question not in "Der wohnt seit vielen Jahren am Ufer" for question in questions)
    empty = create_collection(name="empty")
    with raises_with(ServiceError, field="golden_set"):
        draw_sample(empty, None, 1000)


@pytest.mark.parametrize(
    "models, field",
    [([], "models"), ([{"embed_model": "text-embedding-3-small", "vector_type": "bit"}], "vector_type")],
)
def test_what_cannot_be_tried_is_refused_before_it_begins(
    poor: Collection, asked: GoldenSet, models: list[dict[str, Any]], field: str
) -> None:
    with raises_with(InvalidInput, field=field):
        start_models(poor, models, golden_set=asked)
    assert not Experiment.objects.exists()


def test_variants_are_read_as_people_write_them() -> None:
    assert parse_candidate("a:64:halfvec") == {"embed_model": "a", "embed_dims": 64, "vector_type": "halfvec"}
    assert parse_candidate(" bge-m3:567m ") == {"embed_model": "bge-m3:567m"}
    assert parse_candidate("bge-m3:567m:1024") == {"embed_model": "bge-m3:567m", "embed_dims": 1024}
    assert parse_candidate("a:halfvec") == {"embed_model": "a", "vector_type": "halfvec"}
    written = Candidate("bge-m3:567m", 1024, "halfvec")
    assert Candidate(**parse_candidate(written.written)) == written
    for text in ("", ":64", ":halfvec"):
        with pytest.raises(InvalidInput):
            parse_candidate(text)


def test_the_precision_of_the_vector_index_is_part_of_a_index_version(poor: Collection) -> None:
    plain = resolve_target(poor, {}).spec
    half = resolve_target(poor, {"vector_type": "halfvec"}).spec
    assert plain.hash != half.hash and plain.shares_vectors(half)
    index_version = start_index_version(poor, {"vector_type": "halfvec"})
    assert run_job(index_version.jobs.newest()[0].pk) == "succeeded"
    assert IndexVersion.objects.get(pk=index_version.pk).vector_type == "halfvec"
    poor.refresh_from_db()
    assert poor.vector_type == "halfvec"


def test_pages(poor: Collection, asked: GoldenSet, admin_client: Client) -> None:
    page = admin_client.get("/evaluation/experiments/?view=models&collection=animals")
    assert page.status_code == 200
    sent = {"models": "text-embedding-3-small:64\ntext-embedding-3-small:64:halfvec", "golden_set": "animals", "k": 3,
            "sample": 1000}  # fmt: skip
    answer = admin_client.post("/evaluation/experiments/?view=models&collection=animals", sent)
    experiment = Experiment.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, experiment.get_absolute_url())
    assert admin_client.get(experiment.get_absolute_url()).status_code == 200
    finish(experiment)
    shown = admin_client.get(experiment.get_absolute_url())
    assert shown.context["winner"].candidate.embed_dims == 64
    change = {"embed_model": "text-embedding-3-small", "embed_dims": 64, "vector_type": "halfvec"}
    part = admin_client.get("/evaluation/experiments/measured/animals/", change)
    assert part.context["found"][0] == experiment and part.context["found"][1].gain.count == 10
    unknown = admin_client.get("/evaluation/experiments/measured/animals/", change | {"embed_dims": 48})
    assert (
        unknown.context["found"] is None and "models=text-embedding-3-small%3A48%3Ahalfvec" in unknown.context["query"]
    )
    assert admin_client.get("/evaluation/experiments/measured/animals/", {"embed_dims": "x"}).status_code == 404
    assert (
        admin_client.get("/evaluation/experiments/measured/animals/", change | {"embed_model": "\0"}).status_code == 404
    )
    form = admin_client.get(f"/evaluation/experiments/?view=models&{unknown.context['query']}").context["form"]
    assert form["models"].value() == "text-embedding-3-small:48:halfvec"
    estimate = admin_client.post(
        "/collections/animals/index-versions/",
        change | {"do": "estimate", "kind": "words", "language": "english", "activate": "automatic"},
    )
    assert "/evaluation/experiments/measured/animals/?embed_dims=64" in estimate.content.decode()
    shorter = {
        "embed_model": poor.embed_model,
        "kind": "words",
        "target_tokens": 40,
        "overlap_tokens": 5,
        "do": "estimate",
    }
    german = admin_client.post(
        "/collections/animals/index-versions/",
        shorter | {"language": "english", "vector_type": "vector", "activate": "automatic"},
        headers={"Accept-Language": "de"},
    )
    assert 'id="impact"' in german.content.decode() and 'id="measured"' not in german.content.decode()
    built = admin_client.post(experiment.get_absolute_url(), {"do": "build", "number": "1"})
    assert built.status_code == 302 and IndexVersion.objects.filter(number=2, embed_dims=64).exists()
    wrong = admin_client.post("/evaluation/experiments/?view=models&collection=animals", sent | {"models": ":64"})
    assert wrong.status_code == 422 and "models" in wrong.context["form"].errors
