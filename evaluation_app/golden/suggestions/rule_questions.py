"""Questions that a passage answers, derived from its headings, definitions and reasons by plain rules. Pure, offline.

Each rule turns one form of English sentence into the question that it answers, and the sentence is the expected
answer. Other languages give only headings that are questions themselves. The same passage always gives the same
questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ragd.text.sentences import split_sentences

Rule = Literal["definition", "how-to", "condition", "reason", "heading"]
RULES: tuple[Rule, ...] = ("definition", "how-to", "condition", "reason", "heading")  # the better come first
CATEGORY = {
    "definition": "factual", "how-to": "how-to", "condition": "how-it-works", "reason": "why", "heading": "factual"
}  # fmt: skip
WORDS_LEAST, WORDS_MOST = 5, 45
SUBJECT_WORDS_MOST = 7
ANSWER_CHARS = 600


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


POINTING = _words(
    "it its this that these those there here he she they we you i one which what who both each every such another "
    "other everything nothing something anything all any some many most none neither either no whether"
)
REFERRING = _words("it this that these those they them its their")
AUXILIARY = _words(
    "is are was were be been can cannot could must may might should shall will would has have had do does did if when "
    "because so but and or not then only also says"
)
COMMANDS = _words(
    "add allow build change check choose clean configure connect copy create define delete deploy disable download "
    "enable export extend find fix format get import index install keep limit list load log make manage measure merge "
    "migrate move open pass publish query read rebuild remove rename replace reset restart restore rotate run save "
    "scale search send set share show sort start stop store switch test track trace train try turn update upgrade "
    "upload use validate verify watch write"
)
GERUND = re.compile(r"[A-Z][a-z]{2,}ing (?:the|an?|your|with|from|to|in|on|up|off|out|by|without) [a-z]")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
MARKS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|`")
BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)]|#{1,6})\s+")
PROSE = re.compile(r"[A-Z\"“'`][^|{}<>=]*[.!]$", re.DOTALL)
DEFINITION = re.compile(
    r"(?P<subject>[A-Z][^,;:.!?()]*?)\s+(?P<verb>is|are)\s+(?P<rest>(?:an?|the|one|any)\s.+)\.$", re.DOTALL
)
MEANING = re.compile(r"(?P<subject>[A-Z][^,;:.!?()]*?)\s+(?P<verb>means|stands for)\s+.+\.$", re.DOTALL)
PURPOSE = re.compile(r"To (?P<act>[a-z][^,;:.!?]*?), .+\.$", re.DOTALL)
CONDITION = re.compile(r"(?P<word>When|If) (?P<case>[^,;:.!?]+), (?P<rest>.+)\.$", re.DOTALL)
REASON = re.compile(r"(?P<claim>[A-Z][^,;:.!?]*?),? because (?P<why>[^;:.!?]+)\.$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk. headings: the path to it, the document's title first. start: of the content in its document."""

    doc_id: str
    chunk_index: int
    content: str
    headings: tuple[str, ...] = ()
    start: int = 0


@dataclass(frozen=True, slots=True)
class QuestionCandidate:
    """A question with the sentence that answers it. start and end: of that sentence, in characters of the document."""

    question: str
    answer: str
    rule: Rule
    doc_id: str
    chunk_index: int
    start: int
    end: int


def derive(passages: Sequence[Passage]) -> list[QuestionCandidate]:
    """Of each passage, in order: by sentence, then by its last heading; equal questions once. [] for none."""
    result: dict[str, QuestionCandidate] = {}
    for passage in passages:
        for derived in (*_of_sentences(passage), *_of_heading(passage)):
            result.setdefault(derived.question.lower(), derived)
    return list(result.values())


def _of_sentences(passage: Passage) -> Iterator[QuestionCandidate]:
    for start, end in split_sentences(passage.content):
        text = plain(passage.content[start:end])
        if not _is_prose(text):
            continue
        asked = ask_for(text)
        if asked is not None:
            first = passage.start + start
            yield QuestionCandidate(
                asked[1], text[:ANSWER_CHARS], asked[0], passage.doc_id, passage.chunk_index, first,
                passage.start + end,
            )  # fmt: skip


