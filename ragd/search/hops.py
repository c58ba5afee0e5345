"""Hops: what the chunks of one retrieval name and the question does not is looked for in a further one.

A question may need two documents of which only the first shares words with it: the first says which company makes the
engine, the second who founded that company. Each hop takes the names and defined terms of the best chunks so far,
weighs them, and `ragd.search.hops` retrieves the chunks that hold one. No model takes part, nothing is drawn by
chance: equal input gives equal links.

A name is a sequence of capitalised words, a quoted title, the text of a link, an identifier (a word with a digit, an
underscore, a capital inside, or of capitals alone), what a sentence defines ("X is a ..."), and the document's title.

The list "codes" of a hybrid search: chunks that hold a number or a code of the query that hardly any other holds.

A key such as "AK-0201234" decides by itself which row of a sheet is asked for. The lexical list puts its chunk first;
the vector list, to which the rows of a sheet are all alike, holds it or does not by chance, and chunks in the middle of
both lists would pass it. So a chunk with a code of the query stands in one list more.

The lists "hop2" and "hop3" of a plan with hops: chunks that hold a name which the hop before brought in.

Every chunk of such a list holds one of the hop's names as whole words, passes the plan's filters and may be read by who
asks. The chunks of one name are ranked by reciprocal rank fusion of the lists of the plan's mode, made for the question
over these chunks alone, and of how early they hold the name. The names take turns. A hop's list has at most k / hops
chunks, so that the first retrieval keeps its part of the results. Nothing is embedded again.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragd import telemetry
from ragd.search.candidates import passing, ranked, scope
from ragd.search.fusion import fuse
from ragd.search.lexical_search import LEXICAL, inverse_document_frequency, read_query
from ragd.search.vector_search import VECTOR_EXACT, vector_parameter
from ragd.store.analysis import EVERYBODY, is_auto, is_sparse, read_question
from ragd.store.store import Store, StoreState, fetch_all
from ragd.text import tokens
from ragd.text.sentences import split_sentences
from ragd.types import CODES, HOP_LISTS, LISTS, Candidate, ListRank, RetrievePlan, Vector, order_key

SEEDS = 5  # chunks whose names are read
TERMS_MAX = 6  # names that a hop looks for
TERM_CHARS_MAX = 80
MENTIONS_MAX = 400  # of one chunk
LIGHTEST = 0.4  # a name that weighs less beside the heaviest is not looked for
NEAR = 0.8  # what the sentence before adds: it says whom "it" stands for
FLOOR = 0.05  # what a sentence that shares no word with the question counts

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_NAME = r"[^\W\d_a-zß-öø-ÿ][\w'’-]*"
_JOINERS = r"(?:of|the|and|de|del|della|di|da|du|la|le|les|von|van|der|den|und|zu|&)"
_JOINER = re.compile(rf"{_JOINERS}\b ?|in |on |at |for ", re.IGNORECASE)
_AND = re.compile(r" (?:and|und|&) ")
_INNER = re.compile(r"(?<=[\w,;)] )[^\W\d_a-zß-öø-ÿ][\w'’-]*")
_CAPITALISED = re.compile(rf"(?<![\w-]){_NAME}(?:[ \u00a0](?:(?:{_JOINERS}[ \u00a0]){{0,2}}{_NAME}|\d+(?![\w.])))*")
_QUOTED = re.compile(r"[\"“„«`]([^\"“”„«»`\n]{2,80})[\"”“»`]|\[([^\]\n]{2,80})\]\(")
_IDENTIFIER = re.compile(r"(?<![\w/])(?=[\w./-]*(?:\d|_|[a-z][A-Z]|[A-Z]{2}))[A-Za-z][\w]*(?:[-./:]\w+)*")
_DEFINED = re.compile(
    r"^[\s*_>#-]*(?:an? |the )?([^\s.,;:!?][^.,;:!?\n]{1,50}?)[*_]* (?:is|are|means|refers to|denotes) (?:an? |the )",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A name as a chunk writes it. key: of the chunk. share: how much of the question its sentence is about, 0 to 1."""

    text: str
    key: tuple[str, int]
    share: float


@dataclass(frozen=True, slots=True)
class Bridge:
    """A name that a hop looks for: where it was read, and what it weighs, higher first."""

    text: str
    key: tuple[str, int]
    weight: float


@dataclass(frozen=True, slots=True)
class Link:
    """That a hop found a chunk: by which term, which it read in which chunk."""

    hop: int
    term: str
    doc_id: str
    chunk_index: int


