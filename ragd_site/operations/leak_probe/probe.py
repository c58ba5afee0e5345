"""One probe: questions about what a person may not read, on every channel; what leaked, and what is missing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from collections_app.access.context import system_access
from collections_app.index.stores import open_store
from collections_app.models import Collection, Document
from ragd import telemetry
from ragd.search.retrieval import retrieve_detailed
from ragd.types import POOL_MAX, RetrievePlan
from ragd_site.operations.leak_probe.channels import CHANNELS, Channel, K, Marks, Person, Readable, what_may_be_read
from retrieval_app.models import QueryRun

QUESTION_WORDS = 12
ITS_OWN = (telemetry.EVALUATION, telemetry.PLAYGROUND)
AIMED = 20  # hidden documents that are looked for at once


@dataclass(frozen=True, slots=True)
class Leak:
    """A hidden document that a channel told of: by a slice of its text, or among its results."""

    channel: str
    collection: str
    doc_id: str
    question: str


@dataclass
class ProbeReport:
    """missing: channel and question where readable results were left out of an exact search."""

    person: str
    asked: int = 0
    channels: dict[str, int] = field(default_factory=dict)
    hidden: int = 0
    readable: int = 0
    leaks: list[Leak] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.leaks and not self.missing

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


def probe(
    user: User,
    collections: Iterable[Collection],
    *,
    rounds: int = 3,
    seed: int = 1,
    channels: dict[str, Channel] | None = None,
    on_asked: Callable[[int], object] = lambda asked: None,
) -> ProbeReport:
    """Ask as the person, `rounds` questions of each collection on each channel.

    Questions are words of documents, hidden ones where there are some. The query runs that it makes are of
    no production and go at the end. It logs in as the person and makes a key that acts as them for its time.
    """
    began, report, chance = timezone.now(), ProbeReport(user.get_username()), random.Random(seed)  # noqa: S311  (a sample)
    with telemetry.environment(telemetry.EVALUATION), Person(user).opened() as person:
        for collection in collections:
            truth = what_may_be_read(user, collection)
            report.hidden += len(truth.hidden)
            report.readable += len(truth.readable)
            for _ in range(rounds):
                aimed = chance.sample(sorted(truth.hidden), min(AIMED, len(truth.hidden)))
                target = aimed[0] if aimed else chance.choice(sorted(truth.readable) or [""])
                question = question_about(collection, target, chance)
                for name, channel in (channels or CHANNELS).items():
                    ask_once(report, person, Marks(truth, aimed), (name, channel), question, target)
                    on_asked(report.asked)
    with system_access():
        QueryRun.objects.filter(user=user, environment__in=ITS_OWN, created_at__gte=began).delete()
    return report


def ask_once(
    report: ProbeReport, person: Person, marks: Marks, named: tuple[str, Channel], question: str, target: str
) -> None:
    """named: the channel and what it is called. marks: of what the person may read."""
    (name, channel), truth = named, marks.found
    told = channel(person, truth.collection, question, target)
    report.asked += 1
    report.channels[name] = report.channels.get(name, 0) + 1
    leaked = marks.found_in(told.body) | (set(told.doc_ids or ()) & truth.hidden)
    if not truth.enters:
        leaked |= set(told.doc_ids or ())
    report.leaks += [Leak(name, truth.collection.name, doc_id, question) for doc_id in sorted(leaked)]
    if truth.asks and told.doc_ids is not None and name.startswith("API search") and name.endswith("always"):
        mode = name.split()[2]
        expected = expected_documents(truth, question, mode)
        if expected is not None and list(told.doc_ids) != expected:
            report.missing.append((name, question))


def expected_documents(truth: Readable, question: str, mode: str) -> list[str] | None:
    """The documents of the best K of one exact list over what may be read, from the server's own unlimited search.

    None where the list does not reach that far, and for a fusion of two lists, whose pools depend on the reader.
    """
    if mode == "hybrid":
        return None
    plan = RetrievePlan(mode=mode, exact="always", k=POOL_MAX)  # type: ignore[arg-type]
    with system_access(), transaction.atomic():
        found = retrieve_detailed(question, plan, open_store(truth.collection)).candidates
    kept = [each.doc_id for each in found if each.doc_id in truth.readable]
    return kept[:K] if len(kept) >= K or len(found) < POOL_MAX else None


def question_about(collection: Collection, doc_id: str, chance: random.Random) -> str:
    """Words of the document in another order, so that a question that is repeated is no slice of it."""
    with system_access():
        texts = Document.objects.filter(collection=collection, doc_id=doc_id).values_list("text", flat=True)
        text = texts.first() or "what is there"
    words = text.split()[:1000]
    return " ".join(chance.sample(words, min(QUESTION_WORDS, len(words))))
