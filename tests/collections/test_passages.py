"""Text put together from its chunks, and compared under two cuts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collections_app.chunks.preview import ChunkSpan, compare_pieces, join_chunks
from ragd.text.chunking import chunk
from ragd.types import ChunkPolicy

TEXTS = st.lists(st.sampled_from(["one", "two three", "# Title", "a. b. c.", "x" * 9]), max_size=20).map("\n\n".join)


@given(TEXTS, st.integers(2, 9))
def test_joined_chunks_are_the_text_but_for_white_space(text: str, target: int) -> None:
    cut = chunk(text, ChunkPolicy(target_tokens=target, overlap_tokens=1))
    joined = join_chunks([(item.start, item.content) for item in cut])
    assert joined.split() == text.split()
    begin = cut[0].start if cut else 0
    for item in cut:
        assert joined[item.start - begin : item.end - begin] == item.content


@given(TEXTS, st.integers(2, 9), st.integers(2, 9))
def test_compared_pieces_are_the_text_with_every_edge(text: str, one: int, other: int) -> None:
    then = chunk(text, ChunkPolicy(target_tokens=one, overlap_tokens=1))
    now = chunk(text, ChunkPolicy(target_tokens=other, overlap_tokens=0))
    spans = [[ChunkSpan(item.chunk_index, item.start, item.end) for item in cut] for cut in (then, now)]
    pieces = compare_pieces(text, 0, *spans)
    assert "".join(piece.text for piece in pieces) == text
    assert [index for piece in pieces for index in piece.begins] == [item.chunk_index for item in then]
    assert sum(piece.began for piece in pieces) == len(now)
    starts = {item.start for item in now}
    assert sum(piece.same for piece in pieces) == sum(item.start in starts for item in then)
