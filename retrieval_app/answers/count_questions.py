"""Questions that ask how many there are, or for all of them: what asks, and the words that are left."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Ask = Literal["count", "list"]

COUNTS = re.compile(
    r"(?:please\s+)?(?:(?:can|could)\s+you\s+)?(?:tell\s+me\s+)?(?:how\s+many|count(?:\s+(?:of|the|all))*|"
    r"(?:what\s+is|what's)\s+the\s+(?:total\s+)?number\s+of|number\s+of)\b"
    r"|(?:bitte\s+)?(?:wie\s*viele?|zähle?(?:\s+(?:bitte|alle|die))*|wie\s+hoch\s+ist\s+die\s+anzahl(?:\s+(?:der|aller))?|"
    r"anzahl(?:\s+(?:der|aller))?)\b",
    re.IGNORECASE,
)
LISTS = re.compile(
    r"(?:please\s+)?(?:(?:can|could)\s+you\s+)?(?:list|show|name|enumerate|give)\s+(?:me\s+)?(?:all|every)\b"
    r"(?:\s+of)?(?:\s+the)?"
    r"|(?:bitte\s+)?(?:liste|nenne|zeige?|gib)\s+(?:(?:mir|uns|bitte)\s+)*(?:alle|sämtliche)\b",
    re.IGNORECASE,
)


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that say nothing about what is counted. What is neither one of these nor found in the tables is not guessed.
FILLERS = words_of(
    "a an the of in on at to for from by are is was were be there do does did we i you they have has had with whose"
    " that which who where and all here please me listed belong belongs having called named whole entire collection"
    " table sheet as it their its in total this these those exist"
    " ein eine einen einem einer der die das den dem des in im am an auf zu von für aus bei sind ist war waren gibt gab"
    " es haben hat hatte mit deren dessen die wo und alle hier bitte insgesamt tabelle blatt sammlung dieser diese"
    " dieses stehen steht lauten lautet gehören gehört welche welcher existieren"
)
ROW_WORDS = words_of(
    "row rows record records entry entries line lines zeile zeilen eintrag einträge datensatz datensätze"
)
DOCUMENT_WORDS = words_of("document documents file files dokument dokumente dokumenten datei dateien")
# Words that turn or divide what is asked: never the name of a table.
TURNING_WORDS = words_of(
    "not no non without except different distinct unique per each average mean total sum most least only both other any"
    " nicht kein keine keinen ohne außer verschiedene pro je durchschnitt summe nur andere"
)
TOTAL_WORDS = words_of(
    "total totals sum subtotal average summe gesamt gesamtsumme insgesamt zwischensumme durchschnitt"
)
# A whole value behind the first one that says the same; "average" may be a judgement there.
GROUP_TOTALS = TOTAL_WORDS - words_of("average durchschnitt") | {"grand total", "sub total"}
OR_WORDS = frozenset(("or", "oder"))
CONTAIN_WORDS = words_of("contain contains containing mention mentions mentioning enthalten enthält erwähnen erwähnt")
COMPARISONS: dict[str, str] = {
    "more than": "gt", "greater than": "gt", "larger than": "gt", "higher than": "gt", "over": "gt",
    "above": "gt",
    "exceeding": "gt", "after": "gt", "mehr als": "gt", "größer als": "gt", "höher als": "gt", "über": "gt",
    "nach": "gt",
    "at least": "gte", "since": "gte", "mindestens": "gte", "seit": "gte", "ab": "gte",
    "less than": "lt", "fewer than": "lt", "smaller than": "lt", "lower than": "lt", "under": "lt", "below": "lt",
    "before": "lt", "weniger als": "lt", "kleiner als": "lt", "unter": "lt", "vor": "lt",
    "at most": "lte", "up to": "lte", "until": "lte", "höchstens": "lte", "bis": "lte",
    "equal to": "eq", "equals": "eq", "gleich": "eq", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "=": "eq",
}  # fmt: skip
QUOTED = r"\"[^\"]+\"|“[^”]+”|„[^“”]+[“”]|«[^»]+»|'[^']+'(?!\w)"
TOKEN = re.compile(
    rf"{QUOTED}|>=|<=|[<>=]|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|-?[0-9]+(?:[.,][0-9]+)*|[^\W_]+(?:[-'’./&+_][^\W_]+)*"
)
GERMAN = re.compile(r"\b(?:wie|zähle?|anzahl|liste|nenne|zeige?|gib)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """question[start:end]; text without its quotation marks."""

    text: str
    start: int
    end: int
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class CountQuestion:
    """asks: for a number, or for all of them. tokens: of what follows the words that ask."""

    text: str
    asks: Ask
    tokens: tuple[Token, ...]
    is_german: bool


def read_question(question: str) -> CountQuestion | None:
    """None for a question that asks neither for a number nor for a complete list."""
    text = question.strip()
    kinds: tuple[tuple[Ask, re.Pattern[str]], ...] = (("count", COUNTS), ("list", LISTS))
    for asks, pattern in kinds:
        if found := pattern.match(text):
            tokens = tuple(_token(match) for match in TOKEN.finditer(text, found.end()))
            is_german = bool(GERMAN.match(text.removeprefix("Bitte ")))
            return CountQuestion(text, asks, tokens, is_german) if tokens else None
    return None


def key_of(text: str) -> str:
    """The form in which names and values are compared: one blank between words, no case, _ as a blank."""
    return " ".join(text.replace("_", " ").split()).casefold()


def stem_of(word: str) -> str:
    """A noun without the usual plural endings of English and German: for names only, never for values."""
    folded = word.casefold()
    for ending, rest in (
        ("ies", "y"),
        ("sses", "ss"),
        ("en", ""),
        ("es", "e"),
        ("er", ""),
        ("s", ""),
        ("n", ""),
        ("e", ""),
    ):
        if folded.endswith(ending) and len(folded) - len(ending) >= 3:
            return (folded[: -len(ending)] + rest).rstrip("e")
    return folded


def _token(match: re.Match[str]) -> Token:
    text = match.group()
    is_quoted = len(text) > 2 and text[0] in "\"“„«'"
    return Token(text[1:-1] if is_quoted else text, match.start(), match.end(), is_quoted)
