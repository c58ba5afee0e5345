"""Changes that people made to single chunks, laid over the chunks that a policy makes of the text. Pure.

Chunks that deserve a look: too short, too long, without a letter. The policy that cut them is the measure.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ragd.types import Chunk, ChunkPolicy

EDIT, DISABLE, ADD = "edit", "disable", "add"
MARK = "overlay"  # the key of a chunk's attributes that says "edit" or "add"


@dataclass(frozen=True, slots=True)
class Overlay:
    """One change. anchor_hash: `hash_anchor` of the text of the chunk that it is laid over, "" for the document's end.

    start: where that chunk began, in characters of the document, when the change was made. content: of an edit, what
    stands in its place; of an addition, what follows it. id 0: not stored yet.
    """

    kind: str
    anchor_hash: str
    start: int
    content: str = ""
    id: int = 0


@dataclass(frozen=True, slots=True)
class OverlaidChunks:
    """What became of chunks. places: position in the list of overlays -> chunk_index now, of those that apply."""

    chunks: Sequence[Chunk]
    places: Mapping[int, int] = field(default_factory=dict)


def hash_anchor(content: str) -> str:
    """SHA-256 (hex) of a chunk's text as the policy cut it."""
    return hashlib.sha256(content.encode()).hexdigest()


def apply_overlays(chunks: Sequence[Chunk], overlays: Sequence[Overlay]) -> OverlaidChunks:
    """The chunks of one document with the overlays applied, numbered anew from 0.

    chunks: all of them, in order, bound, as the policy cut them. No overlays, or none that applies: the same chunks.
    An edited chunk keeps its place, context and metadata; an added one takes those of the chunk that it follows, at
    the end of that one, with no length. Several additions to one chunk follow it in the order of the list. A vector
    that a chunk brings is kept unless its text changes.
    """
    anchors = place_overlays([(hash_anchor(chunk.content), chunk.start) for chunk in chunks], overlays)
    if not anchors:
        return OverlaidChunks(chunks)
    by_anchor: dict[int, list[int]] = defaultdict(list)
    for position in sorted(anchors):
        by_anchor[anchors[position]].append(position)
    made: list[Chunk] = []
    positions: dict[int, int] = {}
    for number, original in enumerate(chunks):
        chunk = replace(original, chunk_index=len(made))
        added: list[int] = []
        for position in by_anchor.get(number, ()):
            if overlays[position].kind == ADD:
                added.append(position)
                continue
            positions[position] = len(made)
            chunk = _changed(chunk, overlays[position])
        made.append(chunk)
        for position in added:
            positions[position] = len(made)
            made.append(_added(original, overlays[position], len(made)))
    return OverlaidChunks(made, positions)


def place_overlays(anchors: Sequence[tuple[str, int]], overlays: Sequence[Overlay]) -> dict[int, int]:
    """Position in `overlays` -> position in `anchors`, of those whose anchor is there.

    anchors: (hash_anchor, start) of each chunk in order. Among chunks of equal text the nearest start is taken, of two
    equally near ones the first; no two changes of one kind share a chunk, except additions. The nearest pairs go first.
    """
    requested = {overlay.anchor_hash for overlay in overlays}
    result: dict[str, list[int]] = defaultdict(list)
    for number, (digest, _) in enumerate(anchors):
        if digest in requested:
            result[digest].append(number)
    if anchors:
        result[""] = [len(anchors) - 1]
    pairs = sorted(
        (abs(anchors[number][1] - overlay.start) if overlay.anchor_hash else 0, position, number)
        for position, overlay in enumerate(overlays)
        for number in result.get(overlay.anchor_hash, ())
    )
    placed: dict[int, int] = {}
    taken: set[tuple[str, int]] = set()
    for _, position, number in pairs:
        kind = overlays[position].kind
        if position in placed or (kind, number) in taken:
            continue
        placed[position] = number
        if kind != ADD:
            taken.add((kind, number))
    return placed


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """One chunk as it is served. anchor: the cut chunk that it is or follows; the others: positions of overlays."""

    anchor: int
    edit: int | None = None
    disable: int | None = None
    add: int | None = None


def trace_sources(anchors: Sequence[tuple[str, int]], overlays: Sequence[Overlay]) -> list[ChunkSource]:
    """Where `apply_overlays` puts what: the entry at n tells of chunk n."""
    by_anchor: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for position, number in sorted(place_overlays(anchors, overlays).items()):
        by_anchor[number][overlays[position].kind].append(position)
    rows: list[ChunkSource] = []
    for number in range(len(anchors)):
        own = by_anchor.get(number, {})
        rows.append(ChunkSource(number, *(next(iter(own.get(kind, ())), None) for kind in (EDIT, DISABLE))))
        rows += [ChunkSource(number, add=position) for position in own.get(ADD, ())]
    return rows


def digest_overlays(overlays: Iterable[Overlay]) -> list[list[str | int]]:
    """What of them decides a document's chunks, in order: for a hash."""
    return [[overlay.kind, overlay.anchor_hash, overlay.start, overlay.content] for overlay in overlays]


def _changed(chunk: Chunk, overlay: Overlay) -> Chunk:
    if overlay.kind == DISABLE:
        return replace(chunk, enabled=False)
    same = chunk.content == overlay.content
    embedding, tokens = (chunk.embedding, chunk.tokens) if same else (None, None)
    attributes = {**chunk.attributes, MARK: EDIT}
    return replace(chunk, content=overlay.content, attributes=attributes, embedding=embedding, tokens=tokens)


def _added(anchor: Chunk, overlay: Overlay, number: int) -> Chunk:
    return replace(
        anchor,
        chunk_index=number,
        content=overlay.content,
        start=anchor.end,
        attributes={**anchor.attributes, MARK: ADD},
        embedding=None,
        tokens=None,
        enabled=True,
    )


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
