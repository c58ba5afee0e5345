"""Golden files: what the fixed corpus gives, written once per version of the specification and never changed after.

Sections 5.1 to 5.3: golden results of a fixed corpus, pinned per version of the specification.

Where the rules are tried: a schema of its own inside the caller's transaction, and small stores in it.

The suite's own embedder: the same vectors, bit for bit, and the same cosines on every platform.

SimHash over words and character trigrams. Every feature adds the 256 bits of its SHA-256 as +1 or -1 to 256 whole
numbers, and an entry of the vector is the sign of its sum over 16. Nothing but whole numbers is computed, so no
compiler, processor or thread changes a vector. Each has exactly length 1 (256 entries of 1/16 squared), each entry is
a float32 without rounding, and the products of two vectors are multiples of 1/256 whose sums are exact in float32 in
whatever order a database adds them. So a cosine is exact too, and ties are real ties everywhere.
Source: Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import ragd
from ragd.conformance import corpus
from ragd.conformance.report import Cases
from ragd.errors import InvalidInput
from ragd.store.store import Connection, Store, fetch_all
from ragd.store.tables import create_collection, scratch_schema, undone
from ragd.types import SPEC_VERSION, Candidate, Chunk, ChunkPolicy, RetrievePlan, Vector

DIMS = 256
ENTRY = 1 / 16
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+")
# only ASCII is folded: what else has a lower case depends on the Unicode version of the interpreter
_FOLD = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class SimHashEmbedder:
    """256 dimensions, no window. Texts with common words and letters come out near each other; [] for []."""

    model = "ragd-conformance-simhash"
    dims = DIMS
    window: int | None = None
    system = "ragd.conformance"
    server_address: str | None = None
    server_port: int | None = None

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> Vector:
        """Entries of 1/16 and -1/16; a sum of 0 counts as positive, so a text without features has a vector too."""
        return list(_vector(text))

    def count_tokens(self, text: str) -> int:
        """White-space separated words."""
        return len(text.split())


@lru_cache(maxsize=2048)
def _vector(text: str) -> tuple[float, ...]:
    """Entry 8 * b + n belongs to bit n (the lowest is 0) of byte b of the digests."""
    features = list(_features(text))
    ones = sum(_spread(hashlib.sha256(feature.encode("utf-8", "replace")).digest()) for feature in features)
    counted = struct.unpack(f"<{DIMS}I", ones.to_bytes(4 * DIMS, "little"))
    return tuple(ENTRY if 2 * count >= len(features) else -ENTRY for count in counted)


def _spread(digest: bytes) -> int:
    """The bits of a digest as the lowest bits of 256 counters of 32 bits, so that one addition counts all of them."""
    return int.from_bytes(b"".join(map(_COUNTERS.__getitem__, digest)), "little")


_COUNTERS = [b"".join((byte >> place & 1).to_bytes(4, "little") for place in range(8)) for byte in range(256)]


def _features(text: str) -> Iterator[str]:
    """Each word, and the trigrams of the word between two spaces; a repeated one counts again."""
    for word in _WORD.findall(text.translate(_FOLD)):
        yield word
        framed = f" {word} "
        yield from (framed[index : index + 3] for index in range(len(framed) - 2))


GOLDEN_COLLECTION = "conformance"

# Whatever columns a row has, without those that differ between two collections or two moments.
ROWS = """
SELECT (to_jsonb(c) - 'id' - 'collection_id' - 'created_at')::text
FROM {chunks} c
WHERE collection_id = %(collection_id)s
ORDER BY doc_id, chunk_index
"""


class Bench:
    """A connection whose search path leads to a scratch schema, and stores that the rules make there."""

    def __init__(self, connection: Connection, placement: str | None = None) -> None:
        self.connection = connection
        self.placement = placement
        self.embedder = SimHashEmbedder()

    def make_store(self, name: str, **values: Any) -> Store:
        """A new, empty collection with the suite's embedder; hybrid, without stemmer, unless `values` say otherwise."""
        settings: dict[str, Any] = {
            "embed_model": self.embedder.model,
            "embed_dims": self.embedder.dims,
            "language": corpus.TEXT_SEARCH,
            "placement": self.placement,
        }
        create_collection(self.connection, name=name, **settings | values)
        return Store(self.connection, name, self.embedder)

    def open_golden(self) -> Store:
        """The collection with the fixed corpus, which `load_golden` has made."""
        return Store(self.connection, GOLDEN_COLLECTION, self.embedder)

    def load_golden(self) -> Store:
        store = self.make_store(GOLDEN_COLLECTION, policy=corpus.POLICY)
        ragd.index(corpus_chunks(), store)
        return store

    def rows(self, store: Store) -> list[str]:
        """Every stored chunk of the collection as JSON, in order of (doc_id, chunk_index)."""
        sql = ROWS.format(chunks=store.collection.partition)
        return [row for (row,) in fetch_all(self.connection, sql, {"collection_id": store.collection.id})]

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What happens inside is rolled back, also after an error of the database."""
        with undone(self.connection):
            yield


@contextmanager
def scratch(connection: Connection, placement: str | None = None) -> Iterator[Bench]:
    """A bench in a `scratch_schema`."""
    with scratch_schema(connection):
        yield Bench(connection, placement)


def corpus_chunks() -> list[Chunk]:
    """The bound chunks of the fixed corpus, without vectors."""
    return [
        chunk
        for document in corpus.documents()
        for chunk in ragd.bind(
            ragd.chunk(document.text, corpus.POLICY),
            doc_id=document.doc_id,
            title=document.title,
            tags=document.tags,
            metadata=document.metadata,
        )
    ]


def make_chunks(doc_id: str, *contents: str, **values: Any) -> list[Chunk]:
    """Bound chunks of one document, their offsets as if joined by line feeds."""
    chunks, start = [], 0
    for number, content in enumerate(contents):
        chunks.append(Chunk(doc_id, number, content, start, start + len(content), **values))
        start += len(content) + 1
    return chunks


def make_candidate(doc_id: str, score: float = 0.5, index: int = 0, content: str = "text", **values: Any) -> Candidate:
    return Candidate(doc_id, index, content, score, end=len(content), **values)


def keys(candidates: Sequence[Candidate]) -> list[str]:
    """ "doc_id#chunk_index" of each, in order."""
    return [f"{candidate.doc_id}#{candidate.chunk_index}" for candidate in candidates]


def retrieve_keys(query: str, store: Store, **plan: Any) -> list[str]:
    return keys(ragd.retrieve(query, RetrievePlan(**plan), store))


def result_of(candidate: Candidate) -> dict[str, Any]:
    """The six fields of a candidate that the specification names."""
    return {
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "content": candidate.content,
        "score": candidate.score,
        "tags": list(candidate.tags),
        "metadata": dict(candidate.metadata),
    }


def chunk_rows(chunks: Sequence[Chunk]) -> list[tuple[int, int, int, str, str, Mapping[str, Any]]]:
    return [(item.chunk_index, item.start, item.end, item.content, item.context, item.metadata) for item in chunks]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its section, one line, the check, and whether the check reads the loaded corpus."""

    section: str
    title: str
    check: Callable[[Bench, Cases], None]
    needs_corpus: bool = False


