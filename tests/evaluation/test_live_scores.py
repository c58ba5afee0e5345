"""Stored runs judged on request, and a share of live traffic: which, how many, kept, forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from collections_app.collections.deletion import delete_collection
from collections_app.errors import ServiceError
from collections_app.jobs.leases import claim
from collections_app.models import AuditEvent, Collection
from evaluation_app.models import RunScore, Sampling
from evaluation_app.runs.lifecycle import apply_retention
from evaluation_app.scoring import sampling
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.sampling import (
    forget_scores,
    has_work,
    is_chosen,
    judge_run,
    save_sampling,
    score_samples,
    send_samples,
)
from evaluation_app.transfer_parts import SAMPLINGS
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask, search

pytestmark = pytest.mark.django_db

QUESTION = "What must be done before the pump is cleaned?"
PLAN = RetrievePlan(k=3)


@pytest.fixture
def run(house: Collection) -> QueryRun:
    return ask(QueryRequest(house, QUESTION, PLAN, "api"))


def copies(run: QueryRun, number: int, **values: Any) -> list[UUID]:
    """As many runs like it as wanted: what is asked of the models stays cheap."""
    ids = [uuid4() for _ in range(number)]
    for pk in ids:
        run.pk, run._state.adding = pk, True
        for name, value in {"created_at": timezone.now(), **values}.items():
            setattr(run, name, value)
        run.save(force_insert=True)
    return ids


def sample(collection: Collection, **values: Any) -> Sampling:
    return save_sampling(collection, **{"enabled": True, "rate": 1.0, "per_day": 100, "actor": None} | values)


def test_a_run_is_judged_on_request(run: QueryRun) -> None:
    kept = judge_run(run, actor=None)
    assert (kept.query_run, kept.reason, kept.judge, kept.outcome) == (run.pk, "asked", "embedded", "answered")
    assert kept.scores["adherence"] == {"state": "scored", "value": 1.0} and "recall@10" not in kept.scores
    assert kept.context and kept.annotation["support"] and kept.asked_at == run.created_at
    assert QueryRun.objects.get(pk=run.pk).trace_scores is not None
    assert "judged a run of house" in AuditEvent.objects.latest("id").message
    again = judge_run(run, RunSettings(unit="sentences"), actor=None)
    assert RunScore.objects.count() == 1 and again.judge_version != kept.judge_version
    assert forget_scores([run.pk]) == 1


def test_what_holds_nothing_is_not_judged(house: Collection, run: QueryRun) -> None:
    with pytest.raises(ServiceError) as refusal:
        judge_run(run, RunSettings(judge="none"), actor=None)
    assert refusal.value.field == "judge"
    for status in (QueryRun.Status.ERROR, QueryRun.Status.REFUSED):
        run.status = status
        with pytest.raises(ServiceError) as refusal:
            judge_run(run, actor=None)
        assert (refusal.value.type, refusal.value.status) == ("nothing_to_judge", 409)
    found = judge_run(search(QueryRequest(house, QUESTION, PLAN, "api")), actor=None)
    assert [name for name, score in found.scores.items() if score["state"] == "scored"] == ["context_relevance"]


def test_a_run_whose_collection_is_gone_is_judged_all_the_same(run: QueryRun) -> None:
    run.collection = None
    assert judge_run(run, actor=None).scores["adherence"]["value"] == 1.0


def test_the_choice_depends_on_the_id_alone() -> None:
    ids = [UUID(int=number) for number in range(4000)]
    tenth, half = ({pk for pk in ids if is_chosen(pk, rate)} for rate in (0.1, 0.5))
    assert tenth < half and 320 < len(tenth) < 480 and 1850 < len(half) < 2150
    assert all(is_chosen(pk, 1.0) for pk in ids) and not any(is_chosen(pk, 0.0) for pk in ids)


def test_a_share_of_the_traffic_is_scored(house: Collection, run: QueryRun) -> None:
    sample(house, rate=0.5)
    ids = copies(run, 12)
    assert has_work()
    assert score_samples() == sum(is_chosen(pk, 0.5) for pk in ids)
    assert set(RunScore.objects.values_list("query_run", flat=True)) == {pk for pk in ids if is_chosen(pk, 0.5)}
    assert set(RunScore.objects.values_list("reason", flat=True)) == {"sampled"}
    assert not has_work() and score_samples() == 0


def test_only_answers_to_people_and_programs_are_traffic(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 1, channel="worker", environment="evaluation")
    copies(run, 1, channel="api", environment="playground", replay_of=uuid4())
    copies(run, 1, environment="production", replay_of=None, kind="search")
    copies(run, 1, kind="ask", status="error")
    copies(run, 1, status="ok", collection_name="another")
    (pk,) = copies(run, 1, collection_name="house")
    assert score_samples() == 1 and RunScore.objects.get().query_run == pk


def test_what_was_asked_before_is_left_alone(house: Collection, run: QueryRun) -> None:
    sample(house)
    assert not has_work() and score_samples() == 0 and not RunScore.objects.exists()
    sample(house, enabled=False)
    copies(run, 1)
    assert not has_work() and score_samples() == 0
    sample(house)
    copies(run, 1)
    assert score_samples() == 1


def test_a_slow_answer_that_came_behind_the_watermark_is_found(house: Collection, run: QueryRun) -> None:
    sample(house)
    began = timezone.now()
    copies(run, 1)
    assert score_samples() == 1
    copies(run, 1, created_at=began)
    assert score_samples() == 1


def test_a_day_has_its_bound(house: Collection, run: QueryRun) -> None:
    held = sample(house, per_day=2)
    Sampling.objects.filter(pk=held.pk).update(enabled_at=timezone.now() - timedelta(days=3), looked_until=None)
    copies(run, 3, created_at=timezone.now() - timedelta(days=2))
    copies(run, 3)
    assert score_samples() == 4
    assert not has_work() and score_samples() == 0


def test_what_the_time_does_not_reach_is_scored_next(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 3)
    assert score_samples(slice_s=-1.0) == 0 and has_work()
    assert score_samples() == 3


def test_a_run_that_breaks_the_scoring_holds_up_no_other(
    house: Collection, run: QueryRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sample(house)
    broken, *_ = copies(run, 3)
    keep = sampling.keep_score

    def fail(run: QueryRun, *rest: Any) -> Any:
        if run.pk == broken:
            raise RuntimeError("broken")
        return keep(run, *rest)

    monkeypatch.setattr(sampling, "keep_score", fail)
    assert score_samples() == 2 and str(broken) in caplog.text


def test_a_judged_sample_stays_in_the_sample(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 1)
    score_samples()
    assert judge_run(QueryRun.objects.get(pk=run.pk), actor=None).reason == "sampled"


def test_the_worker_sends_what_waits_once(house: Collection, run: QueryRun) -> None:
    sample(house)
    assert not send_samples()
    copies(run, 1)
    assert send_samples() and RunScore.objects.count() == 1  # the task runs where it is sent
    assert not send_samples()


def test_one_process_scores_at_a_time(house: Collection, run: QueryRun) -> None:
    sample(house)
    copies(run, 1)
    assert claim(Sampling, house.name, "elsewhere:1", "true") is not None
    assert score_samples() == 0
    Sampling.objects.update(lease_until=timezone.now() - timedelta(seconds=1))  # that process died
    assert score_samples() == 1
    assert Sampling.objects.get().lease_until is None


def test_a_score_goes_with_its_run_and_a_setting_with_its_collection(
    house: Collection, run: QueryRun, settings: Any
) -> None:
    settings.RAGD_RUN_RETENTION_DAYS = 30
    sample(house)
    judge_run(run, actor=None)
    (fresh,) = copies(run, 1)
    judge_run(QueryRun.objects.get(pk=fresh), actor=None)
    QueryRun.objects.exclude(pk=fresh).update(created_at=timezone.now() - timedelta(days=4000))
    apply_retention()
    assert [kept.query_run for kept in RunScore.objects.all()] == [fresh]
    delete_collection(house)
    assert not Sampling.objects.exists() and RunScore.objects.count() == 1


def test_a_sampling_that_makes_no_sense_is_refused(house: Collection) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("rate", {"rate": 0.0}),
        ("rate", {"rate": 1.1}),
        ("per_day", {"per_day": 0}),
        ("judge", {"judge": "none"}),
    ]
    for field, values in cases:
        with pytest.raises(InvalidInput) as refusal:
            sample(house, **values)
        assert refusal.value.field == field and not Sampling.objects.exists()


def test_a_model_that_is_not_set_up_is_refused_when_it_is_chosen(house: Collection) -> None:
    with pytest.raises(ServiceError, match="RAGD_JUDGE_BASE_URL"), transaction.atomic():
        sample(house, judge="llm")
    assert not Sampling.objects.exists()
    assert not sample(house, judge="llm", enabled=False).enabled


def test_the_setting_travels_and_goes_with_its_collection(house: Collection) -> None:
    sample(house, rate=0.25)
    with connection.cursor() as cursor:
        rows = list(SAMPLINGS.read(cursor.connection, house))
    SAMPLINGS.forget(house)
    assert not Sampling.objects.exists()
    assert SAMPLINGS.restore(house, rows) == 1
    held = Sampling.objects.get()
    assert (held.enabled, held.rate, held.judge) == (True, 0.25, "embedded") and held.enabled_at is not None
    SAMPLINGS.restore(house, [rows[0] | {"judge": "llm"}])
    assert not Sampling.objects.get().enabled
    for wrong in ([{"rate": 1}], [rows[0] | {"rate": "all"}], rows * 2):
        with pytest.raises(InvalidInput):
            SAMPLINGS.restore(house, wrong)
