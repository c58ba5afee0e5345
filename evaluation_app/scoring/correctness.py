"""Whether an answer is right: which components of the expected answer it holds (the completeness application).

The expected answer is cut into components, and each is found in a sentence of the answer or missing: by rules and
embeddings (see `find_claim`), or by a model that decides components.

Whether a text says what a claim says, as far as rules and vectors can decide it without a language model.

One mechanism for all that asks it: the components of an expected answer in an answer, the sentences of an answer in the
expected one, a claim in the sentences of a chunk. What differs is how near a text has to be (`Limits`). What a text
contradicts (`contradictions`) it never says.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, NamedTuple

from collections_app.domain.dates import Date
from collections_app.domain.quantities import PERIOD_WORDS, Quantity, is_german, stem
from evaluation_app.golden.questions import Golden
from evaluation_app.judges.protocol import ComponentJudge, Vectors, embed_texts
from evaluation_app.measures.scores import NOTHING_EXPECTED, Score, failed, scored, unscorable
from ragd.errors import RagdError
from ragd.text.chunking import split_sentences
from ragd.types import Embedder
from retrieval_app.answers import contradictions
from retrieval_app.answers.extractive_answerer import list_stems
from retrieval_app.answers.readings import (
    Reading,
    are_equal,
    content_words,
    count_alike,
    holds_word,
    read,
    same_word,
    share_held,
)

# names with an underscore, files, assignments: RAGD_VAR, pg_dump, manage.py, PORT=8001
IDENTIFIER = re.compile(r"\w*[^\W_]_[^\W_]\w*|\b\w{2,}\.[a-z]{2,4}\b|\b[A-Za-z]\w+=\w+")
OR_ELSE = re.compile(
    r",?\s(?:also|das (?:ist|sind)|that is|i\.e\.|d\.\s?h\.)\s(?=\W?\w*\d|\w+ \w+\W*$)", re.IGNORECASE
)  # the same again
TOKEN = re.compile(r"\w+")
ASKS_QUANTITY = re.compile(
    r"\b(?:how (?!do|does|did|is|are|can|to|come)\w+|when|wann|was kostet|an welchem|(?:bis|ab|seit) wie|welcher frist"
    r"|(?:what|which) (?:time|date|year|day|percentage|share|price|amount|number|temperature|size|speed|delay|age)"
    r"|wie (?:viele?|lange|oft|hoch|groß|schwer|teuer|weit|breit|tief|schnell|alt|früh|spät|warm|häufig)"
    r"|welche[rsnm]? (?:temperatur|datum|tag|jahr|frist|anzahl|zahl|preis|summe|grenze|gleis|dauer))\b",
    re.IGNORECASE,
)
SURE_COSINE = 0.75  # of a short claim none of whose words the text holds
LIKE_FACTS = 0.5  # cosine of a text that states all numbers and dates of a claim
# in texts that are alike (`Limits.short`): cosine of the texts, and of each word of a short claim and one of the text
LIKE_WORDS, LIKE_WORD = 0.5, 0.6
SHORT_WORDS = 4  # content words of a claim of which a cosine alone says little
SYNONYMS = 0.75  # cosine of two words that may stand for each other
PART = 4  # letters of each part of a compound
SHORT, KEPT_OF_LONG, KEPT_OF_MANY = 4, 0.6, 0.65
KEPT = 0.5  # the share of the tokens of two texts that both have, in one order, from which each change counts
_ITEM = re.compile(r"\w+|[,;:]")
_SAID = re.compile(r"[^\s.,;:!?\"'()]+")  # with currencies and signs
_ARTICLES = frozenset(("the", "a", "an", "der", "die", "das", "ein", "eine"))
_LINKS = frozenset(
    ("^", ",", ";", ":", "and", "or", "und", "oder", "sowie")
)  # beside them nothing has a place of its own
_INTO = {"into": "to", "onto": "to", "zum": "zu", "zur": "zu", "vom": "von"}
LONG = 12  # content words up to which each change counts


@dataclass(frozen=True, slots=True)
class Limits:
    """cosine, words: a text says what a claim says from this cosine on, or when it holds this share of the claim's
    content words. short: the cosine of a claim of few words. about: the least share of its words in a text that can
    contradict it. lenient: a quantity or identifier of the claim may be left out."""

    cosine: float
    words: float
    short: float = 0.85
    about: float = 0.0
    lenient: bool = False


STATES = Limits(0.85, 0.5, about=0.6)  # chosen by bench_noise
SUPPORTS = Limits(0.55, 0.5, short=0.75, about=0.6)  # of a sentence by its context: chosen by bench_correctness
SAYS = Limits(0.85, 0.5)  # of an expected answer by an answer
HOLDS = Limits(0.4, 0.35, short=0.6, lenient=True)  # chosen by bench_correctness, so that few right answers are wrong


class Found(NamedTuple):
    """place: of the first text that says what the claim says, None for none; of a text that contradicts it."""

    place: int | None
    contradicted_by: int | None


def find_claim(
    texts: Sequence[str],
    claim: str,
    vectors: Vectors,
    limits: Limits = STATES,
    given: str = "",
    *,
    likeness: Callable[[str, str], float] | None = None,
) -> Found:
    """Look for a claim in texts.

    Its quantities, dates and identifiers must stand in the texts, unless they are `given`, as by the question. A text
    that contradicts the claim does not say it. One that holds the words of the claim in a row says it. Else the share
    of its content words that are not given decides, or its cosine; a claim all of whose words are given, or that is a
    quantity that was asked for, needs its quantities alone. vectors: a unit vector per text and for the claim.
    likeness: cosine of two words; with it a text that has another word in the place of one of the claim's contradicts
    it.
    """
    language = is_german(" ".join((given, claim, *texts)))
    subject, question = read(claim, language), read(given, language)
    readings = [read(text, language) for text in texts]
    lowered = " ".join([given, *texts]).lower()
    missing = all(contradictions.unstated(read(part, language), readings, question) for part in OR_ELSE.split(claim))
    identifiers = all(name.lower() in lowered for name in IDENTIFIER.findall(claim))
    contradicted = None
    for index, text in enumerate(readings):
        is_about = not limits.about or share_held(subject.words, text.words) >= limits.about
        kinds = (
            {each.kind for each in contradictions.find_contradictions(claim, text.text, given)} if is_about else set()
        )
        differs = bool(kinds)
        # "A is older than B", "B is younger than A"
        if likeness and len(subject.words) <= LONG >= len(text.words) and find_exchange(subject, text):
            differs = bool(kinds - {"opposite"}) or not contradictions.are_opposed(subject, text)
        if differs or (likeness and _is_edited(subject, text, question, likeness)):
            contradicted = index if contradicted is None else contradicted
            continue
        if not limits.lenient and (missing or not identifiers):
            continue
        cosine = float(vectors[text.text] @ vectors[claim])
        if _says(text, subject, question, cosine, limits, missing=missing):
            return Found(index, None)
        if limits.lenient and likeness and not missing and cosine >= limits.short:
            if _is_worded_alike(subject, text, question, likeness):
                return Found(index, None)
    return Found(None, contradicted)


def place_of(
    texts: Sequence[str], claim: str, vectors: Vectors, limits: Limits = STATES, given: str = ""
) -> int | None:
    """The index of the first text that says what the claim says; None for none."""
    return find_claim(texts, claim, vectors, limits, given).place


def states(texts: Sequence[str], claim: str, vectors: Vectors, limits: Limits = STATES, given: str = "") -> bool:
    """Whether `place_of` finds a text that says what the claim says."""
    return place_of(texts, claim, vectors, limits, given) is not None


@lru_cache(maxsize=8192)
def _tokens(text: str) -> str:
    return f" {' '.join(TOKEN.findall(text.lower()))} "


def _tokens_in_order(reading: Reading, facts: Sequence[Quantity | Date], words: Sequence[str]) -> Iterator[str]:
    """The text's tokens in order: stems, small words, and "#0" for what equals the first of the facts; what is the
    same word as one of `words` as that word."""
    starts = {fact.start: fact for fact in reading.facts}
    found = [(match.start(), match[0]) for match in _ITEM.finditer(reading.stated.rest)]
    for start, token in sorted([*found, *((start, "") for start in starts)]):
        if start in starts:
            fact = starts[start]
            number = next((number for number, each in enumerate(facts) if are_equal(each, fact)), None)
            yield f"#{number}" if number is not None else f"#?{reading.facts.index(fact)}"
            continue
        low = token.lower()
        stems = content_words(low)
        stem = stems[0] if stems else _INTO.get(low, low)
        yield next((word for word in words if stems and same_word(word, stem)), stem)


def _places(items: Sequence[str]) -> dict[str, set[str]]:
    """What stands before each word or amount, articles left out; "^" for nothing."""
    places = defaultdict(set)
    before = "^"
    for item in items:
        if item.startswith("#") or content_words(item):
            places[item].add(before)
        if item not in _ARTICLES:
            before = item
    return places


def find_exchange(claim: Reading, text: Reading) -> tuple[str, str] | None:
    """Two words or amounts of the claim, each of which stands in the other's place: "from A to B", "from B to A"."""
    ours = list(_tokens_in_order(claim, claim.facts, claim.words))
    mine, theirs = _places(ours), _places(list(_tokens_in_order(text, claim.facts, claim.words)))
    shared = [item for item in dict.fromkeys(ours) if item in mine and item in theirs]
    for index, one in enumerate(shared):
        for two in shared[index + 1 :]:
            first, second = mine[one] & theirs[two], mine[two] & theirs[one]
            if (
                first
                and second
                and not (first | second) <= _LINKS
                and not mine[one] & theirs[one]
                and not mine[two] & theirs[two]
            ):
                return one, two
    return None


