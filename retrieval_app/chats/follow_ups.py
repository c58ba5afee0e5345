"""Follow-up questions made whole by rules, without a model: what they leave to the history is carried over.

German and English; the same question and history give the same text. docs/chat.md states the rules in words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from retrieval_app.chats.follow_up_words import ENGLISH, GERMAN, Language, words

Rule = Literal["", "ellipsis", "swap", "pronoun", "reference"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One earlier message: the question as it was searched for, whole in itself, and its answer, "" for none."""

    query: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """query: what is searched for. rule: why it differs from the question, "" where it does not. carried: what came
    from the history."""

    query: str
    rule: Rule = ""
    carried: str = ""


TOKEN = re.compile(r"[^\W_][\w.+#/-]*[^\W_]|[^\W_]|[,;:?!.]")
ENDS = frozenset(",;:?!.")
QUESTION_CHARS_MAX = 400  # a longer one names its topic
SWAPPED_WORDS_MAX = 6
ALSO = re.compile(r"(?:also|auch)\b", re.IGNORECASE)
TOO = re.compile(r"[\s,]*\b(?:too|as well|auch)\Z", re.IGNORECASE)
PARTICIPLE = re.compile(r"(?:ed|en)\Z")
ADJECTIVE = re.compile(r"(?:e|en|er|es|em)\Z")
DEFINITE = frozenset(("the", "der", "die", "das", "den"))
SAME_PREPOSITIONS = {"im": "in", "ins": "in", "am": "an", "beim": "bei", "vom": "von", "zum": "zu", "zur": "zu"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, text[start:end]; low in lower case."""

    text: str
    start: int
    end: int

    @property
    def low(self) -> str:
        return self.text.casefold()

    @property
    def is_mark(self) -> bool:
        return self.text in ENDS

    @property
    def is_name(self) -> bool:
        """Capitalised, or with a figure or a second capital: a name or a term by its form."""
        return self.text[0].isupper() or any(char.isdigit() for char in self.text) or not self.text[1:].islower()


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase text[start:end] of a question, without its article, which begins at `outer`.

    preposition: the one before it, "" for none; `outermost` is where that begins. joined: it belongs to the phrase
    before it, as in "capital of Norway".
    """

    text: str
    start: int
    end: int
    outer: int
    outermost: int
    preposition: str
    is_name: bool
    joined: bool


def rewrite(question: str, history: Sequence[Turn]) -> Rewritten:
    """The question whole in itself. history: the earlier turns in order; only what it leans on is taken from them.

    Unchanged without a history, in other languages, and where it names its own topic. So are empty and long ones.
    """
    text = question.strip()
    language = _language_of(f"{text} {history[-1].query}") if history else None
    if language is None or not text or len(text) > QUESTION_CHARS_MAX:
        return Rewritten(text)
    last = history[-1]
    opener = language.openers.match(text)
    rest = text[opener.end() :] if opener else text
    swapped = _swap(rest, last, language, opener[0] if opener else "")
    if swapped is not None:
        return swapped
    tokens = read_words(text)
    pronoun = _find_pronoun(text, tokens, language)
    if pronoun is not None:
        return _resolve(text, tokens, pronoun, last, language)
    if not any(_is_content(token, language) for token in tokens) or (opener and not _has_verb(tokens, language)):
        return _append(text, last.query, "ellipsis")
    return Rewritten(text)


def read_words(text: str) -> list[Word]:
    """Words and marks in order."""
    return [Word(match[0], match.start(), match.end()) for match in TOKEN.finditer(text)]


def find_phrases(text: str, language: Language) -> list[Phrase]:
    """The noun phrases of a question in order, as far as its form tells them."""
    tokens = read_words(text)
    runs: list[list[int]] = []
    for number, token in enumerate(tokens):
        if not _is_topic(tokens, number, language):
            continue
        before = runs[-1][-1] if runs else None
        starts_name = token.is_name and not tokens[number - 1].is_name and not language.capitals_are_nouns
        if before == number - 1 and not starts_name:
            runs[-1].append(number)
        else:
            runs.append([number])
    if not language.capitals_are_nouns:
        runs = [kept for run in runs if (kept := _without_verb(tokens, run, language))]
    return [_phrase(text, tokens, run, language) for run in runs]


def _is_topic(tokens: Sequence[Word], number: int, language: Language) -> bool:
    token = tokens[number]
    if not _is_content(token, language):
        return False
    if not language.capitals_are_nouns:
        return True
    if token.is_name:
        return number > 0 or len(tokens) < 3 or not tokens[1].low.islower()
    following = tokens[number + 1] if number + 1 < len(tokens) else None
    return bool(ADJECTIVE.search(token.low) and following and following.is_name and not following.is_mark and number)


def _without_verb(tokens: Sequence[Word], run: list[int], language: Language) -> list[int]:
    """An English run without the verb that stands at its end or beginning."""
    first, last = tokens[run[0]], tokens[run[-1]]
    before = tokens[run[0] - 1].low if run[0] else ""
    preceding = {token.low for token in tokens[: run[0]]}
    is_asked = bool(preceding & (language.auxiliaries - words("is are was were be been being has have had")))
    is_passive = bool(preceding & words("is are was were be been being get gets has have had"))
    if len(run) > 1 and not last.is_name:
        if is_passive and PARTICIPLE.search(last.low):
            return run[:-1]
        governs = before in language.auxiliaries or before in language.articles
        if is_asked and governs and run[0] < 5 and not any(tokens[each].low in language.auxiliaries for each in run):
            return run[:-1]
    if len(run) == 1 and not last.is_name and PARTICIPLE.search(last.low) and before in language.question_words:
        return []
    if first.low.endswith("ed") and before in language.question_words:
        return run[1:]
    return run


def _phrase(text: str, tokens: Sequence[Word], run: Sequence[int], language: Language) -> Phrase:
    start, end = tokens[run[0]].start, tokens[run[-1]].end
    first = run[0]
    outer = start
    has_article = first > 0 and tokens[first - 1].low in language.articles
    if has_article:
        first -= 1
        outer = tokens[first].start
    before = tokens[first - 1].low if first > 0 else ""
    preposition = before if before in language.prepositions else ""
    outermost = tokens[first - 1].start if preposition else outer
    genitive = has_article and tokens[first].low in language.joining and first > 0 and tokens[first - 1].is_name
    joined = before in language.joining or (genitive and language.capitals_are_nouns and first > 1)
    is_name = any(tokens[each].is_name for each in run)
    return Phrase(text[start:end], start, end, outer, outermost, preposition, is_name, joined)


def _is_content(token: Word, language: Language) -> bool:
    """Whether the word may be a topic."""
    if token.is_mark:
        return False
    known = (
        language.articles, language.prepositions, language.question_words, language.auxiliaries, language.glue,
        language.replaced, language.possessives, language.pointing, language.demonstratives,
    )  # fmt: skip
    if any(token.low in each for each in known):
        return False
    return token.low not in language.verbs or (token.is_name and token.start > 0)


def _has_verb(tokens: Sequence[Word], language: Language) -> bool:
    lows = {token.low for token in tokens}
    return bool(lows & (language.auxiliaries | language.verbs | language.question_words)) or (
        language.capitals_are_nouns
        and any(not token.is_name and _is_content(token, language) and not token.is_mark for token in tokens)
    )


def _language_of(text: str) -> Language | None:
    """By the words that only one of them has; None where neither is written."""
    lows = {token.low for token in read_words(text)}
    german = len(lows & _function_words(GERMAN)) + len(re.findall("[äöüß]", text.casefold()))
    english = len(lows & _function_words(ENGLISH))
    if not german and not english:
        return None
    return GERMAN if german > english else ENGLISH


def _function_words(language: Language) -> frozenset[str]:
    shared = words("in an am was die also her so man will hat war name arm bin")
    return (
        language.articles | language.prepositions | language.question_words | language.auxiliaries | language.glue
        | language.pointing | language.demonstratives | language.replaced
    ) - shared  # fmt: skip


def _swap(rest: str, last: Turn, language: Language, opener: str) -> Rewritten | None:
    """ "What about spans?": the earlier question with another topic, or with one more."""
    asked = rest.rstrip(" ?!.")
    also = bool(ALSO.match(opener) or TOO.search(asked))
    asked = TOO.sub("", asked)
    tokens = read_words(asked)
    leads = bool(tokens) and tokens[0].low in language.prepositions
    if not (opener or also or leads) or len(tokens) > SWAPPED_WORDS_MAX or _has_verb(tokens, language):
        return None
    if not any(_is_content(token, language) for token in tokens):
        return None
    phrases = find_phrases(last.query, language)
    chosen = None if also else _swapped_phrase(tokens, phrases, language)
    stem = last.query.rstrip(" ?!.")
    if chosen is None:
        return Rewritten(f"{stem} {asked}?", "swap", stem)
    start = chosen.outermost if leads else chosen.outer
    return Rewritten(f"{last.query[:start]}{asked}{last.query[chosen.end :]}", "swap", stem)


def _swapped_phrase(tokens: Sequence[Word], phrases: Sequence[Phrase], language: Language) -> Phrase | None:
    first = tokens[0].low
    if first in language.prepositions:
        same = [each for each in phrases if _plain(each.preposition) == _plain(first)]
        other = [each for each in phrases if each.preposition and not each.joined]
        return same[-1] if same else other[-1] if len(other) == 1 else None
    head = tokens[-1].low
    alike = [each for each in phrases if each.text.casefold().split()[-1] == head]
    return alike[-1] if alike else phrases[-1] if phrases else None


def _plain(preposition: str) -> str:
    return SAME_PREPOSITIONS.get(preposition, preposition)


def _find_pronoun(text: str, tokens: Sequence[Word], language: Language) -> int | None:
    """The number of the first pronoun that points out of the question."""
    idle = [match.span() for match in language.expletives.finditer(text)]
    for number, token in enumerate(tokens):
        if any(start <= token.start < end for start, end in idle):
            continue
        before = tokens[number - 1] if number else None
        following = tokens[number + 1] if number + 1 < len(tokens) else None
        if language.capitals_are_nouns and token.text[0].isupper() and number:
            continue  # the polite form
        if token.low in language.replaced | language.possessives:
            if any(
                _is_topic(tokens, each, language) and tokens[each].low not in language.verbs for each in range(number)
            ):
                if tokens[0].low in language.conditions or any(each.text == "," for each in tokens[:number]):
                    continue
                if any(each.low in ("and", "und") for each in tokens[:number]):
                    continue
            return number
        if token.low in language.pointing and not (before and before.is_mark):
            return number
        if token.low in language.demonstratives and not (
            before and (before.is_mark or (_is_content(before, language) and not language.capitals_are_nouns))
        ):
            if _points(token, following, tokens[number + 2] if number + 2 < len(tokens) else None, language):
                return number
    return None


def _points(token: Word, following: Word | None, after: Word | None, language: Language) -> bool:
    """Whether a demonstrative is a pronoun, or stands with a noun that was named before; German articles do not."""
    if following is None or following.is_mark:
        return True
    if token.low == "das":
        is_article = following.is_name or bool(after and after.is_name and ADJECTIVE.search(following.low))
        return not is_article
    return True


def _resolve(text: str, tokens: Sequence[Word], number: int, last: Turn, language: Language) -> Rewritten:
    token = tokens[number]
    low = token.low
    following = tokens[number + 1] if number + 1 < len(tokens) else None
    if low in language.demonstratives:
        return _append(text, last.query, "reference")
    referent = _referent(low, last, language)
    if not referent:
        return _append(text, last.query, "reference")
    is_possessive = low in language.possessives and not (low == "her" and (following is None or following.is_mark))
    if low in language.pointing or (is_possessive and language.capitals_are_nouns):
        return _append(text, referent, "reference")
    suffix = "'s" if is_possessive else ""
    return Rewritten(f"{text[: token.start]}{referent}{suffix}{text[token.end :]}", "pronoun", referent)


def _referent(low: str, last: Turn, language: Language) -> str:
    """What the pronoun stands for: a name that was asked for, else a phrase of the earlier question; "" for none."""
    first = next((token.low for token in read_words(last.query)), "")
    if low in language.persons and first in language.who and (name := _name_in(last.answer, last.query)):
        return name
    phrases = find_phrases(last.query, language)
    names = [each for each in phrases if each.is_name]
    if not language.capitals_are_nouns and names and (low in language.persons or low == "there"):
        return _whole(last.query, names[0], phrases)
    if low in ("there", "dort", "dorthin"):
        placed = [each for each in phrases if each.preposition and not each.joined]
        phrases = placed[-1:] or phrases
    if not phrases:
        return _name_in(last.answer, last.query) if low in language.persons else ""
    if low in ("they", "them", "their"):
        plural = [each for each in phrases if each.text.endswith("s")]
        phrases = plural or phrases
    return _whole(last.query, phrases[0], find_phrases(last.query, language))


def _whole(query: str, phrase: Phrase, phrases: Sequence[Phrase]) -> str:
    """The phrase with its definite article and with what belongs to it."""
    end = phrase.end
    for each in phrases:
        if each.joined and each.start > end and each.outermost - end <= 1:
            end = each.end
    article = query[phrase.outer : phrase.start].strip()
    start = phrase.outer if article.casefold() in DEFINITE else phrase.start
    return query[start:end]


def _name_in(answer: str, query: str) -> str:
    """The first name of the answer that the question does not hold, "" for none."""
    known = {token.low for token in read_words(query)}
    run: list[str] = []
    for token in read_words(re.sub(r"\[\d+\]", "", answer)):
        is_article = token.low in ENGLISH.articles | GERMAN.articles | ENGLISH.glue | GERMAN.glue | ENGLISH.prepositions
        if token.text[0].isupper() and not is_article and token.low not in known:
            run.append(token.text)
        elif run:
            break
    return " ".join(run)


def _append(text: str, carried: str, rule: Rule) -> Rewritten:
    carried = carried.rstrip(" ?!.")
    return Rewritten(f"{text} ({carried})", rule, carried)
