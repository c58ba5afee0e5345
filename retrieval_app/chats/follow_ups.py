"""Follow-up questions without a model: one that leans on the thread is searched for behind the question before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

QUESTION_CHARS_MAX = 400  # a longer one names its topic
WORDS_MAX = 3  # "Why?", "Seit wann?": too short to name a topic, unless a name or a figure is among them
WORD = re.compile(r"[^\W_][\w.+#/-]*[^\W_]|[^\W_]")
OPENER = re.compile(
    r"(?:and|but|also|or|so|what about|how about|what if|then|und|aber|auch|oder|was ist mit|"
    r"wie (?:ist|steht|sieht) es (?:mit|bei)|f(?:or|ür)\s.*\b(?:too|as well|auch))\b",
    re.IGNORECASE,
)
# "when a job fails, is it retried": the question itself says what the pronoun stands for
CONDITION = re.compile(r"(?:when|if|while|once|unless|because|wenn|falls|sobald|weil|obwohl)\b.*,", re.IGNORECASE)
EXPLETIVE = re.compile(
    r"\b(?:is|was) it (?:possible|necessary|allowed|true|safe|worth|common|legal|ok|raining)\b|\bit (?:rains?|takes?)\b"
    r"|\b(?:is|are|was|were) there\b(?! any of)|\bthere (?:is|are|was|were|be)\b"
    r"|\bgibt es\b|\bes (?:gibt|regnet|heißt)\b"
    r"|\b(?:ist|wäre) es (?:möglich|erlaubt|nötig|sinnvoll|wahr)\b|\bgeht es um\b",
    re.IGNORECASE,
)
# "das" and "this" point back where no noun follows; as an article they are no pronoun
POINTING = re.compile(
    r"\b(?:it|its|they|them|their|he|him|his|she|her|there|one|ones|any of|this|that|these|those|er|ihn|ihm|sie|"
    r"(?:ist|war|hat|wird|kann|darf|muss|kostet|geht|dauert) es|sein\w{0,2}|ihr\w{0,2}|dessen|deren|dort|dorthin|davon|"
    r"dafür|dagegen|damit|darin|daran|darauf|dazu|darüber|"
    r"dabei|danach|dadurch|diese[rsnm]?|das(?=\s*[?.!]|\s+(?:ist|sind|war|geht|dauert|kostet|melden|machen)\b))\b",
    re.IGNORECASE,
)


def rewrite(question: str, earlier: Sequence[str]) -> str:
    """The text that is searched for: the question, with the last of the earlier ones before it where it leans on it.

    earlier: the questions as they were searched for, in order. The same input gives the same text. Unchanged without an
    earlier question, and where the question names its own topic (English and German; in other languages where it has
    more than three words).
    """
    text = question.strip()
    if not text or not earlier or len(text) > QUESTION_CHARS_MAX or not leans(text):
        return text
    return f"{earlier[-1].strip()[-QUESTION_CHARS_MAX:]} {text}"


def leans(question: str) -> bool:
    """Return True if the question needs the one before it to be understood."""
    if OPENER.match(question):
        return True
    words = WORD.findall(question)
    if len(words) <= WORDS_MAX and not any(word[0].isupper() or word[0].isdigit() for word in words[1:]):
        return True
    return not CONDITION.match(question) and bool(POINTING.search(EXPLETIVE.sub("", question)))
