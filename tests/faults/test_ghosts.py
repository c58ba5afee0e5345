"""Searches while documents are written: each result is a chunk that was there, with its text and its ranks."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from collections_app.collections.services import create_collection
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.models import Collection
from tests.retrieval.corpus import bearer, post

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 60.0
WRITERS = SEARCHERS = 8
DOCUMENTS = 3  # of each writer
QUERY = "Where does the zebra eat grass?"


@dataclass(frozen=True, slots=True)
class Search:
    """One answer of the API, and when it was asked and given."""

    began: float
    ended: float
    status: int
    body: dict[str, Any]


@dataclass
class Book:
    """What each document said, and from when to when at most: [text, from before its write, until after the next]."""

    said: dict[str, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))

    def write(self, collection: Collection, doc_id: str, text: str | None) -> None:
        began = time.monotonic()
        texts = self.said[doc_id]
        if text is None:
            delete_documents(collection, [doc_id])
        else:
            texts.append([text, began, float("inf")])
            ingest_text(collection, doc_id, text)
        for earlier in texts if text is None else texts[:-1]:
            earlier[2] = min(earlier[2], time.monotonic())

    def holds(self, search: Search, doc_id: str, text: str) -> bool:
        return any(
            said == text and began <= search.ended and ended >= search.began for said, began, ended in self.said[doc_id]
        )


def is_consistent(body: dict[str, Any]) -> bool:
    """Whether places, ranks and the short result agree."""
    results, short = body["results"], body["short_result"]
    places = list(range(1, len(results) + 1))
    return (
        [each["rank"] for each in results] == places
        and [each["ranks"]["fused"]["rank"] for each in results] == places
        and (short is None or short["got"] == len(results))
    )


@pytest.mark.timeout(300)
@pytest.mark.fault("F1")
def test_no_search_gives_a_chunk_that_is_gone() -> None:
    collection = create_collection(name="house")
    headers = bearer(scope="read")
    book, until = Book(), time.monotonic() + SECONDS
    ready = threading.Barrier(WRITERS + SEARCHERS)

    def write(number: int) -> int:
        chance, count = random.Random(number), 0
        ready.wait()
        while time.monotonic() < until:
            doc_id = f"w{number}-{count % DOCUMENTS}"
            if count >= DOCUMENTS and chance.random() < 0.5:
                book.write(collection, doc_id, None)
            book.write(collection, doc_id, f"The zebra of writer {number} eats grass in field {count}.")
            count += 1
        connections.close_all()
        return count

    def search(number: int) -> list[Search]:
        client, searches = Client(), []
        ready.wait()
        while time.monotonic() < until:
            began = time.monotonic()
            status, body = post(client, "/v1/collections/house/search", {"query": QUERY}, headers)
            searches.append(Search(began, time.monotonic(), status, body))
        connections.close_all()
        return searches

    with ThreadPoolExecutor(WRITERS + SEARCHERS) as pool:
        writers = [pool.submit(write, number) for number in range(WRITERS)]
        searchers = [pool.submit(search, number) for number in range(SEARCHERS)]
        writes = sum(each.result() for each in writers)
        searches = [search for each in searchers for search in each.result()]
    results = [(search, each) for search in searches for each in search.body.get("results", [])]
    ghosts = [
        (each["doc_id"], each["content"])
        for search, each in results
        if not book.holds(search, each["doc_id"], each["content"])
    ]
    torn = [search.body for search in searches if not is_consistent(search.body)]
    print(
        f"{len(ghosts)} of {len(results)} results are ghosts, {len(torn)} of {len(searches)} answers contradict "
        f"themselves; {writes / SECONDS:.1f} writes and {len(searches) / SECONDS:.1f} searches a second"
    )
    assert {search.status for search in searches} == {200}
    assert (ghosts[:3], torn[:1]) == ([], [])
    assert len(results) > 100 and writes > WRITERS * DOCUMENTS
