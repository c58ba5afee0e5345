"""The sample collection: the project's own documentation, and questions that it answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import transaction

from collections_app.access.permissions import Role
from collections_app.collections import services as collection_services
from collections_app.documents import services as document_services
from collections_app.index.measurements import measure_serving
from collections_app.jobs import operations
from collections_app.models import Collection, Document, IngestJob
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import EvaluationRun, GoldenQuestion, GoldenSet
from evaluation_app.runs.lifecycle import RunRequest, start_run
from evaluation_app.sample import SAMPLE_NAME, announce_sample
from evaluation_app.scoring.judge_selection import RunSettings
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.plans.services import choose_plan

SAMPLE_DESCRIPTION = "The documentation of ragd: a sample to try search and answers."
REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN_FILE = Path(__file__).with_name("golden.jsonl")
SHIPPED = "ships with ragd"
FIRST_EVALUATION = "First evaluation of the sample"
PATIENCE_S = 120.0  # for how long in all the sample waits for the files that people send meanwhile
LOOK_EVERY_S = 0.2
STARTERS = (
    "How do I back up ragd?",
    "How do I start the server on another port?",
    "Which tools does the MCP endpoint offer?",
    "What happens to a job when its worker is killed?",
)
QUESTION_DEFAULTS: dict[str, Any] = {
    "expected_doc_ids": [],
    "expected_answer": "",
    "category": "factual",
    "match": "any",
}


@dataclass(frozen=True, slots=True)
class SampleOutcome:
    """How many documents were written anew, were there already, and went; and the questions of the golden set."""

    collection: str
    written: int
    unchanged: int
    deleted: int
    questions: int


def load_sample(progress: Callable[[int, int], None] | None = None) -> SampleOutcome:
    """Bring the sample collection and its golden questions to what stands in the repository.

    progress: is told (documents that are done, all of them) after each that was written anew.

    Idempotent. Documents that the sample brought and that are gone from the repository are deleted; a person's own
    documents in the collection are left alone, and so are those of the sample that somebody archived.
    """
    lease = announce_sample()
    if lease is None:
        return _load(Collection.objects.live().get(name=SAMPLE_NAME), progress)
    with operations.attempt(lease) as told:

        def tell(done: int, total: int) -> None:
            told.tell("documents", done, total)
            if progress is not None:
                progress(done, total)

        collection = Collection.objects.live().filter(name=SAMPLE_NAME).first()
        outcome = _load(collection or _create(), tell)
        told.succeed({"documents": outcome.written})
        return outcome


def _create() -> Collection:
    return collection_services.create_collection(
        name=SAMPLE_NAME, description=SAMPLE_DESCRIPTION, starters=STARTERS, open_role=Role.ASKER
    )


def _load(collection: Collection, progress: Callable[[int, int], None] | None) -> SampleOutcome:
    files = sample_files()
    archived = set(Document.objects.in_state("archived").filter(collection=collection).values_list("doc_id", flat=True))
    outcomes: list[bool] = []
    until = time.monotonic() + PATIENCE_S
    for doc_id, path in files.items():
        if doc_id in archived:
            continue
        _let_jobs_pass(until)
        outcomes.append(_ingest_file(collection, doc_id, path))
        if progress is not None and not outcomes[-1]:
            progress(len(outcomes), len(files) - len(archived))
    stale = Document.objects.filter(collection=collection, metadata__sample=True).exclude(doc_id__in=files)
    stale_ids = list(stale.values_list("doc_id", flat=True))
    if stale_ids:
        document_services.delete_documents(collection, stale_ids, actor=None)
    return SampleOutcome(
        collection=SAMPLE_NAME,
        written=outcomes.count(False),
        unchanged=outcomes.count(True),
        deleted=len(stale_ids),
        questions=load_golden_set(SAMPLE_NAME, SAMPLE_NAME, read_questions(GOLDEN_FILE)),
    )


def evaluate_sample() -> EvaluationRun | None:
    """A first evaluation of the sample's golden set by the collection's own plan, left to the worker.

    It begins once the fusion weights, a part of that plan, rest on the whole sample. It is answered with quotations:
    nobody asked for calls of a chat model that was set up meanwhile.

    None when the set was evaluated before, or is gone or empty: then there is nothing to begin with.
    """
    golden = GoldenSet.objects.filter(name=SAMPLE_NAME, collection_name=SAMPLE_NAME).first()
    collection = Collection.objects.live().filter(name=SAMPLE_NAME).first()
    if golden is None or collection is None or golden.runs.exists() or not golden.questions.exists():
        return None
    measure_serving(collection)
    chosen = choose_plan(collection, None, {})
    quotations = RunSettings(llm_model=ExtractiveAnswerer.model)
    return start_run(
        golden, RunRequest(plan=chosen.plan, plan_name=chosen.name, settings=quotations, name=FIRST_EVALUATION)
    )


def sample_files(root: Path = REPOSITORY) -> dict[str, Path]:
    """doc_id -> file: README.md and docs/*.md, by name. The id is the path in the repository."""
    result = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return {path.relative_to(root).as_posix(): path for path in result if path.is_file()}


def _let_jobs_pass(until: float) -> None:
    """Wait while a worker reads files of people, until that time of the monotonic clock at the latest: they want theirs
    first. A job that waits for a worker, for another try or for an endpoint holds up nothing."""
    while IngestJob.objects.filter(state=IngestJob.State.RUNNING).exists() and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)


def _ingest_file(collection: Collection, doc_id: str, path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    outcome = document_services.ingest_text(
        collection,
        doc_id,
        text,
        title=read_title(text) or doc_id,
        tags=["documentation"],
        metadata={"sample": True, "source": doc_id},
        source=doc_id,
    )
    return outcome.unchanged


def read_title(text: str) -> str:
    """The first Markdown heading of level 1, "" when there is none."""
    return next((line[2:].strip() for line in text.splitlines() if line.startswith("# ")), "")


def read_questions(path: Path) -> list[dict[str, Any]]:
    """The golden questions of a JSON Lines file, with the fields of `QUESTION_DEFAULTS`."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


@transaction.atomic
def load_golden_set(name: str, collection_name: str, questions: list[dict[str, Any]]) -> int:
    """Make the set hold these questions in this order; its version grows when anything changes. Returns their number.

    Questions that ship with ragd and are no longer among these go; those that a person added stay.
    """
    golden, _ = GoldenSet.objects.get_or_create(name=name, collection_name=collection_name)
    stored = {question.question: question for question in golden.questions.all()}
    for position, item in enumerate(questions):
        _place(golden, stored.get(item["question"]), position, item)
    golden.questions.filter(notes=SHIPPED).exclude(question__in=[item["question"] for item in questions]).delete()
    keep_version(golden, reason="loaded what ships with ragd")
    return len(questions)


def _place(golden: GoldenSet, stored: GoldenQuestion | None, position: int, item: dict[str, Any]) -> None:
    """A question that a person has made their own, by another note than that it ships with ragd, is left alone."""
    fields = {name: item.get(name, default) for name, default in QUESTION_DEFAULTS.items()}
    values = {"position": position, "notes": SHIPPED} | fields
    if stored is None:
        GoldenQuestion.objects.create(golden_set=golden, question=item["question"], **values)
    elif stored.suggested or (
        stored.notes == SHIPPED and any(getattr(stored, name) != values[name] for name in values)
    ):
        for name, value in (values | {"suggested": False}).items():
            setattr(stored, name, value)
        stored.save()
