"""chunk(): the promises for any text and policy, then the rules one by one on small texts."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragd.errors import InvalidInput
from ragd.normalization import has_visible
from ragd.text.chunking import bind, chunk, document_text, segment_spans
from ragd.text.splitter import divides_grapheme
from ragd.types import Chunk, ChunkPolicy, Segment
from tests.refusals import raises_with

LINES = [
    "", " ", "\t", "One.", "Two words.", "A longer sentence of eight plain short words.", "no mark here",
    "# H1", "## H2 `code`", "### H3 ##", "#", "Title", "=====", "-----", "---", "key: value",
    "```", "```python", "~~~", "~~~~", "    ```", "- item", "  - nested item", "1. first", "> quote", "> ```",
    "| a | b |", "|---|---|", "<pre>", "</pre>", "<!--", "-->", "<div>",
    "汉字没有空格。第二句！", "x" * 50, "e\u0301" * 20, "👩‍👩‍👧‍👦🇩🇪🇫🇷", "Dr. Who? Yes! etc. 3.14",
]  # fmt: skip
MARKDOWN = st.lists(st.sampled_from(LINES), max_size=40).map("\n".join)
ANY_TEXT = MARKDOWN | st.text(max_size=300) | st.text(alphabet="a .\n#`|-é汉\u0301", max_size=400)


@st.composite
def policies(draw: st.DrawFn) -> ChunkPolicy:
    target = draw(st.integers(1, 40))
    return ChunkPolicy(
        kind=draw(st.sampled_from(("words", "structure"))),
        target_tokens=target,
        overlap_tokens=draw(st.integers(0, target - 1)),
        max_chars=draw(st.integers(1, 300)),
    )


def check(chunks: list[Chunk], text: str, policy: ChunkPolicy) -> None:
    covered, previous = 0, (-1, -1)
    for place, item in enumerate(chunks):
        assert (item.doc_id, item.chunk_index) == ("", place)
        assert item.content == text[item.start : item.end] == item.content.strip() != ""
        assert len(item.content.split()) <= policy.target_tokens
        assert len(item.content) <= policy.max_chars
        assert item.start > previous[0] and item.end > previous[1]
        assert not text[covered : item.start].strip()
        covered, previous = item.end, (item.start, item.end)
    assert not text[covered:].strip() or (not chunks and not has_visible(text))


@settings(max_examples=6 * settings().max_examples)
@given(ANY_TEXT, policies())
@example("#", ChunkPolicy())
@example("```", ChunkPolicy(target_tokens=1, overlap_tokens=0, max_chars=1))
@example("===", ChunkPolicy(max_chars=1))
def test_promises_for_any_text(raw: str, policy: ChunkPolicy) -> None:
    chunks = chunk(raw, policy)
    check(chunks, document_text(raw), policy)
    assert chunks == chunk(document_text(raw), policy)


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(ANY_TEXT, max_size=8), policies())
def test_promises_for_any_segments(texts: list[str], policy: ChunkPolicy) -> None:
    segments = [Segment(text, float(place), place + 0.5) for place, text in enumerate(texts)]
    text, spans = document_text(segments), segment_spans(segments)
    chunks = chunk(segments, policy)
    check(chunks, text, policy)
    for item in chunks:
        touched = [place for place, (start, end, *_) in enumerate(spans) if start < item.end and end > item.start]
        first, last = item.metadata["segment_start"], item.metadata["segment_end"]
        assert (first, last) == (touched[0], touched[-1])
        assert (item.metadata["t_start"], item.metadata["t_end"]) == (float(first), last + 0.5)


DIGESTS = (
    "805d11b1e85b7e55", "f9242fa82f3d1b8b", "7d883f321c939340", "72dceeedfb79d23e", "07d02f5f77c2177a",
    "f7988d8491fc9b61", "c86562b359feae58", "2f25516ba8d734c7", "711c405b08cd93fc", "fa80c4a27a02a7c1",
)  # fmt: skip


@pytest.mark.parametrize("hundred", range(10))
def test_chunks_stay_what_they_were(hundred: int) -> None:
    """Every field but attributes and context of the chunks of a hundred texts under five policies. Another digest means
    other chunks: documents that were indexed before would be cut, and embedded, anew."""
    rng = random.Random(11)
    paragraphs = ["The first sentence of some words. A second one, e.g. with 3.5 %! And a third? " * 9, "word " * 150]
    digest = hashlib.sha256()
    for number in range(100 * hundred + 100):
        lines = [LINES[int(rng.random() * len(LINES))] for _ in range(number % 97)]
        if number < 100 * hundred:
            continue
        text = "\n".join(lines + paragraphs[: number % 3] + lines[: number % 5])
        for kind, target, overlap, chars in (
            ("structure", 600, 120, 4000), ("structure", 40, 13, 200), ("structure", 7, 3, 60), ("words", 40, 13, 200),
            ("words", 160, 32, 1280),
        ):  # fmt: skip
            policy = ChunkPolicy(kind=kind, target_tokens=target, overlap_tokens=overlap, max_chars=chars)  # type: ignore[arg-type]
            for item in chunk(text, policy):
                fields = repr(replace(item, attributes={}, context=""))
                digest.update(fields.replace(", enabled=True, attributes={})", ")").encode())
    assert digest.hexdigest()[:16] == DIGESTS[hundred]


def contents(text: str, target: int = 10, overlap: int = 0, chars: int = 1000, kind: str = "structure") -> list[str]:
    policy = ChunkPolicy(kind=kind, target_tokens=target, overlap_tokens=overlap, max_chars=chars)  # type: ignore[arg-type]
    return [item.content for item in chunk(text, policy)]


def headings(text: str, target: int = 10, chars: int = 1000) -> list[list[str]]:
    policy = ChunkPolicy(target_tokens=target, overlap_tokens=0, max_chars=chars)
    return [item.metadata.get("headings", []) for item in chunk(text, policy)]


@pytest.mark.parametrize("segments", [[], [Segment("")], [Segment(" "), Segment("\n")]])
def test_blank_segments_give_no_chunk(segments: list[Segment]) -> None:
    assert chunk(segments, ChunkPolicy()) == []


def test_words_slide_with_overlap() -> None:
    assert contents("1 2 3 4 5 6 7 8 9 10", target=4, overlap=1, kind="words") == ["1 2 3 4", "4 5 6 7", "7 8 9 10"]


def test_words_without_overlap_keep_white_space_inside() -> None:
    assert contents(" 1  2\n\n3 4\t5 ", target=2, kind="words") == ["1  2", "3 4", "5"]


def test_a_short_window_repeats_its_share_of_words() -> None:
    """Half of the words are to overlap; of two long ones that is one."""
    assert contents("aaaa bbbb cccc dddd", target=10, overlap=5, chars=10, kind="words") == [
        "aaaa bbbb", "bbbb cccc", "cccc dddd",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["words", "structure"])
def test_a_word_longer_than_a_chunk_is_cut(kind: str) -> None:
    assert contents("ab " + "c" * 25 + " d", chars=10, kind=kind) == ["ab", "c" * 10, "c" * 10, "ccccc d"]


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("aaaaq\u0308\u0301bb", ["aaaa", "q\u0308\u0301bb"]),
        ("aaa👩\u200d👧bbb", ["aaa", "👩\u200d👧bb", "b"]),
        ("aaa👍\U0001f3fdb", ["aaa👍\U0001f3fd", "b"]),
        ("aaaa🇩🇪b", ["aaaa", "🇩🇪b"]),
        ("🇩🇪🇫🇷🇮🇹", ["🇩🇪🇫🇷", "🇮🇹"]),
    ],
)
def test_a_cut_keeps_graphemes_whole(text: str, cuts: list[str]) -> None:
    assert contents(text, chars=5) == cuts


def test_cjk_is_cut_behind_sentences() -> None:
    assert contents("今天天气很好。我们去公园吧！好吗？", chars=10) == ["今天天气很好。", "我们去公园吧！好吗？"]


@pytest.mark.parametrize(
    ("text", "chars", "length"),
    [
        ("一二三四五六七八九十。", 10, 9),  # a closing mark begins no piece
        ("一二三四五六七八「「十", 10, 8),  # an opening one ends none
        ("一二三四五六七八 九十", 10, 8), ("一二三四五六七 八九十", 10, 10),  # a space in the last quarter is better
        ("กขคงจฉชซฌญ่", 10, 9),  # a mark stays with its letter
        ("（（（", 3, 1), ("天" * 10 + "（" * 70, 80, 16),  # as far as the piece goes, or as one grapheme may be long
    ],
)  # fmt: skip
def test_where_text_without_spaces_is_cut(text: str, chars: int, length: int) -> None:
    assert len(contents(text + "天" * 220, 200, chars=chars, kind="words")[0]) == length


def test_what_is_repeated_of_text_without_spaces_begins_with_a_whole_grapheme() -> None:
    policy = ChunkPolicy(kind="words", target_tokens=9, overlap_tokens=4, max_chars=1000)
    assert [item.start for item in chunk("ក\u17d2ខគ" * 70, policy)][:4] == [0, 27, 52, 75]


def test_small_sections_under_one_heading_merge_up_to_the_target() -> None:
    text = "# T\n\na b\n\n## A\n\nc d\n\n## B\n\ne f g h i\n\n## C\n\nj"
    assert contents(text) == ["# T\n\na b\n\n## A\n\nc d", "## B\n\ne f g h i\n\n## C\n\nj"]
    assert headings(text) == [["T"], ["T", "B"]]


def test_a_section_does_not_merge_across_a_higher_heading() -> None:
    assert contents("# A\n\n1 2 3 4 5\n\n## B\n\n6 7 8\n\n# C\n\n9") == [
        "# A\n\n1 2 3 4 5",
        "## B\n\n6 7 8",
        "# C\n\n9",
    ]


def test_the_rest_of_a_split_section_takes_only_what_is_below_its_heading() -> None:
    text = "## A\n\n1 2 3 4 5 6 7\n\n8 9 10\n\n### B\n\n11 12\n\n## C\n\n13"
    assert contents(text) == ["## A\n\n1 2 3 4 5 6 7", "8 9 10\n\n### B\n\n11 12", "## C\n\n13"]
    assert headings(text) == [["A"], ["A"], ["C"]]


def test_headings_with_nothing_between_them_stay_together() -> None:
    text = "# A\n\n## B\n\n1 2 3 4 5 6 7 8\n\n9 10"
    assert contents(text, target=8) == ["# A\n\n## B\n\n1 2 3 4", "5 6 7 8\n\n9 10"]
    assert headings(text, target=8) == [["A", "B"], ["A", "B"]]


def test_a_heading_stays_with_the_text_below_it() -> None:
    assert contents("1 2 3 4 5 6\n\n# A\n\n7 8. 9 10 11 12 13 14. 15") == [
        "1 2 3 4 5 6",
        "# A\n\n7 8. 9 10 11 12 13 14.",
        "15",
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("Title\n=====\n\ntext", ["Title"]),
        ("Title\n---\ntext", ["Title"]),
        ("# A\n\nB\n---\n\ntext", ["A", "B"]),
        ("#\ttab", ["tab"]),
        ("   ## indented ##  ", ["indented"]),
        ("# The `code` of [a link](http://x) <a name='y'></a>\\<b> &amp; **c**", ["The code of a link <b> & c"]),
        ("---\ntitle: x\n---\n\n# A\n\ntext", ["A"]),
        ("\n\n# A", ["A"]),
        ("# " + "long " * 100, [("long " * 40).strip()]),
        ("#hash\n\n####### seven\n\n    # code", []),
        ("two\nlines\n---\ntext", []),
        ("- item\n---\n", []),
        ("# A\n===\n\ntext", ["A"]),
        ("> quote\n===", []),
        ("text\n> ---", []),
        ("> # quoted", []),
        ("text\n\n---\n\ntext", []),
        ("```\n# not\n```", []),
        ("~~~\n# not\n```\n# nor\n~~~", []),
        ("````\n```\n# not\n````", []),
        ("- a\n\n  ```\n# not\n  ```", []),
        ("> ```\n> # not\n> ```", []),
        ("```\n# not, and nothing closes it", []),
        ("<pre>\n\n# not\n\n</pre>", []),
        ("<!-- a\n\n# not\n\n-->", []),
        ("<![CDATA[ a\n\n# not\n\n]]>", []),
        ("<? a\n\n# not\n\n?>", []),
        ("<STYLE>\n\n# not\n\n</style>", []),
        (f"{'a' * 200}\n---\n\ntext", ["a" * 200]),
        (f"{'a' * 201}\n---\n\ntext", []),
        ("# A" + "\n" * 80 + "## B\n\ntext", ["A", "B"]),
        ("# A" + "\n" * 80 + "text\n\n## B", ["A"]),
        ("plain", []),
    ],
)
def test_heading_path(text: str, path: list[str]) -> None:
    assert headings(text, target=1000) == [path]


@pytest.mark.parametrize(
    "text", ["- ```\n\n# yes", "> ~~~\n\n# yes", "<!-- open\n\n# yes", "<pre>\n\n# yes", "`` `\n# yes", "```a`b\n# yes"]
)
def test_what_nothing_closes_inside_a_list_or_html_hides_nothing(text: str) -> None:
    assert headings(text, target=2)[-1] == ["yes"]


def test_paths_follow_levels() -> None:
    text = "# A\n\n1 2\n\n### B\n\n3 4\n\n## C\n\n5 6\n\n#### D\n\n7 8\n\n# E\n\n9 10"
    assert headings(text, target=4) == [["A"], ["A", "B"], ["A", "C"], ["A", "C", "D"], ["E"]]


def test_blocks_stay_whole_where_they_fit() -> None:
    code = "```c\nint a;\n\nint b;\n```"
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    text = f"1 2 3 4 5 6\n{code}\n7 8 9 10\n\n{table}\n\n- x y\n- z"
    assert contents(text, target=12) == ["1 2 3 4 5 6\n" + code, "7 8 9 10", table, "- x y\n- z"]


def test_list_items_are_blocks() -> None:
    assert contents("Intro:\n\n- 1 2 3 4\n- 5 6\n  7 8\n- 9", target=11) == ["Intro:\n\n- 1 2 3 4\n- 5 6\n  7 8", "- 9"]


def test_long_code_and_tables_are_split_by_lines() -> None:
    assert contents("```\na b c d.\ne f g. H\ni j\n```", target=5) == ["```\na b c d.", "e f g. H", "i j\n```"]
    assert contents("| a |\n| b. C |\n| d |", target=6) == ["| a |", "| b. C |", "| d |"]


def test_long_paragraphs_are_split_by_sentences_then_words() -> None:
    assert contents("1 2 3. 4 5 6. 7 8", target=7) == ["1 2 3. 4 5 6.", "7 8"]
    assert contents("1 2 3 4 5 6 7 8", target=3) == ["1 2 3", "4 5 6", "7 8"]


def test_lines_without_sentences_are_cut_at_their_ends() -> None:
    assert contents("a b c\nd e f\ng h i", target=7) == ["a b c\nd e f", "g h i"]


def test_overlap_is_whole_sentences_of_a_divided_block_only() -> None:
    assert contents("A b c. D e. F g h. I j k. L m n.", target=8, overlap=4) == [
        "A b c. D e. F g h.", "F g h. I j k.", "I j k. L m n.",
    ]  # fmt: skip
    assert contents("1 2 3 4 5\n\n6 7 8 9 10\n\n11", target=6, overlap=5) == ["1 2 3 4 5", "6 7 8 9 10\n\n11"]


def test_segments_are_cut_at_their_edges() -> None:
    segments = [Segment("a b c. d", 0.0, 1.5), Segment("e f", 1.5, 2.0), Segment(""), Segment("g h i j", 2.5, None)]
    for kind in ("structure", "words"):
        chunks = chunk(segments, ChunkPolicy(kind=kind, target_tokens=7, overlap_tokens=0))
        assert [(item.content, dict(item.metadata)) for item in chunks] == [
            ("a b c. d\ne f", {"segment_start": 0, "segment_end": 1, "t_start": 0.0, "t_end": 2.0}),
            ("g h i j", {"segment_start": 3, "segment_end": 3, "t_start": 2.5}),
        ]


def test_segment_spans_and_text() -> None:
    segments = [Segment("a\r\nb", 0, 1), Segment("\x00"), Segment("e\u0301", None, 3)]
    assert document_text(segments) == "a\nb\n\né"
    assert segment_spans(segments) == [(0, 3, 0, 1), (4, 4, None, None), (5, 6, None, 3)]


def test_overlap_begins_at_the_edge_of_a_segment_where_one_is_in_it() -> None:
    segments = [Segment("a b"), Segment("cccccc dddddd eeeeee ffffff gggggg")]
    chunks = chunk(segments, ChunkPolicy(kind="words", target_tokens=5, overlap_tokens=4))
    assert [item.content for item in chunks] == ["a b\ncccccc dddddd eeeeee", "cccccc dddddd eeeeee ffffff gggggg"]


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_any_white_space_parts_words(blank: str) -> None:
    assert contents(blank.join(["aa", "bb", "cc", "dd"]), target=3) == [blank.join(["aa", "bb", "cc"]), "dd"]


def test_a_gap_wider_than_a_chunk_repeats_no_word() -> None:
    assert contents("aa bb      cccc dd", target=2, overlap=1, chars=5, kind="words") == ["aa bb", "cccc", "dd"]


@pytest.mark.parametrize(
    ("above", "path"), [("", ["Title"]), (" " * 80, ["Title"]), ("x", []), (" x", []), ("#", ["Title"])]
)
def test_an_underlined_title_stands_alone(above: str, path: list[str]) -> None:
    assert headings(f"a\n{above}\nTitle\n=====\n\ntext", target=2)[-1] == path


def test_table_rows_stay_whole_where_sentences_end_in_them() -> None:
    rows = ["| A one. B two. |", "| C three. D four. |", "| E five. F six. |"]
    assert contents("\n".join(rows), target=9) == rows


@pytest.mark.parametrize(
    ("text", "divided"),
    [
        ("ab", False),
        ("a\u0301", True),  # a mark
        ("\u0301a", False),
        ("👩\u200d", True),  # a joiner, and what it joins
        ("\u200d👩", True),
        ("a\u034f", True),
        ("👍\U0001f3fa", False),  # before the modifiers of skin tone
        ("👍\U0001f3fb", True),
        ("👍\U0001f3ff", True),
        ("👍\U0001f400", False),
        ("🇩🇪", True),
        ("🇩🇪🇫", False),
        ("🇩🇪🇫🇷", True),
        ("a🇩", False),
        ("🇩a", False),
    ],
)
def test_a_grapheme_is_not_divided_before_the_last_character(text: str, divided: bool) -> None:
    assert divides_grapheme(text, len(text) - 1) is divided


def test_what_is_neither_text_nor_segments_is_refused() -> None:
    with raises_with(InvalidInput, field="text_or_segments"):
        chunk([{"text": "a"}], ChunkPolicy())  # type: ignore[list-item]


def test_bind() -> None:
    chunks = chunk("# Guide\n\n1 2\n\n## A\n\n3 4\n\n5 6", ChunkPolicy(target_tokens=4, overlap_tokens=0))
    bound = bind(
        chunks, doc_id="d", title="Guide", tags=["x"], metadata={"lang": "en", "headings": "no"},
        page_map=[(0, 15, "i"), (15, 24, "ii")],
    )  # fmt: skip
    assert [(item.doc_id, item.tags, item.context, item.metadata) for item in bound] == [
        ("d", ("x",), "Guide", {"lang": "en", "headings": "no", "page": "i"}),
        ("d", ("x",), "Guide > A", {"lang": "en", "headings": "no", "page": "i"}),
        ("d", ("x",), "Guide > A", {"lang": "en", "headings": "no"}),
    ]
    assert [item.content for item in bound] == [item.content for item in chunks]


def test_bind_without_title_or_headings() -> None:
    (plain,) = bind(chunk("a", ChunkPolicy()), doc_id="d")
    assert (plain.context, plain.metadata, plain.embed_text) == ("", {}, "a")
    (headed,) = bind(chunk("# H\n\na", ChunkPolicy()), doc_id="d")
    assert headed.context == "H"
    (titled,) = bind(chunk("# H\n\na", ChunkPolicy()), doc_id="d", title="T", page_map=[(1, 5, "i")])
    assert (titled.context, titled.metadata) == ("T > H", {"headings": ["H"]})
    assert [item.context for item in bind(chunk("a", ChunkPolicy()), doc_id="d", title="T")] == ["T"]
    assert bind([], doc_id="d") == []


def test_bind_needs_a_document() -> None:
    with raises_with(InvalidInput, field="doc_id"):
        bind([], doc_id="")


@pytest.mark.fault("F22")
@pytest.mark.parametrize("kind", ["structure", "words"])
@pytest.mark.parametrize("count", [161, 321, 1000])
def test_pieces_of_a_text_without_sentences_overlap_by_words(kind: Any, count: int) -> None:
    words = [f"w{number}" for number in range(count)]
    pieces = [each.content.split() for each in chunk(" ".join(words), ChunkPolicy(kind, 160, 32))]
    assert all(len(each) == 160 for each in pieces[:-1]) and 32 < len(pieces[-1]) <= 160
    assert all(before[-32:] == after[:32] for before, after in pairwise(pieces))
    assert pieces[0] + [word for each in pieces[1:] for word in each[32:]] == words


@pytest.mark.fault("F5")
def test_keys_of_the_document_win_in_metadata_and_not_in_attributes() -> None:
    segments = [Segment("# A\n\nx", 1.0, 2.0)]
    own = {"headings": "mine", "t_end": None, "page": 9}
    (bound,) = bind(chunk(segments, ChunkPolicy()), doc_id="d", metadata=own, page_map=[(0, 6, "iv")])
    assert bound.metadata == own | {"segment_start": 0, "segment_end": 0, "t_start": 1.0}
    told = {"section": ["A"], "segment_start": 0, "segment_end": 0, "t_start": 1.0, "t_end": 2.0, "page_label": "iv"}
    assert {name: bound.attributes[name] for name in told} == told


@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    "times", [(-1, None), (None, -0.5), (5, 2), (float("nan"), None), (None, float("inf")), (True, None)]
)
def test_times_of_a_segment_are_seconds_in_order(times: Any) -> None:
    with pytest.raises(InvalidInput):
        Segment("x", *times)


@pytest.mark.parametrize("kind", ["words", "structure"])
@pytest.mark.parametrize("text", ["", " \n\t\n", "\x00\ufeff\r\n"])
def test_blank_text_gives_no_chunk(text: str, kind: str) -> None:
    assert contents(text, kind=kind) == []


def test_words_never_exceed_max_chars() -> None:
    assert contents("aaa bbb ccc ddd", chars=8, kind="words") == ["aaa bbb", "ccc ddd"]
