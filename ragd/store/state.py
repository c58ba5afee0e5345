"""The state of a store as one statement reads it, with what a search for words needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ragd.models.sparse_encoder import is_sparse_model
from ragd.text.languages import ALL_CONFIGURATIONS, AUTO, configuration_of
from ragd.text.tokens import read_question

STATE = """
SELECT s.chunk_count, s.open_count, s.length_total, s.length_baked,
       EXISTS (SELECT 1 FROM pg_index i WHERE i.indexrelid = to_regclass(%(vector_index)s) AND i.indisvalid),
       to_regclass(%(compact_index)s) IS NOT NULL,
       (SELECT max(d.updated_at) FROM documents d WHERE d.collection_id = s.collection_id){also}
FROM chunk_stats s{held}
WHERE s.collection_id = %(collection_id)s AND s.index_version = %(index_version)s
"""

SEGMENTS = """
ARRAY(SELECT ARRAY[g.id, g.first_id, g.last_id, g.size] FROM chunk_segments g
      WHERE g.collection_id = %(collection_id)s AND g.index_version = %(index_version)s ORDER BY g.last_id)
"""

# A space keeps the marker of a configuration apart from every word that the parser can make. In ragd/schema.sql too.
MARKER = "configuration {}"
RESTRICTED = "restricted "

HELD = """coalesce((SELECT t.chunk_count FROM chunk_terms t WHERE t.collection_id = %(collection_id)s
                AND t.index_version = %(index_version)s AND t.term = ragd_term({text})), 0)"""
# Each configuration with how many open chunks have it, and how many with an access list.
CONFIGURATION_COUNTS = f"""
SELECT name, {HELD.format(text="name || ' ' || replace(%(marker)s, '{}', name)")} AS opened,
       {HELD.format(text="%(restricted)s || name || ' '")} AS restricted
FROM unnest(%(configurations)s::text[]) AS listed (name)
"""  # noqa: S608  (constants of the library)
# Those of a collection whose chunks each name one, with their open chunks, and those that only chunks with an access
# list have. OFFSET 0: read once, however often they are named.
HELD_CONFIGURATIONS = f"""
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(name ORDER BY name COLLATE "C") FILTER (WHERE opened > 0), '{{}}') AS names,
           coalesce(array_agg(opened ORDER BY name COLLATE "C") FILTER (WHERE opened > 0), '{{}}') AS counts,
           coalesce(array_agg(name ORDER BY name COLLATE "C") FILTER (WHERE opened = 0 AND restricted > 0), '{{}}')
               AS restricted
    FROM ({CONFIGURATION_COUNTS} OFFSET 0) AS counted
    OFFSET 0) AS held
"""  # noqa: S608  (constants of the library)
CONFIGURATIONS = {"configurations": "held.names", "counts": "held.counts", "restricted": "held.restricted"}
ONLY_CONFIGURATION = "coalesce(held.names[1], %(configuration)s)"

# The words of a question, by one text search configuration, as JSON.
TERMS = """
(SELECT json_agg(json_build_array(lexeme, term, cardinality(positions), coalesce((
            SELECT t.chunk_count FROM chunk_terms t
            WHERE t.collection_id = %(collection_id)s AND t.index_version = %(index_version)s AND t.term = words.term
        ), 0)) ORDER BY lexeme COLLATE "C")::text
 FROM (SELECT word.lexeme, word.positions, ragd_term({prefix} || word.lexeme) AS term
       FROM unnest(%(units)s::tsvector || to_tsvector(({configuration})::regconfig, %(words)s)) AS word
       OFFSET 0) AS words)
"""
CONFIGURATION = "%(configuration)s"
PLACES_MAX = 255  # of one lexeme, as the database's own parser keeps them
_PLACES = [",".join(map(str, range(1, count + 1))) for count in range(PLACES_MAX + 1)]


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of chunk ids that is packed. size counts the chunks it was made of, the deleted ones too."""

    id: int
    first_id: int
    last_id: int
    size: int


