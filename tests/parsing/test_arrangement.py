"""Reading order and tables of pages: from words with boxes, and from PDF files.
Places of words on pages: packed, moved along by normalization, sent by the child process."""

from __future__ import annotations

import random
import unicodedata
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragd.readers import PageLayout, ParsedDocument, ParseLimits, Word, parse
from ragd.readers.arrangement.arrange import arrange, is_whole, render
from ragd.readers.arrangement.shapes import PlacedWord, Rule, Table, TextBlock
from ragd.readers.assembly import Assembly
from ragd.readers.layout import PackedWords, pack_words
from tests.parsing.builders import make_pdf

WIDTH, HEIGHT, SIZE = 612.0, 792.0, 10.0
Piece = tuple[float, float, str]
SENTENCE = "the harbour keeps a ledger of copper and timber which the census revised in every quarter of the year"


def placed(pieces: Sequence[Piece]) -> list[PlacedWord]:
    """Words of lines that begin at x, y, five points wide for each character."""
    words = []
    for x, y, line in pieces:
        for word in line.split(" "):
            words.append(PlacedWord(word, x, y, x + 5 * len(word), y + SIZE, " " if words else "\n"))
            x += 5 * len(word) + 3
    return words


def column(x: float, y: float, lines: int, mark: str) -> list[Piece]:
    """Running text: each line holds its mark and number."""
    return [(x, y + 12 * index, f"{mark}{index:02} {SENTENCE[:38]}") for index in range(lines)]


def texts(pieces: Sequence[Piece], rules: Sequence[Rule] = ()) -> list[str | list[list[str]]]:
    """The blocks as their lines, or as rows of cells."""
    words = placed(pieces)
    blocks = arrange(words, rules, WIDTH, HEIGHT)
    assert is_whole(blocks, words)
    result: list[str | list[list[str]]] = []
    for block in blocks:
        if isinstance(block, Table):
            result.append(
                [
                    [" ".join(words[number].text for line in cell.lines for number in line) for cell in row]
                    for row in block.rows
                ]
            )
        else:
            result.append("\n".join(" ".join(words[number].text for number in line) for line in block.lines))
    return result


def grid_rules(xs: Sequence[float], ys: Sequence[float]) -> list[Rule]:
    return [*(Rule(x, ys[0], x, ys[-1]) for x in xs), *(Rule(xs[0], y, xs[-1], y) for y in ys)]


def test_columns_given_in_turn_stay_in_turn_where_no_gutter_is_left() -> None:
    left = [(50.0, 80.0 + 14 * n, f"l{n} ==" + "=" * (5 * n)) for n in range(9)]
    right = [(left[-1][0] + 5 * len(left[-1][2]) - 8, y, f"r{n} value") for n, (_, y, _) in enumerate(left)]
    words = " ".join(str(each) for each in texts([*left, *right])).split()
    assert [word for word in words if word[0] in "lr"] == [f"{side}{n}" for side in "lr" for n in range(9)]
    assert words[0] == "l0"


@pytest.mark.parametrize("order", ["down", "across", "upwards"])
def test_columns_are_read_one_after_the_other_however_they_were_drawn(order: str) -> None:
    title = (60.0, 40.0, "A title that stands over both of the columns of this page and spans them")
    left, right = column(50, 80, 12, "l"), column(320, 80, 10, "r")
    pieces = [title, *left, *right]
    if order == "across":
        pieces.sort(key=lambda piece: (piece[1], piece[0]))
    elif order == "upwards":
        pieces.reverse()
    (text,) = texts(pieces)
    assert isinstance(text, str)
    marks = [line.split(" ")[0] for line in text.split("\n")]
    assert marks == ["A", *(f"l{index:02}" for index in range(12)), *(f"r{index:02}" for index in range(10))]


def test_one_column_keeps_the_order_it_came_in() -> None:
    words = placed(column(50, 80, 20, "x"))
    (block,) = arrange(words, [], WIDTH, HEIGHT)
    assert isinstance(block, TextBlock)
    assert list(block.words()) == list(range(len(words)))


