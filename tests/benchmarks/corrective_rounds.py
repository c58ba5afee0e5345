"""The rounds of bench_corrective, over Django."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from collections_app.models import Collection
from collections_app.services.collections.collections import create_collection
from collections_app.services.documents.documents import ingest_text
from collections_app.stores import open_store
from evaluation_app.golden.questions import Golden
from evaluation_app.runs.calibration_fit import TARGET, LabelledList, fit_rule, held_out_figures, label_questions, share
from retrieval_app.confidence.evaluator import ACTIONS, Rule
from retrieval_app.corrective.calibrations import keep_calibration
from retrieval_app.models import QueryRun
from retrieval_app.runs import query_pipeline
from retrieval_app.runs.plans import build_plan
from tests.benchmarks.bench_answering import load_documentation
from tests.benchmarks.scifact import SciFact, load_scifact
from tests.benchmarks.server import ROOT

OTHER_DOCUMENTS = 700
FOREIGN = 50


@dataclass(frozen=True)
class Round:
    """Questions that the thresholds are fitted on, and others that they are used on; of both, those of others are not
    answered here."""

    fitted: Sequence[Golden]
    used: Sequence[Golden]
    foreign_fitted: Sequence[Golden]
    foreign_used: Sequence[Golden]


def run(claims: int) -> None:
    began = time.monotonic()
    train, test = load_scifact("train"), load_scifact("test")
    fitted, used = choose(train, claims), choose(test, claims)
    documentation = make("documentation", load_documentation())
    scifact = make("scifact", documents_of(test, [*fitted, *used]))
    print(f"two collections were filled in {time.monotonic() - began:.0f} s\n", flush=True)
    golden = load_golden()
    odd, even = golden[::2], golden[1::2]
    strange, others = foreign(fitted), foreign(used)
    for with_foreign in (False, True):
        measure(
            documentation,
            [
                Round(odd, even, strange[::2] if with_foreign else [], others[::2]),
                Round(even, odd, strange[1::2] if with_foreign else [], others[1::2]),
            ],
        )
        measure(scifact, [Round(fitted, used, foreign(odd) if with_foreign else [], foreign(even))])


def choose(data: SciFact, number: int) -> list[Golden]:
    queries = random.Random(7).sample(sorted(data.queries, key=int), min(number, len(data.queries)))
    return [Golden(data.queries[query], tuple(sorted(data.judged[query]))) for query in queries]


def documents_of(data: SciFact, questions: Sequence[Golden]) -> list[tuple[str, str, str]]:
    wanted = {doc_id for question in questions for doc_id in question.expected_doc_ids}
    others = [document for document in data.documents if document[0] not in wanted]
    judged = [document for document in data.documents if document[0] in wanted]
    return judged + random.Random(1).sample(others, OTHER_DOCUMENTS)


def make(name: str, documents: Sequence[tuple[str, str, str]]) -> Collection:
    """The collection, filled if it is not there."""
    known = Collection.objects.live().filter(name=name).first()
    if known is not None:
        return known
    collection = create_collection(name=name, hybrid_enabled=True)
    for doc_id, title, text in documents:
        ingest_text(collection, doc_id, text, title=title)
    return collection


def load_golden() -> list[Golden]:
    lines = (ROOT / "evaluation_app" / "sample" / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if (row := json.loads(line))["expected_doc_ids"]]
    return [
        Golden(row["question"], tuple(item.removeprefix("docs/") for item in row["expected_doc_ids"])) for row in rows
    ]


def foreign(questions: Sequence[Golden]) -> list[Golden]:
    return [Golden(item.question) for item in questions[:FOREIGN]]


def measure(collection: Collection, rounds: Sequence[Round]) -> None:
    own, strange = (sum(len(getattr(item, name)) for item in rounds) for name in ("used", "foreign_used"))
    print(f"{collection.name}: {own} questions of its own, {strange} of others")
    actions: Counter[tuple[str, str]] = Counter()
    outcomes: Counter[tuple[str, str, str]] = Counter()
    words: Counter[str] = Counter()
    for one in rounds:
        rule, lists = fit(collection, [*one.fitted, *one.foreign_fitted])
        figures = held_out_figures(lists, TARGET)
        print(
            f"  fitted on {len(one.fitted)} questions, {len(one.foreign_fitted)} of others, {len(lists)} retrievals: "
            f"correct from {_told(rule.upper)}, incorrect below {_told(rule.lower)}\n"
            f"    cross-validated: AUROC {figures['auroc']:.3f}, called correct {_share(figures['correct'])}, called "
            f"incorrect {_share(figures['incorrect'])}"
        )
        keep_calibration(collection, rule, embed_model=collection.embed_model, data={"set": "a half"}, figures={})
        asked = [("own", item) for item in one.used] + [("foreign", item) for item in one.foreign_used]
        for kind, question in asked:
            for step in (False, True):
                made = ask(collection, question, step)
                outcomes["on" if step else "off", kind, outcome_of(made, question)] += 1
                words["on" if step else "off"] += words_read(made)
                if not step:
                    actions[made.retrieval_action, kind_of(made, question)] += 1
    print_actions(actions)
    print_outcomes(outcomes, words)


def fit(collection: Collection, questions: Sequence[Golden]) -> tuple[Rule, list[LabelledList]]:
    with transaction.atomic():
        lists = label_questions(questions, build_plan(collection), open_store(collection))
    return fit_rule(lists, TARGET), lists


def ask(collection: Collection, question: Golden, step: bool) -> QueryRun:
    plan = build_plan(collection)
    return query_pipeline.ask(collection, question.question, plan, door="cli", llm_model="extractive", corrective=step)


def kind_of(made: QueryRun, question: Golden) -> str:
    if question.expects_nothing:
        return "foreign"
    found = {key.rpartition("#")[0] for key in made.retrieved_ids}
    return "found" if found & set(question.expected_doc_ids) else "missed"


def outcome_of(made: QueryRun, question: Golden) -> str:
    if made.status == QueryRun.Status.ABSTAINED:
        return "declined"
    return "expected" if set(made.cited_ids) & set(question.expected_doc_ids) else "others"


def words_read(made: QueryRun) -> int:
    if made.correction and made.correction["outcome"] == "abstained":
        return 0
    if made.compression:
        return int(made.compression["tokens_after"])
    return sum(len(item["content"].split()) for item in made.results)


def print_actions(actions: Counter[tuple[str, str]]) -> None:
    print(f"  {'results of unseen questions':32} {'found':>8} {'missed':>8} {'foreign':>8}")
    for action in ACTIONS:
        counts = [actions[action, kind] for kind in ("found", "missed", "foreign")]
        print(f"  {action:32} {counts[0]:8} {counts[1]:8} {counts[2]:8}")
    found = actions["correct", "found"]
    total = sum(actions["correct", kind] for kind in ("found", "missed", "foreign"))
    lost = sum(actions["incorrect", kind] for kind in ("missed", "foreign"))
    called = lost + actions["incorrect", "found"]
    print(f"  called correct, and are: {_share(share(found, total))}")
    print(f"  called incorrect, and are: {_share(share(lost, called))}")


def print_outcomes(outcomes: Counter[tuple[str, str, str]], words: Counter[str]) -> None:
    print(
        f"  {'answers':10} {'own: cites expected':>20} {'others':>8} {'declined':>9} {'foreign: answered':>18} ", end=""
    )
    print(f"{'declined':>9} {'words given':>12}")
    for step in ("off", "on"):
        own = [outcomes[step, "own", outcome] for outcome in ("expected", "others", "declined")]
        strange = outcomes[step, "foreign", "others"] + outcomes[step, "foreign", "expected"]
        declined = outcomes[step, "foreign", "declined"]
        print(f"  step {step:5} {own[0]:20} {own[1]:8} {own[2]:9} {strange:18} {declined:9} {words[step]:12,}")
    print(flush=True)


def _share(value: dict[str, float]) -> str:
    if value["share"] is None:
        return "none"
    return f"{value['share']:.2f} ({value['low']:.2f} to {value['high']:.2f}, of {value['of']:.0f})"


def _told(value: float | None) -> str:
    return "never" if value is None else f"{value:.3f}"
