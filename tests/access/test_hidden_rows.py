"""Changes by somebody who may not see all rows: they hold for all, take nothing hidden along, and tell nothing of it.

bob evaluates in a collection with a document that only ada may read. An administrator made a set of three questions,
the second of which expects that document, a run whose items all found it, and two whose items found one document each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.access.context import SYSTEM, Forbidden, using_access
from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.errors import ServiceError
from collections_app.index.swap import ensure_serving
from collections_app.models import Collection, Document, IndexVersion, IngestJob, RoleGrant
from evaluation_app.experiments import services
from evaluation_app.failures.fixes import refresh_modes
from evaluation_app.golden import edits
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import (
    EvaluationItem,
    EvaluationRun,
    Experiment,
    GoldenQuestion,
    GoldenSet,
    GoldenSetVersion,
    ReviewTask,
    RunScore,
)
from evaluation_app.reviews.labels import queue_live, queue_run
from evaluation_app.runs import calibration_fit, lifecycle
from evaluation_app.runs.requests import count_model_calls, estimate_plans
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.sampling import keep_score
from evaluation_app.scoring.scorer import Scorer
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import keep_calibration
from retrieval_app.search.confidence import Rule, Weights
from tests.access.marsh import WORD
from tests.api.conftest import Api
from tests.web.pages import client_of

pytestmark = pytest.mark.django_db
FIRST, HIDDEN, LAST = "Where do frogs sit?", f"Where is the {WORD} of the heron?", "What do newts eat?"
PLAN = RetrievePlan(k=3, candidate_pool=8)


@dataclass
class Pond:
    collection: Collection
    golden: GoldenSet
    run: EvaluationRun
    narrow_runs: list[EvaluationRun]
    bob: User

    @property
    def order(self) -> list[tuple[str, int]]:
        rows = GoldenQuestion.objects.filter(golden_set=self.golden, suggested=False)
        return list(rows.order_by("position", "id").values_list("question", "position"))

    def question(self, text: str) -> GoldenQuestion:
        return GoldenQuestion.objects.get(golden_set=self.golden, question=text)

    def address(self, text: str) -> str:
        return f"/golden-sets/pond/questions/{self.question(text).pk}"


@pytest.fixture(scope="module")
def module_pond(module_db: None) -> Pond:
    collection = create_collection(name="pond")
    ada, bob = (User.objects.create_user(name, password="heron-reed-marsh-7") for name in ("ada", "bob"))
    for user in (ada, bob):
        RoleGrant.objects.create(user=user, collection_id=collection.pk, role=Role.EVALUATOR)
    ingest_text(collection, "frogs", "Frogs sit on the leaves of the pond.")
    ingest_text(collection, "newts", "Newts eat snails of the pond.")
    ingest_text(collection, "heron", f"The heron of the pond has its {WORD} in the reeds.")
    golden = GoldenSet.objects.create(name="pond", collection_name="pond")
    keep_version(golden)
    for text, doc_id in ((FIRST, "frogs"), (HIDDEN, "heron"), (LAST, "newts")):
        edits.add_question(golden, {"question": text, "expected_doc_ids": [doc_id]})
    request = lifecycle.RunRequest(PLAN, settings=RunSettings(answers=False, judge="none", cut=3))
    run = lifecycle.run_now(lifecycle.start_run(golden, request, send=False))
    narrow = replace(request, plan=replace(PLAN, k=1, mode="lexical"))
    narrow_runs = [lifecycle.run_now(lifecycle.start_run(golden, narrow, send=False)) for _ in range(2)]
    set_access(collection, ["heron"], users=[ada.pk])
    return Pond(collection, golden, run, narrow_runs, bob)


@pytest.fixture
def pond(module_pond: Pond, db: None) -> Pond:
    golden, run = GoldenSet.objects.get(pk=module_pond.golden.pk), EvaluationRun.objects.get(pk=module_pond.run.pk)
    return replace(deepcopy(module_pond), golden=golden, run=run)


@pytest.fixture
def bob(pond: Pond) -> Api:
    return Api(Client(), create_key(NewKey("bob's", acts_as="bob"))[1])


@pytest.fixture
def root(pond: Pond) -> Api:
    return Api(Client(), create_key(NewKey("root's"))[1])


def test_there_is_something_to_leak(pond: Pond, bob: Api, root: Api) -> None:
    listed = [
        [row["question"] for row in api.get("/golden-sets/pond/questions").json()["items"]] for api in (bob, root)
    ]
    assert listed == [[FIRST, LAST], [FIRST, HIDDEN, LAST]]
    items = EvaluationItem.objects.filter(run=pond.run)
    assert all("heron#0" in item.retrieved_ids for item in items)
    assert bob.get(f"/evaluation-runs/{pond.run.pk}/results").json()["items"] == []
    assert WORD not in bob.get("/golden-sets/pond/questions?format=jsonl").getvalue().decode()


def test_a_question_is_deleted_though_results_of_it_are_hidden(pond: Pond, bob: Api) -> None:
    assert bob.delete(pond.address(FIRST)).json() == {"count": 1}
    assert pond.order == [(HIDDEN, 0), (LAST, 1)]
    assert EvaluationItem.objects.filter(run=pond.run).count() == 3, "results outlive their question"
    assert bob.delete(pond.address(HIDDEN)).status_code == 404
    kept = GoldenSetVersion.objects.filter(golden_set=pond.golden).order_by("version").last()
    assert kept is not None
    assert [item["question"] for item in kept.questions] == [HIDDEN, LAST]


def test_pages_and_ids_of_hidden_questions_delete_and_accept_nothing(pond: Pond) -> None:
    hidden = pond.question(HIDDEN)
    client = client_of(pond.bob)
    address = f"/evaluation/sets/{pond.golden.pk}/"
    for action in ("delete", "accept", "discard"):
        GoldenQuestion.objects.filter(pk=hidden.pk).update(suggested=action != "delete")
        client.post(address, {"action": action, "question": [hidden.pk], "confirmed": "1"})
        assert GoldenQuestion.objects.get(pk=hidden.pk).suggested == (action != "delete")


@pytest.mark.parametrize("kind", ["run", "experiment"])
def test_a_run_and_an_experiment_are_deleted_with_hidden_items(pond: Pond, bob: Api, kind: str) -> None:
    address = f"/evaluation-runs/{pond.run.pk}"
    if kind == "experiment":
        experiment = Experiment.objects.create(kind="plans", collection_name="pond", variants=[PLAN.as_dict()])
        EvaluationRun.objects.filter(pk=pond.run.pk).update(experiment=experiment, place=0)
        address = f"/experiments/{experiment.pk}"
    assert bob.delete(address).status_code in (200, 204)
    assert not EvaluationItem.objects.filter(run_id=pond.run.pk).exists()
    assert not EvaluationRun.objects.filter(pk=pond.run.pk).exists()


def send_file(api: Api, address: str, *questions: dict[str, Any]) -> Any:
    body = "\n".join(json.dumps(each) for each in questions)
    headers = {"Authorization": f"Bearer {api.secret}"}
    return api.client.post(f"/v1{address}", body, content_type="application/x-ndjson", headers=headers)


def test_an_import_that_replaces_leaves_what_is_hidden_in_its_place(pond: Pond, bob: Api) -> None:
    lines = [{"question": text, "expected_doc_ids": ["newts"]} for text in ("Who lays spawn?", LAST, "Who swims?")]
    told = send_file(bob, "/golden-sets/pond/import?mode=replace&dry_run=true", *lines).json()
    done = send_file(bob, "/golden-sets/pond/import?mode=replace", *lines).json()
    assert done["counts"] == told["counts"] == {"added": 2, "changed": 0, "unchanged": 1, "error": 0, "removed": 1}
    assert done["removed"] == told["removed"] == [FIRST]
    assert pond.order == [("Who lays spawn?", 0), (HIDDEN, 1), (LAST, 2), ("Who swims?", 3)]
    assert pond.question(HIDDEN).expected_doc_ids == ["heron"]
    assert send_file(bob, "/golden-sets/pond/import?mode=replace", lines[0]).json()["counts"]["removed"] == 2
    assert pond.order == [("Who lays spawn?", 0), (HIDDEN, 1)]
    version = GoldenSet.objects.get(pk=pond.golden.pk).version
    send_file(bob, "/golden-sets/pond/import?mode=replace", lines[0])
    assert GoldenSet.objects.get(pk=pond.golden.pk).version == version, "the same again changes nothing"


TAKEN: dict[str, Callable[[Pond, Api], Any]] = {
    "add": lambda pond, api: api.post("/golden-sets/pond/questions", {"question": HIDDEN}),
    "change": lambda pond, api: api.patch(pond.address(FIRST), {"question": HIDDEN}),
    "add, visible": lambda pond, api: api.post("/golden-sets/pond/questions", {"question": LAST}),
    "change, visible": lambda pond, api: api.patch(pond.address(FIRST), {"question": LAST}),
}


def test_a_query_run_with_the_words_of_a_hidden_question_makes_no_suggestion(pond: Pond, bob: Api) -> None:
    run_id = bob.post("/collections/pond/search", {"query": HIDDEN}).json()["run_id"]
    refused = bob.post("/golden-sets/pond/questions", {"run_id": run_id})
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "question_taken")
    call = {"name": "golden-questions-suggest", "arguments": {"golden_set": "pond", "question": HIDDEN}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Authorization": f"Bearer {bob.secret}"}
    told = bob.client.post("/mcp", body, content_type="application/json", headers=headers).json()["result"]
    assert told["isError"] and "question_taken" in str(told)
    assert GoldenQuestion.objects.filter(golden_set=pond.golden).count() == 3


@pytest.mark.parametrize("suggested", [False, True])
@pytest.mark.parametrize("act", list(TAKEN.values()), ids=list(TAKEN))
def test_words_of_a_hidden_question_are_taken(
    pond: Pond, bob: Api, act: Callable[[Pond, Api], Any], suggested: bool
) -> None:
    GoldenQuestion.objects.filter(question=HIDDEN).update(suggested=suggested)
    before = pond.order
    refused = act(pond, bob)
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "question_taken")
    assert (pond.order, pond.question(HIDDEN).expected_doc_ids) == (before, ["heron"])


def test_a_line_with_the_words_of_a_hidden_question_is_wrong(pond: Pond, bob: Api) -> None:
    lines = [{"question": "Who lays spawn?"}, {"question": HIDDEN, "expected_doc_ids": ["newts"]}]
    for mode in ("merge", "replace"):
        told = send_file(bob, f"/golden-sets/pond/import?dry_run=true&mode={mode}", *lines).json()
        assert told["counts"]["error"] == 1
        (error,) = (line["error"] for line in told["lines"] if line["status"] == "error")
        refused = send_file(bob, f"/golden-sets/pond/import?mode={mode}", *lines)
        assert refused.status_code == 422
        assert f"line 2: {error}" in refused.json()["error"]["message"]
    assert pond.order == [(FIRST, 0), (HIDDEN, 1), (LAST, 2)]


def test_questions_are_moved_among_all_and_numbered_once(pond: Pond, bob: Api) -> None:
    added = bob.post("/golden-sets/pond/questions", {"question": "Who swims?"}).json()
    assert added["position"] == 3
    assert bob.patch(pond.address(LAST), {"position": 0}).json()["position"] == 0
    assert pond.order == [(LAST, 0), (FIRST, 1), (HIDDEN, 2), ("Who swims?", 3)]
    client = client_of(pond.bob)
    client.post(f"/evaluation/sets/{pond.golden.pk}/", {"action": f"up {added['id']}"})
    assert pond.order == [(LAST, 0), ("Who swims?", 1), (FIRST, 2), (HIDDEN, 3)], "before the next that bob sees"
    client.post(f"/evaluation/sets/{pond.golden.pk}/", {"action": f"down {added['id']}"})
    assert pond.order == [(LAST, 0), (FIRST, 1), ("Who swims?", 2), (HIDDEN, 3)]


def test_a_version_from_before_comes_back_beside_what_is_hidden(pond: Pond, bob: Api) -> None:
    bob.patch(pond.address(FIRST), {"weight": 2})
    assert bob.get("/golden-sets/pond/versions/3").status_code == 404, "it holds the hidden question"
    assert bob.patch("/golden-sets/pond", {"version": 3}).status_code == 404
    page = client_of(pond.bob).get(f"/evaluation/sets/{pond.golden.pk}/?view=versions&version=2").content.decode()
    assert "0 added, 1 removed, 1 changed, 0 unchanged" in page
    back = bob.patch("/golden-sets/pond", {"version": 2})
    assert (back.status_code, back.json()["version"]) == (200, 6)
    assert pond.order == [(FIRST, 0), (HIDDEN, 1)]
    kept = GoldenSetVersion.objects.get(golden_set=pond.golden, version=6)
    assert [item["question"] for item in kept.questions] == [FIRST, HIDDEN]


@pytest.mark.parametrize("failing", [FIRST, HIDDEN])
def test_all_that_failed_is_retried_and_counted(
    pond: Pond, bob: Api, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = EvaluationItem.objects.filter(run=pond.run, question_text=failing)
    assert items.update(outcome=EvaluationItem.Outcome.ERROR) == 1
    EvaluationRun.objects.filter(pk=pond.run.pk).update(failed=1)
    monkeypatch.setattr(lifecycle, "enqueue", lambda *_: None)
    told = bob.patch(f"/evaluation-runs/{pond.run.pk}", {"state": "queued", "only_failed": True})
    assert told.status_code == 202, told.content
    run = EvaluationRun.objects.get(pk=pond.run.pk)
    assert (run.done, run.failed, run.total, run.items.count()) == (2, 0, 3, 2)
    run = lifecycle.run_now(run)
    assert (run.state, run.done, run.items.count()) == ("succeeded", 3, 3)


def test_a_bulk_change_tells_hidden_documents_and_missing_ones_alike(pond: Pond, bob: Api) -> None:
    RoleGrant.objects.create(user=pond.bob, collection_id=pond.collection.pk, role=Role.CURATOR)
    bulk = "/collections/pond/documents-bulk"
    change = {"action": "add_tags", "tags": ["wet"], "doc_ids": ["heron", "none", "frogs"]}
    told = bob.post(bulk, change | {"dry_run": True, "expected": 1}).json()
    assert [item["status"] for item in told["results"]] == ["unknown", "unknown", "meant"]
    hidden, missing = ({**item, "doc_id": ""} for item in told["results"][:2])
    assert hidden == missing
    for number in (0, 2, 3):
        assert bob.post(bulk, change | {"expected": number}).status_code == 409
    done = bob.post(bulk, change | {"expected": 1}).json()
    assert [item["status"] for item in done["results"]] == ["unknown", "unknown", "changed"]
    assert [item["error"] for item in done["results"]] == [item["error"] for item in told["results"]]
    assert Document.objects.get(collection=pond.collection, doc_id="heron").tags == []


@pytest.mark.parametrize("acts_as", [None, "bob"])
def test_a_key_of_nobody_watches_all_runs_but_those_of_hidden_documents(
    pond: Pond, root: Api, acts_as: str | None
) -> None:
    run_of_all, run_of_heron = (
        root.post("/collections/pond/search", {"query": text, "k": 1, "mode": "lexical"}).json()["run_id"]
        for text in ("newts eat snails", WORD)
    )
    RoleGrant.objects.filter(user=pond.bob).update(role=Role.ASKER)
    watcher = Api(Client(), create_key(NewKey("watcher", scopes=["read"], acts_as=acts_as))[1])
    listed = {item["run_id"] for item in watcher.get("/runs").json()["items"]}
    assert (run_of_all in listed, run_of_heron in listed) == (acts_as is None, False)
    for address in ("/runs/{}", "/runs/{}/spans"):
        statuses = [watcher.get(address.format(pk)).status_code for pk in (run_of_all, run_of_heron)]
        assert statuses == [404 if acts_as else 200, 404]


@pytest.mark.parametrize("first", ["bob", "root"])
def test_a_comparison_counts_all_questions_and_names_those_one_may_see(
    pond: Pond, bob: Api, root: Api, first: str
) -> None:
    base, other = (run.pk for run in pond.narrow_runs)
    address = f"/comparisons?base={base}&other={other}&show=all"
    apis = {"bob": bob, "root": root} if first == "bob" else {"root": root, "bob": bob}
    told = {name: api.get(address).json() for name, api in apis.items()}
    listed = {name: {item["question"] for item in each["questions"]["items"]} for name, each in told.items()}
    assert listed == {"bob": {FIRST, LAST}, "root": {FIRST, HIDDEN, LAST}}
    assert WORD not in str(told["bob"])
    page = client_of(pond.bob).get(f"/evaluation/compare/?base={base}&other={other}&show=all").content.decode()
    assert FIRST in page and WORD not in page
    of_bob, of_root = ([told[name]["others"][0][part] for part in ("changes", "usage", "conclusion")] for name in apis)
    assert of_bob == of_root
    assert max(change["better"] + change["worse"] + change["same"] for change in of_bob[0]) == 3


def test_failure_modes_are_found_again_in_all_questions(pond: Pond) -> None:
    items = EvaluationItem.objects.filter(run=pond.run)
    found = []
    for access in (SYSTEM, access_of_user(pond.bob)):
        items.update(modes=["low_completeness"])
        with using_access(access):
            found.append((refresh_modes(pond.run), list(items.values_list("modes", flat=True))))
        found[-1] += (EvaluationRun.objects.get(pk=pond.run.pk).summary,)
    assert found[0][0] == 3
    assert (found[1][0], found[1][2]) == (3, found[0][2])


def test_one_experiment_with_models_at_a_time_though_it_is_hidden(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = Experiment.objects.create(kind="models", collection_name="pond", doc_ids=["heron"])
    EvaluationRun.objects.filter(pk=pond.run.pk).update(experiment=hidden, state="queued")
    monkeypatch.setattr(services, "read_candidates", lambda *_: [])
    monkeypatch.setattr(services, "draw_sample", lambda *_: SimpleNamespace(questions=[], doc_ids=[]))
    with using_access(access_of_user(pond.bob)):
        assert not Experiment.objects.filter(pk=hidden.pk).exists()
        with pytest.raises(ServiceError, match="another experiment"):
            services.start_models(pond.collection, [], golden_set=pond.golden, send=False)
        EvaluationRun.objects.filter(pk=pond.run.pk).update(state="succeeded")
        assert services.start_models(pond.collection, [], golden_set=pond.golden, send=False).kind == "models"


def test_estimates_and_calibrations_are_of_all_questions(pond: Pond, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled: list[Golden] = []
    even = Weights(0.0, (0.0,) * 4, (0.0,) * 4, (1.0,) * 4)
    monkeypatch.setattr(calibration_fit, "label_questions", lambda questions, *_: labelled.extend(questions) or [])
    with using_access(access_of_user(pond.bob)):
        settings = RunSettings(answers=True, judge="none")
        assert estimate_plans(pond.golden, [PLAN], settings).questions == 3
        assert count_model_calls(pond.golden, PLAN, settings, asks_model=True) == 3
        with pytest.raises(ServiceError, match="cannot calibrate"):
            calibration_fit.calibrate(pond.collection, pond.golden, actor=pond.bob)
        with pytest.raises(Forbidden):
            keep_calibration(pond.collection, Rule(even, 0.9, 0.2), embed_model="", data={}, figures={})
    assert [golden.question for golden in labelled] == [FIRST, HIDDEN, LAST]


def test_a_gate_report_names_the_questions_one_may_see(pond: Pond, bob: Api, root: Api) -> None:
    changed = [
        {"id": 1, "question": text, "category": "factual", "documents": [doc_id], "before": 1.0, "after": 0.0,
         "rank_before": 1, "rank_after": None}
        for text, doc_id in ((FIRST, "frogs"), (HIDDEN, "heron"))
    ]  # fmt: skip
    serving = ensure_serving(pond.collection)
    report = {"reason": "worse", "changed": changed, "changed_total": 2}
    IndexVersion.objects.filter(pk=serving.pk).update(gate_state="held", gate_report=report)
    address = f"/collections/pond/index-versions/{serving.number}"
    assert root.get(address).json()["gate_report"] == report
    assert bob.get(address).json()["gate_report"] == report | {"changed": changed[:1]}
    assert WORD not in bob.get("/collections/pond/index-versions").content.decode()
    page = client_of(pond.bob).get(f"/collections/pond/index-versions/{serving.number}/gate/").content.decode()
    assert FIRST in page and WORD not in page


def test_the_queue_is_full_of_jobs_that_one_may_not_see_too(pond: Pond, bob: Api, settings: Any) -> None:
    RoleGrant.objects.create(user=pond.bob, collection_id=pond.collection.pk, role=Role.CURATOR)
    IngestJob.objects.create(collection=pond.collection, doc_id="heron", state="queued")
    settings.RAGD_QUEUE_MAX_JOBS = 1
    assert bob.get("/jobs").json()["items"] == []
    assert bob.upload("pond", ("a.txt", b"text")).status_code == 429


@pytest.fixture
def answered(pond: Pond) -> EvaluationRun:
    """One document is retrieved for each question, and all are among the candidates of its query run."""
    request = lifecycle.RunRequest(replace(PLAN, k=1), settings=RunSettings(answers=True, judge="none", cut=3))
    return lifecycle.run_now(lifecycle.start_run(pond.golden, request, send=False))


@pytest.mark.parametrize("has_query_runs", [True, False])
def test_answers_are_queued_for_review_by_what_they_show(
    pond: Pond, answered: EvaluationRun, has_query_runs: bool
) -> None:
    if not has_query_runs:
        QueryRun.objects.all().delete()  # their retention is shorter
    root = User.objects.create_superuser("root", password="heron-reed-marsh-7")
    for user, questions in ((pond.bob, [FIRST, LAST]), (root, [FIRST, HIDDEN, LAST])):
        with using_access(access_of_user(user)):
            queue_run(answered, "all", actor=user)
            tasks = ReviewTask.objects.order_by("item__position")
            assert list(tasks.values_list("question_text", flat=True)) == questions
    RoleGrant.objects.filter(user=pond.bob).update(role=Role.ASKER)
    with using_access(access_of_user(pond.bob)):
        assert not ReviewTask.objects.exists(), "human review is for who evaluates"


def test_live_answers_are_queued_where_their_scores_are_seen(pond: Pond, answered: EvaluationRun) -> None:
    scorer = Scorer(RunSettings(answers=True, judge="embedded"), pond.collection)
    for run in QueryRun.objects.filter(pk__in=answered.items.values("query_run")):
        keep_score(run, scorer, "asked")
    with using_access(access_of_user(pond.bob)):
        assert RunScore.objects.count() == 2
        assert queue_live("pond", "all", actor=pond.bob).created == ReviewTask.objects.count() == 2
    assert queue_live("pond", "all").created == 1