def test_ruled_cells_hold_their_lines_and_merged_ones_stand_first() -> None:
    pieces: list[Piece] = [
        (55, 104, "Name"), (155, 104, "Both years"), (55, 124, "copper"), (55, 136, "wire"), (155, 124, "12"),
        (255, 124, "14"), (55, 154, "timber"), (255, 154, "9"),
    ]  # fmt: skip
    rules = [
        Rule(50, 100, 350, 100),
        Rule(50, 120, 350, 120),
        Rule(50, 150, 350, 150),
        Rule(50, 170, 350, 170),
        Rule(50, 100, 50, 170),
        Rule(150, 100, 150, 170),
        Rule(250, 120, 250, 170),
        Rule(350, 100, 350, 170),
    ]
    above, table, below = texts([*column(50, 40, 4, "a"), *pieces, *column(50, 200, 4, "b")], rules)
    assert table == [["Name", "Both years", ""], ["copper wire", "12", "14"], ["timber", "", "9"]]
    assert str(above).startswith("a00") and str(below).startswith("b00")


def test_a_title_over_all_columns_is_no_row() -> None:
    pieces: list[Piece] = [
        (120, 104, "Stock"),
        (55, 124, "Item"),
        (155, 124, "Count"),
        (55, 144, "oil"),
        (155, 144, "3"),
    ]
    rules = [
        *(Rule(50, y, 250, y) for y in (100, 120, 140, 160)),
        Rule(50, 100, 50, 160),
        Rule(150, 120, 150, 160),
        Rule(250, 100, 250, 160),
    ]
    words = placed(pieces)
    rendered = render(arrange(words, rules, WIDTH, HEIGHT), words)
    assert rendered.text == "Stock\n\n| Item | Count |\n| --- | --- |\n| oil | 3 |"


def test_rows_are_found_without_lines_and_cells_of_two_lines_are_joined() -> None:
    rows = [("Name", "Area", "Note"), ("north", "1,200", "first"), ("south", "80", "second"), ("west", "7", "third")]
    pieces: list[Piece] = []
    for index, row in enumerate(rows):
        y = 100 + 30 * index
        pieces += [(60 + 120 * place, y, value) for place, value in enumerate(row)]
        pieces.append((300, y + 11, f"more{index}"))
    (table,) = texts(pieces)
    assert table == [[name, area, f"{note} more{index}"] for index, (name, area, note) in enumerate(rows)]


def test_lines_above_and_below_the_headings_make_a_table_of_few_rows() -> None:
    pieces: list[Piece] = [
        (60, 104, "Year"), (200, 104, "Tons"), (60, 124, "2019"), (200, 124, "12.5"), (60, 136, "2020"),
        (200, 136, "14"),
    ]  # fmt: skip
    rules = [Rule(50, y, 300, y) for y in (100, 118, 150)]
    assert texts(pieces, rules) == [[["Year", "Tons"], ["2019", "12.5"], ["2020", "14"]]]
    assert texts(pieces)[0] != texts(pieces, rules)[0]


@pytest.mark.parametrize(
    "rows",
    [
        [(str(index + 1), f"let name{index} be the value") for index in range(9)],  # numbered lines
        [(f"Part {index} . . . . . . . .", str(3 * index + 1)) for index in range(9)],  # a list of contents
        [("\u2022", f"point {index} of a list") for index in range(9)],
    ],
)
def test_what_only_looks_like_a_table_stays_text(rows: list[tuple[str, str]]) -> None:
    pieces = [
        piece
        for index, (one, other) in enumerate(rows)
        for piece in ((60.0, 100 + 14.0 * index, one), (300.0, 100 + 14.0 * index, other))
    ]
    blocks = texts(pieces)
    assert all(isinstance(block, str) for block in blocks)


def test_a_grid_that_places_text_is_no_table() -> None:
    pieces = [
        *column(55, 105, 20, "l"),
        *column(325, 105, 20, "r"),
        *column(55, 405, 20, "m"),
        *column(325, 405, 20, "s"),
    ]
    blocks = texts(pieces, grid_rules([50, 310, 600], [100, 400, 700]))
    assert all(isinstance(block, str) for block in blocks)


def test_a_parted_word_is_not_whole() -> None:
    words = [
        PlacedWord("inven", 0, 0, 30, 10),
        PlacedWord("other", 0, 20, 30, 30, " "),
        PlacedWord("tion", 0, 40, 30, 50, ""),
    ]
    assert is_whole([TextBlock([[0], [1, 2]])], words)
    assert not is_whole([TextBlock([[0, 2], [1]])], words)
    assert not is_whole([TextBlock([[0], [1]])], words)


WORDS = st.text(st.sampled_from("ab1|-\\.\u00e9\u4e00"), min_size=1, max_size=6)
PLACES = st.tuples(st.integers(0, 11), st.integers(0, 40), WORDS, st.sampled_from([" ", "\n", "", None]))
RULES = st.tuples(st.integers(0, 11), st.integers(0, 40), st.integers(0, 12), st.integers(0, 40), st.booleans())