def is_compound(one: str, other: str) -> bool:
    """Whether a word is made of the other, ending aside, and at least four letters more: "Lawinengefahr", "Lawinen"."""
    part, whole = sorted((one, other), key=len)
    start = count_alike(part, whole)
    begins = start >= max(PART, len(part) - 2) and len(whole) - start >= PART
    return begins or (whole.endswith(part) and min(len(part), len(whole) - len(part)) >= PART)


def are_exchanged(claim: Reading, text: Reading) -> bool:
    """Whether a short text has two things of a short claim the other way round."""
    is_short = len(claim.words) <= LONG and len(text.words) <= LONG
    return is_short and (find_exchange(claim, text) is not None or contradictions.find_mixed(claim, text) is not None)


def find_edits(
    claim: Reading, text: Reading, question: Reading, likeness: Callable[[str, str], float]
) -> Iterator[tuple[str, str]]:
    """(word of the claim, word of the text) in one place of two texts that are nearly one, each missing in the other
    and in the question."""
    ours, theirs = (
        [item for item in _tokens_in_order(each, claim.facts, claim.words) if item not in _ARTICLES]
        for each in (claim, text)
    )
    if len(claim.words) > LONG:
        return
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < (KEPT if len(ours) <= SHORT else KEPT_OF_LONG):
        return
    is_short = len(theirs) <= len(ours) <= SHORT  # then a word of the question is another word as well
    known = claim.words if is_short else (*claim.words, *question.words)
    for kind, first, last, start, end in matcher.get_opcodes():
        lost = [
            word
            for word in ours[first:last]
            if content_words(word) and not holds_word((*text.words, *question.words), word)
        ]
        new = [word for word in theirs[start:end] if content_words(word) and not holds_word(known, word)]
        one, two = (
            next((item for item in items if item[0] == "#"), "") for items in (ours[first:last], theirs[start:end])
        )
        if one and two[:2] == "#?" and one not in theirs:
            fact, other = claim.facts[int(one[1:])], text.facts[int(two[2:])]
            if type(fact) is type(other) and fact.is_like(other):  # type: ignore[arg-type]
                yield fact.text, other.text
        lost, new = (
            [word for word in words if word[0] != "#" and stem(word) not in PERIOD_WORDS] for words in (lost, new)
        )
        if kind == "replace" and lost and new and (len(lost) == len(new) or matcher.ratio() > KEPT_OF_MANY):
            best = max(((one, two) for one in lost for two in new), key=lambda pair: likeness(*pair))
            if (
                likeness(*best) < SYNONYMS
                and not any(is_compound(one, two) for one in lost for two in new)
                and not contradictions.share_side(best[0], claim.text, best[1], text.text)
                and not contradictions.PERMITS.issuperset(best)
            ):
                yield best


