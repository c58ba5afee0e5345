"""How far each sentence of the sources answers a question, and whether any of them does.

What is measured needs no model: the question's words by their rarity in what was found, in the sentence, around it and
in its passage; the kind of answer that is asked for (a number, a date, a person, a reason) against what the sentence
holds; names. Where the bundled encoder reads the language, it counts too how near the tokens of a sentence come to each
token of the question. Two linear models weigh it, one for the order of the sentences and one for the certainty, each
without and with the encoder; words and weights stand in `quoting.toml`.
`python -m benchmarks.bench_answering --fit` fits the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import regex

from ragd.types import Candidate
from retrieval_app.answers.question import (
    DEFINITION,
    EXACT,
    MEASURES,
    MODEL,
    NO,
    NOT,
    NUMBER,
    SUFFIX,
    WORD,
    YES,
    Matcher,
    Question,
    content_words,
    find_expression,
    find_names,
    fold,
)

ORDER = ("words", "known_words", "around", "passage", "rank", "kind", "length", "new_words", "relative", "aligned",
         "hardest")  # fmt: skip
CERTAINTY = ("passage", "best_passage", "absent", "score", "lead", "lacks_kind", "has_kind", "names", "has_names",
             "length", "words", "rarest", "rank", "new_words", "aligned", "hardest", "passage_aligned",
             "passage_hardest", "passage_least")  # fmt: skip
VALUE_CERTAINTY = 0.5  # of "The door code is 4711."
HARDEST_SHARE = 3  # of a question's tokens: the third that a text matches least
HEADING_SHARE = 0.7  # what a heading's word counts for the sentences behind the first
NEITHER = 3.0  # how far a sentence that names neither of two things falls behind
OTHER_KEY = 20.0  # more than any two scores differ by
LACKING = 0.4  # of a certainty where a key of the question stands nowhere
UNHEARD = 0.3  # of a certainty where a word of the question stands nowhere, nor anything near to it
NEAR_COSINE = 0.31  # of the nearest token of any sentence to those of such a word
_GROUPS = regex.compile(r"(?<=\d)[.,'\u2019](?=\d{3}(?!\d))")  # 1,200 and 1.200 are 1200
# "9 p.m." is "21:00"
_CLOCK = regex.compile(r"\d{1,2}:\d\d|\d{1,2}(?:\.\d\d)?(?=\s?(?:[ap]\.?m\b|uhr\b))", regex.IGNORECASE)
_YEAR = regex.compile(r"(?<!\d)(?:1\d{3}|20\d{2}|[5-9]\d\d)(?!\d)|\d[年月]")
_EXACT_WORDS = frozenset(MODEL["exact_words"]["words"].split())
_GIVEN = {"frequency": "repeated", "reason": "because"}
_CODE = regex.compile(r"`[^`\n]*`|```|~~~|\*[^*\n]+\*.*\*[^*\n]+\*|^\p{L}+ \*")
_BOLD = regex.compile(r"\*\*([^*\n]+)\*\*")
_FORMULA = regex.compile(r"[\p{L}\p{N})]\s(?:[≈+*/×÷·^−]|=\s[\p{L}√Σ∑(])|[√Σ∑^]\s?[\p{L}\p{N}(]")  # not: k = 60
QUESTION_MARKS = ("?", "\uff1f", "\u061f")
KEY = r"[^\W\d_][^\n:|.!?]{0,40}"
KEY_LINE = regex.compile(rf"^[ \t]*({KEY}):[ \t]+(?=\S)", regex.MULTILINE)  # "Weight: 38 kg"
_ENUMERATION = regex.compile(r"(?:[^,;،、]{2,}[,;،、]){2}")
_NUMBERED = regex.compile(r"\b(\p{L}{3,}) (\d[\d.,]*)")
BRACKETED = regex.compile(r"\([^()]*\)")  # "Rare (up to 1 in 1,000): ..."
HEADED = frozenset(MODEL["headed"]["words"].split())
_MARKS = regex.compile(r"[\W_]+")
_NUMERAL = regex.compile(rf"\b(?:{fold(MODEL['numeral']['words'])})\b|{MODEL['numeral']['unspaced']}")


@dataclass(frozen=True, slots=True)
class Sentence:
    """content[start:end] of sources[source]. heading: above it, "" without one; opens: it is the first below that.

    columns: of a row of a table, the names of its columns. read_as: each of its cells behind the name of its column,
    which is what is read of it. mark: before an item of a list. score: see `Weighing.scores`; 0.0 until it is weighed.
    """

    source: int
    start: int
    end: int
    text: str
    heading: str = ""
    opens: bool = False
    read_as: str = ""
    columns: tuple[str, ...] | None = None
    score: float = 0.0
    mark: str = ""

    @property
    def is_row(self) -> bool:
        """Whether it is a row of a table, which no other row says more about."""
        return bool(self.read_as)

    @property
    def said(self) -> str:
        return self.read_as or self.text

    @property
    def first_cell(self) -> str:
        """Of a row."""
        return self.said.partition("; ")[0].rpartition(": ")[2]

    @property
    def headed(self) -> str:
        return f"{self.heading}: {self.said}" if self.opens and self.heading else self.said


class Weighing:
    """The question against the sentences of the sources, in their order. order: one row of ORDER per sentence."""

    def __init__(self, question: Question, sources: Sequence[Candidate], places: Sequence[Sentence]) -> None:
        self.question, self.sources, self.places = question, sources, places
        self.tokens: dict[int, np.ndarray] = {}
        self.kind = "words"  # which weights count: see `with_meaning`
        self.spans: Sequence[tuple[int, int]] = ()
        language = question.language
        self._keys = [index for index, word in enumerate(question.words) if any(map(str.isnumeric, word))]
        asks = language if question.kind in ("number", "price", "weight") else ""
        self._matcher = matcher = Matcher(question.words, question.either, asks, language == "de")
        own = [content_words(place.said, language) for place in places]
        self._held = _stack([matcher.match(words) for words in own], len(question.words))
        texts = [content_words(source.text, language) for source in sources]
        self._passages = _stack([matcher.match(words) for words in texts], len(question.words))
        holding = (self._held > 0).sum(axis=0)
        self._rarity = np.log(1 + (len(places) + 0.5) / (holding + 0.5)) * matcher.share(self._held)
        total = float(self._rarity.sum()) or 1.0
        known = self._rarity * (self._passages > 0).any(axis=0)
        self._absent = 1 - float(known.sum()) / total if question.words else 0.0
        self._by_passage = self._passages @ self._rarity / total
        words = self._held @ self._rarity / total
        known_words = self._held @ known / (float(known.sum()) or 1.0)
        self._headings = {place.heading: matcher.match(content_words(place.heading, language)) for place in places}
        whose = self._whose()
        self._of_whom: list[float] = []  # how many of these words each sentence is about
        self._titles = [matcher.match(content_words(_title(source), language)) for source in sources]
        rows = []
        for index, place in enumerate(places):
            share = 1.0 if place.opens else HEADING_SHARE
            around = np.maximum(self._held[index], share * self._headings[place.heading])
            alone = around if whose and find_names(place.said, language) else None  # it says itself whose
            if index and places[index - 1].source == place.source and not place.is_row:
                around = np.maximum(around, self._held[index - 1])
            if whose and _points_back(place.said, language):
                before = content_words(sources[place.source].content[: place.start], language)
                alone = np.maximum.reduce([around, self._titles[place.source], matcher.match(before)])
            if question.kind == "purpose" and not _points_back(place.said, language):
                alone = self._held[index]  # many a thing is used for something
            own_words = np.maximum(around, self._titles[place.source]) if alone is None else alone
            self._of_whom.append(float((own_words[whose] > 0).sum()))
            of_another = bool(whose) and not self._of_whom[-1]
            rows.append(
                (
                    words[index], known_words[index], float(around @ self._rarity / total - words[index]),
                    self._by_passage[place.source], 0.5 ** (place.source / 3), self._offer(place) * (not of_another),
                    math.log(1 + len(own[index])), math.log(1 + len(set(own[index]).difference(question.words))),
                    words[index] / (float(words.max()) or 1.0),
                )
            )  # fmt: skip
        asking = np.array([place.text.endswith(QUESTION_MARKS) for place in places], float)
        self.order = np.hstack([np.array(rows).reshape(len(places), len(ORDER) - 2), np.zeros((len(places), 2))])
        self._timeless, self._named_values = self._say_no_time(), self._hold_named_value()
        about = [(self._held[index] + self._headings[place.heading]).any() for index, place in enumerate(places)]
        timed = ((self._timeless == 0) & np.array(about, bool)).any() * self._timeless
        beside = self._named_values.any() * (1 - self._named_values)
        near = self._name_neither() + self._miss_focus() + self._hold_none() + self._below_others() + asking
        near += 2 * self._miss_own()
        far = [self._of_other_keys(), self._beside_cell(), self._beside_key(), self._not_exact(), timed, beside]
        self._behind = NEITHER * near + OTHER_KEY * np.maximum.reduce(far) * (1 - self._named_values)

    def with_meaning(
        self, tokens: Mapping[int, np.ndarray], kind: str = "meaning", spans: Sequence[tuple[int, int]] = ()
    ) -> Weighing:
        """The same with what an encoder says of some sentences, by index: for each token of the question its best
        cosine with one of theirs ("meaning"), or the cosine of both whole ("multilingual"). The others get the least
        of them. spans: where each of these tokens stands in the question."""
        weighing = copy(self)
        weighing.tokens, weighing.kind, weighing.spans = dict(tokens), kind, spans
        read = {index: _alignment(each) for index, each in tokens.items()}
        least = np.min(list(read.values()), axis=0)
        weighing.order = self.order.copy()
        weighing.order[:, -2:] = [read.get(index, least) for index in range(len(self.places))]
        return weighing

    def scores(self) -> np.ndarray:
        """One per sentence: higher is likelier to answer. What the encoder left out comes behind what it has read."""
        scores: np.ndarray = self.order @ np.array(MODEL["order"][self.kind]) - self._behind
        unread = [bool(self.tokens) and index not in self.tokens for index in range(len(self.places))]
        return scores - OTHER_KEY * np.array(unread, dtype=float)

    def _say_no_time(self) -> np.ndarray:
        """Of "When ...?" the sentences that say no time, neither by themselves nor by a heading with the question's
        key, such as a version; none in a language whose words for time are not listed. One that has all words of the
        question, two at least, counts little: it may say a time in words that are not listed."""
        moment = find_expression("moment", self.question.language) if self.question.kind == "date" else None
        keyed = {heading for heading, held in self._headings.items() if self._keys and (held[self._keys] > 0).all()}
        timeless = np.zeros(len(self.places))
        for index, place in enumerate(self.places):
            held = self._held[index]
            if index and _points_back(place.said, self.question.language):
                held = np.maximum(held, self._held[index - 1])
            has_all = len(held) > 1 and bool(held.all())
            said = fold(f"{place.heading} {place.said}" if has_all else place.said)
            if moment and place.heading not in keyed and not moment.search(said):
                timeless[index] = NEITHER / OTHER_KEY if has_all else 1.0
        return timeless

    def _hold_named_value(self) -> np.ndarray:
        """The rows of two cells and the lines of keys whose key the question names, by half of its words, and whose
        title, name or heading has the other words of the question: "How heavy is the EcoHeat 24?"."""
        language, named = self.question.language, np.zeros(len(self.places))
        if self.question.kind in ("reason", "way"):
            return named
        for index, place in enumerate(self.places):
            key = KEY_LINE.match(place.text) if not place.is_row else None
            cell = place.first_cell if len(place.columns or ()) == 2 else ""
            words = content_words(BRACKETED.sub("", key[1] if key else cell), language)
            held = self._matcher.match(words) > 0
            if words and 2 * held.sum() >= len(set(words)) and not held.all():
                around = np.maximum(self._titles[place.source], self._headings[place.heading])
                named[index] = (held | (around > 0)).all()
        return np.maximum(named, self._hold_named_cell()) if self.question.kind == "person" else named

    def _hold_named_cell(self) -> np.ndarray:
        """Of "Who ...?" the rows with a whole cell in the question, of which nothing is left but a word, such as
        "works": "Who works in Sales?"."""
        language, sizes = self.question.language, np.zeros(len(self.places))
        for index, place in enumerate(self.places):
            cells = [frozenset(content_words(each.rpartition(": ")[2], language)) for each in place.read_as.split("; ")]
            counts = [(int((self._matcher.match([*cell]) > 0).sum()), len(cell)) for cell in cells if cell]
            whole = [held for held, size in counts if held >= size and held >= len(self.question.words) - 1]
            sizes[index] = max(whole, default=0)
        sizes *= self.order[:, ORDER.index("kind")] > 0
        return np.asarray((sizes > 0) & (sizes == sizes.max(initial=1)), dtype=float)

    def _miss_focus(self) -> np.ndarray:
        """Of "What acid cleans it?" the sentences without acid, where one with it stands in a passage that holds every
        word of the question."""
        place = self._matcher.places.get(self.question.focus)
        if place is None or self.question.focus in HEADED:
            return np.zeros(len(self.places))
        whole: np.ndarray = np.all(self._passages > 0, axis=1)
        has = self._held[:, place] > 0
        lacking: np.ndarray = (has & whole[[each.source for each in self.places]]).any() * ~has
        return lacking.astype(float)

    def _name_neither(self) -> np.ndarray:
        """Which sentences name neither of two things that are asked about, nor point back to one that does, if any
        does."""
        if not self._matcher.either:
            return np.zeros(len(self.places))
        names_one = self._held[:, self._matcher.either[0]] > 0
        for index, (before, place) in enumerate(pairwise(self.places), 1):
            points = before.source == place.source and _points_back(place.said, self.question.language)
            names_one[index] |= points and names_one[index - 1]
        lacking: np.ndarray = names_one.any() * ~names_one
        return lacking.astype(float)

    def _hold_none(self) -> np.ndarray:
        """Which sentences hold no word of the question, where another holds all."""
        holds = self._held > 0
        none: np.ndarray = (~holds.any(axis=1)).astype(float)
        return none if holds.all(axis=1).any() else np.zeros(len(holds))

    def _miss_own(self) -> np.ndarray:
        """Which sentences hold only words of the topic, where another has one that the question adds to it."""
        own = [place for word, place in self._matcher.places.items() if word in self.question.own]
        has = np.asarray((self._held[:, own] > 0).any(axis=1))
        lacking: np.ndarray = has.any() * ~has
        return lacking.astype(float)

    def _whose(self) -> list[int]:
        """Of a question of an exact kind the words that say whose, by index, of which an answer has one; else []."""
        words, names = self.question.words, set(map(fold, self.question.names)) - _EXACT_WORDS
        if self.question.kind not in EXACT:
            return []
        own = [index for index, word in enumerate(words) if word in names]
        return own or [index for index, word in enumerate(words) if word not in _EXACT_WORDS]

    def _not_exact(self) -> np.ndarray:
        """Of a question of an exact kind all that gives no answer of it, if any does, or that of another person."""
        offers = self.order[:, ORDER.index("kind")] > 0
        if self.question.kind in ("birth", "death", "age") and offers.any():
            of_whom = np.array(self._of_whom)
            offers &= of_whom == of_whom[offers].max()
        return np.asarray((self.question.kind in EXACT and bool(offers.any())) * (1.0 - offers))

    def _beside_cell(self) -> np.ndarray:
        """All but the rows of which the question names the first cell, whole, and another column: "When does it close
        on Friday?"; none where there is no such row, nor of a question why or how."""
        if self.question.kind in ("reason", "way"):
            return np.zeros(len(self.places))
        language = self.question.language
        headers = {place.columns for place in self.places if place.columns}
        own = {each for each in headers if self._matcher.match(content_words(" ".join(each[1:]), language)).any()}
        is_meant = np.zeros(len(self.places))
        for index, place in enumerate(self.places):
            is_meant[index] = place.columns in own and self.is_of(place.first_cell)
        return np.asarray(is_meant.any() * (1 - is_meant))

    def _below_others(self) -> np.ndarray:
        """What stands below another heading than that with a number of the question, such as a version or a year, and
        does not hold the number itself."""
        behind = np.zeros(len(self.places))
        for number in {name for name in self.question.names if len(name) > 1 and name[0].isdigit()}:
            if any(whole(number).search(place.heading) for place in self.places):
                lacks = [not whole(number).search(f"{place.heading}\n{place.said}") for place in self.places]
                behind = np.maximum(behind, np.array(lacks, float))
        return behind

    def _beside_key(self) -> np.ndarray:
        """The items behind other keys, where the question names the heading of a list and one key of it, whole: "What
        does a yellow light mean?" of "Yellow: ...", "Red: ..." below "Lights"."""
        keys: dict[tuple[int, str], dict[int, bool]] = {}
        for index, place in enumerate(self.places):
            found = KEY_LINE.match(place.text)
            if found and not place.is_row and self._headings[place.heading].any():
                keys.setdefault((place.source, place.heading), {})[index] = self.is_of(found[1])
        behind = np.zeros(len(self.places))
        for items in keys.values():
            if any(items.values()):
                behind[[index for index, is_named in items.items() if not is_named]] = 1.0
        return behind

    def _of_other_keys(self) -> np.ndarray:
        """Which rows lack a key or number of the question that another row holds. To an encoder keys look alike."""
        rows = np.array([place.is_row for place in self.places], bool)
        if not self._keys or not rows.any():
            return np.zeros(len(rows))
        held = self._held[:, self._keys]
        lacking: np.ndarray = rows & (held < held[rows].max(axis=0)).any(axis=1)
        return lacking.astype(float)

    def certainty(self) -> float:
        """0 to 1: how sure it is that one of the sentences answers. 0.0 without sentences, where no passage has a word
        of the question, and of a question of an exact kind where none gives it."""
        is_exact = self.question.kind in EXACT and self.question.kind != "purpose"  # which is said in many ways
        if not self.places or self._absent == 1 or (is_exact and not self.order[:, ORDER.index("kind")].any()):
            return 0.0
        best = int(np.argmax(self.scores()))
        if self._timeless[best] == 1:
            return 0.0
        model = MODEL["certainty"][self.kind]
        value = 1 / (1 + math.exp(-float(self.features() @ np.array(model["weights"])) - model["intercept"]))
        lacks_key = self.lacks_key()
        value *= LACKING**lacks_key
        value *= UNHEARD ** (not self._gives_value(best, least=1) and self._has_unheard())
        is_certain = (
            (not lacks_key and (self._gives_value(best) or self._says_of_whom(best)))
            or self._is_keyed_row(best)
            or bool(self._named_values[best])
        )
        return max(value, VALUE_CERTAINTY) if is_certain else value

    def _has_unheard(self) -> bool:
        """Whether a word of the question stands in no passage, and none of the tokens that were read is near to it:
        "library" of "When does the library open?" where there is but a café."""
        nearest = np.max(list(self.tokens.values()), axis=0) if self.spans else np.zeros(0)
        for word in WORD.finditer(self.question.text if len(nearest) else ""):
            own = {*content_words(word[0], self.question.language)} - self.question.either
            places = [place for each, place in self._matcher.places.items() if each in own]
            known = self._passages[:, places].any() or any(held[places].any() for held in self._titles)
            within = zip(self.spans, nearest, strict=False)
            near = [cosine for (start, end), cosine in within if start < word.end() and end > word.start()]
            if places and not known and near and np.mean(near) < NEAR_COSINE:
                return True
        return False

    def lacks_key(self) -> int:
        """1 where no source holds a number or key of the question, or that of which it asks how many; 2 where it is
        another number of the same thing; else 0."""
        texts = " ".join(f"{source.context} {source.content}" for source in self.sources)
        texts, asked = (_GROUPS.sub("", each) for each in (texts, _CLOCK.sub(" ", self.question.text)))
        spelled: Mapping[str, str] = MODEL["numeral"]["spelled"]
        numbers = {each.rstrip(".,") for each in NUMBER.findall(asked)}
        absent = [each for each in numbers if each not in texts]
        if any(not regex.search(spelled.get(each, "(?!)"), fold(texts)) for each in absent):
            return 1 + any(HEADED.issuperset(content_words(each[1], "")) for each in _NUMBERED.finditer(asked))
        if any(self._numbers_another(texts, *each.groups()) for each in _NUMBERED.finditer(asked)):
            return 2
        is_counted = self.question.asks == "count" and self.question.language in MEASURES  # others bend their nouns
        focus = self._matcher.places.get(self.question.focus) if is_counted else None
        return int(focus is not None and not self._passages[:, focus].any())

    def _numbers_another(self, texts: str, word: str, number: str) -> bool:
        """Whether the texts have the word beside other numbers alone, as "locker 17" of "locker 24". A version or
        a year may stand without it."""
        words, number = content_words(word, self.question.language), number.rstrip(".,")
        if not words or words[0] in HEADED or _YEAR.fullmatch(number):
            return False
        beside = rf"\b{regex.escape(word)}\W{{1,3}}(\d[\d.,]*)|(\d[\d.,]*)\W{{1,3}}{regex.escape(word)}\b"
        numbers = [
            each.rstrip(".,") for pair in regex.findall(beside, texts, regex.IGNORECASE) for each in pair if each
        ]
        return bool(numbers) and number not in numbers

    def titled(self) -> tuple[set[str], list[int]]:
        """The words of the question that a title or the headings above a passage have in the same form, and the sources
        of which these have most of them, by index; no words where none has any or one has all."""
        titles = _stack(self._titles, len(self.question.words)) == 1
        counts = titles.sum(axis=1)
        sources = np.flatnonzero(counts == counts.max(initial=1)).tolist()
        named = np.asarray(titles[sources].any(axis=0))
        words = {word for word, is_named in zip(self.question.words, named, strict=True) if is_named}
        return (set(), []) if named.all() else (words, sources)

    def holds_any(self, index: int, words: Sequence[str]) -> bool:
        """Whether a sentence holds one of some words of the question."""
        places = [place for word, place in self._matcher.places.items() if word in words]
        return bool((self._held[index, places] > 0).any())

    def count_words(self, index: int) -> int:
        """How many words of the question a sentence holds."""
        return int((self._held[index] > 0).sum())

    def says_more(self, index: int) -> bool:
        """Whether a sentence says two words at least that the question has not."""
        return bool(self.order[index, ORDER.index("new_words")] > 1)

    def goes_on(self, index: int) -> bool:
        """Whether the sentence behind it in its passage holds all words of the question that it lacks, one at least, or
        one of them that no other holds."""
        if index + 1 == len(self.places) or self.places[index + 1].source != self.places[index].source:
            return False
        lacks, adds = self._held[index] == 0, self._held[index + 1] > 0
        alone = (self._held > 0).sum(axis=0) == 1
        return bool((lacks & adds & alone).any() or (lacks.any() and adds[lacks].all()))

    def names_all(self, text: str) -> bool:
        """Whether it holds every word of the question."""
        return bool((self._matcher.match(content_words(text, self.question.language)) > 0).all())

    def gives_all(self, index: int) -> bool:
        """Whether a sentence, no row, holds each word of the question and what it asks for: things or a number."""
        place = self.places[index]
        answer = _ENUMERATION.search(place.said) if self.question.asks == "list" else self._offer(place)
        return bool(answer) and not place.is_row and self.names_all(place.said)

    def asks_for_a_cell(self, index: int) -> bool:
        """Whether the question has the whole first cell of a row, and another word of a cell with a number, or of its
        column's name."""
        place, language = self.places[index], self.question.language
        cells = place.read_as.split("; ")[1:] if place.is_row and self.is_of(place.first_cell) else []
        first = self._matcher.match(content_words(place.first_cell, language)) > 0
        words = (content_words(cell, language) for cell in cells if NUMBER.search(cell.rpartition(": ")[2]))
        return any((self._matcher.match(each) > 0)[~first].any() for each in words)

    def pick(self, rows: Sequence[Sentence]) -> list[Sentence] | None:
        """The rows of a table with the value that is asked for in a column that the question names: "yes" where that
        says whether ("Which groups are allowed?"), or one in the question; the others of a question with "not". None
        where it names no such column."""
        asked = _forms(self.question.text)
        cells = [dict(map(_split_cell, row.read_as.split("; "))) for row in rows]
        for name in (rows[0].columns or ())[1:]:
            values = [fold(row.get(name, "")).strip() for row in cells]
            says_whether = YES.union(NO).issuperset(values)
            is_meant = [value in YES if says_whether else self.is_of(value) for value in values]
            if _forms(name) <= asked and (says_whether or any(is_meant)):
                return [row for row, meant in zip(rows, is_meant, strict=True) if meant == NOT.isdisjoint(asked)]
        return None

    def is_named(self, lead: str, text: str) -> bool:
        """Whether the lead of a list holds the first word of the question, and that or the text above the others."""
        above, around = (self._matcher.match(content_words(each, self.question.language)) > 0 for each in (lead, text))
        return bool(above[:1].all() and len(above) and (above | around).all())

    def is_headed(self, index: int) -> bool:
        """Whether the heading above a sentence gives what is asked for: the version, the section, the person, or a date
        that the sentence lacks."""
        place, moment = self.places[index], find_expression("moment", self.question.language)
        if self.question.kind == "date":
            numbers = [name for name in self.question.names if name[0].isdigit()]
            is_keyed = bool(numbers) and all(whole(number).search(place.heading) for number in numbers)
            is_said = bool(moment and moment.search(fold(place.said))) and not is_keyed
            return bool(moment and moment.search(fold(place.heading))) and not is_said
        return self._names_somebody(place) or (bool(place.heading) and self.question.focus in HEADED)

    def _names_somebody(self, place: Sentence) -> bool:
        """Whether the heading is the name, unknown to the question, of whom a sentence without a name speaks."""
        pronoun, language = find_expression("somebody", self.question.language), self.question.language
        names = find_names(f": a {place.heading}", language)
        said = [name for name in find_names(place.said, language) if name not in self.question.text]
        if pronoun is None or len(names) < 2 or said:
            return False
        is_meant = self.question.kind == "person" or bool(pronoun.match(fold(place.said)))
        is_new = not any(name in self.question.text for name in names)
        return is_meant and is_new and bool(pronoun.search(fold(self.sources[place.source].content)))

    def is_of(self, name: str) -> bool:
        """Whether the question has every word of a heading, key or cell."""
        words = content_words(name, self.question.language)
        return bool(words) and bool((self._matcher.match(words) > 0).sum() >= len(set(words)))

    def _is_keyed_row(self, index: int) -> bool:
        """Whether it is a row with all keys and numbers of the question, and its passage has the other words, or all
        but one where its first cell is the key."""
        place = self.places[index]
        first = {*content_words(place.first_cell, self.question.language)}
        keys = {self.question.words[each] for each in self._keys}
        may_lack = bool(keys) and keys <= first <= {*self.question.words}
        has_keys = place.is_row and bool(keys) and bool((self._held[index, self._keys] > 0).all())
        return has_keys and int((self._passages[place.source] == 0).sum()) <= may_lack

    def _gives_value(self, index: int, *, least: int = 2) -> bool:
        """Whether a sentence says only words of the question, so many at least, and a number or key that is new."""
        words = content_words(self.places[index].said, self.question.language)
        new = [word for word in words if not self._matcher.match([word]).any()]
        return len(words) - len(new) >= least and bool(new) and all(any(map(str.isnumeric, word)) for word in new)

    def _says_of_whom(self, index: int) -> bool:
        """Whether a sentence gives an answer of an exact kind with all words that say whose it is."""
        kind = self.question.kind
        if kind not in EXACT or kind in ("purpose", "age") or not self._offer(self.places[index]):
            return False
        whose = [place for place, word in enumerate(self.question.words) if word not in _EXACT_WORDS]
        whose = self._whose() if kind in ("birth", "death") else whose
        return bool(whose) and bool((self._held[index, whose] > 0).all())

    def features(self) -> np.ndarray:
        """CERTAINTY, of the sentence with the highest score."""
        scores, question = self.scores(), self.question
        best = int(np.argmax(scores))
        source = self.places[best].source
        beside = [index for index, other in enumerate(self.places) if other.source == source]
        rarest = np.argsort(-self._rarity, kind="stable")[: max(1, len(self._rarity) // 3)]
        near = np.array([self.tokens[index] for index in beside if index in self.tokens])
        tokens = near.max(axis=0) if near.size else np.zeros(0)
        return np.array(
            (
                self._by_passage[source], self._by_passage.max(), self._absent, scores[best],
                1 / float(np.exp(scores - scores[best]).sum()),
                bool(question.kind) and not self.order[beside, ORDER.index("kind")].any(),
                bool(question.kind), self._named(self.sources[source].text), bool(question.names),
                math.log(1 + len(question.words)), self.order[:, 0].max(),
                float(self._passages[source, rarest].mean()) if question.words else 0.0,
                self.order[best, ORDER.index("rank")], self.order[best, ORDER.index("new_words")],
                *self.order[best, -2:], *_alignment(tokens), tokens.min(initial=1.0) if near.size else 0.0,
            ),
            dtype=float,
        )  # fmt: skip

    def _named(self, text: str) -> float:
        """The share of the question's names and numbers that the text holds; 1.0 where it has none."""
        names = self.question.names
        return sum(name[: max(4, int(len(name) * 0.7))] in text for name in names) / len(names) if names else 1.0

    def _offer(self, place: Sentence) -> float:
        """0 to 1: how far the sentence holds the kind of answer that is asked for; 0 where no kind is. 2 for a formula:
        seldom does anything else answer that."""
        kind, asked, text = self.question.kind, self.question.text, place.said
        if kind == "number":
            numbers = [number for number in NUMBER.findall(text) if number not in asked]
            if any(not _YEAR.fullmatch(number) for number in numbers):
                return 1.0
            return 0.7 if _NUMERAL.search(fold(text)) else 0.3 if numbers else 0.0
        if kind == "date":
            is_new = any(year[0] not in asked for year in _YEAR.finditer(text))
            return 1.0 if is_new else 0.5 * bool(NUMBER.search(text))
        if kind == "person":
            return float(any(name not in asked for name in find_names(text, self.question.language)))
        if kind == "way":
            return 0.5 * bool(_CODE.search(text))  # many a sentence holds one
        if kind in EXACT:
            return float(bool(EXACT[kind].search(fold(text.replace("_", " ")))))
        if kind == "formula":
            return 2.0 * bool(_FORMULA.search(text))
        if kind == "definition":
            return float(self._defines(place))
        answer = find_expression(_GIVEN[kind], self.question.language) if kind in _GIVEN else None
        return float(bool(answer and answer.search(fold(text))))

    def _defines(self, place: Sentence) -> bool:
        """Whether it begins with what is asked for and at most a word more, in bold, as a first cell or before "is"."""
        bold = _BOLD.match(place.said)
        given = bold or DEFINITION[self.question.language][1].match(fold(place.said))
        term = given[1] if given else ""
        if place.is_row:
            term = place.first_cell
        words = content_words(term, self.question.language)
        return len(words) <= len(self.question.words) + 1 and bool((self._matcher.match(words) > 0).all())


@lru_cache(maxsize=64)
def whole(number: str) -> regex.Pattern[str]:
    """Finds a number that is no part of another."""
    return regex.compile(rf"(?<![\d.,]){regex.escape(number)}(?![.,]?\d)")


def _forms(text: str) -> set[str]:
    """All of its words without endings, folded, those too that say nothing alone, such as "allowed"."""
    return {SUFFIX.sub("", word) for word in WORD.findall(fold(text))}


def _split_cell(cell: str) -> tuple[str, str]:
    name, _, value = cell.partition(": ")
    return name, value


def _title(source: Candidate) -> str:
    """What a document is called, and the headings above a passage."""
    return f"{source.context} {_MARKS.sub(' ', source.doc_id)}"


def _points_back(text: str, language: str) -> bool:
    """Whether it begins with a pronoun of what was named before."""
    pronoun = find_expression("leans", language)
    return bool(pronoun and pronoun.match(fold(text)))


def _alignment(tokens: np.ndarray) -> tuple[float, float]:
    """The mean over a question's tokens, and that over the third that is matched least; 0.0 without any."""
    least = np.sort(tokens)[: max(1, len(tokens) // HARDEST_SHARE)]
    return (float(tokens.mean()), float(least.mean())) if len(tokens) else (0.0, 0.0)


def _stack(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    return np.array(rows).reshape(len(rows), width)
