"""The lexemes of a chunk and those that a query looks for. One analysis for texts and questions.

ragd.text.tokens says what a word is. A collection names a text search configuration, whose dictionaries reduce the
words of every text to lexemes; or it says `auto`: each chunk is read by the configuration of its document's language
(Chunk.attributes["language"]), and runs of characters without spaces become pairs of characters, in the index beside
the single ones. Wholes of compounds, pictographs and pairs are lexemes as they are.

The frequency tf of a lexeme in a chunk is the number of places at which one of its forms stands: a word and its form
without accents count once where both give the same lexeme. The length of a chunk is the sum of tf over its lexemes: a
compound of n parts counts n + 1 (its whole is a lexeme beside the parts), and a word with accents 2 where the lexemes
differ. Weight: tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / mean length)).

Each chunk of a collection `auto` also holds one lexeme without places that names its configuration. It counts nowhere
as a word, but `chunk_terms` counts the chunks that hold it, so that a query knows the configurations without reading a
document. What a configuration makes of a query counts in the chunks of that configuration alone (ragd_terms in
schema.sql).

Or it names a sparse encoder: a chunk's lexemes are the terms that the encoder gives it, without places, and their
weights are the encoder's in place of BM25's; a query's lexemes are its tokens.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragd.models.folder_embedder import Terms, encoder_named, is_sparse_model
from ragd.store.store import (
    CONFIGURATION,
    CONFIGURATION_COUNTS,
    MARKER,
    RESTRICTED,
    TERMS,
    Connection,
    Store,
    StoreState,
    TermCount,
    fetch_all,
    read_terms,
    unit_vector,
)
from ragd.text import tokens
from ragd.text.languages import ALL_CONFIGURATIONS, AUTO, configuration_of, indexed_pairs, own_language, split_runs
from ragd.types import Chunk

ANALYSIS_VERSION = 2  # part of what identifies an index version with words
WHOLE_WORDS = "simple"  # the configuration that changes nothing
EVERYBODY = (0, 1)  # who may read a document of which nothing else is said (ragd_copy_access in schema.sql)

PARSED = """
json_array_elements_text(%(vectors)s::json) WITH ORDINALITY AS given (vector, place)
CROSS JOIN LATERAL (SELECT given.vector::tsvector AS fts) AS parsed
"""

# What the dictionaries of each configuration make of its words, by configuration.
LEXEMES = """
SELECT given.name, word, tsvector_to_array(to_tsvector(given.name::regconfig, word))
FROM json_each(%(words)s::json) AS given (name, words) CROSS JOIN LATERAL json_array_elements_text(given.words) AS word
"""

# With the terms that count them.
HELD = CONFIGURATION_COUNTS.replace(
    "SELECT name,",
    """SELECT name, ragd_term(name || ' ' || replace(%(marker)s, '{}', name)),
       ragd_term(%(restricted)s || name || ' '),""",
)

# Of the chunks with an access list that the reader may read.
READABLE = "SELECT DISTINCT rtrim(ragd_prefix(fts)) FROM {chunks} WHERE access && %(named)s::bigint[]"

# Of one configuration: a quarter of the time of the general statement.
PLAIN_TERMS = f"SELECT {TERMS.format(configuration=CONFIGURATION, prefix='%(prefix)s')}"

# Each lexeme of each configuration. A look-up per word, not a join: without statistics of a young table a join would
# read all the collection's words.
QUERY_TERMS = """
SELECT lexeme, term, repeats, coalesce((
       SELECT t.chunk_count FROM chunk_terms t
       WHERE t.collection_id = %(collection_id)s AND t.index_version = %(index_version)s AND t.term = words.term
       ), 0), name