def _is_edited(claim: Reading, text: Reading, question: Reading, likeness: Callable[[str, str], float]) -> bool:
    """Whether the text is nearly the claim, with something exchanged."""

    def alike(one: str, other: str) -> float:
        return is_german(claim.text + question.text) is not True and likeness(
            _written(one, claim), _written(other, text)
        )

    is_mixed = len(claim.words) <= LONG >= len(text.words) and contradictions.find_mixed(claim, text) is not None
    return is_mixed or any(find_edits(claim, text, question, alike))


def _is_worded_alike(claim: Reading, text: Reading, question: Reading, likeness: Callable[[str, str], float]) -> bool:
    """Whether each new word of a short claim stands in the text, or one of nearly its meaning."""
    new = [word for word in claim.words if not holds_word(question.words, word)]
    if is_german(f"{question.text} {claim.text} {text.text}"):
        return False  # the built-in model knows few German words
    return 0 < len(new) <= SHORT_WORDS and all(
        holds_word(text.words, word)
        or any(
            likeness(_written(word, claim), _written(other, text)) >= (LIKE_WORDS if len(new) > 1 else LIKE_WORD)
            for other in text.words
        )
        for word in new
    )


def _share(words: Sequence[str], others: Sequence[str], german: bool | None) -> float:
    """`share_held`, where a part of a German compound counts as the word."""
    held = [holds_word(others, word) or (german and any(is_compound(word, it) for it in others)) for word in words]
    return sum(map(bool, held)) / len(held) if held else 0.0


