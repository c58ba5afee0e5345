"""Words: the counts and places that str.split() gives, for any stretch of the text."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragd.normalization import normalize
from ragd.text import windows
from ragd.text.windows import Words

TEXT = st.text(st.sampled_from("ab .\n\t\xa0\u2003\u3000é汉😀"), min_size=1, max_size=60).map(normalize)


def test_white_space_is_what_split_takes_for_it() -> None:
    others = [char for char in map(chr, range(0x80, sys.maxunicode + 1)) if char.isspace()]
    assert all(windows._OTHER_SPACE.fullmatch(char) for char in others)
    assert not [
        char for char in "".join(map(chr, range(0x80, 0x3100))) if windows._OTHER_SPACE.match(char) and char.split()
    ]


def test_questions_far_from_the_beginning() -> None:
    """Each span begins a stretch of its own; one that lies in the stretch before is read anew."""
    text = "one two! ! three " * 6
    words = Words(text)
    for start in (68, 51, 17, 85):
        end = start + 16
        assert words.count(start, end) == 4
        assert words.limit(start, end, 2) == (start + 9, 2)
        assert words.limit(start, end, 4) == (end, 4)
        assert words.last(start, end, 3) == start + 4
        assert words.last(start, end, 4) is None


@pytest.mark.parametrize("stretch", [1, 7, 1 << 16])
@given(text=TEXT, data=st.data())
def test_spans_from_left_to_right(stretch: int, text: str, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "STRETCH_CHARS", stretch)
        found = Words(text)
        for start in sorted(data.draw(st.lists(st.integers(0, len(text) - 1), max_size=6))):
            if text[start].isspace():
                continue
            end = data.draw(st.integers(start + 1, len(text)))
            most = data.draw(st.integers(1, 8))
            span, parts = text[start:end], text[start:end].split(None, most)
            assert found.count(start, end) == len(span.split())
            beyond = (end - len(parts[-1]), most) if len(parts) > most else (end, len(parts))
            assert found.limit(start, end, most) == beyond
            tail = span.rsplit(None, most)
            first = found.last(start, end, most)
            assert (first is None) == (len(tail) <= most)
            if first is not None:
                assert text[start:first].rstrip() == tail[0]
                assert len(text[first:end].split()) == most and not text[first].isspace()