def rule(section: str, title: str, *, needs_corpus: bool = False) -> Callable[[Callable[[Bench, Cases], None]], Rule]:
    """Make a rule of the function below it."""
    return lambda check: Rule(section, title, check, needs_corpus)


def rules_of(module: object) -> list[Rule]:
    """The rules of a module, in the order in which they stand there."""
    return [value for value in vars(module).values() if isinstance(value, Rule)]


FOLDER = Path(__file__).parent / "golden"
# SHA-256 over the names and bytes of a version's files. A new version gets a new line; no line ever changes.
DIGESTS: dict[str, str] = {
    "0.1.0": "32176bfb4bb21f5bd49cee120328dbc4c54fa7aed2fd78133012ba9d38076bf3",
    "0.2.0": "327df469fcb7193f42bd38e9b15107dc1fffe639fd72428f623da61910467ecc",
}
TOLERANCE = 1e-5  # of a score, relative: BM25 comes from float32 sums, whose last digit depends on the processor
CONTENT_DIGITS = 16


def folder_of(version: str) -> Path:
    return FOLDER / version


def digest_of(folder: Path) -> str:
    """Over every file of the folder, by name; "" when there is none."""
    total = hashlib.sha256()
    files = sorted(folder.glob("*.json"))
    for file in files:
        total.update(f"{file.name}\n{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest() if files else ""


def read(name: str, version: str = SPEC_VERSION) -> dict[str, Any]:
    """One golden file. Raises InvalidInput when the version has none."""
    path = folder_of(version) / f"{name}.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(
            f"there are no golden results for specification {version} at {path}; "
            "write them with: python -m ragd.conformance --write",
            field="version",
        ) from None
    return content