def _is_affirmed(word: str, claim: Reading) -> bool:
    """Whether it stands in a clause that denies nothing: what a claim denies besides need not be repeated."""
    return any(word in clause.words and (clause.is_exception or not clause.negations) for clause in claim.clauses)


def _written(word: str, reading: Reading) -> str:
    """A stem as the text has it."""
    return next((token for token in TOKEN.findall(reading.text.lower()) if token.startswith(word)), word)


def _says(text: Reading, claim: Reading, question: Reading, cosine: float, limits: Limits, *, missing: bool) -> bool:
    if _tokens(claim.text) in _tokens(text.text):
        return True
    affirmed = [word for word in claim.words if _is_affirmed(word, claim)] or claim.words
    new = [word for word in affirmed if not holds_word(question.words, word)]
    adds = [word for word in text.words if not holds_word(question.words, word)]
    if claim.lead is not None and claim.lead == contradictions.lead_of(text, question) and not (new and adds):
        return True
    if missing and len(new) < 2:
        return False
    if any(
        clause.is_exception and (words := clause.words.intersection(new)) and not share_held(words, text.words)
        for clause in claim.clauses
    ):
        return False
    facts = claim.stated.quantities or claim.stated.dates or claim.stated.codes
    has_facts = bool(facts or claim.stated.periods & text.stated.periods) and not missing
    if has_facts and (
        not new
        or (limits.lenient and len(claim.facts) > 1)
        or ASKS_QUANTITY.search(question.text)
        or (limits.lenient and cosine >= LIKE_FACTS)
    ):
        return True
    share = _share(new or affirmed, text.words, is_german(f"{question.text} {claim.text}"))
    if not share and (missing or len(claim.words) <= SHORT_WORDS):
        return cosine >= limits.cosine and cosine >= SURE_COSINE
    least = limits.cosine if len(claim.words) > SHORT_WORDS else max(limits.short, limits.cosine)
    if len(claim.words) < 3:
        least = STATES.cosine
    return cosine >= least or (bool(claim.words) and share >= limits.words)


