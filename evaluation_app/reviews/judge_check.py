"""Check a chat model that judges: does it repeat itself, what do order and length change, does it agree with people.

    again     an answer is asked about REPEATS times, with other seeds, and nothing that was kept is used
    order     the documents of the context stand in reverse order
    length    the answer says its own sentences twice, and nothing new
    labels    the answers that chance drew and people labelled, as a run asks about them

A judge without faults gives the same verdict (adherence) and the same numbers each time. What order and length change
is compared with the first of the repeats, and to be read beside what repeating alone changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connection, transaction

from collections_app.access.permissions import Permission
from collections_app.access.services import require_in
from collections_app.advisory_locks import LockSpace, lock, named
from collections_app.audit import services
from collections_app.chunks.finding_scan import redacted_spans
from collections_app.collections.services import get_collection
from collections_app.endpoints.providers import CALLS_AT_ONCE, at_once
from collections_app.errors import ServiceError
from collections_app.jobs.operations import OperationProgress, handles, request_operation, requested_operations
from collections_app.models import Collection, Operation
from evaluation_app.judges.annotation import build_messages
from evaluation_app.judges.protocol import Case, Judge, Judgement, sum_usage
from evaluation_app.measures.statistics import bootstrap_mean
from evaluation_app.models import EvaluationItem, EvaluationRun, ReviewTask, RunScore
from evaluation_app.reviews.agreement import ADHERENCE, compare_yes_no
from evaluation_app.reviews.calibration import label_of
from evaluation_app.reviews.labels import RANDOM
from evaluation_app.runs.calibration_fit import share
from evaluation_app.scoring.judge_selection import StoredJudgements, open_chat_judge
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.telemetry.pricing import price_call
from retrieval_app.llm.chat_model import SEED

REPEATS = 3
ANSWERS, ANSWERS_MAX = 20, 50
REFERENCES_MAX = 100
RUNS_MAX, LIVE_MAX = 5, 1000  # the newest, from which answers are drawn
CHARS_PER_TOKEN = 4  # for the estimate, as those of an annotation
OUTPUT_TOKENS, OUTPUT_PER_SENTENCE = 150, 45
NUMBERS = ("context_relevance", "context_utilization", "completeness", "faithfulness", "answer_relevance")
KIND = Operation.Kind.JUDGE_CHECK


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """label: whether people say that it is supported, None where it was not labelled or they tie."""

    question: str
    documents: tuple[str, ...]
    answer: str
    label: float | None = None

    def case(self, *, is_reversed: bool = False, times: int = 1) -> Case:
        """is_reversed: the documents in reverse order. times: that the answer says its sentences."""
        documents = self.documents[::-1] if is_reversed else self.documents
        return Case.of(self.question, documents, "\n\n".join([self.answer] * times))

    @classmethod
    def of(cls, row: EvaluationItem | RunScore | ReviewTask, label: float | None = None) -> CheckedAnswer:
        documents = (" ".join(str(text) for _, text in chunk["sentences"]) for chunk in row.context)
        return cls(row.question_text, tuple(documents), row.answer, label)


@dataclass(frozen=True, slots=True)
class CheckEstimate:
    """What a check would ask at most. references: answers with labels. cost_usd: None where the price is not known."""

    answers: int
    references: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


def check_answers(
    judges: Sequence[Judge],
    usual: Judge,
    sample: Sequence[CheckedAnswer],
    references: Sequence[CheckedAnswer],
    tell: Callable[[int, int], object],
) -> dict[str, Any]:
    """judges: REPEATS of one model; usual: as runs use it, for the references, which have labels. tell: called with how
    many answers are judged, of how many.

    {"again", "order", "length": {"same": `share` of answers with the same verdict, "shifts": {measure: `Interval`}},
    "labels": `share` with "kappa", "low_kappa" and "high_kappa", "usage", "failed"}. Of "again" a shift is the distance
    of the highest and the lowest figure, of the others the figure less the first one. What a call could not judge is
    counted as failed, and that answer left out of the comparison.
    """

    def repeat(one: CheckedAnswer) -> tuple[list[Judgement], Judgement, Judgement]:
        repeats = [judge.judge(one.case()) for judge in judges]
        return repeats, judges[0].judge(one.case(is_reversed=True)), judges[0].judge(one.case(times=2))

    total = len(sample) + len(references)
    calls = 1 if connection.in_atomic_block else CALLS_AT_ONCE  # other connections see nothing that is not committed
    groups: dict[str, list[list[Judgement]]] = {"again": [], "order": [], "length": []}
    tell(0, total)
    with closing(at_once(repeat, sample, calls)) as judged:
        for place, (repeats, in_order, doubled) in enumerate(judged, 1):
            tell(place, total)
            groups["again"].append(repeats)
            groups["order"].append([repeats[0], in_order])
            groups["length"].append([repeats[0], doubled])
    verdicts: list[Judgement] = []
    with closing(at_once(lambda one: usual.judge(one.case()), references, calls)) as of_labelled:
        for place, verdict in enumerate(of_labelled, len(sample) + 1):
            tell(place, total)
            verdicts.append(verdict)
    values = [(each.scores[ADHERENCE].value, one.label) for each, one in zip(verdicts, references, strict=True)]
    pairs = [(value, label) for value, label in values if value is not None and label is not None]
    kappa = compare_yes_no(pairs).kappa
    others = [group[1] for name in ("order", "length") for group in groups[name]]
    judgements = [*(each for group in groups["again"] for each in group), *others, *verdicts]
    return {
        **{name: _compare(members, is_repeat=name == "again") for name, members in groups.items()},
        "labels": share(sum(value == label for value, label in pairs), len(pairs))
        | {"kappa": kappa.value, "low_kappa": kappa.low, "high_kappa": kappa.high},
        "usage": sum_usage([each.usage for each in judgements]),
        "failed": sum(any(score.state == "error" for score in each.scores.values()) for each in judgements),
    }


def _compare(groups: Sequence[Sequence[Judgement]], *, is_repeat: bool) -> dict[str, Any]:
    def values_of(measure: str) -> list[list[float]]:
        rows = ([each.scores[measure].value for each in group] for group in groups)
        return [[value for value in row if value is not None] for row in rows if None not in row]

    verdicts, shifts = values_of(ADHERENCE), {}
    for name in NUMBERS:
        gaps = [max(row) - min(row) if is_repeat else row[-1] - row[0] for row in values_of(name)]
        if (interval := bootstrap_mean(gaps)) is not None:
            shifts[name] = interval.as_dict()
    return {"same": share(sum(len(set(row)) == 1 for row in verdicts), len(verdicts)), "shifts": shifts}


def draw_answers(collection: Collection, number: int) -> dict[str, list[Any]]:
    """Ids of what a check asks about, as far as who asks may see it: {"items", "scores": `number` by chance among the
    answers of the newest runs and of live traffic, "tasks": those with labels}. The same draw each time."""
    if isinstance(number, bool) or not 1 <= number <= ANSWERS_MAX:
        raise InvalidInput(f"number must be a whole number from 1 to {ANSWERS_MAX}, not {number!r}", field="number")
    name, since = collection.name, collection.created_at
    runs = EvaluationRun.objects.filter(
        collection_name=name, created_at__gte=since, state=EvaluationRun.State.SUCCEEDED
    ).exclude(judge="none")
    newest = list(runs.order_by("-created_at", "-pk").values_list("pk", flat=True)[:RUNS_MAX])
    outcome = EvaluationItem.Outcome.ANSWERED
    items = EvaluationItem.objects.filter(run__in=newest, outcome=outcome).order_by("-run__created_at")
    live = RunScore.objects.filter(collection_name=name, asked_at__gte=since, outcome=outcome).order_by("-asked_at")
    pool: dict[tuple[str, str], tuple[str, Any]] = {}
    for kind, rows in (("items", items), ("scores", live[:LIVE_MAX])):
        for pk, question, answer in rows.values_list("pk", "question_text", "answer"):
            pool.setdefault((question, answer), (kind, pk if kind == "items" else str(pk)))
    lots = sorted(pool, key=lambda each: hashlib.sha256("\n".join(each).encode()).hexdigest())[:number]
    tasks = ReviewTask.objects.filter(
        collection_name=name, created_at__gte=since, reason=RANDOM, reviews__verdicts__adherence__isnull=False
    ).distinct()
    return {
        **{kind: [pk for each, pk in (pool[lot] for lot in lots) if each == kind] for kind in ("items", "scores")},
        "tasks": list(tasks.order_by("-created_at", "-pk").values_list("pk", flat=True)[:REFERENCES_MAX]),
    }


def read_answers(ids: Mapping[str, Sequence[Any]]) -> tuple[list[CheckedAnswer], list[CheckedAnswer]]:
    """(the sample, the references) of what `draw_answers` gave; those that are gone by now are left out."""
    rows = [
        *EvaluationItem.objects.filter(pk__in=ids["items"]).order_by("pk"),
        *RunScore.objects.filter(pk__in=ids["scores"]).order_by("pk"),
    ]
    references = []
    for task in ReviewTask.objects.filter(pk__in=ids["tasks"]).order_by("pk").prefetch_related("reviews"):
        label = label_of(ADHERENCE, [each.verdicts.get(ADHERENCE) for each in task.reviews.all()])
        if label is not None:
            references.append(CheckedAnswer.of(task, label))
    return [CheckedAnswer.of(row) for row in rows], references


def estimate_check(collection: Collection, model: str = "", number: int = ANSWERS) -> CheckEstimate:
    """Raises ServiceError (422, "no_judge_model") where no chat model is set up, InvalidInput for a number."""
    judge = open_chat_judge(model, None)
    sample, references = read_answers(draw_answers(collection, number))
    calls = input_tokens = output_tokens = 0
    for one, times in [*((each, REPEATS + 2) for each in sample), *((each, 1) for each in references)]:
        case = one.case()
        calls += times
        input_tokens += times * sum(len(message["content"]) for message in build_messages(case)) // CHARS_PER_TOKEN
        output_tokens += times * (OUTPUT_TOKENS + OUTPUT_PER_SENTENCE * len(case.answer))
    system = telemetry.provider_of(judge.endpoint.address[0])
    cost = price_call(system, (judge.model,), input_tokens=input_tokens, output_tokens=output_tokens)
    dollars = None if cost is None else cost.total
    return CheckEstimate(len(sample), len(references), calls, input_tokens, output_tokens, dollars)


@transaction.atomic
def request_check(
    collection: Collection, model: str = "", number: int = ANSWERS, *, actor: services.Actor
) -> Operation:
    """Have a worker check the judge of that name ("" for the usual one); its report is that of `check_answers`, with
    "model", "version" and "answers".

    Raises Forbidden, what `estimate_check` raises, and ServiceError 409: "under_way", "nothing_to_judge".
    """
    require_in(Permission.EVALUATE, collection.name)
    judge, ids = open_chat_judge(model, None), draw_answers(collection, number)
    if not ids["items"] and not ids["scores"]:
        raise ServiceError(
            f"no answer of {collection.name!r} was scored yet; run an evaluation or enable online evaluation first",
            type="nothing_to_judge",
        )
    lock(named(LockSpace.JUDGE_FIT, collection.name))  # two clicks at once are not paid for twice
    if running_check(collection) is not None:
        raise ServiceError(
            f"a check of the judge on {collection.name!r} is under way; wait for it, or stop it", type="under_way"
        )
    operation = request_operation(KIND, collection.name, {"model": model, **ids}, actor=actor)
    message = f"started a check of the judge {judge.model} on {collection.name}"
    services.record(actor, [collection], services.ADDITION, message)
    return operation


def running_check(collection: Collection) -> Operation | None:
    """The check of this collection that waits or runs."""
    return requested_operations().filter(kind=KIND, subject=collection.name).first()


@handles(KIND)
def complete_check(progress: OperationProgress) -> None:
    arguments = progress.operation.arguments
    model, collection = arguments["model"], get_collection(progress.operation.subject)
    judges = [open_chat_judge(model, None, seed=SEED + turn) for turn in range(REPEATS)]
    usual = open_chat_judge(model, StoredJudgements())
    sample, references = read_answers(arguments)
    with telemetry.environment(telemetry.EVALUATION), redacted_spans(collection):
        report = check_answers(judges, usual, sample, references, partial(progress.tell, "answers"))
    progress.succeed({"model": usual.model, "version": usual.version, "answers": len(sample), **report})
