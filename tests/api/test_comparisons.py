"""Comparisons and experiments over HTTP: what a key may see, refusals, pages, the plan that is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from collections_app.models import Collection
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.lifecycle import run_now
from ragd.types import RetrievePlan
from tests.api.conftest import Api
from tests.evaluation.made_runs import make_run

if TYPE_CHECKING:
    from collections_app.models import Collection


@pytest.fixture
def runs(db: None) -> tuple[Any, Any]:
    base = make_run([{"recall@10": 1.0, "mrr@10": 0.5}] * 7, collection_name="notes", name="before")
    after: list[dict[str, float | None]] = [{"recall@10": 0.1 * place, "mrr@10": 0.5} for place in range(7)]
    other = make_run(after, collection_name="notes", name="after", plan=RetrievePlan(k=2))
    return base, other


def query(base: Any, *others: Any) -> str:
    return f"?base={base.pk}" + "".join(f"&other={run.pk}" for run in others)


def test_a_comparison_has_verdicts_intervals_and_causes(api: Api, runs: tuple[Any, Any]) -> None:
    body = api.get(f"/comparisons{query(*runs)}").json()
    (against,) = body["others"]
    found = {change["measure"]: change for change in against["changes"]}
    assert found["recall@10"]["verdict"] == "regressed" and found["mrr@10"]["verdict"] == "same"
    assert found["recall@10"]["difference"]["mean"] == pytest.approx(-0.7)
    assert found["recall@10"]["difference"]["high"] < 0 and found["recall@10"]["worse"] == 7
    assert against["verdicts"] == {"regressed": 1, "same": 1} and body["base"]["name"] == "before"
    assert body["headers"] == [{"field": "plan.k", "title": "Settings, k", "values": ["12", "2"]}]


def test_questions_are_paged_by_the_largest_loss(api: Api, runs: tuple[Any, Any]) -> None:
    first = api.get(f"/comparisons{query(*runs)}&limit=4").json()["questions"]
    rest = api.get(f"/comparisons{query(*runs)}&limit=4&cursor={first['next_cursor']}").json()["questions"]
    assert [item["position"] for item in (*first["items"], *rest["items"])] == list(range(7))
    assert first["items"][0]["worst"] == -1.0 and first["items"][0]["deltas"] == {"recall@10": -1.0, "mrr@10": 0.0}
    assert rest["next_cursor"] is None
    assert api.get(f"/comparisons{query(*runs)}&show=better").json()["questions"]["items"] == []


def test_other_questions_are_a_conflict_and_unknown_runs_are_not_found(api: Api, runs: tuple[Any, Any]) -> None:
    newer = make_run([{}], set_version=2, set_digest="e" * 64, collection_name="notes")
    refused = api.get(f"/comparisons{query(runs[0], newer)}")
    assert refused.status_code == 409 and refused.json()["error"]["type"] == "not_comparable"
    assert api.get(f"/comparisons?base={runs[0].pk}").status_code == 422
    assert api.get(f"/comparisons{query(runs[0], runs[0])}").status_code == 422
    unknown = api.get(f"/comparisons?base={runs[0].pk}&other=7d9c6a0e-0000-4000-8000-000000000000")
    assert unknown.status_code == 404
    assert api.get(f"/comparisons{query(*runs)}&show=sideways").status_code == 422


def test_a_limited_key_sees_nothing_of_other_collections(
    make_api: Callable[..., Api], notes: Collection, runs: tuple[Any, Any]
) -> None:
    from evaluation_app.models import Experiment

    experiment = Experiment.objects.create(
        kind="plans", set_name="birds", set_version=1, set_digest="d" * 64, collection_name="notes", measure="mrr@10"
    )
    stranger, reader = make_api(collections=["elsewhere"]), make_api(collections=["notes"], scope="read")
    assert stranger.get(f"/comparisons{query(*runs)}").status_code == 404
    assert stranger.get(f"/experiments/{experiment.pk}").status_code == 404
    assert stranger.get("/experiments").json()["items"] == []
    assert stranger.get("/experiments?collection=notes").status_code == 403
    assert reader.get(f"/comparisons{query(*runs)}").status_code == 200
    assert [item["id"] for item in reader.get("/experiments?collection=notes").json()["items"]] == [str(experiment.pk)]
    assert reader.patch(f"/experiments/{experiment.pk}", {"state": "cancelled"}).status_code == 403


def test_an_experiment_is_estimated_started_once_ranked_cancelled_and_saved(api: Api, notes: Collection) -> None:
    from evaluation_app.models import EvaluationRun, GoldenQuestion, GoldenSet
    from retrieval_app.models import SavedPlan

    golden_set = GoldenSet.objects.create(name="birds", collection_name="notes")
    GoldenQuestion.objects.create(golden_set=golden_set, question="Which?", expected_doc_ids=["a"])
    grid = {"k": [2, 4], "rrf_k": [10, 60]}
    wanted = {"kind": "plans", "golden_set": "birds", "grid": grid, "measure": "recall@10", "mode": "hybrid"}
    estimate = api.post("/experiments", wanted | {"dry_run": True}).json()
    assert (estimate["plans"], estimate["asked"], estimate["took_s"]) == (4, 4, None)
    first = api.post("/experiments", wanted, **{"Idempotency-Key": "once"})
    again = api.post("/experiments", wanted, **{"Idempotency-Key": "once"})
    assert first.status_code == 202 and again.json() == first.json()
    made = first.json()
    at = f"/experiments/{made['id']}"
    assert (made["state"], made["variants"], made["total"]) == ("queued", 4, 4)
    assert EvaluationRun.objects.filter(experiment=made["id"], state="queued").count() == 4
    assert api.patch(at, {"saved_as": "best"}).json()["error"]["type"] == "nothing_ranked"
    assert api.delete(f"/experiments/{made['id']}").status_code == 409
    assert api.patch(at, {"state": "cancelled"}).json()["state"] == "cancelled"
    assert api.patch(at, {"state": "cancelled"}).status_code == 409
    ranking = api.get(f"/experiments/{made['id']}?by=mrr@10").json()
    assert ranking["ranked_by"] == "mrr@10" and [row["standing"] for row in ranking["ranking"]] == ["unscored"] * 4
    plans = [(row["plan"]["k"], row["plan"]["rrf_k"]) for row in ranking["ranking"]]
    assert plans == [(2, 10), (2, 60), (4, 10), (4, 60)]
    run_id = ranking["ranking"][2]["run_id"]
    saved = api.patch(at, {"saved_as": "best", "run_id": run_id, "is_default": True})
    assert saved.status_code == 200 and saved.json()["saved_as"] == "best"
    assert SavedPlan.objects.get(name="best").is_default and SavedPlan.objects.get().plan["k"] == 4
    assert api.delete(f"/experiments/{made['id']}").json() == {"deleted": 1}
    assert api.get(f"/experiments/{made['id']}").status_code == 404 and not EvaluationRun.objects.exists()


def test_an_experiment_that_cannot_be_names_what_is_wrong(api: Api, notes: Collection) -> None:
    from evaluation_app.models import Experiment, GoldenQuestion, GoldenSet

    golden_set = GoldenSet.objects.create(name="birds", collection_name="notes")
    GoldenQuestion.objects.create(golden_set=golden_set, question="Which?", expected_doc_ids=["a"])
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"golden_set": "fish"}, 404, "golden_set"),
        ({"grid": {}}, 422, "grid"),
        ({"grid": {"policy": ["a", "b"]}}, 422, "grid"),
        ({"grid": {"k": list(range(1, 70))}}, 422, "grid"),
        ({"measure": "adherence"}, 422, "measure"),
        ({"plan": "no such"}, 404, "plan"),
        ({"name": "x" * 201}, 422, "name"),
        ({"settings": {"judge": "oracle"}}, 422, "settings.judge"),
    ]
    for change, status, field in cases:
        refused = api.post("/experiments", {"kind": "plans", "golden_set": "birds", "grid": {"k": [2, 4]}} | change)
        assert (refused.status_code, refused.json()["error"]["field"]) == (status, field)
        assert not Experiment.objects.exists()


AT = "/experiments"
TEXT = "The {name} lives by river {number}. It was seen {number} times near the {name} mill."
NAMES = ["heron", "otter", "beaver", "kestrel", "badger", "salmon", "lynx", "marten", "plover", "adder"]


def fill(api: Api) -> None:
    for number, name in enumerate(NAMES):
        assert api.put(f"/collections/notes/documents/{name}", {"content": TEXT.format(name=name, number=number)})
    questions = [{"question": f"Where lives the {name} mill", "expected_doc_ids": [name]} for name in NAMES]
    assert api.post("/golden-sets", {"name": "animals", "collection": "notes"}).status_code == 201
    for question in questions:
        assert api.post("/golden-sets/animals/questions", question).status_code == 201


def test_the_whole_way_and_what_a_limited_key_sees(api: Api, notes: Collection, make_api: Callable[..., Any]) -> None:
    fill(api)
    body = {
        "kind": "models",
        "collection": "notes",
        "models": [{"embed_model": "text-embedding-3-small", "embed_dims": 64}],
        "golden_set": "animals",
        "k": 3,
    }
    started = api.post(AT, body)
    assert started.status_code == 202, started.json()
    at = f"/experiments/{started.json()['id']}"
    assert (started.json()["state"], api.get(at).json()["standings"]) == ("queued", [])
    for run in EvaluationRun.objects.order_by("place"):
        run_now(run)
    done = api.get(at).json()
    assert (done["state"], done["total"], done["settings"]["documents_total"]) == ("succeeded", 20, 10)
    assert {each["embed_dims"] for each in done["standings"]} == {32, 64}
    assert sum(each["is_current"] for each in done["standings"]) == 1
    assert api.patch(at, {"state": "cancelled"}).status_code == 409
    assert [each["id"] for each in api.get("/experiments?kind=models").json()["items"]] == [done["id"]]
    other = make_api(collections=["else"])
    assert other.get(at).status_code == 404
    assert other.get("/experiments").json()["items"] == []
    assert other.post(AT, body).status_code in (403, 404)
    reader = make_api(scope="read")
    assert reader.post(AT, body).status_code == 403
    refused = api.post(AT, body | {"models": []})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "models")
    unnamed = api.post(AT, body | {"kind": "magic"})
    assert unnamed.status_code == 422 and "'plans', 'models' or 'fix'" in unnamed.json()["error"]["message"]