def write(bench: Bench) -> str:
    """Write the files of SPEC_VERSION from what the library gives now; returns the digest to pin in DIGESTS.

    Raises InvalidInput when the version has golden results: those of a version stay as they are.
    """
    folder = folder_of(SPEC_VERSION)
    if folder.exists() or SPEC_VERSION in DIGESTS:
        raise InvalidInput(
            f"specification {SPEC_VERSION} has its golden results, and they stay as they are; "
            "a change of results needs a new SPEC_VERSION",
            field="version",
        )
    made = {name: make_lists(bench, name) for name in corpus.PLANS} | {"chunks": make_chunk_table()}
    made["embeddings"] = make_embedding_table()
    folder.mkdir(parents=True)
    for name, content in made.items():
        text = json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return digest_of(folder)


def make_lists(bench: Bench, name: str) -> dict[str, Any]:
    """The top k of every query under one plan: [["doc_id#chunk_index", score], ...], best first."""
    store, plan = bench.open_golden(), corpus.PLANS[name]
    answers = []
    for query in corpus.queries():
        candidates = ragd.retrieve(query.text, plan, store)
        results = [[f"{item.doc_id}#{item.chunk_index}", item.score] for item in candidates]
        answers.append({"language": query.language, "query": query.text, "results": results})
    return {"spec_version": SPEC_VERSION, "plan": plan.as_dict(), "answers": answers}


def make_chunk_table() -> dict[str, Any]:
    """Where every text of the corpus is cut: [start, end, first digits of the SHA-256 of the content]."""
    table = {name: _cuts(ragd.chunk(raw, policy)) for name, raw, policy in corpus.hard_texts()}
    for document in corpus.documents():
        table[document.doc_id] = _cuts(ragd.chunk(document.text, corpus.POLICY))
    policies: dict[str, ChunkPolicy] = {**corpus.HARD_POLICIES, "corpus": corpus.POLICY}
    named = {name: policy.as_dict() for name, policy in policies.items()}
    return {"spec_version": SPEC_VERSION, "policies": named, "cuts": table}


def make_embedding_table() -> dict[str, Any]:
    """The signs of every chunk's vector, first entry first, as a hexadecimal number."""
    embedder = SimHashEmbedder()
    vectors = {
        f"{item.doc_id}#{item.chunk_index}": _signs(embedder.embed_query(item.embed_text)) for item in corpus_chunks()
    }
    return {"spec_version": SPEC_VERSION, "model": embedder.model, "dims": embedder.dims, "signs": vectors}


def compare(candidates: Sequence[Candidate], expected: Sequence[Sequence[Any]]) -> str | None:
    """What differs, or None: ids exactly and in order, scores within TOLERANCE, never growing, ties in order."""
    keys = [f"{item.doc_id}#{item.chunk_index}" for item in candidates]
    requested = [key for key, _ in expected]
    if keys != requested:
        index = next((n for n, pair in enumerate(zip(keys, requested, strict=False)) if pair[0] != pair[1]), None)
        if index is None:
            return f"{len(keys)} results, not {len(requested)}"
        return f"rank {index + 1} is {keys[index]}, not {requested[index]}"
    for item, (key, score) in zip(candidates, expected, strict=True):
        if not math.isclose(item.score, score, rel_tol=TOLERANCE, abs_tol=1e-12):
            return f"{key} scores {item.score!r}, not {score!r}"
    order = [(-item.score, item.doc_id.encode(), item.chunk_index) for item in candidates]
    return None if order == sorted(order) else "ties are not sorted by (doc_id, chunk_index)"