def fold(text: str) -> str:
    """Small letters, one blank between words: names that are written alike are the same."""
    return " ".join(text.casefold().split())


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def find_mentions(query: str, pool: Sequence[Candidate], seeds: Sequence[Candidate]) -> list[Mention]:
    """The names that the seeds hold and the query does not, in the order of the seeds and of their texts.

    pool: the chunks that tell rare words of the query from common ones; the seeds are among them. Each name once per
    chunk, at the sentence that shares most with the query. A name all of whose words are in the query is none.
    """
    known = set(words_of(query))
    rarity, usage = rare_words(known, pool), usage_in(pool)
    mentions: list[Mention] = []
    for seed in seeds:
        best: dict[str, Mention] = {}
        about = set(words_of(seed.context))
        before: set[str] = set()
        for sentence in _sentences(seed):
            words = about | set(words_of(sentence))
            share = max(FLOOR, _share(words, rarity), NEAR * _share(words | before, rarity))
            before = words
            for text in names_in(sentence, usage):
                if set(words_of(text)) <= known:
                    continue
                name = fold(text)
                if name not in best or share > best[name].share:
                    best[name] = Mention(text, seed.key, share)
        mentions.extend(best.values())
    return mentions


def rare_words(words: Iterable[str], pool: Sequence[Candidate]) -> dict[str, float]:
    """Each word with its inverse frequency in the pool, as shares of 1; {} where no word is rarer than another."""
    texts = [set(words_of(candidate.text)) for candidate in pool]
    held = Counter(word for text in texts for word in text)
    weights = {word: math.log((len(texts) + 1) / (held[word] + 0.5)) for word in sorted(words) if held[word]}
    weights = {word: max(0.0, weight) for word, weight in weights.items()}
    total = math.fsum(weights.values())
    return {word: weight / total for word, weight in weights.items()} if total else {}


@dataclass(frozen=True, slots=True)
class Usage:
    """How texts write words. small: some place in small letters. inner: capitalised within a sentence; in small letters
    here."""

    small: frozenset[str] = frozenset()
    inner: frozenset[str] = frozenset()


def usage_in(pool: Sequence[Candidate]) -> Usage:
    text = "\n".join(candidate.text for candidate in pool)
    inner = {match[0].casefold() for match in _INNER.finditer(text)}
    return Usage(frozenset(word for word in _WORD.findall(text) if word.islower()), frozenset(inner))


def names_in(sentence: str, usage: Usage = Usage()) -> list[str]:
    """The names in a sentence, in order of their first place, each once as it is written first."""
    found = [(match.start(), match[1] or match[2]) for match in _QUOTED.finditer(sentence)]
    found += [(match.start(), match[0]) for match in _IDENTIFIER.finditer(sentence)]
    for match in _CAPITALISED.finditer(sentence):
        begins = not any(map(str.isalnum, sentence[: match.start()]))
        found += [(match.start(), part) for part in _capitalised(match[0], begins, usage)]
    if defined := _DEFINED.match(sentence):
        found.append((defined.start(1), defined[1]))
    names: dict[str, str] = {}
    for _, text in sorted(found, key=lambda each: (each[0], -len(each[1]), each[1]))[:MENTIONS_MAX]:
        clean = text.strip(" \t'’-_*#:.,;")
        if 2 < len(clean) <= TERM_CHARS_MAX and any(map(str.isalpha, clean)):
            names.setdefault(fold(clean), clean)
    return list(names.values())


def _capitalised(text: str, begins: bool, usage: Usage) -> Iterator[str]:
    """The sequence, and what an "and" joins. The first word of a sentence is capitalised anyhow: alone it is a name
    where other sentences capitalise it inside; before others it belongs to them where none writes it small."""
    first, _, rest = text.partition(" ")
    if begins and not rest and first.casefold() not in usage.inner:
        return
    if rest and (_JOINER.fullmatch(first) or (begins and first.casefold() in usage.small)):
        text = _JOINER.sub("", rest, count=1) if _JOINER.match(rest + " ") else rest
    yield text
    parts = _AND.split(text)
    if len(parts) > 1:
        yield from parts


def weigh(mentions: Sequence[Mention], rarity: Mapping[str, float], seen: Iterable[str] = ()) -> list[Bridge]:
    """The best names by rarity * the share of the sentence / the place of the chunk, heaviest first, ties by the name.

    rarity: folded name -> its inverse document frequency; one that is missing leads nowhere. seen: folded names of
    hops before. A name that several chunks hold counts where it weighs most; ties by the order of the mentions.
    """
    gone = set(seen)
    places: dict[tuple[str, int], int] = {}
    for mention in mentions:
        places.setdefault(mention.key, len(places) + 1)
    best: dict[str, Bridge] = {}
    for mention in mentions:
        name = fold(mention.text)
        if name in gone or not rarity.get(name):
            continue
        weight = rarity[name] * mention.share / math.sqrt(places[mention.key])
        if name not in best or weight > best[name].weight:
            best[name] = Bridge(mention.text, mention.key, weight)
    heaviest = sorted(best.values(), key=lambda bridge: (-bridge.weight, fold(bridge.text)))[:TERMS_MAX]
    return [bridge for bridge in heaviest if bridge.weight >= heaviest[0].weight * LIGHTEST]


