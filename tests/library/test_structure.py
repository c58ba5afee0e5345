"""Attributes of chunks: place, block, speaker, mail; table headers beside chunks; cells of a spreadsheet."""

from __future__ import annotations

import pytest

from ragd.text import tables
from ragd.text.chunking import bind, chunk
from ragd.text.structure import Structure, block_kind
from ragd.types import Candidate, Chunk, ChunkPolicy, Segment
from retrieval_app.answers.citations import place_of
from retrieval_app.answers.extractive_answerer import read_sentences

HEADER = "| article | price |"
ROWS = [f"| A-{n} | {n}.5 |" for n in range(2, 60)]
TABLE = "\n".join(["## Prices", "", HEADER, "| --- | --- |", *ROWS])
BODY = TABLE.index(ROWS[0])
SMALL = ChunkPolicy(target_tokens=40, overlap_tokens=0, max_chars=400)
# row 30 of the sheet is empty
CELLS = [
    (TABLE.index(HEADER), TABLE.index(HEADER) + len(HEADER), "Prices", "A,C", "1"),
    (BODY, len(TABLE), "Prices", "A,C", "2:29,31:60"),
]


def bound(text: str, policy: ChunkPolicy = SMALL, **values: object) -> list[Chunk]:
    page_map = values.get("page_map", ())
    structure = Structure(text, **values)  # type: ignore[arg-type]
    return bind(chunk(text, policy), doc_id="d", title="List", page_map=page_map, structure=structure)  # type: ignore[arg-type]


def test_each_chunk_of_a_table_is_whole_rows_and_knows_the_header() -> None:
    chunks = bound(TABLE)
    assert len(chunks) > 5
    assert chunks[0].context == "List > Prices" and HEADER in chunks[0].content
    for item in chunks[1:]:
        assert item.context == f"List > Prices\n{HEADER}" and HEADER not in item.content
        assert set(item.content.split("\n")) <= set(ROWS) and item.content == TABLE[item.start : item.end]
        assert item.embed_text.startswith(f"List > Prices\n{HEADER}\n| A-")
        assert item.attributes["block"] == "table" and item.attributes["section"] == ["Prices"]


def test_a_header_is_repeated_only_beside_rows_that_stand_below_dashes() -> None:
    bars = "\n".join(ROWS)
    assert {item.context for item in bound(bars)} == {"List"}
    followed = TABLE + "\n\n" + "Words after the table. " * 60
    assert {item.context for item in bound(followed) if "|" not in item.content} == {"List > Prices"}


def test_a_row_that_alone_is_too_long_is_divided_and_a_wide_header_cut_behind_a_cell() -> None:
    text = "\n".join([HEADER, "| --- | --- |", "| A-1 | " + "word " * 100 + "|"])
    chunks = bound(text)
    assert len(chunks) > 2 and chunks[-1].context.endswith(HEADER)
    wide = "|" + "".join(f" column {n} |" for n in range(50))
    chunks = bound("\n".join([wide, "|" + " --- |" * 50, *["|" + " x |" * 50] * 3]))
    header = chunks[-1].context.partition("\n")[2]
    assert header.endswith(" |") and wide.startswith(header) and 60 < len(header) <= SMALL.max_chars // 4


def test_rows_and_cells_follow_the_numbers_of_the_sheet() -> None:
    chunks = bound(TABLE, cell_map=CELLS)
    assert (chunks[0].attributes["sheet"], chunks[0].attributes["row"]) == ("Prices", 1)
    assert [item.attributes["row"] for item in chunks[1:]] == [
        each.attributes["row_end"] + (2 if each.attributes["row_end"] == 29 else 1) for each in chunks[:-1]
    ]
    assert chunks[-1].attributes["row_end"] == 60
    for item in chunks[1:]:
        for line in item.content.split("\n"):
            number = int(line.split("|")[1].strip()[2:])
            start = item.start + item.content.index(line)
            found = tables.address(item.attributes["cells"], item.content, item.start, start, start + len(line))
            row = number if number < 30 else number + 1
            assert found == (f"Prices!A{row}:C{row}", "Prices", (row, row))
            price = start + line.index(f"{number}.5")
            found = tables.address(
                item.attributes["cells"], item.content, item.start, price, price + len(f"{number}.5")
            )
            assert found is not None and found[0] == f"Prices!C{row}"


def test_clipping_from_anywhere_gives_what_clipping_in_order_gives() -> None:
    feeds = tables.line_feeds(TABLE)
    for start in range(0, len(TABLE), 7):
        rows = [entry[4] for entry in tables.clip_cells(CELLS, feeds, start, start + 1)]
        line = TABLE.count("\n", 0, start)
        expected = [] if line in (0, 1, 3) else ["1" if line == 2 else str(line - 2 if line - 2 < 30 else line - 1)]
        assert TABLE[start] == "\n" or rows == expected


@pytest.mark.parametrize(("sheet", "cell"), [("Prices 2024", "'Prices 2024'!A1"), ("Bob's", "'Bob''s'!A1"), ("", "A1")])
def test_names_of_sheets_are_written_as_spreadsheets_write_them(sheet: str, cell: str) -> None:
    found = tables.address([(0, 3, sheet, "A", "1")], "abc", 0, 0, 3)
    assert found is not None and found[0] == cell


