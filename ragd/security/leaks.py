"""Whether an answer gives away the system prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from ragd.security.findings import Finding

WORD = re.compile(r"\w+")
RUN_WORDS = 12  # as many words in a row are rarely the same by chance
SHARE = 0.6  # of a prompt that is shorter than that


def find_leak(answer: str, system_prompt: str, *, known: Sequence[str] = ()) -> list[Finding]:
    """The longest run of words that the answer shares with the system prompt, when it is long enough to be a leak.

    Case and punctuation do not count. known: texts that the answer may quote, such as the question and the retrieved
    passages; a run that stands in one of them is no leak. At most one finding; [] for a blank prompt.
    """
    secret = [match[0].lower() for match in WORD.finditer(system_prompt)]
    said = list(WORD.finditer(answer))
    words = [match[0].lower() for match in said]
    if not secret or not words:
        return []
    same = SequenceMatcher(None, words, secret, autojunk=False).find_longest_match()
    if same.size < min(RUN_WORDS, max(4, round(SHARE * len(secret)))):
        return []
    run = words[same.a : same.a + same.size]
    if any(_holds([match[0].lower() for match in WORD.finditer(text)], run) for text in known):
        return []
    confidence = min(1.0, 0.7 + 0.3 * same.size / len(secret))
    start, end = said[same.a].start(), said[same.a + same.size - 1].end()
    return [Finding("system_prompt_leak", "shared_words", start, end, round(confidence, 2))]


def _holds(words: Sequence[str], run: Sequence[str]) -> bool:
    joined, wanted = f" {' '.join(words)} ", f" {' '.join(run)} "
    return wanted in joined