CLAUSES = re.compile(
    r";\s+|,?\s+(?:but|while|whereas|aber|während|sondern)\s+|,\s+(?:and|so|which|who|where|und|der|die|das)\s+"
)
ITEMS = re.compile(r",\s+(?:(?:and|or|und|oder|sowie)\s+)?|\s+(?:and|or|und|oder|sowie)\s+")
JOINS = re.compile(r"\s(?:and|or|und|oder|sowie)\s")
CLAUSE_WORDS_MIN = 3  # content words of each clause, else the sentence stays whole
ITEMS_MIN, ITEM_WORDS_MAX, ADDED_WORDS_MAX = 3, 3, 2
ITEM_LENGTH_MAX = 4  # words of each item after the first: a longer one is a clause, "it must be switched off"
CONTRADICTED = 0.4  # at most, for an answer that contradicts a component: it is not right
LIKELY = 0.5  # what a component counts that is held by its meaning alone


@dataclass(frozen=True, slots=True)
class Correctness:
    """components: [{"text", "found", "certain", "by": key of the answer's sentence or ""}]. usage: of a model that
    decided, {} without one."""

    score: Score
    components: list[dict[str, Any]] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holding(self) -> frozenset[str]:
        """The keys of the answer's sentences that hold a component."""
        return frozenset(item["by"] for item in self.components if item["by"])


def list_components(expected: str) -> list[str]:
    """The parts of an expected answer that can be found one by one, in its order: sentences, their clauses, and the
    items of an enumeration. [] for a blank one."""
    sentences = [expected[start:end].strip() for start, end in split_sentences(expected)]
    return [item for sentence in sentences for clause in _clauses(sentence) for item in _items(clause)]


def _clauses(sentence: str) -> list[str]:
    parts = [part.strip() for part in CLAUSES.split(sentence) if part.strip()]
    if any(len(list_stems(part)) < CLAUSE_WORDS_MIN for part in parts):
        return [sentence] if sentence else []
    return parts


def _items(clause: str) -> list[str]:
    items = [item.strip().removesuffix(".") for item in ITEMS.split(clause) if item.strip()]
    is_list = len(items) >= ITEMS_MIN and all(len(content_words(item)) <= ITEM_WORDS_MAX for item in items)
    is_list = is_list and all(len(item.split()) <= ITEM_LENGTH_MAX for item in items[1:])
    is_list = is_list and len(read(clause).clauses) == 1 and read(clause).lead is None
    return items if is_list else [clause]


def measure_correctness(
    answer_sentences: Sequence[Sequence[str]],
    outcome: str,
    golden: Golden,
    embedder: Embedder,
    *,
    silent: str = "",
    judge: ComponentJudge | None = None,
) -> Correctness:
    """The share of the components that the answer holds, 0 to 1; one that it holds by its meaning alone (see
    `HOLDS`) and does not plainly state counts half.

    0 where an expected answer was declined. Of a question that must be declined 1 when it was, 0 when it was answered.
    Unscorable without an expected answer, and for the reason `silent` where nobody tried to answer. judge: who decides
    instead of the rules. An error of the judge's kind, or "embedder", when that fails.
    """
    components = list_components(golden.expected_answer)
    if silent and outcome != "abstained":
        return Correctness(unscorable(silent))
    if not components and not golden.expects_nothing:
        return Correctness(unscorable(NOTHING_EXPECTED))
    if not components:
        return Correctness(scored(float(outcome == "abstained")))
    answer = [(str(key), str(text)) for key, text in answer_sentences if str(text).strip()]
    if outcome == "abstained" or not answer:
        return Correctness(scored(0.0), [_component(text, "") for text in components])
    if judge is not None:
        held = judge.components_held(golden.question, components, answer)
        if held.error:
            return Correctness(failed(held.error), usage=held.usage)
        return _summed([_component(text, by) for text, by in zip(components, held.by, strict=True)], held.usage)
    if quoted := _quoted(golden.expected_answer, answer):
        return _summed([_component(text, quoted) for text in components])
    try:
        found = _find(components, answer, golden.question, embedder)
    except RagdError:
        return Correctness(failed("embedder"))
    adds = any(_adds_item(components, text, golden.question) for _, text in answer)
    return _summed(found, adds=adds or (len(components) > 1 and _exchanges(golden.expected_answer, answer)))