def test_columns_and_runs() -> None:
    assert [tables.column_name(n) for n in (1, 26, 27, 702, 703, 16384)] == ["A", "Z", "AA", "ZZ", "AAA", "XFD"]
    assert all(tables.column_number(tables.column_name(n)) == n for n in range(1, 2000))
    assert tables.spell_columns([1, 2, 3, 28]) == "A:C,AB" and tables.read_columns("A:C,AB") == [1, 2, 3, 28]
    assert tables.spell_numbers([4, 5, 9]) == "4:5,9" and tables.spell_numbers([]) == ""


def test_a_row_is_quoted_with_its_cells() -> None:
    (item,) = [each for each in bound(TABLE, cell_map=CELLS) if "A-40 " in each.content]
    source = Candidate(
        "d", 3, item.content, 1.0, start=item.start, end=item.end, context=item.context, attributes=item.attributes
    )
    rows = {sentence.text: sentence for sentence in read_sentences([source])}
    row = rows["A-40 | 40.5"]
    assert row.read_as == "article: A-40; price: 40.5" and row.columns == ("article", "price")
    assert source.content[row.start : row.end] == row.text
    place = place_of(source, row.start, row.end)
    assert (place.label, place.cells) == ("sheet Prices, row 41", "Prices!A41:C41")
    assert HEADER.strip("| ") not in rows


def test_pages_slides_messages_and_chapters_come_from_the_labels() -> None:
    text = "alpha beta\n\ngamma delta\n\nepsilon"
    pages = [(0, 10, "page 3 (iv)"), (12, 23, "page 4"), (25, 32, "slide 2")]
    whole = Structure(text, page_map=pages)
    assert whole.attributes(Chunk("d", 0, text[:23], 0, 23)) == {
        "page": 3, "page_end": 4, "pages": [[12, "page 4"]],
    }  # fmt: skip
    assert whole.attributes(Chunk("d", 1, text[25:], 25, 32)) == {"slide": 2}
    assert whole.attributes(Chunk("d", 1, "", 11, 12)) == {}
    book = Structure(text, page_map=[(0, 32, "The barrel")], media_type="application/epub+zip")
    assert book.attributes(Chunk("d", 0, text, 0, 32))["chapter"] == "The barrel"


def test_mail_headers_are_those_of_the_chunks_message() -> None:
    one = (
        "## Lunch\n\nFrom: Ada <ada@example.org>\nTo: bob@example.org\nDate: Mon, 2 Mar 2026 10:00:00 +0000\n\nAt noon."
    )
    two = "## Dinner\n\nFrom: eve@example.org\n\nFrom: nobody wrote this"
    text = f"{one}\n\n{two}"
    pages = [(0, len(one), "message 1"), (len(one) + 2, len(text), "message 2")]
    mails = Structure(text, page_map=pages, media_type="application/mbox")
    first, second = (mails.attributes(Chunk("d", 0, "x", at, at + 1)) for at in (len(one) - 3, len(text) - 3))
    assert (first["message"], first["subject"], first["sender"]) == (1, "Lunch", "Ada <ada@example.org>")
    assert (first["recipient"], first["sent_at"]) == ("bob@example.org", "2026-03-02T10:00:00+00:00")
    assert (second["message"], second["subject"], second["sender"]) == (2, "Dinner", "eve@example.org")
    assert "sent_at" not in second and "recipient" not in second


def test_the_speaker_is_who_says_most_of_the_chunk() -> None:
    text = "Ada Byron: Short.\nBob: This is a much longer thing to say.\nand more\nAda Byron: Yes.\nBob: No."
    known = Structure(text, is_transcript=True)
    said = [known.attributes(Chunk("d", 0, "", *span)).get("speaker") for span in ((0, 17), (0, 60), (62, 66))]
    assert said == ["Ada Byron", "Bob", "Bob"]
    segments = [Segment(line) for line in text.split("\n")]
    assert chunk(segments, SMALL) and Structure(text).attributes(Chunk("d", 0, "", 0, 17))["speaker"] == "Ada Byron"
    assert "speaker" not in Structure("Note: one\nplain\nplain text\nNote: two").attributes(Chunk("d", 0, "", 0, 9))
    caption = Structure("Ada: Once.", media_type="text/vtt").attributes(Chunk("d", 0, "", 0, 10))
    assert caption == {"speaker": "Ada", "media_type": "text/vtt"}


def test_what_the_file_says_of_its_times_is_kept_where_it_is_a_time() -> None:
    known = Structure("x", file_metadata={"created_at": "2024-05-01T10:00:00+00:00", "modified_at": "yesterday"})
    assert known.attributes(Chunk("d", 0, "x", 0, 1)) == {"file_created_at": "2024-05-01T10:00:00+00:00"}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("plain text - with a dash", "text"),
        ("# Head\n\n| a | b |\n| - | - |\n| 1 | 2 |", "table"),
        ("# A long heading over the list\n\n- one\n- two\n  and on\n1. three", "list"),
        ("Some text.\n\n```\nint main() { return 0; }\n```", "code"),
        ("A sentence that is longer than the table below it.\n\n| a |\n| - |", "text"),
    ],
)
def test_the_kind_of_block(content: str, kind: str) -> None:
    assert block_kind(content) == kind
    assert chunk(content, ChunkPolicy())[0].attributes["block"] == kind


def test_the_middle_of_a_long_code_fence_is_code() -> None:
    text = "Intro.\n\n```\n" + "call(some, arguments)\n" * 80 + "```\n\nThe end of it.\n" + "More words follow. " * 30
    kinds = [item.attributes["block"] for item in chunk(text, SMALL)]
    assert kinds[0] in ("text", "code") and kinds.count("code") > 3 and kinds[-1] == "text"