FROM (
    SELECT word.lexeme, ragd_term(given.prefix || word.lexeme) AS term, cardinality(word.positions) AS repeats,
           given.name
    FROM ROWS FROM (unnest(%(configurations)s::text[]), unnest(%(prefixes)s::text[])) AS given (name, prefix),
         unnest(%(units)s::tsvector || to_tsvector(given.name::regconfig, %(words)s)) AS word
    OFFSET 0
) AS words
ORDER BY lexeme COLLATE "C", name COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A normalized query as the index is asked: each of the configurations reduces its words; units are as they are.

    learned: what each lexeme counts by a sparse encoder; None where its inverse document frequency counts. totals:
    where the chunks each name their configuration, how many open ones name each.
    """

    words: str
    units: tuple[str, ...]
    configurations: tuple[str, ...]
    learned: Terms | None = None
    totals: Mapping[str, int] | None = None

    @property
    def params(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "units": unit_vector(Counter(self.units)),
            "configurations": list(self.configurations),
            "prefixes": [f"{name} " if self.totals is not None else "" for name in self.configurations],
        }


def is_auto(store: Store) -> bool:
    """Whether the store's index version is analysed by the language of each document."""
    return store.collection.language == AUTO


def is_sparse(store: Store) -> bool:
    """Whether the lexemes and weights of the store's index version are those of a sparse encoder."""
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


def own_language_of(connection: Connection, collection_id: int, index_version: int) -> str:
    """The language of most open chunks of an index version that is analysed by the language of each document; "" where
    none is."""
    scope = {"collection_id": collection_id, "index_version": index_version}
    return own_language(_held(connection, scope, {})[0])


def read_question(
    text: str, store: Store, moved: Mapping[int, int] | None = None, state: StoreState | None = None
) -> Question:
    """The query by every configuration of a chunk that is open, or that the reader may read; moved: as for
    read_query(). state: that of the store, whose configurations count where they were read with it."""
    if is_sparse(store):
        learned = encoder_named(store.collection.language).query_terms(text)
        return Question("", tuple(learned), (WHOLE_WORDS,), learned)
    if not is_auto(store):
        words, units = tokens.read_question(text, paired=False)
        return Question(words, tuple(units), (store.collection.language,))
    words, units = tokens.read_question(text, paired=True)
    opened: Mapping[str, int]
    restricted: Sequence[str]
    if state is None or state.configurations is None or moved:
        opened, restricted = _held(store.connection, store.scope, moved or {})
    else:
        opened, restricted = state.configurations, state.restricted_configurations
    names = {*opened, *_readable(restricted, store)} or {configuration_of("")}
    return Question(words, tuple(units), tuple(sorted(names)), totals=opened)


def _readable(names: Sequence[str], store: Store) -> Sequence[str]:
    """Of configurations that only chunks with an access list have, those of chunks that the reader may read."""
    if not names or store.principals is None:
        return names
    named = [number for number in store.principals if number not in EVERYBODY]
    rows = fetch_all(store.connection, READABLE.format(chunks=store.collection.partition), {"named": named})
    return [name for (name,) in rows if name in names]


def query_terms(
    question: Question, store: Store, moved: Mapping[int, int] | None = None, known: Sequence[TermCount] | None = None
) -> list[TermCount]:
    """The lexemes of each configuration, by lexeme and configuration; moved: as for read_query(). known: what the
    store's state says of the question."""
    more = moved or {}
    name = question.configurations[0]
    if len(question.configurations) == 1:
        if known is None:
            prefix = question.params["prefixes"][0]
            params = store.scope | question.params | {"configuration": name, "prefix": prefix}
            ((found,),) = fetch_all(store.connection, PLAIN_TERMS, params)
            known = read_terms(found)
        found_terms = [each._replace(configuration=name) for each in known]
    else:
        rows = fetch_all(store.connection, QUERY_TERMS, question.params | store.scope)
        found_terms = [TermCount(*row) for row in rows]
    return [each._replace(chunks=each.chunks + more.get(each.term, 0)) for each in found_terms] if more else found_terms


