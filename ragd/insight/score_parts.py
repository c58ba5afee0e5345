"""What a score is made of: the words of a query with their weights, the share of each word in a chunk's BM25, and the
dot product and lengths behind a cosine. For explaining a ranking; retrieve() needs none of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import regex

from ragd.search.lexical_search import lexeme_weight
from ragd.search.vector_search import vector_text
from ragd.store.analysis import Question, is_auto, is_sparse, lexemes_of, query_terms, read_question
from ragd.store.store import Store, StoreState, TermCount, fetch_all
from ragd.text.languages import UNSPACED, is_unspaced, pairs_of, split_runs
from ragd.text.tokens import PART, find_tokens, question_forms
from ragd.types import Vector

# One entry of the stored sparse vector: its inner product with 1 at that place.
TERM_WEIGHTS = """
SELECT c.id, wanted.term, -(c.lexical <#> ('{' || wanted.term || ':1}/1000000000')::sparsevec)
FROM {chunks} AS c CROSS JOIN unnest(%(terms)s::integer[]) AS wanted (term)
WHERE c.collection_id = %(collection_id)s AND c.id = ANY(%(ids)s)
"""

CHUNK_TEXTS = """
SELECT context || ' ' || content FROM {chunks} WHERE collection_id = %(collection_id)s AND id = ANY(%(ids)s)
"""

DOT_PRODUCTS = """
SELECT id, -(embedding <#> %(vector)s::vector), vector_norm(embedding), 1 - (embedding <=> %(vector)s::vector)
FROM {chunks}
WHERE collection_id = %(collection_id)s AND id = ANY(%(ids)s)
"""


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of the query. lexeme: what the language's dictionaries make of it, "" for a stop word.

    repeats: how often the query has it. chunks: how many open chunks of the collection hold it. idf: its inverse
    document frequency, 0.0 of a stop word; where several configurations make the lexeme, that of the one in which most
    chunks hold it. by_term: term -> idf, one of each configuration.
    """

    word: str
    lexeme: str
    repeats: int
    chunks: int
    idf: float
    by_term: Mapping[int, float] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        return bool(self.by_term)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "by_term"}


@dataclass(frozen=True, slots=True)
class WordShare:
    """What one word adds to a chunk's BM25: share = repeats * idf * weight.

    weight is the stored tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean)), in single precision.
    """

    word: str
    lexeme: str
    repeats: int
    idf: float
    weight: float
    share: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CosineParts:
    """cosine = dot / (query_length * chunk_length), in the precision of the database."""

    cosine: float
    dot: float
    query_length: float
    chunk_length: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def query_words(text: str, store: Store, state: StoreState) -> list[QueryWord]:
    """The words of a normalized query in the order written: each lexeme once, under the word that it was first made
    of; then the words that make no lexeme, each once. [] for a collection without lexical index."""
    if not store.collection.hybrid_enabled:
        return []
    question = read_question(text, store)
    pieces = _pieces(text, question, store)
    kept = {token for token, made in pieces if made}
    by_lexeme: dict[str, list[TermCount]] = {}
    for each in query_terms(question, store):
        by_lexeme.setdefault(each.lexeme, []).append(each)
    words: list[tuple[int, QueryWord]] = []
    for lexeme, terms in by_lexeme.items():
        position, word = _piece_of(lexeme, pieces)
        by_term = {each.term: lexeme_weight(question, each, state) for each in terms}
        most = max(terms, key=lambda each: each.chunks)
        chunks = sum(each.chunks for each in terms)
        words.append((position, QueryWord(word, lexeme, most.repeats, chunks, by_term[most.term], by_term)))
    words.sort(key=lambda item: item[0])
    ignored = dict.fromkeys(token for token, made in pieces if not made and token not in kept)
    return [*(word for _, word in words), *(QueryWord(token, "", 1, 0, 0.0) for token in ignored)]


def _pieces(text: str, question: Question, store: Store) -> list[tuple[str, Collection[str]]]:
    """The words and units of a question as they are written there, with the lexemes that they make."""
    if is_sparse(store):
        return [(unit, [unit]) for unit in question.units]
    rest, runs = split_runs(text) if is_auto(store) else (text, [])
    written = [piece for token in find_tokens(rest) for piece in _with_parts(token)]
    made = lexemes_of(itertools.product(question.configurations, written), store, question_forms)
    pieces = [(piece, {each for name in question.configurations for each in made[name, piece]}) for piece in written]
    return [*pieces, *((pair, {pair}) for run in runs for pair in pairs_of(run))]


def _with_parts(token: str) -> list[str]:
    """A token, and what stands between its signs."""
    parts = PART.findall(token)
    return [token, *parts] if len(parts) > 1 else [token]


def _piece_of(lexeme: str, pieces: Sequence[tuple[str, Collection[str]]]) -> tuple[int, str]:
    """Where the query has the lexeme, and as which word: a compound makes the lexemes of its parts too, so the piece
    that makes the fewest is the word itself. The lexeme when a dictionary made it of several words."""
    holding = [(len(made), index, token) for index, (token, made) in enumerate(pieces) if lexeme in made]
    return min(holding)[1:] if holding else (len(pieces), lexeme)


def word_shares(words: Sequence[QueryWord], chunk_ids: Sequence[int], store: Store) -> dict[int, list[WordShare]]:
    """chunk id -> the words of the query that the chunk holds, in their order; [] for a chunk that holds none.

    The shares add up to the chunk's BM25 but for single precision, in which the database multiplies and adds.
    """
    terms = {term: (word, idf) for word in words for term, idf in word.by_term.items()}
    shares: dict[int, list[WordShare]] = {chunk_id: [] for chunk_id in chunk_ids}
    if not terms or not chunk_ids:
        return shares
    params = {"collection_id": store.collection.id, "ids": list(chunk_ids), "terms": list(terms)}
    rows = fetch_all(store.connection, _of(store, TERM_WEIGHTS), params)
    weights = {(chunk_id, term): float(weight or 0.0) for chunk_id, term, weight in rows}
    for chunk_id in shares:
        for term, (word, idf) in terms.items():
            if weight := weights.get((chunk_id, term), 0.0):
                share = word.repeats * idf * weight
                shares[chunk_id].append(WordShare(word.word, word.lexeme, word.repeats, idf, weight, share))
    return shares


def cosine_parts(vector: Vector, chunk_ids: Sequence[int], store: Store) -> dict[int, CosineParts]:
    """chunk id -> what its cosine to the query's vector is made of. Chunks that are gone are left out."""
    if not chunk_ids:
        return {}
    params = {"collection_id": store.collection.id, "ids": list(chunk_ids), "vector": vector_text(vector)}
    length = sum(float(entry) ** 2 for entry in vector) ** 0.5
    return {
        chunk_id: CosineParts(float(cosine), float(dot), length, float(norm))
        for chunk_id, dot, norm, cosine in fetch_all(store.connection, _of(store, DOT_PRODUCTS), params)
    }


def written_forms(words: Sequence[QueryWord], chunk_ids: Sequence[int], store: Store) -> dict[str, str]:
    """How the chunks write the query's words: text as it stands there -> lexeme. For `find_words`."""
    lexemes = [word.lexeme for word in words if word.counts]
    if not lexemes or not chunk_ids:
        return {}
    ids = {"collection_id": store.collection.id, "ids": list(chunk_ids)}
    texts = [str(text) for (text,) in fetch_all(store.connection, _of(store, CHUNK_TEXTS), ids)]
    if is_auto(store):
        texts = [split_runs(text)[0] for text in texts]
    written = {piece for text in texts for token in find_tokens(text) for piece in _with_parts(token)}
    made = lexemes_of(itertools.product(read_question("", store).configurations, written), store)
    requested = set(lexemes)
    # a compound holds its parts, which are found in it by themselves
    forms = {}
    for (_, piece), made_of in made.items():
        own = made_of if PART.fullmatch(piece) else made_of[:1]
        if (lexeme := next((each for each in own if each in requested), None)) is not None:
            forms[piece] = lexeme
    return forms | {lexeme: lexeme for lexeme in lexemes if is_unspaced(lexeme)}


def find_words(text: str, forms: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """(start, end, lexeme) of every written form in the text, in order; the longest form wins. Where two overlap, as
    neighbouring pairs of characters do, the second has what the first leaves of it."""
    if not forms:
        return []
    known = sorted(forms, key=lambda form: (-len(form), form))
    pattern = regex.compile("|".join(f"(?:{_bounded(form)})" for form in known))
    found: list[tuple[int, int, str]] = []
    for match in pattern.finditer(text, overlapped=True):
        start = max(match.start(), found[-1][1] if found else 0)
        if start < match.end():
            found.append((start, match.end(), forms[match.group()]))
    return found


def _of(store: Store, sql: str) -> str:
    """The statement over the table of the index version that the store reads."""
    return sql.replace("{chunks}", store.collection.partition)


def _bounded(form: str) -> str:
    """The form where no letter or digit goes on before or behind it; characters without spaces have no such bounds."""
    if is_unspaced(form):
        return re.escape(form)
    before = rf"(?<![^\W_{UNSPACED}])" if form[0].isalnum() else ""
    return f"{before}{re.escape(form)}" + (rf"(?![^\W_{UNSPACED}])" if form[-1].isalnum() else "")
