"""What differs between two states of a document: its chunks, aligned by their content, and its fields. Pure.

Chunks are aligned by contents that occur once on either side, then by the order of what stands between those. What
remains is paired where the two share enough words. Every step takes time that grows with the number of chunks, not with
its square: comparisons of words are counted, and past COMPARISONS_MAX chunks are paired by their order alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal, Protocol

COMPARISONS_MAX = 20_000  # of the words of two chunks
GAP_MAX = 2_500  # pairs of one gap that are compared
ALIKE = 0.4  # share of words in common from which two chunks are one that was changed
WORD_PAIRS_MAX = 4_000_000  # of one changed chunk; above that its words are not marked one by one
WORDS = re.compile(r"\S+\s*|\s+")

Kind = Literal["same", "added", "removed", "changed"]
Pair = tuple[int | None, int | None]  # places before and after


class ChunkLike(Protocol):
    """index, start and end in characters, the content, and what is indexed with it."""

    @property
    def index(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def content(self) -> str: ...
    @property
    def context(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a changed text. kind: same, removed (only before) or added (only after)."""

    kind: Literal["same", "added", "removed"]
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """One chunk that differs, or a run of `count` equal ones: then before and after are the first of the run."""

    kind: Kind
    before: ChunkLike | None
    after: ChunkLike | None
    count: int = 1

    def parts(self) -> list[Part]:
        """The words of both contents in order, as marked pieces."""
        return mark_words(self.before.content if self.before else "", self.after.content if self.after else "")

    def context_parts(self) -> list[Part]:
        """The same of what is indexed with them; [] where it did not change."""
        before, after = self.before.context if self.before else "", self.after.context if self.after else ""
        return [] if self.before is None or self.after is None or before == after else mark_words(before, after)