def _quoted(expected: str, answer: Sequence[tuple[str, str]]) -> str:
    """The key of the first of the sentences that together say the expected answer word by word; "" where none do."""
    wanted = _SAID.findall(expected.lower())
    for first, (key, _) in enumerate(answer):
        said: list[str] = []
        for _, text in answer[first:]:
            said += _SAID.findall(text.lower())
            if said == wanted:
                return key
            if len(said) >= len(wanted):
                break
    return ""


def _exchanges(expected: str, answer: Sequence[tuple[str, str]]) -> bool:
    """Whether a sentence has what stands in two components the other way round."""
    whole = read(expected, is_german(expected))
    return any(are_exchanged(whole, read(text, is_german(text))) for _, text in answer)


def _find(
    components: Sequence[str], answer: Sequence[tuple[str, str]], question: str, embedder: Embedder
) -> list[dict[str, Any]]:
    texts = [text for _, text in answer]
    vectors = embed_texts(embedder, [*components, *texts])

    def likeness(one: str, other: str) -> float:
        words = embed_texts(embedder, [one, other])
        return float(words[one] @ words[other])

    found = []
    for component in components:
        stated = find_claim(texts, component, vectors, SAYS, question, likeness=likeness)
        held = stated
        if stated.place is None:
            held = find_claim(texts, component, vectors, HOLDS, question, likeness=likeness)
        by = "" if held.place is None else answer[held.place][0]
        denied = "" if held.contradicted_by is None else answer[held.contradicted_by][0]
        found.append(_component(component, by, certain=stated.place is not None, contradicted_by=denied))
    return found


def _component(text: str, by: str, *, certain: bool = True, contradicted_by: str = "") -> dict[str, Any]:
    found = {"text": text, "found": bool(by), "certain": bool(by) and certain, "by": by}
    return found | ({"contradicted_by": contradicted_by} if contradicted_by else {})


def _adds_item(components: Sequence[str], text: str, question: str) -> bool:
    """Whether a sentence enumerates two of the components and, among them, something else in a word or two."""
    known = content_words(" ".join((*components, question)))
    parts = [part.strip(" .:") for part in ITEMS.split(text)]
    held = [
        index
        for index, part in enumerate(parts)
        if any(
            share_held(content_words(each), content_words(part)) > 0.5
            for each in components
            if len(content_words(each)) <= ITEM_WORDS_MAX
        )
    ]
    if len(held) < 2:
        return _joins_another(components, text, known)
    goes_on = len(parts[held[-1]].split()) <= ITEM_WORDS_MAX  # a long last item ends the list
    near = parts[max(0, held[0] - 1) : held[-1] + 1 + goes_on]
    return any(
        0 < len(words) <= ADDED_WORDS_MAX and not share_held(words, known)
        for words in (read(part).words for part in near if len(part.split()) <= ITEM_WORDS_MAX)
    )


def _joins_another(components: Sequence[str], text: str, known: Sequence[str]) -> bool:
    """Whether a word or two of something else are joined to what the answer has of the components: "A and C"."""
    asked = content_words(" ".join(components))
    if len(ITEMS.split(text)) <= sum(len(ITEMS.split(each)) for each in components):
        return False
    for match in JOINS.finditer(text):
        sides = text[: match.start()].split(",")[-1], text[match.end() :].split(",")[0]
        words = [read(side).words for side in sides]
        if any(len(side.split()) > ITEM_WORDS_MAX for side in sides) or not all(words):
            continue
        shares = sorted(share_held(each, known) for each in words)
        if shares[0] == 0 and any(share_held(each, asked) == 1 for each in words):
            return True
    return False


def _summed(
    components: list[dict[str, Any]], usage: Mapping[str, Any] | None = None, *, adds: bool = False
) -> Correctness:
    held = sum(1.0 if item["certain"] else LIKELY for item in components if item["found"])
    share = held / len(components)
    if adds or any("contradicted_by" in item for item in components):
        share = min(share, CONTRADICTED)
    return Correctness(scored(share), components, usage or {})
