"""What the lexical index is made of: the lexemes of a chunk, and those that a query looks for. One analysis for all.

A collection names a text search configuration, and every text is parsed by it; or it says `auto`: each chunk is parsed
by the configuration of its document's language (Chunk.attributes["language"]), and runs of characters without spaces
are taken out before and become pairs of characters, in the index beside the single ones; punctuation that the
database does not know as such becomes a space. Each chunk of such a
collection also holds one lexeme without places that names its configuration. It counts nowhere as a word, but
`chunk_terms` counts the chunks that hold it, so that a query knows the configurations without reading a document.

Or it names a sparse encoder: a chunk's lexemes are the terms that the encoder gives it, without places, and their
weights are the encoder's in place of BM25's; a query's lexemes are its tokens.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragd.models.sparse_encoder import Terms, encoder_named, is_sparse_model
from ragd.store.state import CONFIGURATION, MARKER, TERMS, TermCount, read_terms
from ragd.store.store import Store, fetch_all
from ragd.text.languages import ALL_CONFIGURATIONS, AUTO, configuration_of
from ragd.text.scripts import indexed_pairs, pairs_of, split_runs
from ragd.types import Chunk

ANALYSIS_VERSION = 1  # of `auto`; part of what identifies a generation
WHOLE_WORDS = "simple"  # the configuration that changes nothing
PLACES_MAX = 255  # of one lexeme, as the database's own parser keeps them

# The rest's places come behind those of the pairs, which count from 1 each: more would pass the highest place.
PARSED = """
ROWS FROM (json_array_elements_text(%(texts)s::json), json_array_elements_text(%(pairs)s::json),
           json_array_elements_text(%(configurations)s::json)) WITH ORDINALITY AS given (content, pairs, name, place)
CROSS JOIN LATERAL (
    SELECT given.pairs::tsvector || to_tsvector(given.name::regconfig, given.content) AS fts
) AS parsed
"""

HELD = """
SELECT listed.name, t.chunk_count
FROM unnest(%(names)s::text[]) AS listed (name)
JOIN chunk_terms t ON t.collection_id = %(collection_id)s AND t.generation = %(generation)s
                  AND t.term = ragd_term(replace(%(marker)s, '{}', listed.name))
"""

MARKER_TERMS = "SELECT ragd_term(replace(%(marker)s, '{}', name)), name FROM unnest(%(names)s::text[]) AS name"

# Of one configuration and without pairs: a quarter of the time of the general statement.
PLAIN_TERMS = f"SELECT {TERMS.format(configuration=CONFIGURATION)}"

# Each lexeme once, however many configurations make it, with its places in the query. A look-up per word, not a join:
# without statistics of a young table a join would read all the collection's words.
QUERY_TERMS = """
SELECT lexeme, ragd_term(lexeme), max(repeats), coalesce((
       SELECT t.chunk_count FROM chunk_terms t
       WHERE t.collection_id = %(collection_id)s AND t.generation = %(generation)s AND t.term = ragd_term(lexeme)), 0),
       array_remove(array_agg(DISTINCT place), NULL)
FROM (
    SELECT word.lexeme, cardinality(word.positions) AS repeats, place
    FROM unnest(%(configurations)s::text[]) AS given (name),
         unnest(to_tsvector(given.name::regconfig, %(rest)s)) AS word
         LEFT JOIN LATERAL unnest(word.positions) AS place ON true
    UNION ALL
    SELECT lexeme, cardinality(positions), NULL FROM unnest(%(pairs)s::tsvector)
) AS words
GROUP BY lexeme
ORDER BY lexeme COLLATE "C"
"""

# What the words of a question make of each text, and how often.
TEXT_WORDS = """
SELECT piece.place::integer, word.lexeme, max(cardinality(word.positions))
FROM ROWS FROM (unnest(%(texts)s::text[]), unnest(%(pairs)s::text[])) WITH ORDINALITY AS piece (content, pairs, place)
CROSS JOIN unnest(%(configurations)s::text[]) AS given (name)
CROSS JOIN LATERAL unnest(piece.pairs::tsvector || to_tsvector(given.name::regconfig, piece.content)) AS word
WHERE word.lexeme = ANY(%(lexemes)s::text[])
GROUP BY 1, 2
ORDER BY 1, word.lexeme COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A normalized query as the index is asked: rest is parsed by each of the configurations, pairs are in order.

    learned: what each lexeme counts by a sparse encoder; None where its inverse document frequency counts.
    """

    rest: str
    pairs: tuple[str, ...]
    configurations: tuple[str, ...]
    learned: Terms | None = None

    @property
    def params(self) -> dict[str, Any]:
        return {
            "rest": self.rest,
            "pairs": _vector(self.pairs),
            "configurations": list(self.configurations),
        }


def is_auto(store: Store) -> bool:
    """Whether the store's generation is analysed by the language of each document."""
    return store.collection.language == AUTO


def is_sparse(store: Store) -> bool:
    """Whether the lexemes and weights of the store's generation are those of a sparse encoder."""
    return is_sparse_model(store.collection.language)


def learned_terms(chunks: Sequence[Chunk], store: Store) -> list[Terms] | None:
    """What the store's sparse encoder makes of the chunks; None where the store has none."""
    if not is_sparse(store):
        return None
    return encoder_named(store.collection.language).encode(_texts(chunks))


def same_analysis(attributes: Mapping[str, Any], others: Mapping[str, Any], store: Store) -> bool:
    """Whether an equal text of a chunk with these attributes has equal lexemes in one with the others."""
    return not is_auto(store) or _configuration(attributes) == _configuration(others)


def _configuration(attributes: Mapping[str, Any]) -> str:
    return configuration_of(str(attributes.get("language", "")))