@dataclass(frozen=True, slots=True)
class ChunkDifference:
    """changes: in document order, runs of equal chunks folded. by_order: some chunks were paired by order alone."""

    changes: list[Change]
    counts: Mapping[str, int]
    by_order: bool

    @property
    def is_same(self) -> bool:
        return self.counts["same"] == sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. before and after are None where it was or is not there."""

    name: str
    before: Any
    after: Any


def compare_chunks(before: Sequence[ChunkLike], after: Sequence[ChunkLike]) -> ChunkDifference:
    """How the chunks `before` became those `after`. Empty lists are fine."""
    aligner = Aligner([chunk.content for chunk in before], [chunk.content for chunk in after])
    pairs = aligner.align()
    changes = list(_fold(_change(before, after, pair) for pair in pairs))
    counts = dict.fromkeys(("same", "changed", "added", "removed"), 0)
    for change in changes:
        counts[change.kind] += change.count
    return ChunkDifference(changes, counts, aligner.by_order)


def _change(before: Sequence[ChunkLike], after: Sequence[ChunkLike], pair: Pair) -> Change:
    old = None if pair[0] is None else before[pair[0]]
    new = None if pair[1] is None else after[pair[1]]
    if old is None or new is None:
        return Change("added" if old is None else "removed", old, new)
    same = (old.content, old.context) == (new.content, new.context)
    return Change("same" if same else "changed", old, new)


def _fold(changes: Iterator[Change]) -> Iterator[Change]:
    run: Change | None = None
    for change in changes:
        if change.kind == "same":
            run = change if run is None else Change("same", run.before, run.after, run.count + 1)
            continue
        if run is not None:
            yield run
            run = None
        yield change
    if run is not None:
        yield run


class Aligner:
    """Pairs of places in two lists of texts, both ascending; equal texts are paired first."""

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        self.before, self.after = before, after
        self.comparisons = 0
        self.by_order = False
        self.words: dict[tuple[str, int], frozenset[str]] = {}

    def align(self) -> list[Pair]:
        pairs: list[Pair] = []
        old = new = 0
        for next_old, next_new in [*self._anchors(), (len(self.before), len(self.after))]:
            pairs += self._gap(old, next_old, new, next_new)
            if next_old < len(self.before):
                pairs.append((next_old, next_new))
            old, new = next_old + 1, next_new + 1
        return pairs

    def _anchors(self) -> list[tuple[int, int]]:
        """The longest ascending run of texts that occur once on either side."""
        once_before, once_after = _places_of_unique(self.before), _places_of_unique(self.after)
        shared = [(position, once_after[text]) for text, position in once_before.items() if text in once_after]
        return _longest_ascending(sorted(shared))

    def _gap(self, old: int, old_end: int, new: int, new_end: int) -> list[Pair]:
        """Texts between two anchors: equal ones at either end, then those that are alike."""
        head: list[Pair] = []
        tail: list[Pair] = []
        while old < old_end and new < new_end and self.before[old] == self.after[new]:
            head.append((old, new))
            old, new = old + 1, new + 1
        while old < old_end and new < new_end and self.before[old_end - 1] == self.after[new_end - 1]:
            old_end, new_end = old_end - 1, new_end - 1
            tail.append((old_end, new_end))
        return head + self._pair(range(old, old_end), range(new, new_end)) + tail[::-1]

    def _pair(self, olds: range, news: range) -> list[Pair]:
        size = len(olds) * len(news)
        if size == 0:
            return [*((old, None) for old in olds), *((None, new) for new in news)]
        if size > GAP_MAX or self.comparisons + size > COMPARISONS_MAX:
            self.by_order = True
            together: list[Pair] = list(zip(olds, news, strict=False))
            most = len(together)
            return [*together, *((old, None) for old in olds[most:]), *((None, new) for new in news[most:])]
        self.comparisons += size
        return self._pair_alike(olds, news)

    def _pair_alike(self, olds: range, news: range) -> list[Pair]:
        """The pairing in order whose words have most in common."""
        best = [[0.0] * (len(news) + 1) for _ in range(len(olds) + 1)]
        alike: dict[tuple[int, int], float] = {}
        for row in reversed(range(len(olds))):
            for column in reversed(range(len(news))):
                share = self._share(olds[row], news[column])
                together = best[row + 1][column + 1] + share if share >= ALIKE else 0.0
                best[row][column] = max(together, best[row + 1][column], best[row][column + 1])
                alike[row, column] = together
        pairs: list[Pair] = []
        row = column = 0
        while row < len(olds) and column < len(news):
            if alike[row, column] and best[row][column] == alike[row, column]:
                pairs.append((olds[row], news[column]))
                row, column = row + 1, column + 1
            elif best[row][column] == best[row + 1][column]:
                pairs.append((olds[row], None))
                row += 1
            else:
                pairs.append((None, news[column]))
                column += 1
        return [*pairs, *((old, None) for old in olds[row:]), *((None, new) for new in news[column:])]

    def _share(self, old: int, new: int) -> float:
        """Different words that both texts have, as a share of those of the two on average."""
        mine, other = self._words("old", old), self._words("new", new)
        total = len(mine) + len(other)
        return 2 * len(mine & other) / total if total else 1.0

    def _words(self, side: str, index: int) -> frozenset[str]:
        known = self.words.get((side, index))
        if known is None:
            text = self.before[index] if side == "old" else self.after[index]
            known = self.words[side, index] = frozenset(text.split())
        return known


def _places_of_unique(texts: Sequence[str]) -> dict[str, int]:
    counts = Counter(texts)
    return {text: index for index, text in enumerate(texts) if counts[text] == 1}


def _longest_ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of pairs that ascend in the first place, a longest choice that ascends in the second too."""
    ends: list[int] = []  # smallest second value with which a run of that length ends
    last: list[int] = []  # the pair that ends it
    previous: list[int] = []
    for number, (_, value) in enumerate(pairs):
        length = bisect_left(ends, value)
        previous.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(value)
            last.append(number)
        else:
            ends[length], last[length] = value, number
    chosen = []
    number = last[-1] if last else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = previous[number]
    return chosen[::-1]


def mark_words(before: str, after: str) -> list[Part]:
    """Both texts as pieces in order: "same" and "removed" joined give `before`, "same" and "added" give `after`.

    Texts of very many words are told as one piece removed and one added.
    """
    if before == after:
        return [Part("same", before)] if before else []
    old, new = WORDS.findall(before), WORDS.findall(after)
    if not old or not new or len(old) * len(new) > WORD_PAIRS_MAX:
        whole = [Part("removed", before), Part("added", after)]
        return [part for part in whole if part.text]
    parts: list[Part] = []
    for kind, old_start, old_end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(Part("same", "".join(old[old_start:old_end])))
            continue
        if old_end > old_start:
            parts.append(Part("removed", "".join(old[old_start:old_end])))
        if new_end > new_start:
            parts.append(Part("added", "".join(new[new_start:new_end])))
    return parts


def compare_fields(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[FieldChange]:
    """The fields that differ, by name; objects are compared key by key, their names joined by a point."""
    changes = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new and (name in before) == (name in after):
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changes += compare_fields(old, new, f"{prefix}{name}.")
        else:
            changes.append(FieldChange(f"{prefix}{name}", old, new))
    return changes
