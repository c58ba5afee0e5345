"""Sections 1.1.1 to 1.1.3 and 5.2: normalize, chunk, embed; the same everywhere."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import unicodedata2

import ragd
from ragd.conformance import corpus
from ragd.conformance.golden import DIMS, Bench, SimHashEmbedder, chunk_rows, corpus_chunks, make_chunks, rule
from ragd.conformance.report import Cases
from ragd.normalization import normalize
from ragd.store.store import Store, fetch_all
from ragd.types import Chunk, ChunkPolicy, canonical_json

# Locale, hash seed and text encoding of the interpreter: none of them may change a byte.
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "LC_ALL=tr_TR.UTF-8": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "1", "PYTHONUTF8": "1"},
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONHASHSEED": "2", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}
PRINT_DIGESTS = "from ragd.conformance.ingest_rules import print_digests; print_digests()"
CHILD_TIMEOUT_S = 120

READ_DIMS = "SELECT DISTINCT vector_dims(embedding) FROM {chunks} WHERE collection_id = %(collection_id)s"


@rule("1.1.1", "text is brought to Unicode NFC")
def composes(bench: Bench, cases: Cases) -> None:
    for raw, expected in (
        ("e\u0301", "\u00e9"),
        ("\u212b", "\u00c5"),
        ("\u1112\u1161\u11ab", "\ud55c"),
        ("a\u0327\u0301", "\u00e1\u0327"),
        ("\u0958", "\u0915\u093c"),
        ("\ufb01", "\ufb01"),
        ("x\u0315\U00010efd", "x\U00010efd\u0315"),
    ):
        cases.equal(ascii(raw), normalize(raw), expected)
        cases.equal(f"{raw!a}, by Unicode's own NFC", normalize(raw), unicodedata2.normalize("NFC", raw))


@rule("1.1.1", "every character comes out as in Unicode's NFC, alone and under an accent")
def composes_everything(bench: Bench, cases: Cases) -> None:
    removed = {*map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, *range(0xD800, 0xE000)))}
    for first in range(0, 0x20000, 0x100):
        letters = [letter for letter in map(chr, range(first, first + 0x100)) if letter not in removed]
        for name, text in (
            ("alone", "".join(f" {letter}" for letter in letters)),
            ("under an accent", "".join(f" {letter}\u0301" for letter in letters)),
        ):
            got, expected = normalize(text), unicodedata2.normalize("NFC", text)
            index = next((n for n, pair in enumerate(zip(got, expected, strict=False)) if pair[0] != pair[1]), 0)
            pieces = (ascii(expected[index : index + 4]), ascii(got[index : index + 4]))
            cases.holds(f"U+{first:04X}, {name}", got == expected, expected=pieces[0], got=pieces[1])


@rule("1.1.1", "every line ending becomes one line feed")
def unites_line_ends(bench: Bench, cases: Cases) -> None:
    for end in ("\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n"):
        cases.equal(ascii(end), normalize(f"a{end}b"), "a\nb")
    cases.equal("two of a kind stay two", normalize("a\r\n\r\nb"), "a\n\nb")


@rule("1.1.1", "control characters but tab are removed, lone surrogates replaced")
def removes_controls(bench: Bench, cases: Cases) -> None:
    for code in (*range(0x09), *range(0x0E, 0x1C), 0x1F, *range(0x7F, 0x85), *range(0x86, 0xA0), 0xFEFF):
        cases.equal(f"U+{code:04X}", normalize(f"a{chr(code)}b"), "ab")
    cases.equal("tab", normalize("a\tb"), "a\tb")
    cases.equal("lone surrogate", normalize("a\ud800b"), "a\ufffdb")
    cases.equal("pair of surrogates", normalize("\ud83d\ude00"), "\U0001f600")


@rule("1.1.1", "normalizing twice changes nothing more")
def is_idempotent(bench: Bench, cases: Cases) -> None:
    texts = [*corpus.HARD_TEXTS.values(), "\u0301" * 80, "\r\r\n\n", "a\u0300" * 40, *_corpus_texts()]
    for text in texts:
        cases.equal(ascii(text[:40]), normalize(normalize(text)), normalize(text))


@rule("1.1.1", "no locale, hash seed or encoding of the process decides")
def ignores_locale(bench: Bench, cases: Cases) -> None:
    here = digests()
    children = {name: _start_child(environment) for name, environment in ENVIRONMENTS.items()}
    for name, child in children.items():
        there = _digests_of(child)
        for what, digest in here.items():
            cases.equal(f"{what} under {name}", there.get(what), digest)


@rule("1.1.2", "chunk_index counts from 0; starts and ends grow strictly")
def numbers_chunks(bench: Bench, cases: Cases) -> None:
    for name, _, chunks, _ in _chunked():
        cases.equal(f"{name}: indexes", [item.chunk_index for item in chunks], list(range(len(chunks))))
        for side in ("start", "end"):
            positions = [getattr(item, side) for item in chunks]
            cases.equal(f"{name}: {side}", positions, sorted(set(positions)))


@rule("1.1.2", "a chunk is an exact slice of the normalized text")
def slices_exactly(bench: Bench, cases: Cases) -> None:
    for name, text, chunks, _ in _chunked():
        cases.equal(name, [item.content for item in chunks], [text[item.start : item.end] for item in chunks])


@rule("1.1.2", "nothing but white space lies outside every chunk")
def loses_nothing(bench: Bench, cases: Cases) -> None:
    for name, text, chunks, _ in _chunked():
        covered = {index for item in chunks for index in range(item.start, item.end)}
        lost = "".join(letter for index, letter in enumerate(text) if index not in covered and not letter.isspace())
        cases.equal(name, lost, "")


@rule("1.1.2", "no chunk is larger than its policy allows")
def keeps_limits(bench: Bench, cases: Cases) -> None:
    for name, _, chunks, policy in _chunked():
        words = max(len(item.content.split()) for item in chunks)
        cases.holds(name, words <= policy.target_tokens, expected=f"<= {policy.target_tokens} words", got=f"{words}")
        longest = max(len(item.content) for item in chunks)
        cases.holds(name, longest <= policy.max_chars, expected=f"<= {policy.max_chars} chars", got=f"{longest}")


@rule("1.1.2", "segments keep their numbers and times")
def keeps_times(bench: Bench, cases: Cases) -> None:
    for name, policy in corpus.HARD_POLICIES.items():
        for item in ragd.chunk(corpus.HARD_SEGMENTS, policy):
            first, last = item.metadata["segment_start"], item.metadata["segment_end"]
            got = (item.metadata["t_start"], item.metadata["t_end"])
            cases.equal(f"{name} #{item.chunk_index}", got, (first * 4.0, last * 4.0 + 3))
    cases.equal("blank text", ragd.chunk(" \n\t ", ChunkPolicy()), [])


@rule("1.1.3", "a collection's model and dims are fixed")
def fixes_dims(bench: Bench, cases: Cases) -> None:
    store = bench.make_store("fixed")
    ragd.index(make_chunks("d", "one text"), store)
    before = bench.rows(store)

    def open_with(model: str, dims: int) -> Store:
        embedder = SimHashEmbedder()
        embedder.model, embedder.dims = model, dims
        return Store(bench.connection, "fixed", embedder)

    model = bench.embedder.model
    error = ragd.DimensionMismatch
    cases.refused("other dims", lambda: open_with(model, 128), field="embed_dims", error=error)
    cases.refused("other model", lambda: open_with("other", DIMS), field="embed_model", error=ragd.InvalidInput)
    wrong = [replace(make_chunks("e", "text")[0], embedding=[1.0, 0.0])]
    cases.refused("a vector of 2 entries", lambda: ragd.index(wrong, store), field="embedding", error=error)
    cases.equal("nothing was written", bench.rows(store), before)


@rule("1.1.3", "every chunk has one vector of embed_dims entries", needs_corpus=True)
def embeds_every_chunk(bench: Bench, cases: Cases) -> None:
    store = bench.open_golden()
    sql = READ_DIMS.format(chunks=store.collection.partition)
    dims = fetch_all(bench.connection, sql, {"collection_id": store.collection.id})
    cases.equal("dims in the database", dims, [(DIMS,)])
    cases.equal("rows", len(bench.rows(store)), len(corpus_chunks()))
    for text in ("", "tea", "tea and bread"):
        vector = bench.embedder.embed_query(text)
        cases.equal(f"length of {text!r}", sum(entry * entry for entry in vector), 1.0)


@rule("5.2", "the same input gives the same chunks")
def chunks_alike(bench: Bench, cases: Cases) -> None:
    for name, raw, policy in corpus.hard_texts():
        first, second = (chunk_rows(ragd.chunk(raw, policy)) for _ in range(2))
        cases.equal(name, second, first)


@rule("5.2", "the same input gives the same embeddings, rows and storage keys in two collections")
def stores_alike(bench: Bench, cases: Cases) -> None:
    chunks = [item for item in corpus_chunks() if item.doc_id.startswith(("facts/e", "equal"))]
    first, second = bench.make_store("first"), bench.make_store("second")
    ragd.index(chunks, first)
    for doc_id in sorted({item.doc_id for item in chunks}, reverse=True):  # one by one, the other way round
        ragd.index([item for item in chunks if item.doc_id == doc_id], second)
    rows, others = bench.rows(first), bench.rows(second)
    cases.equal("number of rows", len(others), len(chunks))
    for row, other in zip(rows, others, strict=False):
        cases.equal("#".join(str(json.loads(row)[name]) for name in ("doc_id", "chunk_index")), other, row)


def digests() -> dict[str, str]:
    """What this process makes of the corpus, each as a SHA-256: the same in every process and on every platform."""
    chunks = corpus_chunks()
    hard = [chunk_rows(ragd.chunk(raw, policy)) for _, raw, policy in corpus.hard_texts()]
    made = {
        "normalized text": [normalize(text) for text in (*_corpus_texts(), *corpus.HARD_TEXTS.values())],
        "chunks": [[item.doc_id, *row] for item, row in zip(chunks, chunk_rows(chunks), strict=True)],
        "hard chunks": hard,
        "embeddings": [list(vector) for vector in SimHashEmbedder().embed([item.embed_text for item in chunks])],
        "plan hash": [plan.hash for plan in corpus.PLANS.values()],
    }
    return {name: hashlib.sha256(canonical_json(value).encode()).hexdigest() for name, value in made.items()}


def print_digests() -> None:
    print(json.dumps(digests()))


def _start_child(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    root = Path(ragd.__file__).resolve().parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", PRINT_DIGESTS],
        env=environment | {"PYTHONPATH": str(root)},
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _digests_of(child: subprocess.Popen[bytes]) -> dict[str, str]:
    try:
        out, errors = child.communicate(timeout=CHILD_TIMEOUT_S)
    finally:
        child.kill()
    if child.returncode != 0:
        raise RuntimeError(f"the child process ended with {child.returncode}: {errors.decode(errors='replace')}")
    answer: dict[str, str] = json.loads(out)
    return answer


def _corpus_texts() -> list[str]:
    return [document.text for document in corpus.documents()]


def _chunked() -> Iterator[tuple[str, str, list[Chunk], ChunkPolicy]]:
    """(name, text, chunks, policy) of everything that is cut."""
    for name, raw, policy in corpus.hard_texts():
        yield name, ragd.document_text(raw), ragd.chunk(raw, policy), policy
    for document in corpus.documents():
        chunks = ragd.chunk(document.text, corpus.POLICY)
        yield document.doc_id, ragd.document_text(document.text), chunks, corpus.POLICY
