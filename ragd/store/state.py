"""The state of a store as one statement reads it, with what a search for words needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ragd.models.sparse_encoder import is_sparse_model
from ragd.text.languages import ALL_CONFIGURATIONS, AUTO, configuration_of
from ragd.text.tokens import read_question

STATE = """
SELECT s.chunk_count, s.length_total, s.length_baked,
       EXISTS (SELECT 1 FROM pg_index i WHERE i.indexrelid = to_regclass(%(vector_index)s) AND i.indisvalid),
       to_regclass(%(compact_index)s) IS NOT NULL{also}
FROM chunk_stats s{held}
WHERE s.collection_id = %(collection_id)s AND s.generation = %(generation)s
"""

SEGMENTS = """
ARRAY(SELECT ARRAY[g.id, g.first_id, g.last_id, g.size] FROM chunk_segments g
      WHERE g.collection_id = %(collection_id)s AND g.generation = %(generation)s ORDER BY g.last_id)
"""

# A space keeps the marker of a configuration apart from every word that the parser can make.
MARKER = "configuration {}"

# Those of a collection whose chunks each name one. OFFSET 0: read once, however often they are named.
HELD_CONFIGURATIONS = """
CROSS JOIN LATERAL (SELECT ARRAY(SELECT listed.name FROM unnest(%(configurations)s::text[]) AS listed (name)
      JOIN chunk_terms t ON t.collection_id = %(collection_id)s AND t.generation = %(generation)s
                        AND t.term = ragd_term(replace(%(marker)s, '{}', listed.name)) AND t.chunk_count > 0
      ORDER BY listed.name COLLATE "C") AS names OFFSET 0) AS held
"""
CONFIGURATIONS = "held.names"
ONLY_CONFIGURATION = "coalesce(held.names[1], %(configuration)s)"

# The words of a question, by one text search configuration, as JSON.
TERMS = """
(SELECT json_agg(json_build_array(lexeme, ragd_term(lexeme), cardinality(positions), coalesce((
            SELECT t.chunk_count FROM chunk_terms t
            WHERE t.collection_id = %(collection_id)s AND t.generation = %(generation)s AND t.term = ragd_term(lexeme)
        ), 0)) ORDER BY lexeme COLLATE "C")::text
 FROM unnest(%(units)s::tsvector || to_tsvector(({configuration})::regconfig, %(words)s)))
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
    """A lexeme of a question, its term, how often the question has it, and how many chunks hold it."""

    lexeme: str
    term: int
    repeats: int
    chunks: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """What changes with every write. length_total counts lexemes.

    Where they were asked for, else None: segments, oldest first, and of a collection in several languages the text
    search configurations of its chunks, by name; question and, where one configuration reads it, its words.
    """

    chunk_count: int
    length_total: int
    length_baked: float
    vector_index: bool
    compact_index: bool
    segments: Sequence[Segment] | None = None
    configurations: Sequence[str] | None = None
    question: str | None = None
    terms: Sequence[TermCount] | None = None


def wanted_for_words(language: str, question: str | None) -> tuple[dict[str, str], dict[str, Any]]:
    """What is read for a search for words in a collection of that language: expressions by their names, in order, and
    their parameters. question: a normalized text, whose words are read where one configuration may read them all."""
    wanted: dict[str, str] = {"segments": SEGMENTS}
    if language != AUTO:
        if question is None or is_sparse_model(language):
            return wanted, {}
        wanted["terms"] = TERMS.format(configuration=CONFIGURATION)
        return wanted, {"configuration": language} | _word_params(question, language)
    wanted["configurations"] = CONFIGURATIONS
    params: dict[str, Any] = {"configurations": list(ALL_CONFIGURATIONS), "marker": MARKER}
    if question is not None:
        wanted["terms"] = TERMS.format(configuration=ONLY_CONFIGURATION)
        params |= {"configuration": configuration_of("")} | _word_params(question, language)
    return wanted, params


def _word_params(question: str, language: str) -> dict[str, str]:
    words, units = read_question(question, paired=language == AUTO)
    return {"words": words, "units": unit_vector(Counter(units))}


def unit_vector(counts: Mapping[str, int], without_places: Iterable[str] = ()) -> str:
    """A tsvector in which each lexeme has as many places as it is counted; those without places weigh nothing."""
    placed = (f"{_quoted(lexeme)}:{_PLACES[min(count, PLACES_MAX)]}" for lexeme, count in counts.items())
    return " ".join((*placed, *map(_quoted, without_places)))


def _quoted(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def state_statement(wanted: Mapping[str, str], also: str = "") -> str:
    """also: further expressions, whose values are not read."""
    expressions = "".join(f", {each}" for each in (*wanted.values(), also) if each)
    return STATE.format(also=expressions, held=HELD_CONFIGURATIONS if "configurations" in wanted else "")


def state_of(row: Sequence[Any], wanted: Mapping[str, str], question: str | None) -> StoreState:
    """What a row of that statement says."""
    count, total, baked, vector_index, compact_index, *more = row
    found = dict(zip(wanted, more, strict=False))
    segments = [Segment(*each) for each in found["segments"]] if wanted else None
    configurations = found.get("configurations")
    terms = read_terms(found["terms"]) if "terms" in found and len(configurations or ()) < 2 else None
    return StoreState(count, total, baked, vector_index, compact_index, segments, configurations, question, terms)


def read_terms(found: str | None) -> list[TermCount]:
    """What TERMS gives; null where the question has no words."""
    return [TermCount(*each) for each in json.loads(found or "[]")]
