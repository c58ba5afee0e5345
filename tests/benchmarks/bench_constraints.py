"""What the constraints of a generation's table cost whoever writes chunks: the check of dimensions, the trigger.

Run: python -m tests.benchmarks.bench_constraints [CHUNKS] [ROUNDS]      (20000, 3)

The same chunks (384 dimensions, a lexical index, ten to a document, documents first) go by index() into two collections
in turn, 2,000 in a transaction: one as it is made, one without the check and the trigger. The embedder is left out.
Printed are milliseconds per chunk of processor time, of this process and of its database session, and the median of the
rounds' ratios. Processor time, because other work on the machine moves the time by the clock more than a constraint.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from itertools import islice
from pathlib import Path

import psutil
import psycopg

from ragd import index
from ragd.store.schema import apply_schema
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.types import Chunk
from tests.benchmarks.bench_collections import database
from tests.benchmarks.growth import CHUNKS_PER_DOCUMENT, MODEL, block_texts, make_block, make_vectors

DIMS = 384
BATCH = 2_000

DOCUMENTS = """
INSERT INTO documents (collection_id, doc_id)
SELECT %(collection_id)s, 'd' || to_char(number, 'FM00000000') FROM generate_series(0, %(count)s) AS number
"""


def main() -> None:
    count, rounds = ([int(value) for value in sys.argv[1:]] + [20_000, 3][len(sys.argv) - 1 :])[:2]
    chunks = list(islice(make_chunks(count), count))
    ratios = []
    with tempfile.TemporaryDirectory() as folder, database(Path(folder)) as connection:
        apply_schema(connection)
        connection.commit()
        for number in range(rounds):
            order = (True, False) if number % 2 else (False, True)
            took = {guarded: load(connection, f"c{number}{guarded}", chunks, guarded=guarded) for guarded in order}
            ratios.append(took[True] / took[False] - 1)
            print(f"round {number + 1}: {took[False]:.3f} ms a chunk without, {took[True]:.3f} ms with the constraints")
    print(f"{'constraints on chunks':36} {statistics.median(ratios):+9.1%}     (target: at most +3 %)")


def make_chunks(count: int) -> list[Chunk]:
    chunks: list[Chunk] = []
    for number in range((count - 1) // 10_000 + 1):
        texts = list(block_texts(make_block(number)))
        for text, vector in zip(texts, make_vectors((10, number), len(texts), DIMS), strict=True):
            document, place = divmod(len(chunks), CHUNKS_PER_DOCUMENT)
            chunks.append(Chunk(f"d{document:08}", place, text, 0, len(text), embedding=vector))
    return chunks


def load(connection: psycopg.Connection, name: str, chunks: list[Chunk], *, guarded: bool) -> float:
    """Milliseconds of processor time per chunk."""
    made = create_collection(connection, name=name, embed_model=MODEL, embed_dims=DIMS, language="simple")
    store = Store(connection, made)
    table = store.collection.partition
    if not guarded:
        connection.execute(f"DROP TRIGGER {table}_document ON {table}")
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_dims")
    connection.execute(DOCUMENTS, {"collection_id": made, "count": len(chunks) // CHUNKS_PER_DOCUMENT})
    connection.commit()
    began = spent_ms(connection)
    for first in range(0, len(chunks), BATCH):
        index(chunks[first : first + BATCH], store)
        connection.commit()
    return (spent_ms(connection) - began) / len(chunks)


def spent_ms(connection: psycopg.Connection) -> float:
    """Processor time so far, of this process and of the session's."""
    times = [psutil.Process(pid).cpu_times() for pid in (None, connection.info.backend_pid)]
    return sum(each.user + each.system for each in times) * 1000


if __name__ == "__main__":
    main()
