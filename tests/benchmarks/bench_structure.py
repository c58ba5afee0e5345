"""Questions about single rows of spreadsheets: is the right row found, and are its cells cited.

Run: python -m tests.benchmarks.bench_structure [--workbooks 40] [--rows 1000] [--questions 100] [--long 50000]

Workbooks with one sheet each are generated from a fixed seed: a caption, an empty row, a header, rows whose keys occur
once. They are read, cut by the policy of the built-in model and indexed as uploads are. A question names the key of a
row and a column of the header. Two collections: in "header" chunks carry the header of their table in the context, in
"none" they do not, as before that. hit@1: the best chunk holds the row. row: the first citation of the quoting answerer
is of the row. cells: it names exactly the row's cells. Then the time to read and to cut one sheet of --long rows.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import xlsxwriter

import ragd
from collections_app.parsing.assembly import read_document
from collections_app.parsing.types import ParsedDocument, ParseLimits, Source
from ragd.models.embedding import LocalEmbedder
from ragd.store.indexing import embed_chunks
from ragd.store.schema import apply_schema
from ragd.store.tables import create_collection
from ragd.text.structure import Structure
from ragd.types import Chunk, ChunkPolicy, RetrievePlan
from ragd_site import embedded
from retrieval_app.answerers.extractive_answerer import ExtractiveAnswerer

SEED = 11
HEADER = ("Article", "Name", "Supplier", "Unit price", "Stock", "Delivery days")
ASKED = {"Unit price": 3, "Stock": 4, "Supplier": 2, "Delivery days": 5}
THINGS = ("bolt", "hinge", "valve", "gasket", "bearing", "bracket", "filter", "sleeve", "washer", "coupling")
KINDS = ("steel", "brass", "rubber", "copper", "nylon", "zinc", "ceramic", "oak")
FIRMS = ("Brandt", "Okafor", "Lindqvist", "Moreau", "Tanaka", "Silva", "Novak", "Haddad")
FIRST_ROW = 4  # of the data, as the spreadsheet counts: caption, empty row, header


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    doc_id: str
    row: int


def make_workbook(number: int, rows: int, rng: random.Random) -> tuple[bytes, list[str]]:
    """The file, and the key of each row."""
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    sheet = book.add_worksheet("Prices")
    sheet.write(0, 0, f"Price list {number}")
    sheet.write_row(2, 0, HEADER)
    keys = [
        f"{rng.choice('ABCDEFGH')}{rng.choice('KLMNPQ')}-{number:02d}{n:05d}" for n in rng.sample(range(99999), rows)
    ]
    for at, key in enumerate(keys):
        name = f"{rng.choice(KINDS)} {rng.choice(THINGS)} {rng.randrange(2, 90)} mm"
        values = (rng.choice(FIRMS), rng.randrange(50, 90000) / 100, rng.randrange(0, 900), rng.randrange(1, 40))
        sheet.write_row(FIRST_ROW - 1 + at, 0, (key, name, *values))
    book.close()
    return buffer.getvalue(), keys


def read(data: bytes) -> ParsedDocument:
    return read_document(Source(data, "prices.xlsx", "", ParseLimits()))


def cut(parsed: ParsedDocument, doc_id: str, policy: ChunkPolicy) -> list[Chunk]:
    structure = Structure(parsed.text, page_map=parsed.page_map, cell_map=parsed.cell_map, media_type=parsed.media_type)
    chunks = ragd.chunk(parsed.text, policy)
    return ragd.bind(chunks, doc_id=doc_id, title=doc_id, page_map=parsed.page_map, structure=structure)


@contextmanager
def opened(embedder: LocalEmbedder) -> Iterator[dict[str, ragd.Store]]:
    """An empty store by name, in a PostgreSQL of its own."""
    with tempfile.TemporaryDirectory(prefix="ragd-bench-") as scratch:
        Path(scratch).chmod(0o755)
        folder = Path(scratch) / "var"
        connection = embedded.connect(embedded.ensure_running(folder, fsync=False))
        try:
            apply_schema(connection)
            for name in ("header", "none"):
                create_collection(connection, name=name, embed_model=embedder.model, embed_dims=embedder.dims)
            yield {name: ragd.Store(connection, name, embedder) for name in ("header", "none")}
        finally:
            connection.close()
            embedded.stop(folder)


def measure(store: ragd.Store, questions: list[Question], embedder: LocalEmbedder, last_column: str) -> list[int]:
    """How many questions found the row, cited it, and cited exactly its cells."""
    answerer = ExtractiveAnswerer(embedder)
    found = cited = exact = 0
    for question in questions:
        results = ragd.retrieve(question.text, RetrievePlan(k=8), store)
        best = results[0]
        found += best.doc_id == question.doc_id and best.attributes["row"] <= question.row <= best.attributes["row_end"]
        citations = answerer.answer(question.text, results).checked.citations
        cells = citations[0].cells if citations and citations[0].doc_id == question.doc_id else None
        cited += cells is not None and cells.partition(":")[0] == f"Prices!A{question.row}"
        exact += cells == f"Prices!A{question.row}:{last_column}{question.row}"
    return [found, cited, exact]


def measure_long(rows: int, policy: ChunkPolicy) -> None:
    data, _ = make_workbook(99, rows, random.Random(SEED))
    began = time.perf_counter()
    parsed = read(data)
    read_s = time.perf_counter() - began
    began = time.perf_counter()
    bare = ragd.chunk(parsed.text, policy)
    cut_s = time.perf_counter() - began
    began = time.perf_counter()
    chunks = cut(parsed, "long.xlsx", policy)
    all_s = time.perf_counter() - began
    print(f"\none sheet of {rows:,} rows, {len(parsed.text):,} characters, {len(chunks):,} chunks")
    print(f"reading {read_s:.1f} s; cutting {cut_s:.2f} s, with attributes {all_s:.2f} s; cell map of "
          f"{len(parsed.cell_map)} entries; last row {chunks[-1].attributes['row_end']:,}")  # fmt: skip
    assert len(bare) == len(chunks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("workbooks", 40), ("rows", 1000), ("questions", 100), ("long", 50_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rng = random.Random(SEED)
    embedder = LocalEmbedder()
    policy = ChunkPolicy().fitted(embedder.window)
    chunks: list[Chunk] = []
    questions: list[Question] = []
    for number in range(options.workbooks):
        data, keys = make_workbook(number, options.rows, rng)
        doc_id = f"prices-{number}.xlsx"
        chunks += cut(read(data), doc_id, policy)
        for _ in range(-(-options.questions // options.workbooks)):
            at = rng.randrange(len(keys))
            column = rng.choice(sorted(ASKED))
            questions.append(Question(f"What is the {column.lower()} of article {keys[at]}?", doc_id, FIRST_ROW + at))
    questions = questions[: options.questions]
    without = [replace(item, context=item.context.partition("\n")[0]) for item in chunks]
    size = len(questions)
    print(f"{options.workbooks} workbooks of {options.rows} rows, {len(chunks)} chunks, {size} questions, seed {SEED}")
    print(f"{'context':8} {'hit@1':>7} {'row':>7} {'cells':>7} {'indexing s':>11} {'ms a question':>14}")
    with opened(embedder) as stores:
        for name, listed in (("none", without), ("header", chunks)):
            began = time.perf_counter()
            ragd.index(embed_chunks(listed, embedder), stores[name])
            indexed = time.perf_counter()
            counts = measure(stores[name], questions, embedder, "F")
            took = time.perf_counter() - indexed
            shares = " ".join(f"{count / size:7.2f}" for count in counts)
            print(f"{name:8} {shares} {indexed - began:11.0f} {1000 * took / size:14.0f}")
    measure_long(options.long, policy)


if __name__ == "__main__":
    main()