class TermCount(NamedTuple):
    """A lexeme of a question by one configuration, its term, how often the question has it, and how many open chunks of
    that configuration hold it."""

    lexeme: str
    term: int
    repeats: int
    chunks: int
    configuration: str = ""


@dataclass(frozen=True, slots=True)
class StoreState:
    """What changes with every write. open_count: the chunks without an access list, which BM25 counts; length_total:
    their lexemes; documents_changed_at: when a document of the collection last did, None without documents.

    Where they were asked for, else None: segments, oldest first, and of a collection in several languages by name the
    text search configurations of its open chunks, with how many have each, and those that only chunks with an access
    list have; question and, where one configuration reads it, its words.
    """

    chunk_count: int
    open_count: int
    length_total: int
    length_baked: float
    vector_index: bool
    compact_index: bool
    documents_changed_at: datetime | None
    segments: Sequence[Segment] | None = None
    configurations: Mapping[str, int] | None = None
    restricted_configurations: Sequence[str] = ()
    question: str | None = None
    terms: Sequence[TermCount] | None = None


def wanted_for_words(language: str, question: str | None) -> tuple[dict[str, str], dict[str, Any]]:
    """What is read for a search for words in a collection of that language: expressions by their names, in order, and
    their parameters. question: a normalized text, whose words are read where one configuration may read them all."""
    wanted: dict[str, str] = {"segments": SEGMENTS}
    if language != AUTO:
        if question is None or is_sparse_model(language):
            return wanted, {}
        wanted["terms"] = TERMS.format(configuration=CONFIGURATION, prefix="''")
        return wanted, {"configuration": language} | _word_params(question, language)
    wanted |= CONFIGURATIONS
    params: dict[str, Any] = {"configurations": list(ALL_CONFIGURATIONS), "marker": MARKER, "restricted": RESTRICTED}
    if question is not None:
        wanted["terms"] = TERMS.format(configuration=ONLY_CONFIGURATION, prefix=f"{ONLY_CONFIGURATION} || ' '")
        params |= {"configuration": configuration_of("")} | _word_params(question, language)
    return wanted, params


def _word_params(question: str, language: str) -> dict[str, str]:
    words, units = read_question(question, paired=language == AUTO)
    return {"words": words, "units": unit_vector(Counter(units))}


def unit_vector(counts: Mapping[str, int], without_places: Iterable[str] = ()) -> str:
    """A tsvector in which each lexeme has as many places as it is counted; those without places weigh nothing."""
    placed = (f"{quote_lexeme(lexeme)}:{_PLACES[min(count, PLACES_MAX)]}" for lexeme, count in counts.items())
    return " ".join((*placed, *map(quote_lexeme, without_places)))


def quote_lexeme(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def state_statement(wanted: Mapping[str, str], also: str = "") -> str:
    """also: further expressions, whose values are not read."""
    expressions = "".join(f", {each}" for each in (*wanted.values(), also) if each)
    return STATE.format(also=expressions, held=HELD_CONFIGURATIONS if "configurations" in wanted else "")


def state_of(row: Sequence[Any], wanted: Mapping[str, str], question: str | None) -> StoreState:
    """What a row of that statement says."""
    count, open_count, total, baked, vector_index, compact_index, changed_at, *more = row
    found = dict(zip(wanted, more, strict=False))
    segments = [Segment(*each) for each in found["segments"]] if wanted else None
    names, restricted = found.get("configurations"), found.get("restricted", ())
    configurations = None if names is None else dict(zip(names, found["counts"], strict=True))
    is_single = len(configurations or ()) < 2 and not restricted
    terms = read_terms(found["terms"]) if "terms" in found and is_single else None
    return StoreState(
        count,
        open_count,
        total,
        baked,
        vector_index,
        compact_index,
        changed_at,
        segments,
        configurations,
        restricted,
        question,
        terms,
    )


def read_terms(found: str | None) -> list[TermCount]:
    """What TERMS gives; null where the question has no words."""
    return [TermCount(*each) for each in json.loads(found or "[]")]
