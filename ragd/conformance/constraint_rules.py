"""Section 3: what the schema itself refuses, tried by plain SQL past the library, in every state of an index
version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ragd
from ragd.conformance.bench import Bench, make_chunks, rule
from ragd.conformance.report import Cases
from ragd.store.index_versions import (
    IndexVersionSpec,
    create_index_version,
    open_index_version,
    sqlstate,
    swap_index_version,
)
from ragd.store.store import Store, execute, partition_name
from ragd.store.tables import create_collection

VIOLATIONS = {"23514": "refused by a check", "23503": "refused without its document"}

INSERT_CHUNK = """
INSERT INTO {table} (collection_id, doc_id, chunk_index, content, embedding)
VALUES (%(collection_id)s, %(doc_id)s, 99, 'text', %(embedding)s::vector)
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A table that holds the chunks of one document, "fruit", and how many dimensions its vectors have."""

    moment: str
    table: str
    collection_id: int
    dims: int
    is_distributed: bool


@rule("3", "the schema refuses a vector of other dimensions: in what serves, what is built, after a swap and back")
def dimensions_hold(bench: Bench, cases: Cases) -> None:
    for place in _places(bench, "fixed"):
        for given in (place.dims, place.dims + 1):
            expected = "written" if given == place.dims else "refused by a check"
            cases.equal(f"{place.moment}: {given} of {place.dims}", _insert(bench, place, "fruit", given), expected)


@rule("3", "the schema refuses a chunk without its document: in what serves, what is built, after a swap and back")
def chunks_have_documents(bench: Bench, cases: Cases) -> None:
    for place in _places(bench, "owned"):
        cases.equal(f"{place.moment}: with it", _insert(bench, place, "fruit", place.dims), "written")
        if place.is_distributed:
            continue  # the documents are on another node: the library refuses it, and a check of the server finds it
        outcome = _insert(bench, place, "nobody", place.dims)
        cases.equal(f"{place.moment}: without", outcome, "refused without its document")


def _places(bench: Bench, name: str) -> Iterator[Place]:
    """A collection with a second index version of other dimensions, before it is swapped in, after, and after the way
    back; at each moment `chunks` and both tables."""
    connection = bench.connection
    specs = {number: IndexVersionSpec(name, number + 2, True, "simple", ragd.ChunkPolicy()) for number in (1, 2)}
    made = create_collection(
        connection, name=name, embed_model=name, embed_dims=3, language="simple", placement=bench.placement
    )
    store = Store(connection, made)
    ragd.index(make_chunks("fruit", "apples", embedding=[1.0] * 3), store)
    away = store.collection.is_distributed
    create_index_version(connection, made, 4)
    ragd.index(make_chunks("fruit", "apples", embedding=[1.0] * 4), open_index_version(connection, made, 2, specs[2]))
    for moment, serving in (("built", 1), ("swapped in", 2), ("swapped back", 1)):
        swap_index_version(connection, made, serving, specs[serving])
        if not away:
            yield Place(f"{moment}, chunks", "chunks", made, specs[serving].embed_dims, False)
        for number, spec in specs.items():
            yield Place(f"{moment}, index version {number}", partition_name(made, number), made, spec.embed_dims, away)


def _insert(bench: Bench, place: Place, doc_id: str, dims: int) -> str:
    """ "written", or which rule refused it; nothing stays. Raises what else went wrong."""
    values: dict[str, Any] = {"collection_id": place.collection_id, "doc_id": doc_id, "embedding": str([1.0] * dims)}
    with bench.undone():
        try:
            execute(bench.connection, INSERT_CHUNK.format(table=place.table), values)
        except Exception as error:  # of psycopg or Django, by the connection; the library knows no Django
            if (code := sqlstate(error)) not in VIOLATIONS:
                raise
            return VIOLATIONS[code]
    return "written"