def ask_for(sentence: str) -> tuple[Rule, str] | None:
    """(rule, question) that the sentence answers; None where no rule fits."""
    if (match := DEFINITION.match(sentence)) and _defines(match["subject"], match["verb"], match["rest"]):
        return "definition", f"What {match['verb']} {_inside(match['subject'])}?"
    if (match := MEANING.match(sentence)) and _is_subject(match["subject"]):
        verb = "mean" if match["verb"] == "means" else "stand for"
        return "definition", f"What does {_inside(match['subject'])} {verb}?"
    if (match := PURPOSE.match(sentence)) and _is_act(match["act"]):
        return "how-to", f"How do I {match['act']}?"
    if (match := CONDITION.match(sentence)) and _stands_alone(match["case"]) and _goes_on(match["rest"]):
        return "condition", f"What happens {match['word'].lower()} {match['case']}?"
    if (match := REASON.match(sentence)) and _stands_alone(match["claim"]) and len(match["claim"].split()) >= 3:
        return "reason", f"Why is it that {_inside(match['claim'])}?"
    return None


def _of_heading(passage: Passage) -> Iterator[QuestionCandidate]:
    """From the last heading below the title, answered by the passage's first sentence of prose that stands alone."""
    if len(passage.headings) < 2:
        return
    question = ask_for_heading(plain(passage.headings[-1]))
    if question is None:
        return
    for start, end in split_sentences(passage.content):
        text = plain(passage.content[start:end])
        if _is_prose(text) and text.split()[0].lower() not in REFERRING:
            rule: Rule = "how-to" if question.startswith("How do I") else "heading"
            yield QuestionCandidate(
                question, text[:ANSWER_CHARS], rule, passage.doc_id, passage.chunk_index, passage.start + start,
                passage.start + end,
            )  # fmt: skip
            return


def ask_for_heading(heading: str) -> str | None:
    """The question of a heading that is one, tells how to do something, or names what is done; None for any other."""
    words = heading.split()
    if heading.endswith("?") and len(words) >= 3:
        return heading
    if not 2 <= len(words) <= 10 or any(mark in heading for mark in ".:;,") or _points(words):
        return None
    if heading.lower().startswith("how to "):
        return f"How do I {heading[7:]}?"
    if words[0].lower() in COMMANDS and words[0][:1].isupper() and words[1][:1].islower():
        return f"How do I {words[0].lower()} {' '.join(words[1:])}?"
    if GERUND.match(heading):
        return f"How does {heading[0].lower()}{heading[1:]} work?"
    return None


def plain(text: str) -> str:
    """One line without Markdown's marks; links keep their words."""
    shown = LINK.sub(r"\1", BULLET.sub("", text))
    return " ".join(MARKS.sub("", shown).split())


def _is_prose(text: str) -> bool:
    words = text.split()
    if not WORDS_LEAST <= len(words) <= WORDS_MOST or not PROSE.match(text) or "http" in text:
        return False
    letters = sum(character.isalpha() for character in text)
    return letters >= 0.7 * len(text.replace(" ", ""))


def _is_subject(text: str) -> bool:
    """A short noun phrase that can be asked for: it points at nothing before it and holds no verb of its own."""
    words = text.lower().split()
    if not words or len(words) > SUBJECT_WORDS_MOST or words[0] in POINTING:
        return False
    return len(text) > 2 and not AUXILIARY & set(words) and not POINTING & set(words[1:])


def _defines(subject: str, verb: str, rest: str) -> bool:
    """Whether it says what something is: no single participle ("Forgiven are"), no "the request", no two words."""
    words = subject.split()
    is_plain = len(words) == 1 and verb == "are" and not subject.endswith("s")
    points_back = words[0] == "The" and len(words) < 4
    return _is_subject(subject) and not is_plain and not points_back and len(rest.split()) >= 4


def _goes_on(rest: str) -> bool:
    """Whether what follows the condition says what happens, and is not more of the condition."""
    words = rest.split()
    return len(words) >= 3 and words[0] not in ("or", "and", "nor", "but", "if", "when")


def _is_act(text: str) -> bool:
    words = text.split()
    return 2 <= len(words) <= 12 and words[0] not in ("be", "this", "that") and not _points(words)


def _stands_alone(text: str) -> bool:
    words = text.split()
    return 2 <= len(words) <= 14 and words[0].lower() not in POINTING and not _points(words)


def _points(words: Sequence[str]) -> bool:
    """Whether a word means something that was said before."""
    return any(word.lower().strip("\"'") in REFERRING for word in words)


def _inside(text: str) -> str:
    """As it stands inside a sentence: a capital stays on names and acronyms, which are not told from plain words
    unless they hold another capital or a digit."""
    first, _, rest = text.partition(" ")
    is_name = any(mark.isupper() or mark.isdigit() for mark in first[1:])
    follows_name = rest[:1].isupper()
    return text if is_name or follows_name else f"{first.lower()} {rest}".strip()