@settings(max_examples=25, deadline=None)
@example([(0, 1, "1", " "), (1, 0, "---", " ")], [(0, 1, 2, 0, True), (1, 0, 0, 2, False)])
@example(
    [(0, 1, "1", " "), (0, 2, "|1", " "), (1, 0, "1", " ")],
    [(0, 0, 0, 2, False), (0, 1, 2, 0, True), (1, 0, 0, 1, False)],
)
@given(st.lists(PLACES, max_size=60), st.lists(RULES, max_size=12))
def test_every_word_stands_where_its_place_says(
    places: list[tuple[int, int, str, str | None]], drawn: list[tuple[int, int, int, int, bool]]
) -> None:
    words = [
        PlacedWord(text, 50.0 * x, 18.0 * y, 50.0 * x + 6 * len(text), 18.0 * y + SIZE, gap)
        for x, y, text, gap in places
    ]
    rules = [
        Rule(50.0 * x, 18.0 * y, 50.0 * max(x, far), 18.0 * y)
        if is_level
        else Rule(50.0 * x, 18.0 * min(y, low), 50.0 * x, 18.0 * max(y, low))
        for x, y, far, low, is_level in drawn
    ]
    blocks = arrange(words, rules, WIDTH, HEIGHT)
    assert sorted(number for block in blocks for number in block.words()) == list(range(len(words)))
    rendered = render(blocks, words)
    order = [number for block in blocks for number in block.words()]
    before = 0
    for number in order:
        place = rendered.places[number]
        assert place is not None
        shown = rendered.text[place[0] : place[1]]
        plain = words[number].text
        assert shown in (plain, plain.replace("|", "\\|")) and place[0] >= before
        before = place[1]


def drawn_pdf(pieces: Sequence[Piece], lines: Sequence[tuple[float, float, float, float]] = (), turn: int = 0) -> bytes:
    """A page of 612 x 792 with text of 10 points; places count from the lower left corner."""
    content = [f"BT /F 10 Tf {x} {y} Td ({text}) Tj ET" for x, y, text in pieces]
    content += [f"{x0} {y0} m {x1} {y1} l S" for x0, y0, x1, y1 in lines]
    data = make_pdf(["x"], content=zlib.compress(zlib.compress("\n".join(content).encode("latin-1"))))
    return data.replace(b"/MediaBox", b"/Rotate %d /MediaBox" % turn) if turn else data


def words_of(document: ParsedDocument) -> dict[str, tuple[float, float, float, float]]:
    (page,) = document.layout
    found = {document.text[word.start : word.end]: (word.x0, word.y0, word.x1, word.y1) for word in page.words}
    assert all(0 <= box[0] < box[2] <= page.width and 0 <= box[1] < box[3] <= page.height for box in found.values())
    assert all(word.confidence is None for word in page.words)
    return found


def test_a_pdf_table_becomes_rows_and_its_cells_have_their_rectangle() -> None:
    rows = [("Name", "Area"), ("north | east", "1,200"), ("south", "80")]
    pieces = [
        (55 + 100.0 * place, 704 - 20.0 * index, value)
        for index, row in enumerate(rows)
        for place, value in enumerate(row)
    ]
    lines = [(50, 718 - 20 * index, 250, 718 - 20 * index) for index in range(4)]
    lines += [(x, 658, x, 718) for x in (50, 150, 250)]
    document = parse(drawn_pdf([(50, 740, "Above the table"), *pieces], lines), "a.pdf")
    table = "| Name | Area |\n| --- | --- |\n| north \\| east | 1,200 |\n| south | 80 |"
    assert document.text == f"Above the table\n\n{table}"
    boxes = words_of(document)
    assert "\\|" in boxes and "1,200" in boxes
    left, top, right, bottom = boxes["1,200"]
    assert 150 < left < 156 and right < 250 and 792 - 698 < top < bottom < 792 - 678


@pytest.mark.parametrize(("turn", "width"), [(0, 612), (90, 792), (180, 612), (270, 792)])
def test_boxes_are_those_of_the_page_as_it_is_shown(turn: int, width: int) -> None:
    document = parse(drawn_pdf([(100, 700, "corner"), (100, 680, "below")], turn=turn), "a.pdf")
    assert document.layout[0].page == 1 and round(document.layout[0].width) == width
    x0, y0, x1, y1 = words_of(document)["corner"]
    near = {0: (100, 92), 90: (700, 100), 180: (512, 700), 270: (92, 512)}[turn]
    corner = {0: (x0, y1), 90: (x0, y0), 180: (x1, y0), 270: (x1, y1)}[turn]
    assert corner == pytest.approx(near, abs=4)