def read_question(
    text: str, store: Store, moved: Mapping[int, int] | None = None, held: Sequence[str] | None = None
) -> Question:
    """The query by every configuration that the store's chunks were parsed by; moved: as for read_query(). held: their
    names by the store's state, where they were read with it."""
    if is_sparse(store):
        learned = encoder_named(store.collection.language).query_terms(text)
        return Question("", tuple(learned), (WHOLE_WORDS,), learned)
    if not is_auto(store):
        return Question(text, (), (store.collection.language,))
    rest, runs = split_runs(text)
    known = _held(store, moved or {}) if held is None or moved else tuple(held)
    pairs = tuple(pair for run in runs for pair in pairs_of(run))
    return Question(rest, pairs, known or (configuration_of(""),))


def query_terms(
    question: Question,
    store: Store,
    moved: Mapping[int, int] | None = None,
    known: Sequence[TermCount] | None = None,
) -> list[tuple[str, int, int, int, int]]:
    """(lexeme, its term, how often the query has it, how many chunks hold it, how many hold its word), by lexeme, each
    lexeme once; moved: as for read_query(). known: what the store's state says of the question.

    A word is held in the form of each configuration: without the sum, a common word would count as a rare one in the
    few chunks that another configuration stemmed. The forms of a word are the lexemes at the same place.
    """
    more = moved or {}
    is_single = len(question.configurations) == 1
    if is_single and not question.pairs:
        if known is None:
            params = store.scope | {"configuration": question.configurations[0], "question": question.rest}
            ((found,),) = fetch_all(store.connection, PLAIN_TERMS, params)
            known = read_terms(found)
        counted = [(each.lexeme, each.term, each.repeats, each.chunks + more.get(each.term, 0)) for each in known]
        return [(*each, each[-1]) for each in counted]
    rows = [
        (str(lexeme), term, repeats, chunks + more.get(term, 0), places)
        for lexeme, term, repeats, chunks, places in fetch_all(
            store.connection, QUERY_TERMS, question.params | store.scope
        )
    ]
    if is_single:
        return [(lexeme, term, repeats, chunks, chunks) for lexeme, term, repeats, chunks, _ in rows]
    held: Counter[int] = Counter()
    for *_, chunks, places in rows:
        held.update(dict.fromkeys(places, chunks))
    return [
        (lexeme, term, repeats, chunks, max((held[place] for place in places), default=chunks))
        for lexeme, term, repeats, chunks, places in rows
    ]


def text_words(
    texts: Sequence[str], lexemes: Sequence[str], question: Question, store: Store
) -> list[tuple[int, str, int]]:
    """(place of a text from 1, lexeme, how often the text has it), in order, of these lexemes alone."""
    if not texts or not lexemes:
        return []
    parts = [_parts(text) if is_auto(store) else (text, "") for text in texts]
    if is_sparse(store):
        encoder = encoder_named(store.collection.language)
        parts = [("", _vector(list(encoder.query_terms(text)))) for text in texts]
    params = {
        "texts": [rest for rest, _ in parts],
        "pairs": [pairs for _, pairs in parts],
        "configurations": list(question.configurations),
        "lexemes": list(lexemes),
    }
    rows = fetch_all(store.connection, TEXT_WORDS, params)
    return [(int(place), str(lexeme), int(often or 1)) for place, lexeme, often in rows]


def _texts(chunks: Sequence[Chunk]) -> list[str]:
    return [f"{chunk.context}\n{chunk.content}" for chunk in chunks]


def parse_params(chunks: Sequence[Chunk], store: Store, learned: Sequence[Terms] | None = None) -> dict[str, str]:
    """The parameters of PARSED for these chunks. learned: their terms by a sparse encoder."""
    texts = _texts(chunks)
    pairs = [""] * len(chunks)
    names = [store.collection.language] * len(chunks)
    if is_auto(store):
        names = [_configuration(chunk.attributes) for chunk in chunks]
        parts = [_parts(text) for text in texts]
        texts = [rest for rest, _ in parts]
        pairs = [f"{its} '{MARKER.format(name)}'" for (_, its), name in zip(parts, names, strict=True)]
    if learned is not None:
        texts, names = [""] * len(chunks), [WHOLE_WORDS] * len(chunks)
        pairs = [" ".join(map(_quoted, terms)) for terms in learned]
    return {
        "texts": json.dumps(texts, ensure_ascii=False),
        "pairs": json.dumps(pairs, ensure_ascii=False),
        "configurations": json.dumps(names),
    }


def _parts(text: str) -> tuple[str, str]:
    """(the text without its runs, the runs' single characters and pairs as a tsvector)."""
    rest, runs = split_runs(text)
    return rest, _vector([unit for run in runs for unit in indexed_pairs(run)])


def _vector(units: Sequence[str]) -> str:
    """A tsvector in which each unit has as many places as it has repeats."""
    return " ".join(
        f"{_quoted(unit)}:" + ",".join(map(str, range(1, min(count, PLACES_MAX) + 1)))
        for unit, count in Counter(units).items()
    )


def _quoted(unit: str) -> str:
    escaped = unit.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _held(store: Store, moved: Mapping[int, int]) -> tuple[str, ...]:
    """The configurations of the store's chunks by name."""
    params: dict[str, Any] = {"names": list(ALL_CONFIGURATIONS), "marker": MARKER} | store.scope
    counts = Counter(dict(fetch_all(store.connection, HELD, params)))
    if moved:
        terms = dict(fetch_all(store.connection, MARKER_TERMS, {"names": params["names"], "marker": MARKER}))
        for term in terms.keys() & moved.keys():
            counts[terms[term]] += moved[term]
    return tuple(sorted(name for name, count in counts.items() if count > 0))