def _cuts(chunks: Sequence[Chunk]) -> list[list[Any]]:
    return [[item.start, item.end, _short_digest(item.content)] for item in chunks]


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:CONTENT_DIGITS]


def _signs(vector: Sequence[float]) -> str:
    bits = sum(1 << index for index, entry in enumerate(vector) if entry > 0)
    return f"{bits:064x}"


SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
CHUNKS_MIN, QUERIES_MIN, LANGUAGES_MIN = 200, 50, 5


def _lists_agree(name: str) -> Callable[[Bench, Cases], None]:
    def check(bench: Bench, cases: Cases) -> None:
        stored = read(name)
        store, plan = bench.open_golden(), corpus.PLANS[name]
        cases.equal("the plan", plan, RetrievePlan.from_dict(stored["plan"]))
        cases.equal("the queries", [item["query"] for item in stored["answers"]], [q.text for q in corpus.queries()])
        for answer in stored["answers"]:
            candidates = ragd.retrieve(answer["query"], plan, store)
            difference = compare(candidates, answer["results"])
            expected = ", ".join(key for key, _ in answer["results"][:5])
            cases.holds(
                f"{answer['language']}: {answer['query']!r}",
                difference is None,
                expected=f"{expected}, ...",
                got=f"{difference}",
            )

    return check


VECTOR, LEXICAL, HYBRID, FILTERED, WEIGHTED = (
    Rule("5.1", f"golden {name} lists: ids exactly, scores in order and within 1e-5", _lists_agree(name), True)
    for name in ("vector", "lexical", "hybrid", "filtered", "weighted")
)


@rule("5.1", "the corpus is fixed: at least 200 chunks and 50 queries in several languages")
def corpus_is_large(bench: Bench, cases: Cases) -> None:
    chunks, queries = corpus_chunks(), corpus.queries()
    languages = {query.language for query in queries}
    for name, got, least in (
        ("chunks", len(chunks), CHUNKS_MIN),
        ("queries", len(queries), QUERIES_MIN),
        ("languages", len(languages), LANGUAGES_MIN),
    ):
        cases.holds(name, got >= least, expected=f"at least {least}", got=f"{got}")
    cases.equal("queries are different", len({query.text for query in queries}), len(queries))


@rule("5.2", "every text of the corpus is cut at the pinned places")
def cuts_are_pinned(bench: Bench, cases: Cases) -> None:
    stored, made = read("chunks"), make_chunk_table()
    cases.equal("policies", made["policies"], stored["policies"])
    cases.equal("texts", sorted(made["cuts"]), sorted(stored["cuts"]))
    for name, cuts in stored["cuts"].items():
        cases.equal(name, made["cuts"].get(name), cuts)


@rule("5.2", "the suite's embedder gives the pinned vectors")
def embeddings_are_pinned(bench: Bench, cases: Cases) -> None:
    stored, made = read("embeddings"), make_embedding_table()
    cases.equal("model and dims", (made["model"], made["dims"]), (stored["model"], stored["dims"]))
    for key, signs in stored["signs"].items():
        cases.equal(key, made["signs"].get(key), signs)


@rule("5.3", "the version of the specification is semver")
def version_is_semver(bench: Bench, cases: Cases) -> None:
    for version in (SPEC_VERSION, *DIGESTS):
        matches = SEMVER.fullmatch(version) is not None
        cases.holds(version, matches, expected="MAJOR.MINOR.PATCH", got=version)


@rule("5.3", "golden results are pinned per version: none has changed without a new version")
def goldens_are_pinned(bench: Bench, cases: Cases) -> None:
    cases.holds(f"{SPEC_VERSION} is pinned", SPEC_VERSION in DIGESTS, expected="a digest", got=f"{list(DIGESTS)}")
    for version, digest in DIGESTS.items():
        cases.equal(f"digest of the golden files of {version}", digest_of(folder_of(version)), digest)
    folders = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
    cases.equal("folders", folders, sorted(DIGESTS))