def test_a_hyphenated_word_has_two_boxes_side_by_side_in_the_text() -> None:
    document = parse(make_pdf(["A long line about the inven-\ntion of the wheel"]), "a.pdf")
    boxes = words_of(document)
    assert "invention" in document.text
    assert boxes["inven"][1] < boxes["tion"][1] and boxes["tion"][0] < boxes["inven"][0]


INVOICE = [
    [(72, "Pos"), (110, "Description"), (300, "Qty"), (390, "Unit price"), (490, "Amount")],
    [(72, "1"), (110, "Oak boards"), (308, "12"), (396, "18.50 EUR"), (485, "222.00 EUR")],
    [(72, "2"), (110, "Delivery"), (314, "1"), (396, "45.00 EUR"), (490, "45.00 EUR")],
    [(72, "3"), (110, "Oil"), (314, "3"), (402, "9.90 EUR"), (490, "29.70 EUR")],
]


@pytest.mark.parametrize("heading", ["Invoice", "Dear Ms Field, thank you for your order of last month."])
def test_sender_and_date_above_a_table_are_no_rows_of_it(heading: str) -> None:
    sides = [("Blue Heron Ltd", "Invoice no. 2026-0417"), ("12 Quay Street, Galway", "Date: 3 March 2026")]
    sides += [("Telephone 091 4711", "Due: 17 March 2026"), ("post@heron.example", "Page 1")]
    pieces: list[Piece] = [(72, 680, heading)]
    for index, (left, right) in enumerate(sides):
        pieces += [(72, 740 - 12 * index, left), (440, 740 - 12 * index, right)]
    pieces += [(x, 655 - 20 * index, value) for index, row in enumerate(INVOICE) for x, value in row]
    above = [*(" ".join(side) for side in sides), heading]
    rows = ["| " + " | ".join(value for _, value in row) + " |" for row in INVOICE]
    rows.insert(1, "| --- | --- | --- | --- | --- |")
    assert parse(drawn_pdf(pieces), "a.pdf").text == "\n".join(above) + "\n\n" + "\n".join(rows)


def test_columns_close_together_are_parted_and_cells_centred_beside_longer_ones_join_their_row() -> None:
    pieces: list[Piece] = [(341, 706, "Unit"), (72, 700, "Pos"), (98, 700, "Description"), (313, 700, "Qty")]
    pieces += [(370, 700, "Amount"), (341, 694, "price")]
    pieces += [(98, 666, "Oak boards, planed on all four sides, with"), (98, 654, "certificate and label")]
    pieces += [(80, 660, "1"), (318, 660, "12"), (339, 660, "18.50"), (372, 660, "222.00")]
    pieces += [(80, 634, "2"), (98, 634, "Delivery"), (323, 634, "1"), (339, 634, "45.00"), (377, 634, "45.00")]
    pieces += [(80, 614, "3"), (98, 614, "Oil for them"), (323, 614, "3"), (345, 614, "9.90"), (377, 614, "29.70")]
    assert parse(drawn_pdf(pieces), "a.pdf").text.split("\n") == [
        "| Pos | Description | Qty | Unit price | Amount |",
        "| --- | --- | --- | --- | --- |",
        "| 1 | Oak boards, planed on all four sides, with certificate and label | 12 | 18.50 | 222.00 |",
        "| 2 | Delivery | 1 | 45.00 | 45.00 |",
        "| 3 | Oil for them | 3 | 9.90 | 29.70 |",
    ]


def justified(lines: Sequence[str], width: float) -> list[PlacedWord]:
    """Lines whose words are spread over a width, five points for each character."""
    words = []
    for number, line in enumerate(lines):
        parts, x = line.split(" "), 60.0
        gap = (width - 5 * sum(map(len, parts))) / max(1, len(parts) - 1)
        for part in parts:
            words.append(PlacedWord(part, x, 60 + 11.5 * number, x + 5 * len(part), 70 + 11.5 * number, " "))
            x += 5 * len(part) + gap
        words[-len(parts)] = words[-len(parts)]._replace(gap="\n")
    return words


