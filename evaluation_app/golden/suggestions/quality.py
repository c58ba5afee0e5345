"""Whether a derived question can be asked by somebody who has not seen its passage: a filter by plain rules. Pure.

Measured on this documentation by hand (tests/data/suggestions.jsonl): 32 of the 70 questions that the rules derive from
it are usable; 34 pass here, of which 30 are usable. The rules were chosen on these questions.
"""

from __future__ import annotations

import re

from evaluation_app.golden.suggestions.rule_questions import AUXILIARY, POINTING, REFERRING, QuestionCandidate

STEM = 5
DEFINING_WORDS = 3  # content words by which a definition tells its subject from others
WORDS_OF_A_CASE = 3
FIRST_CLAUSE = re.compile(r"[,;:]")
WORD = re.compile(r"[A-Za-z][\w'’-]*")
BACK = frozenset({"it", "they", "them", "this", "these", "those", "own"})
PRONOUNS = POINTING - {"i", "what", "each", "both", "many", "all", "any", "some"}
UNIQUE = frozenset(  # there is one of each, in a system or in the world
    re.findall(r"\w+", "server system database network disk index application program clock sun moon earth world sky")
)
CASE = re.compile(r"What happens (?:when|if) (?P<case>.+)\?$")
DEFINED = re.compile(r"What (?:is|are) (?P<subject>.+)\?$")
CLAIM = re.compile(r"Why is it that (?P<claim>.+)\?$")
FUNCTION_WORDS = frozenset(
    re.findall(r"\w+", "a an the of in on at to for by from with as than who whose where when and or nor own same")
)
SMALL = AUXILIARY | POINTING | REFERRING | FUNCTION_WORDS
INSIDE = re.compile(r"\b(?:of|in|under|over|on|at) (?:an?|the) ")
IS_NAME = re.compile(r"[A-Z].*[A-Z0-9]|[/_]|\d")


def fault_of(derived: QuestionCandidate, headings: tuple[str, ...]) -> str:
    """Why the question is not suggested, a few words; "" for a usable one. headings: the path to its passage."""
    if match := DEFINED.match(derived.question):
        return _fault_of_definition(match["subject"], derived.answer)
    if match := CASE.match(derived.question):
        return _fault_of_case(match["case"], derived.answer, headings)
    if match := CLAIM.match(derived.question):
        return _points_back(match["claim"], headings)
    if PRONOUNS & set(_words(derived.question)[3:]):
        return "points at what stands before it"
    if derived.rule in ("heading", "how-to") and not _stems(derived.question) & _stems(derived.answer):
        return "the sentence does not answer the heading"
    return "" if derived.question.split()[0] in ("What", "How", "Why") else "asks for yes or no"


def _fault_of_definition(subject: str, answer: str) -> str:
    words = subject.split()
    if words[0] == "the" and INSIDE.search(f"{subject} "[4:]) is None:
        return "points at one thing of its passage"
    if len(INSIDE.findall(subject)) and words[0] != "the":
        return "asks for a part of another thing"
    if len(words) == 1 and not IS_NAME.search(subject):
        return "asks for a bare word"
    clause = FIRST_CLAUSE.split(answer[len(subject) :].strip(), maxsplit=1)[0]
    defining = [word for word in _words(clause) if word not in SMALL]
    if BACK & set(_words(clause)):
        return "the definition points back"
    if len(_stems(subject)) == 1 and words[-1].isalpha() and _stems(subject) & _stems(clause):
        return "the definition is circular"
    return "" if len(set(defining)) >= DEFINING_WORDS else "the definition tells too little"


def _fault_of_case(case: str, answer: str, headings: tuple[str, ...]) -> str:
    rest = answer.partition(f"{case}, ")[2]
    first = (_words(rest) or [""])[0]
    if len(case.split()) < WORDS_OF_A_CASE or first in AUXILIARY:
        return "the condition is cut off"
    return _points_back(case, headings)


def _points_back(text: str, headings: tuple[str, ...]) -> str:
    """A clause about "the X" needs an X that the headings name, or of which every system has one."""
    words = text.split()
    if words[0].lower() != "the" or len(words) < 2 or IS_NAME.search(words[1]) or words[1] in UNIQUE:
        return ""
    return "" if _stems(words[1]) & _stems(" ".join(headings)) else "points at one thing of its passage"


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in _words(text) if word not in SMALL and len(word) > 2}
