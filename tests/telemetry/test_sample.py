"""The sample collection, its golden questions, and the shell commands over them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

from collections_app.collections.services import create_collection
from collections_app.documents.services import change_state, ingest_text
from collections_app.index import measurements
from collections_app.index.measurements import measure_serving
from collections_app.index.stores import open_store
from collections_app.models import Collection, Document, IngestJob, Operation
from evaluation_app.models import EvaluationRun, GoldenQuestion, GoldenSet
from evaluation_app.runs.lifecycle import run_now
from evaluation_app.runs.requests import reweighted_run, serving_runs, servings
from evaluation_app.sample import SAMPLE_NAME, announce_sample, loading
from evaluation_app.sample.loading import load_golden_set, load_sample, read_questions, read_title, sample_files
from ragd import retrieve
from ragd_site import prepare
from retrieval_app.plans.services import build_plan
from tests.fakes.openai_server import OpenAIServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def small_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two short documents in place of the real ones."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# House\n\nThe main pump moves 400 litres of water.\n")
    (tmp_path / "docs" / "garden.md").write_text("# Garden\n\nRoses are cut in March.\n")
    monkeypatch.setattr(loading, "sample_files", lambda: sample_files(tmp_path))
    yield tmp_path


def run_command(*arguments: str) -> str:
    out = StringIO()
    call_command("ragd", *arguments, stdout=out)
    return out.getvalue()


def run_json(*arguments: str) -> Any:
    return json.loads(run_command(*arguments, "--json"))


def test_the_sample_is_the_documentation(small_sample: Path) -> None:
    outcome = load_sample()
    assert (outcome.collection, outcome.written, outcome.unchanged, outcome.deleted) == (SAMPLE_NAME, 2, 0, 0)
    documents = Document.objects.by_doc_id().values_list("doc_id", "title", "source")
    assert list(documents) == [("README.md", "House", "README.md"), ("docs/garden.md", "Garden", "docs/garden.md")]
    assert GoldenQuestion.objects.count() == outcome.questions == len(read_questions(loading.GOLDEN_FILE))


def test_pages_know_that_it_is_on_its_way_until_it_is_loaded_whole(
    small_sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = announce_sample()
    assert lease is not None and lease.work.is_running
    same = announce_sample()
    assert same is not None and same.work == lease.work, "the process that loads it takes the row over"
    with monkeypatch.context() as broken, pytest.raises(OSError, match="away"):
        broken.setattr(loading, "_ingest_file", lambda *_: (_ for _ in ()).throw(OSError("away")))
        load_sample()
    assert [each.state for each in Operation.objects.all()] == ["failed"]
    seen = list[tuple[int, int]]()
    load_sample(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)] and announce_sample() is None
    assert [each.state for each in Operation.objects.all()] == ["succeeded", "failed"]
    questions = {question["question"] for question in read_questions(loading.GOLDEN_FILE)}
    assert set(Collection.objects.get().starters) == set(loading.STARTERS) <= questions


def test_files_of_people_go_before_it(small_sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited, order = list[float](), list[str]()
    mine = create_collection(name="mine")
    job = IngestJob.objects.create(collection=mine, doc_id="note", state=IngestJob.State.RUNNING)
    stuck = IngestJob.objects.create(collection=mine, doc_id="later")  # no worker takes it

    def finish(seconds: float) -> None:
        waited.append(seconds)
        order.append("note")
        IngestJob.objects.filter(pk=job.pk).update(state=IngestJob.State.SUCCEEDED)

    monkeypatch.setattr(loading, "time", SimpleNamespace(monotonic=time.monotonic, sleep=finish))
    load_sample(lambda *_: order.append("sample"))
    assert order == ["note", "sample", "sample"] and len(waited) == 1
    stuck.refresh_from_db()
    assert stuck.state == IngestJob.State.QUEUED


def test_loading_it_again_changes_nothing(small_sample: Path) -> None:
    sent: list[str] = []

    def record(execute: Callable[..., Any], sql: str, *args: Any) -> Any:
        sent.append(sql.lstrip())
        return execute(sql, *args)

    with connection.execute_wrapper(record):
        load_sample()
        assert [sql for sql in sent if sql.startswith("INSERT INTO")]
        before = list(Document.objects.by_doc_id().values())
        sent.clear()
        outcome = load_sample()
    assert (outcome.written, outcome.unchanged, outcome.deleted) == (0, 2, 0)
    assert list(Document.objects.by_doc_id().values()) == before
    assert not [sql for sql in sent if sql.startswith("INSERT INTO")]
    assert GoldenSet.objects.get().version == 1


def test_it_follows_the_files_and_leaves_a_persons_documents(small_sample: Path) -> None:
    load_sample()
    ingest_text(Collection.objects.get(name=SAMPLE_NAME), "mine", "A note of my own.")
    (small_sample / "docs" / "garden.md").unlink()
    (small_sample / "README.md").write_text("# House\n\nThe pump is broken.\n")
    outcome = load_sample()
    assert (outcome.written, outcome.unchanged, outcome.deleted) == (1, 0, 1)
    assert list(Document.objects.by_doc_id().values_list("doc_id", "revision")) == [("README.md", 2), ("mine", 1)]


def test_an_archived_document_stays_and_holds_up_no_other(small_sample: Path) -> None:
    load_sample()
    change_state(Collection.objects.get(name=SAMPLE_NAME), ["README.md"], "archived")
    (small_sample / "README.md").write_text("# House\n\nThe pump is broken.\n")
    (small_sample / "docs" / "garden.md").write_text("# Garden\n\nThe hedge is high.\n")
    outcome = load_sample()
    assert (outcome.written, outcome.unchanged, outcome.deleted) == (1, 0, 0)
    assert list(Document.objects.by_doc_id().values_list("doc_id", "revision")) == [
        ("README.md", 1),
        ("docs/garden.md", 2),
    ]


def test_golden_questions_follow_their_file() -> None:
    first = {"question": "a?", "expected_doc_ids": ["a"], "expected_answer": "a", "category": "factual"}
    second = {**first, "question": "b?"}
    assert load_golden_set("set", "house", [first, second]) == 2
    golden = GoldenSet.objects.get()
    GoldenQuestion.objects.create(golden_set=golden, question="by hand?", position=9)
    assert load_golden_set("set", "house", [{**second, "expected_answer": "c"}]) == 1
    golden.refresh_from_db()
    assert golden.version == 2
    assert list(golden.questions.values_list("question", "expected_answer", "position")) == [
        ("b?", "c", 0),
        ("by hand?", "", 9),
    ]


def test_the_links_of_the_documentation_lead_somewhere() -> None:
    broken = [
        (doc_id, target)
        for doc_id, path in sample_files().items()
        for target in re.findall(r"\]\((?!https?://)([^)#:\s]+)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_titles() -> None:
    assert read_title("intro\n# The title \n# Second") == "The title"
    assert read_title("## not this") == ""


@pytest.mark.timeout(400)  # all of it is embedded
def test_the_documentation_answers_the_golden_questions() -> None:
    load_sample()
    collection = Collection.objects.get(name=SAMPLE_NAME)
    store, plan = open_store(collection), build_plan(collection, k=5)
    missed = []
    answered = GoldenQuestion.objects.exclude(expected_doc_ids=[])
    for golden in answered:
        with transaction.atomic():
            found = [candidate.doc_id for candidate in retrieve(golden.question, plan, store)]
        if not set(found) & set(golden.expected_doc_ids):
            missed.append(golden.question)
    total = answered.count()
    print(f"hit rate at 5: {total - len(missed)} of {total}; missed: {missed}")
    assert len(missed) <= total // 10


def test_the_sample_is_evaluated_once(small_sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections_app.jobs.leases.send", lambda *_, **__: None)
    first, again = run_json("import", "sample", "--evaluate"), run_json("import", "sample", "--evaluate")
    (run,) = EvaluationRun.objects.all()
    assert (first["evaluation"], again["evaluation"]) == (str(run.pk), None)
    assert (run.set_name, run.collection_name, run.state) == (SAMPLE_NAME, SAMPLE_NAME, "queued")
    assert run.total == GoldenQuestion.objects.count()


@pytest.mark.fault("UX-F4")
@pytest.mark.fault("UX-F52")
def test_its_first_evaluation_is_of_what_serves_and_asks_no_chat_model(
    small_sample: Path, monkeypatch: pytest.MonkeyPatch, openai_server: OpenAIServer, settings: Any
) -> None:
    monkeypatch.setattr("collections_app.jobs.leases.send", lambda *_, **__: None)
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY = openai_server.base_url, "test-key"
    monkeypatch.setattr(measurements, "measure", lambda store, pause: weighed(0.25))
    run = EvaluationRun.objects.get(pk=run_json("import", "sample", "--evaluate")["evaluation"])
    assert run.plan["weights"]["vector"] == 0.25, "measured before it began"
    assert (run.answerer, run.settings["llm_model"]) == ("extractive", "extractive")
    run_now(run)
    assert openai_server.requests == []
    serving, runs = servings([SAMPLE_NAME])[SAMPLE_NAME], EvaluationRun.objects.all()
    assert [each.pk for each in serving_runs([serving])] == [run.pk] and reweighted_run(serving, runs) is None

    monkeypatch.setattr(measurements, "measure", lambda store, pause: weighed(0.5))
    measure_serving(serving.collection)
    moved = servings([SAMPLE_NAME])[SAMPLE_NAME]
    assert not serving_runs([moved]).exists() and reweighted_run(moved, runs) == run
    EvaluationRun.objects.update(plan=run.plan | {"k": 3})
    assert reweighted_run(moved, runs) is None, "another k is another plan"


def weighed(vector: float) -> dict[str, Any]:
    return {
        "list_weights": {"vector": vector, "lexical": 1.0},
        "measurements": {"chunks": 2},
        "measured_at": timezone.now(),
    }


@pytest.mark.parametrize("loads", [True, False])
def test_a_start_loads_the_sample_unless_told_otherwise(
    small_sample: Path, monkeypatch: pytest.MonkeyPatch, settings: Any, capsys: pytest.CaptureFixture[str], loads: bool
) -> None:
    monkeypatch.setattr("collections_app.jobs.leases.send", lambda *_, **__: None)
    settings.RAGD_SAMPLE = loads
    prepare.load_sample()
    told = re.findall(r"(\d+) of (\d+) documents", capsys.readouterr().out)
    assert told == ([("2", "2")] if loads else [])
    assert Collection.objects.filter(name=SAMPLE_NAME).exists() == loads
    assert EvaluationRun.objects.exists() == loads


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("search", "nowhere", "q"), "there is no collection 'nowhere'"),
        (("access", "create-key", "--label", ""), "label"),
        (("access", "create-key", "--label", "x", "--expires-days", "999999999999"), "1 to 3652 days"),
        (("search", SAMPLE_NAME, "q", "-k", "0"), "k must be a whole number"),
        (("search", SAMPLE_NAME, "q", "--metadata", "odd"), "--metadata takes KEY=VALUE, not 'odd'"),
        (("search", SAMPLE_NAME, "q", "--weight", "vector=much"), "--weight takes LIST=NUMBER"),
        (("search", SAMPLE_NAME, "q", "--weight", "words=1"), "weights names 'words'"),
        (("ask", SAMPLE_NAME, "q", "--plan", "nope"), "no saved plan 'nope'"),
    ],
)
def test_mistakes_are_explained(small_sample: Path, arguments: tuple[str, ...], message: str) -> None:
    load_sample()
    with pytest.raises(CommandError, match=message):
        run_command(*arguments)
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("ragd", *arguments, "--json", stdout=out)
    assert message in json.loads(out.getvalue())["error"]["message"]


def test_what_a_terminal_cannot_show_is_replaced(small_sample: Path) -> None:
    (small_sample / "README.md").write_text("# Haus\n\nDie Tür ist grün \U0001f600 und offen.\n")
    load_sample()

    class Narrow(StringIO):
        encoding = "ascii"

    out = Narrow()
    call_command("ragd", "search", SAMPLE_NAME, "Haus", stdout=out)
    assert "Die T?r ist gr?n ? und offen." in out.getvalue()
