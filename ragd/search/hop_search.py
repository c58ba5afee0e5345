"""The lists "hop2" and "hop3" of a plan with hops: chunks that hold a name which the hop before brought in.

Every chunk of such a list holds one of the hop's names as whole words, passes the plan's filters and may be read by who
asks. The chunks of one name are ranked by reciprocal rank fusion of the lists of the plan's mode, made for the question
over these chunks alone, and of how early they hold the name. The names take turns. A hop's list has at most k / hops
chunks, so that the first retrieval keeps its part of the results. Nothing is embedded again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragd import telemetry
from ragd.search.candidates import passing, ranked, scope
from ragd.search.fusion import fuse
from ragd.search.hops import SEEDS, Bridge, Link, Mention, find_mentions, fold, holds, weigh, weights_of
from ragd.search.lexical_search import LEXICAL, inverse_document_frequency, read_query
from ragd.search.vector_search import VECTOR_EXACT, vector_parameter
from ragd.store.analysis import EVERYBODY, is_auto, is_sparse, read_question
from ragd.store.state import StoreState
from ragd.store.store import Store, fetch_all
from ragd.text import tokens
from ragd.types import HOP_LISTS, Candidate, ListRank, RetrievePlan, Vector, order_key

Key = tuple[str, int]
SUBJECT = "subject"  # the list of the chunks that hold the name early: it is what they are about

# In how many chunks each name's rarest word stands, and what looks for all of its words, by configuration.
NAMES = """
SELECT given.place::integer, plainto_tsquery(named.name::regconfig, given.term)::text,
       (SELECT min(coalesce(t.chunk_count, 0))
        FROM unnest(to_tsvector(named.name::regconfig, given.term)) AS word
             LEFT JOIN chunk_terms t ON t.collection_id = %(collection_id)s AND t.index_version = %(index_version)s
                                    AND t.term = ragd_term(named.prefix || word.lexeme))
