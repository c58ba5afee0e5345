"""Plain text in any charset, Markdown, HTML, tables, JSON, XML, mail, books, subtitles.
Packed bytes are no text: pictures in base64, pointers of Git LFS."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import random
import re

import pytest

from ragd.readers import ParseError, ParseLimits, parse
from ragd.readers.assembly import read_document
from ragd.readers.text.charsets import decode
from ragd.readers.text.markup import drop_packed
from ragd.readers.types import ParsedDocument, Source
from ragd.text.chunking import bind, chunk
from ragd.text.structure import Structure
from ragd.types import ChunkPolicy
from tests.parsing import builders
from tests.refusals import raises_with

RUSSIAN = "Однажды, в студёную зимнюю пору, я из лесу вышел; был сильный мороз."
CHINESE = "中华人民共和国位于亚洲东部，太平洋西岸。北京是它的首都。"
JAPANESE = "日本国憲法は、日本の現行の憲法である。これは文章です。"


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        ("naïve café", "utf-8"),
        ("Grüße – “ok” 15 €", "cp1252"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (RUSSIAN, "cp866"),
        (CHINESE, "gb18030"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc_jis_2004"),
        ("plain words without a mark, long enough", "utf-16-le"),
        ("plain words without a mark, long enough", "utf-16-be"),
        ("plain words without a mark, long enough", "utf-32-be"),
        ("This is a text of a mainframe, in small letters and with blanks between them.", "cp500"),
    ],
)
def test_charsets_without_a_mark(text: str, charset: str) -> None:
    decoded = decode(text.encode(charset))
    assert (decoded.text, decoded.charset) == (text, charset)


@pytest.mark.parametrize("charset", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks(charset: str) -> None:
    assert parse("héllo wörld".encode(charset), "a.txt").text == "héllo wörld"


def test_a_guess_is_a_warning() -> None:
    document = parse("café à la crème".encode("cp1252"), "a.txt")
    assert document.metadata["charset"] == "cp1252"
    assert document.warnings == ("The text names no charset and is not UTF-8; it was read as Windows-1252.",)


def test_a_declared_charset_is_believed_when_it_fits() -> None:
    page = '<html><head><meta charset="iso-8859-2"></head><body>Žluťoučký kůň</body></html>'
    document = parse(page.encode("iso-8859-2"), "a.html")
    assert (document.text, document.warnings) == ("Žluťoučký kůň", ())


@pytest.mark.parametrize(
    ("text", "actual", "declared"),
    [
        (RUSSIAN, "cp1251", "iso-8859-1"),
        (RUSSIAN, "koi8-r", "windows-1251"),
        (JAPANESE, "euc_jp", "iso-8859-1"),
        ("Η ελληνική γλώσσα γράφεται με το δικό της αλφάβητο εδώ και αιώνες.", "iso8859-7", "windows-1252"),
        (RUSSIAN, "utf-8", "iso-8859-1"),
    ],
)
def test_a_declared_charset_that_lies_is_overruled(text: str, actual: str, declared: str) -> None:
    page = f'<html><head><meta charset="{declared}"></head><body>{text}</body></html>'
    assert parse(page.encode(actual), "a.html").text == text
    assert decode(text.encode(actual), declared).text == text


@pytest.mark.parametrize("text", ["It’s 5 °C", "“Yes” – she said.", "Grüße – “ok” 15 €", "© 2024 Acme", "señor Muñoz"])
def test_a_few_marks_among_latin_letters_are_no_other_script(text: str) -> None:
    assert decode(text.encode("cp1252")).text == text


def test_a_cut_utf_8_sequence_costs_one_character() -> None:
    document = parse("ä".encode() * 40 + b"\xc3", "a.txt")
    assert document.text == "ä" * 40 + "\ufffd"


def test_nul_bytes_and_controls_are_removed() -> None:
    assert parse(b"one\x00two\x07 three\r\nfour", "a.txt").text == "onetwo three\nfour"


def test_surrogates_in_utf_16_become_replacement_characters() -> None:
    assert parse(b"\xff\xfe" + "a\ud800b".encode("utf-16-le", "surrogatepass"), "a.txt").text == "a\ufffdb"


def test_a_surrogate_in_the_name_does_no_harm() -> None:
    assert parse(b"text", "a\udc80.txt").text == "text"


@pytest.mark.parametrize(
    ("data", "size"), [(b"", "no bytes"), (b" \n\t ", "only blanks"), ("\ufeff \u200b".encode(), "only blanks")]
)
def test_nothing_is_an_error(data: bytes, size: str) -> None:
    with raises_with(ParseError, kind="empty") as caught:
        parse(data, "a.txt")
    assert size in caught.value.message


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.md", "intro\n\n# The *Title*\n\ntext", "The Title"),
        ("a.md", "---\ntitle: From matter\n---\n# Other", "From matter"),
        ("a.md", "```\n# not this\n```\n\nThis one\n========\n", "This one"),
        ("a.txt", "# not a title here", ""),
    ],
)
def test_titles_of_text(name: str, text: str, title: str) -> None:
    document = parse(text.encode(), name)
    assert (document.title, document.text) == (title, text.strip("\n"))


def test_html_as_markdown() -> None:
    page = """<html lang="en"><head><title>T &amp; T</title><script>no()</script><style>no</style></head><body>
    <nav>menu</nav><h1>Head</h1><p>One <b>bold</b>
    word<br>next line</p><ul><li>a<ul><li>b</li></ul></li><li>c</li></ul><ol start=3><li>x</li><li>y</li></ol>
    <table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2|3</td></tr></table>
    <pre><code>  code
      here</code></pre><pre>no code</pre><a href="x">link text</a><div hidden>hidden</div></body></html>"""
    document = parse(page.encode(), "a.html")
    assert document.text == (
        "# Head\n\nOne bold word\nnext line\n\n- a\n  - b\n- c\n\n3. x\n4. y\n\n"
        "| k | v |\n| --- | --- |\n| 1 | 2\\|3 |\n\n"
        "```\n  code\n      here\n```\n\nno code\n\nlink text"
    )
    assert (document.title, document.metadata["language"]) == ("T & T", "en")


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<ol><li value=10>x<li>y<li value=3>z</ol>", "10. x\n11. y\n3. z"),
        ("<ol reversed><li>x<ul><li>in</ul><li>y<li>z</ol>", "3. x\n  - in\n2. y\n1. z"),
        ("<ol reversed start=9><li>x<li>y</ol>", "9. x\n8. y"),
        ("<ol type=a><li>x<ol type=I><li>in</ol><li><ol type=i start=4><li>iv</ol></ol>", "a. x\n  I. in\n  iv. iv"),
    ],
)
def test_items_of_html_lists_have_the_numbers_that_the_page_shows(markup: str, text: str) -> None:
    assert parse(markup.encode(), "a.html").text == text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (
            "<math><semantics><mrow><mi>E</mi><mo>=</mo><mi>m</mi> <msup><mi>c</mi> <mn>2</mn></msup></mrow>"
            "<annotation encoding=application/x-tex>E=mc^2</annotation></semantics></math>",
            "E=mc^2",
        ),
        ("<m:math><m:msup><m:mi>c</m:mi><m:mn>2</m:mn></m:msup></m:math>", "c^2"),
        ("<span style='display:none'><math><mi>a</mi></math></span><img alt=a>", "a"),
        ("<math alttext='a^2'></math>", "a^2"),
        ("<math><mn>2</mn><mfrac><mn>1</mn><mrow><mi>n</mi><mo>+</mo><mn>2</mn></mrow></mfrac></math>", "2 1/(n+2)"),
        ("<math><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup><mi>y</mi></math>", "x_i^2 y"),
        ("<math><mroot><mi>x</mi><mn>3</mn></mroot><msqrt><mi>a</mi><mo>+</mo><mn>1</mn></msqrt></math>", "∛x√(a+1)"),
        ("<math><mi>sin</mi><mo>&#x2061;</mo><msup><mi>f</mi><mo>′</mo></msup></math>", "sin f′"),
        (
            "<math><mfenced open='['><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
            "<mtr><mtd><mn>3</mn></mtd></mtr>"
            "</mtable></mfenced></math>",
            "[1, 2; 3)",
        ),
    ],
)
def test_formulas_of_pages_are_written_in_one_line(formula: str, text: str) -> None:
    page = f"<p>The energy is {formula} at rest.</p>"
    assert parse(page.encode(), "a.html").text == f"The energy is {text} at rest."
    assert parse(builders.make_epub([("a.xhtml", page)]), "a.epub").text == f"The energy is {text} at rest."


def test_a_page_that_marks_its_main_content_is_read_for_that() -> None:
    long = "The content of this page goes on for a while. " * 6
    page = (
        "<html><body><header>Shop | Login<h1>The page</h1></header>{}<footer>Imprint</footer>"
        "<script>if (a) document.write('no')</script></body></html>"
    )
    main = parse(page.format(f"<main><h2>Part</h2><p>{long}</p><nav>menu</nav></main>").encode(), "a.html")
    assert main.text == f"# The page\n\n## Part\n\n{long.strip()}"
    short = parse(page.format("<main>Loading</main>").encode(), "a.html")
    assert "Shop | Login" in short.text and "Loading" in short.text and "Imprint" in short.text
    two = parse(page.format(f"<main>{long}</main><div role=main>{long}</div>").encode(), "a.html")
    assert "Imprint" in two.text and two.text.count("The content of this page") == 12


def test_deleted_words_of_a_page_are_left_out_and_buttons_stand_apart() -> None:
    page = "<p>Price <del>20 €</del><ins>15 €</ins>, <s>was 30 €</s> <button>Buy</button><button>Ask</button></p>"
    assert parse(page.encode(), "a.html").text == "Price 15 €, was 30 € Buy Ask"


@pytest.mark.parametrize("empty", ["<title/>", "<script src='x.js' />", "<style/>", "<iframe src='x'/>", "<textarea/>"])
def test_an_element_of_xhtml_that_a_slash_closes_holds_nothing(empty: str) -> None:
    body = f"{empty}<p>The club<br/>opens<img src='x'/> at nine.</p>"
    assert parse(builders.make_epub([("a.xhtml", body)]), "a.epub").text == "The club\nopens at nine."
    page = f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>'
    assert parse(page.encode(), "a.xhtml").text == "The club\nopens at nine."


def test_phonetic_guides_stand_behind_their_words_in_parentheses() -> None:
    page = "<p><ruby>東京<rp>(</rp><rt>とうきょう</rt><rp>)</rp></ruby>へ<ruby>大阪<rt>おおさか</rt></ruby></p>"
    assert parse(page.encode(), "a.html").text == "東京(とうきょう)へ大阪(おおさか)"


def test_a_table_that_only_lays_out_becomes_blocks() -> None:
    page = (
        "<table><tr><td><h2>Left</h2><p>text</p></td><td><table><tr><td>1</td><td>2</td></tr></table></td></tr></table>"
    )
    assert parse(page.encode(), "a.html").text == "## Left\n\ntext\n\n| 1 | 2 |"


def test_two_hundred_thousand_nested_divs_keep_their_text() -> None:
    document = parse(b"<html><body>" + b"<div>" * 200_000 + b"deep", "a.html", limits=ParseLimits(timeout_s=30))
    assert document.text == "deep"
    assert "nested too deeply" in document.warnings[0]


def test_csv_finds_its_delimiter() -> None:
    document = parse(b'name;price\n"Spade; wide";"12,5"\nRake;9\n', "a.csv")
    assert document.text == "| name | price |\n| --- | --- |\n| Spade; wide | 12,5 |\n| Rake | 9 |"
    assert document.metadata["delimiter"] == ";"


def test_tsv() -> None:
    assert parse(b"a\tb\n1\t2\n", "a.tsv").text == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_json_as_lines_with_numbers_as_written() -> None:
    value = '{"title": "Tools", "rows": [{"n": 1.10, "big": 12345678901234567890123, "t": "a\\nb"}], "none": null}'
    document = parse(value.encode(), "a.json")
    assert (
        document.text
        == "title: Tools\nrows:\n  -\n    n: 1.10\n    big: 12345678901234567890123\n    t:\n      a\n      b"
    )
    assert document.title == "Tools"


def test_a_list_of_records_is_set_apart_by_blank_lines() -> None:
    assert parse(b'[{"a": 1}, {"a": 2}]', "a.json").text == "a: 1\n\na: 2"
    assert parse(b'{"a": 1}\n{"a": 2}\n', "unnamed").text == "a: 1\n\na: 2"


def test_a_bad_line_of_json_lines_is_kept_and_counted() -> None:
    document = parse(b'{"a": 1}\nnot json\n', "a.jsonl")
    assert document.text == "a: 1\n\nnot json"
    assert document.warnings == ("1 of 2 lines are not valid JSON; they were kept as plain text.",)


def test_invalid_json_is_kept_as_text_with_a_warning() -> None:
    document = parse(b'{"a": 1,', "a.json")
    assert document.text == '{"a": 1,'
    assert "not valid JSON" in document.warnings[0]


def test_deep_json_is_refused() -> None:
    with raises_with(ParseError, kind="bomb"):
        parse(b"[" * 100_000 + b"]" * 100_000, "a.json")


def test_brackets_inside_strings_are_not_nesting() -> None:
    assert parse(json.dumps({"a": "[" * 1000}).encode(), "a.json").text == "a: " + "[" * 1000


def test_xml_data_and_running_text() -> None:
    data = '<doc><title>T</title><item id="7"><name>Spade</name></item><p>Some <b>bold</b> text</p></doc>'
    document = parse(f'<?xml version="1.0"?>{data}'.encode(), "a.xml")
    assert document.text == "title: T\nitem (id: 7)\nname: Spade\nSome bold text"
    assert document.title == "T"


@pytest.mark.parametrize(
    "entity", ['<!ENTITY x "y">', '<!ENTITY x SYSTEM "file:///etc/passwd">', '<!ENTITY % p SYSTEM "x">']
)
def test_xml_with_entities_is_refused(entity: str) -> None:
    with raises_with(ParseError, kind="bomb"):
        parse(f'<?xml version="1.0"?><!DOCTYPE a [{entity}]><a>text</a>'.encode(), "a.xml")


def test_broken_xml_keeps_what_came_before() -> None:
    document = parse(b'<?xml version="1.0"?><a><b>kept</b><c>lost', "a.xml")
    assert document.text == "b: kept"
    assert "not well formed" in document.warnings[0]


MAIL = (
    "From: =?utf-8?q?Gr=C3=A9ta?= <g@example.org>\r\nTo: b@example.org\r\nSubject: Tools\r\n"
    "Date: Mon, 01 Jan 2024 10:00:00 +0000\r\nMIME-Version: 1.0\r\n"
    'Content-Type: multipart/mixed; boundary="B"\r\n\r\n--B\r\n'
    "Content-Type: text/plain; charset=iso-8859-1\r\n\r\nCaf\xe9\r\n"
    '--B\r\nContent-Type: application/pdf; name="a.pdf"\r\nContent-Transfer-Encoding: base64\r\n'
    'Content-Disposition: attachment; filename="a.pdf"\r\n\r\nJVBERi0=\r\n--B--\r\n'
).encode("latin-1")


def test_mail_names_its_attachments_and_keeps_them_when_asked() -> None:
    document = parse(MAIL, "a.eml")
    assert document.text == (
        "# Tools\n\nFrom: Gréta <g@example.org>\nTo: b@example.org\nDate: Mon, 01 Jan 2024 10:00:00 +0000\n\nCafé"
    )
    assert document.title == "Tools"
    [attachment] = document.attachments
    assert (attachment.name, attachment.media_type, attachment.size_bytes, attachment.data) == (
        "a.pdf",
        "application/pdf",
        5,
        b"",
    )
    [kept] = parse(MAIL, "a.eml", limits=ParseLimits(keep_attachments=True)).attachments
    assert kept.data == b"%PDF-"


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("format=flowed", "It is due on the 1. May.\nNext\n> quoted \nFrom me \n\n-- \nAnn"),
        ("format=flowed; delsp=yes", "It is due on the1. May.\nNext\n> quoted \nFrom me\n\n-- \nAnn"),
        ("charset=utf-8", "It is due on the \n1. May.\nNext\n> quoted \n From me \n\n-- \nAnn"),
    ],
)
def test_lines_that_a_mail_program_broke_are_joined(parameters: str, text: str) -> None:
    body = "It is due on the \n1. May.\nNext\n> quoted \n From me \n\n-- \nAnn\n"
    message = f"From: a@example.org\nSubject: S\nContent-Type: text/plain; {parameters}\n\n{body}"
    assert parse(message.encode(), "a.eml").text.partition("example.org\n\n")[2] == text


def test_mail_prefers_the_plain_version_unless_it_is_empty() -> None:
    def alternative(plain: str) -> bytes:
        return (
            "From: a@b.c\nTo: b@b.c\nSubject: S\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=B\n\n"
            f"--B\nContent-Type: text/plain\n\n{plain}\n--B\n"
            f"Content-Type: text/html\n\n<p>rich <b>text</b></p>\n{more}--B--\n"
        ).encode()

    more = ""
    assert parse(alternative("plain text"), "a.eml").text.endswith("\n\nplain text")
    assert parse(alternative(""), "a.eml").text.endswith("\n\nrich text")
    more = f"--B\nContent-Type: text/calendar\n\nBEGIN:VCALENDAR\nSUMMARY:{'Long ' * 30}ti\n me\n"
    assert re.search(r"\n\nplain text\n\nBEGIN.*Long time$", parse(alternative("plain text"), "a.eml").text, re.DOTALL)


def test_mail_of_a_group_with_base64_parts_keeps_what_the_list_appends_and_encloses() -> None:
    part = "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n"
    body = base64.encodebytes("Grüße aus der Gruppe\n".encode()).decode()
    inner = base64.encodebytes(b"From: q@y.z\nSubject: Two\n\ninner text\n").decode()
    data = (
        "From: a@b.c\nTo: g@b.c\nSubject: Digest\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n"
        f"--B\n{part}{body}You received this message as a member of the group.\n"
        f"--B\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{inner}\n--B--\n"
    )
    assert parse(data.encode(), "a.eml").text == (
        "# Digest\n\nFrom: a@b.c\nTo: g@b.c\n\nGrüße aus der Gruppe\n\n\n"
        "You received this message as a member of the group.\n\n## Two\n\nFrom: q@y.z\n\ninner text"
    )


def test_encrypted_mail_is_named() -> None:
    data = b"From: a@b.c\nTo: b@b.c\nSubject: S\nMIME-Version: 1.0\nContent-Type: application/pkcs7-mime\n\nMIIB"
    with raises_with(ParseError, kind="encrypted"):
        parse(data, "a.eml")


def test_a_mailbox_maps_its_messages() -> None:
    one = "From a@b.c Mon Jan  1 10:00:00 2024\nFrom: a@b.c\nSubject: {0}\n\nBody {0}\n>From the start\n\n"
    document = parse((one.format(1) + one.format(2)).encode(), "a.mbox")
    assert [(label, document.text[start:end]) for start, end, label in document.page_map] == [
        ("message 1", "## 1\n\nFrom: a@b.c\n\nBody 1\nFrom the start"),
        ("message 2", "## 2\n\nFrom: a@b.c\n\nBody 2\nFrom the start"),
    ]


def test_epub_reads_the_spine_in_order() -> None:
    data = builders.make_epub([("2.xhtml", "<h1>Second</h1><p>two</p>"), ("1.xhtml", "<p>one</p>")])
    document = parse(data, "a.epub")
    assert [(label, document.text[start:end]) for start, end, label in document.page_map] == [
        ("Second", "# Second\n\ntwo"),
        ("chapter 2", "one"),
    ]
    assert (document.title, document.metadata["author"]) == ("The Barrel", "R. Barrel")


def test_subtitles_are_labelled_with_their_time() -> None:
    vtt = "WEBVTT\n\nNOTE hidden\n\n1\n00:01:02.500 --> 00:01:04.000\n<v Ann>Hello &amp; welcome\n\n"
    vtt += "01:05.000 --> 01:06.000\nBye\n"
    document = parse(vtt.encode(), "a.vtt")
    assert document.text == "Ann: Hello & welcome\nBye"
    assert [label for _, _, label in document.page_map] == ["00:01:02", "00:01:05"]
    two = parse(b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>Hello. <v.loud Bob>Hi!</v>\n<v Ann>Well\n", "a.vtt")
    assert two.text == "Ann: Hello.\nBob: Hi!\nAnn: Well"
    srt = "1\n00:00:01,000 --> 00:00:02,000\n<i>One</i>\n\n2\n00:00:03,000 --> 00:00:04,000\nTwo\n"
    assert parse(srt.encode(), "a.srt").text == "One\nTwo"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:04.000\n<v Ann Lee>{}</v>\n<v Bob>{}</v>\n"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nAnn Lee: {}\n\n2\n00:00:03,000 --> 00:00:04,000\nBob: {}\n"),
    ],
)
def test_the_speakers_of_subtitles_become_those_of_chunks(name: str, content: str) -> None:
    document = parse(
        content.format("The harbour opens at nine. " * 9, "Then we sail to the north. " * 9).encode(), name
    )
    structure = Structure(document.text, page_map=document.page_map, media_type=document.media_type)
    chunks = bind(
        chunk(document.text, ChunkPolicy(target_tokens=45, overlap_tokens=0)), doc_id="d", structure=structure
    )
    said = [each.attributes["speaker"] for each in chunks]
    most = [each.content.count("harbour") > each.content.count("north") for each in chunks]
    assert {*most} == {True, False} and said == ["Ann Lee" if ann else "Bob" for ann in most]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_a_compressed_file_is_read_as_what_is_inside(pack) -> None:  # type: ignore[no-untyped-def]
    document = parse(pack(b"a,b\n1,2\n"), "a.csv.gz")
    assert document.text == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_text_beyond_the_limit_is_too_large() -> None:
    with raises_with(ParseError, kind="too_large") as caught:
        parse(b"word " * 1000, "a.txt", limits=ParseLimits(max_chars=1000))
    assert "RAGD_PARSE_MAX_CHARS" in caught.value.message


def test_the_style_sheet_and_pictures_of_a_fictionbook_are_no_text() -> None:
    book = (
        '<?xml version="1.0"?><FictionBook><stylesheet type="text/css">p {color: red}</stylesheet>'
        '<body><section><p>Once upon a time.</p></section></body><binary id="a">aGVsbG8gd29ybGQ=</binary></FictionBook>'
    )
    text = parse(book.encode(), "a.fb2").text
    assert "Once upon a time." in text and "color" not in text and "aGVs" not in text


PICTURE = base64.b64encode(random.Random(5).randbytes(900)).decode()
WRAPPED = base64.encodebytes(random.Random(6).randbytes(900)).decode()


def read(text: str, name: str) -> ParsedDocument:
    return read_document(Source(text.encode(), name, "", ParseLimits()))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", f"# T\n\nBefore ![a cat](data:image/png;base64,{PICTURE}) after.\n"),
        ("a.md", f"# T\n\nBefore ![a cat][1] after.\n\n[1]: <data:image/png;charset=utf-8;base64,{PICTURE}>\n"),
        (
            "a.html",
            f'<h1>T</h1><p>Before <img src="data:image/png;base64,{PICTURE}"> data:a/b;base64,{PICTURE} after</p>',
        ),
        ("a.txt", f"T\n\nBefore\n\n{WRAPPED}\nafter.\n"),
        ("a.txt", f"T\n\nBefore\n\n{PICTURE}\nafter.\n"),
        ("a.eml", f"From: a@b.c\nSubject: T\n\nBefore\n\n{WRAPPED}\nafter.\n"),
        ("a.csv", f"k,v\nBefore,data:image/png;base64,{PICTURE}\nT,after\n"),
        ("a.json", json.dumps({"T": "Before", "image/png": PICTURE, "b": WRAPPED, "then": "after"})),
    ],
)
def test_pictures_in_base64_are_left_out_with_a_warning(name: str, text: str) -> None:
    document = read(text, name)
    assert "Before" in document.text and "after" in document.text and "T" in document.text
    assert PICTURE[40:80] not in document.text and WRAPPED[10:50] not in document.text
    assert len(document.text) < 120
    assert any("base64" in warning for warning in document.warnings)


@pytest.mark.parametrize(
    "text",
    [
        "ACGTTGCA" * 100,
        "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVV" * 12,
        "0123456789abcdef" * 60,
        PICTURE[:200],
        "https://example.org/" + "path/to/Some/Place1/" * 40,
        "one word after another " * 40,
    ],
)
def test_long_runs_that_people_look_for_stay(text: str) -> None:
    assert drop_packed(text) == (text, 0)


def test_only_packed_data_is_a_refusal_that_says_so() -> None:
    with raises_with(ParseError, match="base64", kind="empty"):
        read(WRAPPED, "a.txt")


@pytest.mark.fault("SYN-06")
@pytest.mark.parametrize("name", ["report.pdf", "a.md", "a.csv", ""])
def test_pointers_are_refused_by_name(name: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "4d" * 32 + "\nsize 12345\n"
    with raises_with(ParseError, match="Git LFS", kind="unsupported"):
        read(pointer, name)
    assert read(f"# How a pointer looks\n\n{pointer}", "a.md").text
