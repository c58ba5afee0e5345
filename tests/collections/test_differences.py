"""What differs between two lists of chunks: aligned by content, words marked, equal runs folded."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collections_app.documents.revisions.differences import (
    COMPARISONS_MAX,
    Aligner,
    FieldChange,
    Part,
    compare_chunks,
    compare_fields,
    mark_words,
)
from collections_app.documents.revisions.services import RevisionChunk


def chunks(*contents: str, context: str = "") -> list[RevisionChunk]:
    return [RevisionChunk(number, 0, 0, content, context, True) for number, content in enumerate(contents)]


def told(before: list[str], after: list[str]) -> list[tuple[str, int | None, int | None, int]]:
    found = compare_chunks(chunks(*before), chunks(*after))
    return [
        (each.kind, each.before.index if each.before else None, each.after.index if each.after else None, each.count)
        for each in found.changes
    ]


def test_equal_runs_are_folded_around_what_changed() -> None:
    before = ["one", "two", "three words here", "four", "five"]
    after = ["one", "two", "three words there", "four", "five", "six"]
    assert told(before, after) == [("same", 0, 0, 2), ("changed", 2, 2, 1), ("same", 3, 3, 2), ("added", None, 5, 1)]
    found = compare_chunks(chunks(*before), chunks(*after))
    assert found.counts == {"same": 4, "changed": 1, "added": 1, "removed": 0}
    assert not found.is_same
    assert compare_chunks(chunks(*before), chunks(*before)).is_same


def test_what_shares_too_few_words_is_removed_and_added() -> None:
    assert told(["a b c"], ["x y z"]) == [("removed", 0, None, 1), ("added", None, 0, 1)]
    assert told([], ["x"]) == [("added", None, 0, 1)]
    assert told(["x"], []) == [("removed", 0, None, 1)]
    assert told([], []) == []


def test_a_chunk_put_in_between_moves_no_other() -> None:
    before = ["a a a", "b b b", "c c c"]
    assert told(before, ["a a a", "new words", "b b b", "c c c"]) == [
        ("same", 0, 0, 1),
        ("added", None, 1, 1),
        ("same", 1, 2, 2),
    ]


def test_repeated_chunks_are_aligned_at_the_ends() -> None:
    assert told(["x", "x", "x"], ["x", "x"]) == [("same", 0, 0, 2), ("removed", 2, None, 1)]


def test_the_most_alike_are_paired() -> None:
    before = ["the cat sat on a mat", "birds fly over the sea"]
    after = ["birds fly over the lake", "the cat sat on a hat"]
    kinds = [kind for kind, *_ in told(before, after)]
    assert kinds.count("changed") == 1  # of a crossing pair only one can stay in order
    assert told(before, [after[1]]) == [("changed", 0, 0, 1), ("removed", 1, None, 1)]


def test_another_context_is_a_change_of_the_chunk() -> None:
    (change,) = compare_chunks(chunks("text", context="Old"), chunks("text", context="New")).changes
    assert change.kind == "changed"
    assert change.context_parts() == [Part("removed", "Old"), Part("added", "New")]
    assert change.parts() == [Part("same", "text")]


def test_long_documents_are_compared_in_bounded_steps() -> None:
    before = [f"text {number} one" for number in range(30_000)]
    after = [f"text {number} two" for number in range(30_000)]
    aligner = Aligner(before, after)
    pairs = aligner.align()
    assert aligner.by_order
    assert aligner.comparisons <= COMPARISONS_MAX
    assert pairs == [(number, number) for number in range(30_000)]
    after = [text if number % 3 else f"{text} more" for number, text in enumerate(before)]
    aligner = Aligner(before, after)
    assert aligner.align() == [(number, number) for number in range(30_000)]
    assert not aligner.by_order


words = st.lists(st.sampled_from(["a", "b", "c d", "e f g", "h\n"]), max_size=12)


@given(words, words)
def test_an_alignment_names_everything_once_and_in_order(before: list[str], after: list[str]) -> None:
    pairs = Aligner(before, after).align()
    olds = [old for old, _ in pairs if old is not None]
    news = [new for _, new in pairs if new is not None]
    assert olds == list(range(len(before)))
    assert news == list(range(len(after)))
    assert all(old is not None or new is not None for old, new in pairs)


@given(st.text(alphabet="ab \n", max_size=40), st.text(alphabet="ab \n", max_size=40))
def test_marked_words_give_both_texts_again(before: str, after: str) -> None:
    parts = mark_words(before, after)
    assert "".join(part.text for part in parts if part.kind != "added") == before
    assert "".join(part.text for part in parts if part.kind != "removed") == after
    assert all(part.text for part in parts)


def test_texts_of_very_many_words_are_told_whole() -> None:
    before, after = "a " * 3000, "b " * 3000
    assert mark_words(before, after) == [Part("removed", before), Part("added", after)]


def test_fields_are_compared_key_by_key() -> None:
    before: dict[str, Any] = {"title": "A", "metadata": {"n": 1, "gone": True, "same": [1]}}
    after: dict[str, Any] = {"title": "B", "metadata": {"n": 2, "same": [1], "new": None}}
    assert compare_fields(before, after) == [
        FieldChange("metadata.gone", True, None),
        FieldChange("metadata.n", 1, 2),
        FieldChange("metadata.new", None, None),
        FieldChange("title", "A", "B"),
    ]