def text_words(
    texts: Sequence[str], lexemes: Sequence[str], question: Question, store: Store
) -> list[tuple[int, str, int]]:
    """(place of a text from 1, lexeme, how often the text has it), in order, of these lexemes alone."""
    if not texts or not lexemes:
        return []
    if is_sparse(store):
        encoder = encoder_named(store.collection.language)
        counted = [[Counter(list(encoder.query_terms(text)))] for text in texts]
    else:
        each_by = [(text, name) for text in texts for name in question.configurations]
        every = iter(count_lexemes(each_by, store))
        counted = [[next(every) for _ in question.configurations] for _ in texts]
    rows = []
    for place, counts in enumerate(counted, 1):
        often = {lexeme: max(each[lexeme] for each in counts) for lexeme in sorted(set(lexemes))}
        rows += [(place, lexeme, count) for lexeme, count in often.items() if count]
    return rows


def _texts(chunks: Sequence[Chunk]) -> list[str]:
    return [f"{chunk.context}\n{chunk.content}" for chunk in chunks]


def parse_params(chunks: Sequence[Chunk], store: Store, learned: Sequence[Terms] | None = None) -> dict[str, str]:
    """The parameters of PARSED for these chunks. learned: their terms by a sparse encoder."""
    if learned is not None:
        vectors = [unit_vector({}, terms) for terms in learned]
    else:
        names = [store.collection.language] * len(chunks)
        if is_auto(store):
            names = [_configuration(chunk.attributes) for chunk in chunks]
        counted = count_lexemes(list(zip(_texts(chunks), names, strict=True)), store)
        markers = [[MARKER.format(name)] if is_auto(store) else [] for name in names]
        vectors = [unit_vector(counts, marker) for counts, marker in zip(counted, markers, strict=True)]
    return {"vectors": json.dumps(vectors, ensure_ascii=False)}


def count_lexemes(texts: Sequence[tuple[str, str]], store: Store) -> list[Counter[str]]:
    """The lexemes of each normalized text, read by the configuration beside it, with their frequencies."""
    split = [split_runs(text) if is_auto(store) else (text, []) for text, _ in texts]
    found = [Counter(tokens.find_tokens(rest)) for rest, _ in split]
    known = lexemes_of({(name, token) for (_, name), each in zip(texts, found, strict=True) for token in each}, store)
    result = []
    for (_, name), counts, (_, runs) in zip(texts, found, split, strict=True):
        lexemes = Counter(unit for run in runs for unit in indexed_pairs(run))
        for token, often in counts.items():
            for lexeme in known[name, token]:
                lexemes[lexeme] += often
        result.append(lexemes)
    return result


def lexemes_of(
    read_by: Iterable[tuple[str, str]], store: Store, forms_of: Callable[[str], tokens.Forms] = tokens.text_forms
) -> dict[tuple[str, str], list[str]]:
    """(configuration, token) -> the lexemes that the token makes, the whole before the parts, each once for each place.

    forms_of: tokens.question_forms for those that a question makes of it.
    """
    forms = {key: forms_of(key[1]) for key in read_by}
    words: dict[str, set[str]] = {}
    for (name, _), each in forms.items():
        words.setdefault(name, set()).update(itertools.chain.from_iterable(each.words))
    listed = json.dumps({name: list(each) for name, each in words.items()}, ensure_ascii=False)
    made = {(name, word): lexemes for name, word, lexemes in fetch_all(store.connection, LEXEMES, {"words": listed})}
    return {
        (name, token): [
            *each.units,
            *(lexeme for place in each.words for lexeme in _of_place(made[name, word] for word in place)),
        ]
        for (name, token), each in forms.items()
    }


def _of_place(lexemes: Iterable[Sequence[str]]) -> Iterable[str]:
    return dict.fromkeys(itertools.chain.from_iterable(lexemes))


def _held(
    connection: Connection, scope: Mapping[str, int], moved: Mapping[int, int]
) -> tuple[dict[str, int], list[str]]:
    """The configurations of an index version's open chunks with their number, and those that only chunks with an access
    list have."""
    params: dict[str, Any] = {"configurations": list(ALL_CONFIGURATIONS), "marker": MARKER, "restricted": RESTRICTED}
    rows = fetch_all(connection, HELD, params | dict(scope))
    opened = {name: count for name, term, _, held, _ in rows if (count := held + moved.get(term, 0)) > 0}
    return opened, [name for name, _, term, _, held in rows if held + moved.get(term, 0) > 0 and name not in opened]