FROM unnest(%(terms)s::text[]) WITH ORDINALITY AS given (term, place)
CROSS JOIN ROWS FROM (unnest(%(configurations)s::text[]), unnest(%(prefixes)s::text[])) AS named (name, prefix)
ORDER BY given.place, named.name COLLATE "C"
"""
RESTRICTED = """
SELECT doc_id, chunk_index FROM {chunks}
WHERE collection_id = %(collection_id)s AND id = ANY(%(ids)s) AND NOT access @> ARRAY[%(everybody)s]::bigint[]
"""
HOLDS_WORDS = "fts @@ %(words)s::tsquery"
HOLDS_TEXT = "(context || E'\\n' || content) ILIKE ANY (%(patterns)s::text[])"


@dataclass(frozen=True, slots=True)
class Hops:
    """What the hops found. lists: "hop2", "hop3", as far as they hold something. links: of each chunk of them."""

    lists: Mapping[str, list[Candidate]] = field(default_factory=dict)
    links: Mapping[Key, Link] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Query:
    """What every hop searches for, and where. vector: of the text, None for a plan without vectors."""

    text: str
    vector: Vector | None
    plan: RetrievePlan
    store: Store
    state: StoreState


def search_hops(
    text: str,
    vector: Vector | None,
    fused: Sequence[Candidate],
    plan: RetrievePlan,
    store: Store,
    state: StoreState,
) -> Hops:
    """The hops of a plan after its first retrieval, whose pool is `fused`, best first.

    A hop reads the first SEEDS chunks of what the one before found. A chunk that stands among the first k of `fused`,
    or in a list of a hop before, is found already. Ends early where nothing new is named.
    """
    query = _Query(text, vector, plan, store, state)
    lists: dict[str, list[Candidate]] = {}
    links: dict[Key, Link] = {}
    found = {candidate.key for candidate in fused[: plan.k]}
    seeds, seen = list(fused[:SEEDS]), set[str]()
    for number, name in zip(range(2, plan.hops + 1), HOP_LISTS, strict=False):
        with telemetry.stage(telemetry.HOP, hop=number, seeds=[_key(seed) for seed in seeds]) as span:
            bridges, words = _bridges(query, fused, seeds, seen)
            listed, own = _linked(query, bridges, words, found, number)
            told = [
                f"{link.doc_id}#{link.chunk_index} {link.term} -> {_key(each)}"
                for each in listed
                for link in [own[each.key]]
            ]
            telemetry.record_counts(span, terms=[each.text for each in bridges], links=told, output_count=len(listed))
        if not listed:
            break
        lists[name] = [replace(each, ranks={name: ListRank(rank, each.score)}) for rank, each in enumerate(listed, 1)]
        links |= own
        found |= own.keys()
        seen |= {fold(bridge.text) for bridge in bridges}
        seeds = listed[:SEEDS]
    return Hops(lists, links)


def _bridges(
    query: _Query, pool: Sequence[Candidate], seeds: Sequence[Candidate], seen: set[str]
) -> tuple[list[Bridge], dict[str, str]]:
    """The names that the hop looks for, and what looks for each in the word index, by its folded form."""
    text, store = query.text, query.store
    mentions = find_mentions(text, [*pool, *seeds], seeds)
    if not _has_words(store):
        return weigh(mentions, _rarity_in(mentions, pool), seen), {}
    names = {fold(each.text): each.text for each in mentions}
    chunks: Counter[str] = Counter()
    words: dict[str, str] = {}
    question = read_question(text, store)
    terms = [tokens.read_question(each, paired=is_auto(store))[0] for each in names.values()]
    params = store.scope | question.params | {"terms": terms}
    for place, looked_for, held in fetch_all(store.connection, NAMES, params) if terms else ():
        name = list(names)[place - 1]
        if looked_for and held is not None:
            words[name] = f"{words[name]} | ({looked_for})" if name in words else f"({looked_for})"
            chunks[name] += held
    hidden = _restricted(seeds, store) if 1 in chunks.values() else set()
    own = {fold(each.text) for each in mentions if each.key not in hidden}
    rarity = {
        # one that the seed's chunk alone holds leads nowhere; of restricted chunks none is counted
        name: 0.0 if held == 1 and name in own else inverse_document_frequency(held, query.state.open_count)
        for name, held in chunks.items()
    }
    return weigh(mentions, rarity, seen), words


def _restricted(seeds: Sequence[Candidate], store: Store) -> set[Key]:
    """The keys of those seeds whose documents have an access list."""
    params = {
        "collection_id": store.collection.id,
        "ids": [seed.chunk_id for seed in seeds],
        "everybody": EVERYBODY[1],
    }
    return set(fetch_all(store.connection, RESTRICTED.format(chunks=store.collection.partition), params))


def _rarity_in(mentions: Sequence[Mention], pool: Sequence[Candidate]) -> dict[str, float]:
    """Without an index of words, by the pool."""
    texts = [fold(each.text) for each in pool]
    names = dict.fromkeys(fold(each.text) for each in mentions)
    counts = {name: sum(holds(text, name) for text in texts) for name in names}
    return {name: inverse_document_frequency(count, len(texts)) for name, count in counts.items()}


def _has_words(store: Store) -> bool:
    return store.collection.hybrid_enabled and not is_sparse(store)


def _linked(
    query: _Query, bridges: Sequence[Bridge], words: Mapping[str, str], found: set[Key], number: int
) -> tuple[list[Candidate], dict[Key, Link]]:
    """The hop's list and the link of each of its chunks: by its heaviest name that another chunk brought in."""
    if not bridges:
        return [], {}
    plan, lists = query.plan, _holders(query, bridges, words)
    links: dict[Key, Link] = {}
    for candidate in (each for candidates in lists.values() for each in candidates if each.key not in found):
        if candidate.key not in links and (link := _link(candidate, bridges, number)):
            links[candidate.key] = link
    kept = {name: [each for each in candidates if each.key in links] for name, candidates in lists.items()}
    every = {each.key: each for candidates in kept.values() for each in candidates}
    kept[SUBJECT] = sorted(
        every.values(), key=lambda each: (fold(each.text).find(fold(links[each.key].term)), *order_key(0, *each.key))
    )
    weights = weights_of(lists, plan) | {SUBJECT: 1.0}
    listed = _in_turns(fuse(kept, params={"rrf_k": plan.rrf_k, "weights": weights}), links, bridges)
    listed = listed[: plan.k // plan.hops]
    return listed, {each.key: links[each.key] for each in listed}


def _holders(query: _Query, bridges: Sequence[Bridge], words: Mapping[str, str]) -> dict[str, list[Candidate]]:
    """The lists of the plan's mode over the chunks that hold the words of a name, ranked for the question alone."""
    plan, store, vector = query.plan, query.store, query.vector
    condition, params = HOLDS_TEXT, dict[str, object]()
    if words:
        condition, params = HOLDS_WORDS, {"words": " | ".join(words[fold(bridge.text)] for bridge in bridges)}
    else:
        params = {"patterns": [f"%{_escaped(bridge.text)}%" for bridge in bridges]}
    names = {"chunks": store.collection.partition, "passing": f"{passing(plan, store)} AND {condition}"}
    asked: dict[str, Any] = scope(plan, store) | params
    lists: dict[str, list[Candidate]] = {}
    if vector is not None:
        sql = VECTOR_EXACT.format(**names, rows=plan.pool)
        rows = fetch_all(store.connection, sql, asked | {"vector": vector_parameter(vector, store)})
        lists["vector"] = ranked(rows, "vector", "cosine", 1.0)
    if plan.mode != "vector":
        lexical = read_query(query.text, store, query.state)
        asked = {"words": lexical.words} | asked | {"weights": lexical.vector}
        rows = fetch_all(store.connection, LEXICAL.format(**names), asked)
        lists["lexical"] = ranked(rows, "lexical", "bm25", lexical.highest or 1.0)
    return lists


def _in_turns(ranking: Sequence[Candidate], links: Mapping[Key, Link], bridges: Sequence[Bridge]) -> list[Candidate]:
    """The best chunk of each name, heaviest name first, then the second of each, and so on; those of other documents
    than the one that brought the name in before those of the same."""
    order = {fold(bridge.text): place for place, bridge in enumerate(bridges)}
    taken: Counter[int] = Counter()
    turns: list[tuple[int, int, Candidate]] = []
    for candidate in sorted(ranking, key=lambda each: links[each.key].doc_id == each.doc_id):
        place = order[fold(links[candidate.key].term)]
        taken[place] += 1
        turns.append((taken[place], place, candidate))
    return [candidate for *_, candidate in sorted(turns, key=lambda turn: turn[:2])]


def _link(candidate: Candidate, bridges: Sequence[Bridge], number: int) -> Link | None:
    text = fold(candidate.text)
    for bridge in bridges:
        if bridge.key != candidate.key and holds(text, fold(bridge.text)):
            return Link(number, bridge.text, *bridge.key)
    return None


def _escaped(text: str) -> str:
    """For LIKE."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _key(candidate: Candidate) -> str:
    return f"{candidate.doc_id}#{candidate.chunk_index}"
