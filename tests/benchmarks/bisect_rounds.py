"""Random histories of a collection in which one change breaks a golden question."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.services.chunks.chunk_edits import add_chunk, edit_chunk, set_chunk_enabled
from collections_app.services.collections.collections import create_collection, get_collection, update_collection
from collections_app.services.collections.deletion import delete_collection
from collections_app.services.documents.archiving import archive_documents, unarchive_documents
from collections_app.services.documents.documents import delete_documents, ingest_text, set_documents_enabled
from collections_app.services.documents.edits import edit_document
from collections_app.services.generations.generations import start_generation
from collections_app.stores import open_store
from evaluation_app.history.bisection import Bisection, bisect_item
from evaluation_app.models import EvaluationItem, GoldenQuestion, GoldenSet
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.run_settings import RunSettings
from ragd.search.retrieval import retrieve
from ragd.types import Filters, RetrievePlan

THINGS = tuple(
    "turbine boiler crane bakery harbour glasshouse sawmill bridge ferry lighthouse quarry brewery".split()  # noqa: SIM905
)
PLACES = tuple(
    "Ravenna Bergen Lucca Tampere Ghent Porto Graz Malmo Delft Siena Turku Bruges".split()  # noqa: SIM905
)
STUFFS = tuple(
    "oil water sand flour timber steam gravel malt paint grease salt coal".split()  # noqa: SIM905
)
KINDS = (
    "text", "delete", "disable", "bulk", "archive", "chunk off", "chunk edit", "tags", "policy and text", "add",
    "enable", "plan", "question", "generation",
)  # fmt: skip
EXPECTED = {
    "text": "revision", "delete": "deleted", "disable": "disabled", "bulk": "disabled", "archive": "archived",
    "chunk off": "revision", "chunk edit": "revision", "tags": "revision", "policy and text": "revision",
    "add": "added", "enable": "enabled", "plan": "plan", "question": "question", "generation": "generation",
}  # fmt: skip
DOCUMENTS = 16
CHANGES = 12
POLICY = {"target_tokens": 24, "overlap_tokens": 0}


@dataclass
class History:
    """One collection on its way. broken_by: the change after which the live search lost the answer."""

    collection: Collection
    golden: GoldenQuestion
    plan: RetrievePlan
    chance: random.Random
    names: list[str]
    target: str
    copy: str
    made: int = 0

    def holds(self) -> bool:
        store = open_store(self.collection)
        found = retrieve(self.golden.question, self.plan, store)
        return bool({candidate.doc_id for candidate in found} & set(self.golden.expected_doc_ids))


def sentence(chance: random.Random) -> str:
    """Of another thing than any question is about."""
    return (
        f"The {chance.choice(THINGS)} of {chance.choice(PLACES)} stores {chance.randint(2, 90)} tons of "
        f"{chance.choice(STUFFS)} and is painted every {chance.randint(2, 9)} years."
    )


def open_history(seed: int, kind: str) -> History:
    chance = random.Random(seed)
    collection = create_collection(name=f"history-{seed}", chunk_policy=POLICY)
    update_collection(collection, changes={"retention": {"deleted_days": 30, "revisions": 50}})
    collection.refresh_from_db()
    thing, place, stuff = chance.choice(THINGS), chance.choice(PLACES), chance.choice(STUFFS)
    names = [f"doc{number:02d}.md" for number in range(DOCUMENTS)]
    target, copy = names[0], "copy.md"
    text = f"Leaking valves of the {thing} in {place} need {chance.randint(20, 80)} litres of {stuff} each week."
    for name in names:
        ingest_text(collection, name, text if name == target else sentence(chance), title=name[:5], tags=["red"])
    question = f"How many litres of {stuff} do leaking valves of the {thing} in {place} need each week?"
    if kind == "enable":
        ingest_text(collection, copy, question, tags=["red"])
        set_documents_enabled(collection, [copy], enabled=False)
    plan = RetrievePlan(k=1 if kind in ("add", "enable") else 3, filters=Filters(tags_any=("red",)))
    if kind == "generation":
        plan = replace(plan, mode="lexical")
        question = "leak valve"
    golden_set = GoldenSet.objects.create(name=collection.name, collection_name=collection.name)
    golden = GoldenQuestion.objects.create(
        golden_set=golden_set, question=question, expected_doc_ids=[target], match="any"
    )
    return History(collection, golden, plan, chance, names, target, copy)


def change_at_random(history: History) -> None:
    """One change that is not meant to break anything: mostly of other documents, sometimes of the expected one."""
    chance, collection = history.chance, history.collection
    others = [name for name in history.names if name != history.target]
    name = chance.choice(others)
    history.made += 1
    changes: list[Callable[[], object]] = [
        lambda: ingest_text(collection, name, sentence(chance), tags=["red"]),
        lambda: edit_document(collection, name, {"title": sentence(chance)[:30]}),
        lambda: edit_document(collection, name, {"tags": ["red", f"t{history.made}"]}),
        lambda: edit_document(collection, name, {"chunk_policy": {"target_tokens": chance.randint(5, 20)}}),
        lambda: set_documents_enabled(collection, [name], enabled=False),
        lambda: set_documents_enabled(collection, others, enabled=True),
        lambda: archive_documents(collection, [name]),
        lambda: unarchive_documents(collection, others),
        lambda: set_chunk_enabled(collection, name, 0, enabled=False),
        lambda: edit_chunk(collection, name, 0, sentence(chance)),
        lambda: add_chunk(collection, name, sentence(chance)),
        lambda: ingest_text(collection, f"new{history.made}.md", sentence(chance), tags=["red"]),
        lambda: (history.names.remove(name), delete_documents(collection, [name])),
        lambda: edit_document(collection, history.target, {"metadata": {"n": history.made}}),
        lambda: edit_document(collection, history.target, {"tags": ["red", f"t{history.made}"]}),
        lambda: add_chunk(collection, history.target, sentence(chance)),
    ]
    while True:
        try:
            chance.choice(changes)()
        except ServiceError as error:  # an archived document, or a state that is there already: another change
            if error.status >= 500:
                raise
            continue
        return


def break_question(history: History, kind: str) -> str:
    """The change that breaks it; returns the document that it is of."""
    collection, target, chance = history.collection, history.target, history.chance
    if kind == "text":
        ingest_text(collection, target, sentence(chance), tags=["red"])
    elif kind == "delete":
        delete_documents(collection, [target])
    elif kind == "disable":
        set_documents_enabled(collection, [target], enabled=False)
    elif kind == "bulk":
        set_documents_enabled(collection, [target, *history.names[1:4]], enabled=False)
    elif kind == "archive":
        archive_documents(collection, [target])
    elif kind == "chunk off":
        set_chunk_enabled(collection, target, 0, enabled=False)
    elif kind == "chunk edit":
        edit_chunk(collection, target, 0, sentence(chance))
    elif kind == "tags":
        edit_document(collection, target, {"tags": ["blue"]})
    elif kind == "policy and text":
        ingest_text(
            collection, target, sentence(chance), tags=["red"], policy={"target_tokens": 6, "overlap_tokens": 0}
        )
    elif kind in ("add", "enable"):
        if kind == "add":
            ingest_text(collection, history.copy, history.golden.question, tags=["red"])
        else:
            set_documents_enabled(collection, [history.copy], enabled=True)
        return history.copy
    elif kind == "plan":
        history.plan = replace(history.plan, filters=Filters(tags_any=("blue",)))
    elif kind == "question":
        history.golden.expected_doc_ids = ["nowhere.md"]
        history.golden.save()
    elif kind == "generation":
        start_generation(collection, {"language": "simple"})
        history.collection = get_collection(collection.name)
    return "" if kind in ("plan", "question", "generation") else target


def evaluate(history: History) -> EvaluationItem:
    settings = RunSettings(answers=False, judge="none", cut=history.plan.k)
    run = lifecycle.start_run(history.golden.golden_set, plan=history.plan, settings=settings, send=False)
    return lifecycle.run_now(run).items.get()


def make_history(seed: int, kind: str) -> tuple[Bisection, str] | None:
    """What bisect found, and the document that the breaking change was of. None for a history in which another change
    broke it, or it held again: the answer would not be one change."""
    history = open_history(seed, kind)
    try:
        if not history.holds():
            return None
        good = evaluate(history)
        changes = history.chance.randint(CHANGES - 4, CHANGES + 4)
        place = history.chance.randrange(changes)
        broken_of = ""
        for number in range(changes):
            if number == place:
                broken_of = break_question(history, kind)
            else:
                change_at_random(history)
            if history.holds() is (number >= place):
                return None
        bad = evaluate(history)
        return bisect_item(good, bad), broken_of
    finally:
        delete_collection(get_collection(history.collection.name))


def run(histories: int, seed: int) -> None:
    found, missed = Counter[str](), list[str]()
    began, asked, number, left_out = time.perf_counter(), 0, 0, 0
    total = Counter[str]()
    while sum(total.values()) < histories:
        kind = KINDS[sum(total.values()) % len(KINDS)]
        number += 1
        made = make_history(seed * 10_000 + number, kind)
        if made is None:
            left_out += 1
            continue
        result, of = made
        total[kind] += 1
        asked += result.looked
        named = [(event.kind, event.doc_id) for event in result.events]
        if result.proven and named == [(EXPECTED[kind], of)]:
            found[kind] += 1
        else:
            missed.append(f"{kind} of {of!r}: named {named}, proven {result.proven}, {result.note}")
    took_s = time.perf_counter() - began
    for kind in KINDS:
        if total[kind]:
            print(f"{kind:>16}: {found[kind]} of {total[kind]}")
    for line in missed:
        print(f"missed: {line}")
    print(f"{asked / histories:.1f} states asked and {took_s / histories:.1f} s per history ({left_out} drawn again)")
    print(f"found exactly: {sum(found.values())} of {histories} histories (target: 38 of 40)")