@pytest.mark.parametrize(
    "lines",
    [
        ["during the year pay a", "proportionate amount. The", "board may reduce the"],
        ["the members of this association", "open S3-compatible", "server (sources).", "Without --nowait the",
         "command follows it", "jobs to their end,", "and then it ends here by itself"],
    ],
)  # fmt: skip
def test_sentences_of_justified_lines_are_no_table(lines: list[str]) -> None:
    (block,) = arrange(justified(lines, 170), [], WIDTH, HEIGHT)
    assert isinstance(block, TextBlock)


def test_a_table_of_equal_gaps_stays_one() -> None:
    rows = [("T1-C0", "T1-C1", "T1-C2"), ("T1-00", "T1-01", "T1-02"), ("T1-10", "T1-11", "T1-12"), ("T2-last",) * 3]
    pieces = [
        (60 + 160.0 * place, 100 + 20.0 * n, value) for n, row in enumerate(rows) for place, value in enumerate(row)
    ]
    assert texts(pieces) == [[list(row) for row in rows]]


SIZE_LAYOUT = (595.0, 842.0)


def laid(text: str, words: list[str]) -> PageLayout:
    """The words of the text in order, each with a box that tells it from the others."""
    found, after = [], 0
    for number, word in enumerate(words):
        start = text.index(word, after)
        after = start + len(word)
        found.append(Word(start, after, number, number, number + 10, number + 5, 0.5))
    return PageLayout(1, *SIZE_LAYOUT, tuple(found))


def read_words(assembly: Assembly) -> list[list[str]]:
    document = assembly.finish("application/pdf")
    return [[document.text[word.start : word.end] for word in page.words] for page in document.layout]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("plain words here", ["plain", "words", "here"], ["plain", "words", "here"]),
        ("\n\n one\r\ntwo\r\n\r\nthree\n\n", ["one", "two", "three"], ["one", "two", "three"]),
        ("Mu\u0308nchen liegt u\u0308ber\tNN", ["Mu\u0308nchen", "u\u0308ber", "NN"], ["München", "über", "NN"]),
        ("soft\xadware \x07bell gone", ["soft\xadware", "\x07bell", "gone"], ["software", "bell", "gone"]),
        ("a \x01 b", ["a", "\x01", "b"], ["a", "b"]),
        ("\u0958\u0959 \u1e9b\u0323x", ["\u0958\u0959", "\u1e9b\u0323x"], None),
    ],
)
def test_offsets_are_those_of_the_normalized_text(text: str, words: list[str], expected: list[str] | None) -> None:
    assembly = Assembly(ParseLimits())
    assembly.add("before e\u0301")
    assembly.add(text, "page 1", page=laid(text, words))
    assert read_words(assembly) == [expected or [unicodedata.normalize("NFC", word) for word in words]]


def test_offsets_stay_right_over_any_mixture() -> None:
    dice = random.Random(7)
    pieces = ["Aa\u0308", "e\u0301te\u0301", "\xadx\xad", "中文", "かな", "\x00y", "ﬁ", "\ud83d", "한글", "z"]
    for _ in range(200):
        words = [f"{dice.choice(pieces)}{number}" for number in range(dice.randrange(1, 12))]
        text = "".join(dice.choice([" ", "\r\n", "\n\n", "\t", "\x0c"]) + word for word in words)
        assembly = Assembly(ParseLimits())
        assembly.add("first")
        assembly.add(text, "page 1", page=laid(text, words))
        (found,) = read_words(assembly)
        assert [int("".join(filter(str.isdecimal, word))) for word in found] == list(range(len(words)))


def test_packed_words_come_back() -> None:
    words = [Word(3, 9, 10.25, 20.5, 90.125, 31.0, None), Word(10, 12, -4, 0, 9999, 842, 0.25)]
    packed = pack_words(words, *SIZE_LAYOUT)
    first, second = PackedWords(packed.data, *SIZE_LAYOUT)
    assert (len(packed), len(packed.data)) == (2, 30)
    assert (first.start, first.end, first.confidence) == (3, 9, None)
    assert (first.x0, first.y0, first.x1, first.y1) == pytest.approx((10.25, 20.5, 90.125, 31.0), abs=0.02)
    assert (second.x0, second.x1, second.y1) == pytest.approx((0, 595, 842), abs=0.02)
    assert second.confidence == pytest.approx(0.25, abs=0.003)
    assert packed[-1] == second and packed[:1] == [first] and packed == [first, second]
    with pytest.raises(ValueError):
        PackedWords(packed.data[:-1], *SIZE_LAYOUT)