def holds(text: str, name: str) -> bool:
    """Whether a folded text holds a folded name as whole words."""
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if not (start and text[start - 1].isalnum()) and not (end < len(text) and text[end].isalnum()):
            return True
        start = text.find(name, start + 1)
    return False


def _sentences(seed: Candidate) -> Iterator[str]:
    yield from (part for part in re.split(r"\n| > ", seed.context) if part)
    for start, end in split_sentences(seed.content):
        yield seed.content[start:end]


def _share(words: set[str], rarity: Mapping[str, float]) -> float:
    return math.fsum(weight for word, weight in rarity.items() if word in words)


CHARS_MIN = 3  # of a code
CHUNKS_MAX = 3  # of the lexical list that hold it: more, and it says little
CODES_MAX = 20  # of one question
HOP_WEIGHT = 0.97

# Letters of scripts that set blanks between words, and digits; parts that a sign joins are one code.
_SIGN = "0-9A-Za-z\u00c0-\u024f\u0370-\u052f"
_DIGITS = re.compile("[0-9]+")
_CODE = re.compile(rf"[{_SIGN}]+(?:[-./_:][{_SIGN}]+)*")


def add_codes(
    text: str, lists: Mapping[str, Sequence[Candidate]], plan: RetrievePlan
) -> dict[str, Sequence[Candidate]]:
    """The lists of a hybrid search, and as "codes" those of the lexical list that hold a code of the query.

    A code has a digit and three characters or more; one that more than three chunks of the list hold does not count.
    The order and the scores are those of the lexical list. No such list where none does, or where the plan gives it or
    the lexical list no weight. It counts 1 in the fusion where the plan says nothing.
    """
    if len(lists) < 2 or not plan.weights["lexical"] or not plan.weights.get(CODES, 1.0):
        return dict(lists)
    codes = codes_of(text)
    if not codes:
        return dict(lists)
    found = _holding(codes, lists["lexical"])
    holders = [candidate for candidate in lists["lexical"] if candidate.key in found]
    listed = [replace(each, ranks={CODES: ListRank(rank, each.score)}) for rank, each in enumerate(holders, 1)]
    return {**lists, CODES: listed} if listed else dict(lists)


def weights_of(lists: Iterable[str], plan: RetrievePlan) -> dict[str, float]:
    """What each of the lists counts in the fusion of the plan."""
    return list_weights(lists, plan.weights)


def list_weights(lists: Iterable[str], stated: Mapping[str, float]) -> dict[str, float]:
    """1 where nothing is stated. A list of a hop counts as the lists of the first retrieval do together, and a little
    less: its first chunk comes behind their first two."""
    names = list(lists)
    weights = {name: float(stated.get(name, 1.0)) for name in names if name not in HOP_LISTS}
    first = math.fsum(weights[name] for name in LISTS if name in weights) or 1.0
    return weights | {name: first * HOP_WEIGHT for name in names if name in HOP_LISTS}


def codes_of(text: str) -> list[str]:
    """The words of a text that hold a digit, in order, each once."""
    codes = dict.fromkeys(match[0] for match in _CODE.finditer(text))
    return [code for code in codes if len(code) >= CHARS_MIN and any(map(str.isdigit, code))][:CODES_MAX]


def _holding(codes: Sequence[str], candidates: Sequence[Candidate]) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for code in codes:
        digits = max(_DIGITS.findall(code), key=len)  # they have no case, so that they are soon looked for
        whole = re.compile(rf"(?<![{_SIGN}]){re.escape(code)}(?![{_SIGN}])", re.IGNORECASE)
        near = [candidate for candidate in candidates if digits in candidate.content]
        holders = [candidate.key for candidate in near if whole.search(candidate.content)]
        if len(holders) <= CHUNKS_MAX:
            found.update(holders)
    return found


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
    text: str, vector: Vector | None, fused: Sequence[Candidate], plan: RetrievePlan, store: Store, state: StoreState
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
    if not (store.collection.hybrid_enabled and not is_sparse(store)):
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
    params = {"collection_id": store.collection.id, "ids": [seed.chunk_id for seed in seeds], "everybody": EVERYBODY[1]}
    return set(fetch_all(store.connection, RESTRICTED.format(chunks=store.collection.partition), params))


def _rarity_in(mentions: Sequence[Mention], pool: Sequence[Candidate]) -> dict[str, float]:
    """Without an index of words, by the pool."""
    texts = [fold(each.text) for each in pool]
    names = dict.fromkeys(fold(each.text) for each in mentions)
    counts = {name: sum(holds(text, name) for text in texts) for name in names}
    return {name: inverse_document_frequency(count, len(texts)) for name, count in counts.items()}


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
