"""Chunks that deserve a look: too short, too long, without a letter. The policy that cut them is the measure."""

from __future__ import annotations

from dataclasses import dataclass

from ragd.types import ChunkPolicy

SHORT, LONG, NO_LETTERS, DUPLICATE = "short", "long", "no_letters", "duplicate"
FLAGS = (SHORT, LONG, NO_LETTERS, DUPLICATE)
FLAG_WORDS = {SHORT: "too short", LONG: "too long", NO_LETTERS: "no letters", DUPLICATE: "near-duplicate"}

SHORT_SHARE = 20  # a chunk below a twentieth of its target is too short
SHORT_WORDS_MIN = 5
CHARS_PER_WORD = 6  # what is short in words and long in characters is written without spaces


@dataclass(frozen=True, slots=True)
class Limits:
    """too short: fewer than short_words words and fewer than short_chars characters. too long: above either other."""

    short_words: int
    short_chars: int
    long_words: int
    long_chars: int


def limits_of(policy: ChunkPolicy, window: int | None) -> Limits:
    """window: how many of its own tokens the embedder reads (None: no limit); what is beyond, it does not see.

    Too long are chunks above their policy, which only people and other programs make, and chunks of a policy that is
    larger than what the embedder reads.
    """
    fitted = policy.fitted(window)
    words = max(SHORT_WORDS_MIN, policy.target_tokens // SHORT_SHARE)
    return Limits(words, words * CHARS_PER_WORD, fitted.target_tokens, fitted.max_chars)


def flags_of(content: str, limits: Limits) -> list[str]:
    """The flags of one chunk in the order of FLAGS, but for duplicates, which one chunk cannot tell."""
    words = len(content.split())
    flags = []
    if words < limits.short_words and len(content) < limits.short_chars:
        flags.append(SHORT)
    if words > limits.long_words or len(content) > limits.long_chars:
        flags.append(LONG)
    if not any(character.isalpha() for character in content):
        flags.append(NO_LETTERS)
    return flags
