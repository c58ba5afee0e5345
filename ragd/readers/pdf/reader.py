"""PDF through pdfium: text by page, form fields and comments, properties, and which pages are only pictures."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers.arrangement.arrange import Rendered, arrange, is_whole, locate, render
from ragd.readers.arrangement.shapes import SAME_LINE, Block, Box, Cell, PlacedWord, Rule, Table, TextBlock
from ragd.readers.assembly import Assembly
from ragd.readers.pdf.glyphs import LETTER, PageWords, Shown, read_words
from ragd.readers.pdf.hidden import HiddenText, read_rules
from ragd.readers.scans.words import describe
from ragd.readers.types import COPYING_RESTRICTED, PageLayout, ParseError, RecognizedPage, Source, Word

RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
FEW_WORDS = 3  # that make no table
TURNED_SHARE = 0.5  # of the words: more of them turned, and the page is read as they stand


def lay_out(page: pdfium.PdfPage, text_page: pdfium.PdfTextPage, number: int) -> tuple[str, PageLayout, int]:
    """The page's text as it is read, where its words stand by their offsets in it, and the characters left out.

    Where the order cannot be told, or a word would be lost, pdfium's order stays.
    """
    shown = Shown(page)
    found = _turn_phrases(read_words(text_page, shown))
    rendered = _render(found, read_rules(page, shown) if len(found.words) > FEW_WORDS else [])
    placed = zip(rendered.places, found.words, strict=True)
    words = sorted((*place, word.x0, word.y0, word.x1, word.y1) for place, word in placed if place is not None)
    layout = PageLayout(number, shown.width, shown.height, tuple(Word(*values) for values in words))
    return rendered.text, layout, found.unseen_chars


def _render(found: PageWords, rules: Sequence[Rule]) -> Rendered:
    words = found.words
    order = range(len(words))
    blocks = _blocks(found, rules)
    if not is_whole(blocks, words):
        blocks = [TextBlock([list(order)])]
    is_plain = len(blocks) == 1 and isinstance(blocks[0], TextBlock) and list(blocks[0].words()) == list(order)
    if is_plain and not found.unseen_chars:
        return Rendered(found.text, locate(found.text, words))
    return render(blocks, words)


def _right_to_left(words: Sequence[PlacedWord]) -> int:
    """How many words are of scripts from right to left."""
    return sum(map(_is_right_to_left, words))


def _is_right_to_left(word: PlacedWord) -> bool:
    return not word.text.isascii() and RIGHT_TO_LEFT.search(word.text) is not None


def _turn_phrases(found: PageWords) -> PageWords:
    """Turn round the phrases that pdfium gives against the direction of their script, as in lines of another one."""
    given, words = found.words, list(found.words)
    if not _right_to_left(words):
        return found
    start = last = 0
    for number in range(1, len(given) + 1):
        to_the_left = _is_right_to_left(given[start])
        is_against = _steps_on if to_the_left else _steps_back
        if number < len(given) and is_against(given[number - 1], given[number]):
            has_letters = LETTER.search(given[number].text) is not None
            if has_letters and _is_right_to_left(given[number]) == to_the_left:
                last = number
            if last == number or not has_letters:
                continue
        phrase = given[start : last + 1]
        words[start : last + 1] = [
            word._replace(gap=place.gap) for word, place in zip(phrase[::-1], phrase, strict=True)
        ]
        start = last = number
    if words == given:
        return found
    return replace(found, words=words, text="".join(f"{word.gap}{word.text}" for word in words).strip())


def _steps_on(before: PlacedWord, word: PlacedWord) -> bool:
    """Whether a word goes on to the right of the one before it in a line."""
    return -1 <= word.x0 - before.x1 < _blank(before, word)


def _steps_back(before: PlacedWord, word: PlacedWord) -> bool:
    """Whether a word goes on to the left of the one before it in a line, as words of another direction do."""
    return -1 <= before.x0 - word.x1 < _blank(before, word)


def _blank(before: PlacedWord, word: PlacedWord) -> float:
    """How far apart the words of a line stand at most: their height; -1 where they are in different lines."""
    heights = before.y1 - before.y0, word.y1 - word.y0
    shared = min(before.y1, word.y1) - max(before.y0, word.y0)
    is_line = word.gap is not None and "\n" not in word.gap and shared > SAME_LINE * min(heights)
    return max(heights) if is_line else -1.0


def _mirror(words: Sequence[PlacedWord], width: float) -> list[PlacedWord]:
    """Words of a page from right to left, placed as if it ran from left to right; so are those of other scripts."""
    return _forward([word._replace(x0=width - word.x1, x1=width - word.x0) for word in words])


def _forward(words: Sequence[PlacedWord]) -> list[PlacedWord]:
    """Words in a line that step back, as words of the other direction do, placed as if they went on."""
    result = list(words)
    start = 0
    for end in range(1, len(result) + 1):
        if end < len(result) and _steps_back(result[end - 1], result[end]):
            continue
        left, right = result[end - 1].x0, result[start].x1
        for number in range(start, end if end - start > 1 else start):
            word = result[number]
            result[number] = word._replace(x0=left + right - word.x1, x1=left + right - word.x0)
        start = end
    return result


def _blocks(found: PageWords, rules: Sequence[Rule]) -> list[Block]:
    """The blocks of what stands upright, then what does not; of a page that is turned, of what stands as most does."""
    words, turned = found.words, found.turned
    if not turned:
        return _arrange(words, rules, found.width, found.height)
    counts = [list(turned.values()).count(quarters) for quarters in (1, 2, 3)]
    quarters = counts.index(max(counts)) + 1 if len(turned) > TURNED_SHARE * len(words) else 0
    kept = [number for number in range(len(words)) if turned.get(number, 0) == quarters]
    rest = [number for number in range(len(words)) if turned.get(number, 0) != quarters]
    turn = _Turn(quarters, found.width, found.height)
    upright = [PlacedWord(words[n].text, *turn.box(words[n][1:5]), words[n].gap) for n in kept]
    blocks = _arrange(upright, [Rule(*turn.box(rule)) for rule in rules], turn.width, turn.height)
    blocks = [turn.back(block, kept) for block in blocks]
    return [*blocks, TextBlock([rest])] if rest else blocks


def _arrange(words: Sequence[PlacedWord], rules: Sequence[Rule], width: float, height: float) -> list[Block]:
    count = _right_to_left(words)
    if 3 * count <= len(words):
        return arrange(_forward(words) if count else words, rules, width, height)
    mirrored = [Rule(width - rule.x1, rule.y0, width - rule.x0, rule.y1) for rule in rules]
    return arrange(_mirror(words, width), mirrored, width, height)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Boxes of a page as they stand when it is turned with the clock by quarters. width, height: before that."""

    quarters: int
    page_width: float
    page_height: float

    @property
    def width(self) -> float:
        return self.page_height if self.quarters % 2 else self.page_width

    @property
    def height(self) -> float:
        return self.page_width if self.quarters % 2 else self.page_height

    def box(self, box: Sequence[float]) -> Box:
        x0, y0, x1, y1 = box
        if self.quarters == 1:
            return Box(self.page_height - y1, x0, self.page_height - y0, x1)
        if self.quarters == 2:
            return Box(self.page_width - x1, self.page_height - y1, self.page_width - x0, self.page_height - y0)
        return Box(y0, self.page_width - x1, y1, self.page_width - x0) if self.quarters == 3 else Box(x0, y0, x1, y1)

    def back(self, block: Block, numbers: Sequence[int]) -> Block:
        """A block with the numbers and boxes that its words had before."""
        if isinstance(block, TextBlock):
            return TextBlock([[numbers[word] for word in line] for line in block.lines])
        turn = _Turn(-self.quarters % 4, self.width, self.height)
        rows = [
            [Cell([[numbers[word] for word in line] for line in cell.lines], turn.box(cell.box)) for cell in row]
            for row in block.rows
        ]
        return Table(rows, turn.box(block.box), [[numbers[word] for word in line] for line in block.title])


COMMENTS = frozenset(
    {
        raw.FPDF_ANNOT_TEXT, raw.FPDF_ANNOT_FREETEXT, raw.FPDF_ANNOT_HIGHLIGHT, raw.FPDF_ANNOT_UNDERLINE,
        raw.FPDF_ANNOT_STRIKEOUT, raw.FPDF_ANNOT_SQUARE, raw.FPDF_ANNOT_STAMP, raw.FPDF_ANNOT_POPUP,
    }
)  # fmt: skip
MARKED = {raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON}
VALUED = {raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX}
PER_PAGE, LINKS_PER_PAGE = 1000, 20
PASSWORD = 1 << 13  # a text field that shows no letters
WEB = ("http://", "https://", "mailto:")


@dataclass(slots=True)
class Annotations:
    """fields: (label, value) of a field with a value. marks: lines of check boxes and radio buttons, on or off."""

    comments: list[str] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    files: list[pdfium.PdfAttachment] = field(default_factory=list)

    def lines(self, text: str) -> list[str]:
        """Blocks that add to the page's text what it does not show."""
        shown = " ".join(text.split())
        result = [f"Comment: {each}" for each in dict.fromkeys(self.comments) if " ".join(each.split()) not in shown]
        values = [f"{label}: {value}" for label, value in self.fields if " ".join(value.split()) not in shown]
        if values or self.marks:
            result.append("\n".join([*values, *self.marks]))
        links = [link for link in dict.fromkeys(self.links) if link.removeprefix("mailto:") not in shown]
        if links:
            result.append("Links: " + " ".join(links[:LINKS_PER_PAGE]))
        return result


def read_annotations(document: pdfium.PdfDocument, page: pdfium.PdfPage) -> Annotations:
    """The first 1,000 annotations of a page."""
    result = Annotations()
    for index in range(min(PER_PAGE, raw.FPDFPage_GetAnnotCount(page))):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        kind = raw.FPDFAnnot_GetSubtype(annotation)
        if kind in COMMENTS and (said := _text(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")).strip():
            result.comments.append(said)
        elif kind == raw.FPDF_ANNOT_WIDGET and document.formenv is not None:
            _read_field(document.formenv.raw, annotation, result)
        elif kind == raw.FPDF_ANNOT_FILEATTACHMENT and (held := raw.FPDFAnnot_GetFileAttachment(annotation)):
            result.files.append(pdfium.PdfAttachment(held, document))
        elif kind == raw.FPDF_ANNOT_LINK and (address := _address(document, annotation)).startswith(WEB):
            result.links.append(address)
        raw.FPDFPage_CloseAnnot(annotation)
    return result


def _read_field(form: raw.FPDF_FORMHANDLE, annotation: raw.FPDF_ANNOTATION, result: Annotations) -> None:
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    label = _text(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation) or _text(
        raw.FPDFAnnot_GetFormFieldName, form, annotation
    )
    if kind in MARKED:
        option = _text(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation)
        named = f"{label}: {option}" if kind == raw.FPDF_FORMFIELD_RADIOBUTTON and option else label
        result.marks.append(f"{'☒' if raw.FPDFAnnot_IsChecked(form, annotation) else '☐'} {named}".strip())
    elif kind in VALUED and not raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & PASSWORD:
        count = raw.FPDFAnnot_GetOptionCount(form, annotation)
        chosen = [
            _text(raw.FPDFAnnot_GetOptionLabel, form, annotation, index)
            for index in range(min(count, PER_PAGE))
            if raw.FPDFAnnot_IsOptionSelected(form, annotation, index)
        ]
        value = ", ".join(chosen) or _text(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
        if value.strip():
            result.fields.append((label, value))


def _address(document: pdfium.PdfDocument, annotation: raw.FPDF_ANNOTATION) -> str:
    link = raw.FPDFAnnot_GetLink(annotation)
    action = raw.FPDFLink_GetAction(link) if link else None
    size = raw.FPDFAction_GetURIPath(document, action, None, 0) if action else 0
    if size <= 1:
        return ""
    buffer = ctypes.create_string_buffer(size)
    raw.FPDFAction_GetURIPath(document, action, buffer, size)
    return buffer.raw[: size - 1].decode("utf-8", "replace").strip()


def _text(read: Callable[..., int], *arguments: object) -> str:
    """A string in UTF-16 from a function of pdfium that first tells its size in bytes."""
    size = read(*arguments, None, 0)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    read(*arguments, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace")


PAGES_NAMED = 20
THIN_CHARS = 100
PICTURED_SHARE = 0.7
PERMISSION_COPY = 1 << 4


@dataclass(slots=True)
class PageNotes:
    """Pages by number: only pictures and no text; a picture of the page with hardly any text; not readable.

    files: of the pages' annotations. hidden_text takes out what nobody sees, of so many characters.
    """

    hidden_text: HiddenText
    pictures: list[int] = field(default_factory=list)
    thin: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    files: list[pdfium.PdfAttachment] = field(default_factory=list)
    hidden_chars: int = 0


def read(source: Source, assembly: Assembly) -> None:
    """Add every page with its label "page N". Raises ParseError: "encrypted", "broken", "scanned", "empty"."""
    document = _open(source.data)
    try:
        _read_properties(document, assembly)
        if document.get_formtype() != raw.FORMTYPE_NONE:
            document.init_forms()
        result = PageNotes(HiddenText(source.data))
        for number in range(1, len(document) + 1):
            try:
                _add_page(document, number, assembly, result, source.recognized.get(number))
            except pdfium.PdfiumError:
                result.unread.append(number)
        _attach_files(document, result.files, assembly)
        describe(source.recognized, assembly)
        _judge(len(document), result, assembly)
    finally:
        document.close()


def _open(data: bytes) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY) or "assword" in str(
            error
        ):
            raise ParseError(
                "encrypted", "The PDF is locked by a password. Save a copy without it and upload that."
            ) from error
        raise ParseError(
            "broken",
            f"The PDF cannot be opened: {str(error).rstrip('.')}. It is cut off or damaged; upload a whole copy.",
        ) from error


def _read_properties(document: pdfium.PdfDocument, assembly: Assembly) -> None:
    values = document.get_metadata_dict(skip_empty=True)
    assembly.entitle_by_property(values.get("Title"))
    assembly.describe(
        author=values.get("Author"),
        subject=values.get("Subject"),
        keywords=values.get("Keywords"),
        producer=values.get("Producer"),
        created_at=_iso_date(values.get("CreationDate", "")),
        modified_at=_iso_date(values.get("ModDate", "")),
        pages=len(document),
    )
    permissions = raw.FPDF_GetDocPermissions(document)
    if not permissions & PERMISSION_COPY:
        assembly.warn(COPYING_RESTRICTED)


def _iso_date(value: str) -> str:
    match = re.match(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?", value)
    if match is None:
        return ""
    year, month, day, hour, minute, second = match.groups()
    date = "-".join(part for part in (year, month, day) if part)
    return f"{date}T{hour}:{minute}:{second or '00'}" if day and hour and minute else date


def _add_page(
    document: pdfium.PdfDocument, number: int, assembly: Assembly, notes: PageNotes, recognized: RecognizedPage | None
) -> None:
    page = document[number - 1]
    try:
        annotations = read_annotations(document, page)
        notes.files.extend(annotations.files)
        # Flattening draws form fields and annotations into the page, where their text is found like any other.
        if raw.FPDFPage_GetAnnotCount(page) > 0:
            raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
            page.close()
            page = document[number - 1]
        hidden_chars = notes.hidden_text.take_out(page)
        text_page = page.get_textpage()
        text, layout, unseen_chars = lay_out(page, text_page, number)
        text_page.close()
        notes.hidden_chars += hidden_chars + unseen_chars
        if recognized is not None:
            text, layout = recognized.text, recognized.layout
        elif not text.strip() and _has_picture(page):
            notes.pictures.append(number)
        elif text and len(text) < THIN_CHARS and _is_pictured(page):
            notes.thin.append(number)
        extra = annotations.lines(text)
        assembly.add("\n\n".join([text, *extra]) if extra else text, _label(document, number), page=layout)
    finally:
        page.close()


def _label(document: pdfium.PdfDocument, number: int) -> str:
    """ "page N" counts from the front of the file; the number printed on the page stands behind it when it differs."""
    printed = (document.get_page_label(number - 1) or "").strip()
    return f"page {number}" if printed in ("", str(number)) or len(printed) > 20 else f"page {number} ({printed})"


def _has_picture(page: pdfium.PdfPage) -> bool:
    return next(iter(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3)), None) is not None


def _is_pictured(page: pdfium.PdfPage) -> bool:
    """Whether one picture covers most of the page, as a scanner makes it."""
    width, height = page.get_size()
    for picture in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = picture.get_bounds()
        if (right - left) * (top - bottom) > PICTURED_SHARE * width * height:
            return True
    return False


def _attach_files(document: pdfium.PdfDocument, files: list[pdfium.PdfAttachment], assembly: Assembly) -> None:
    """Attach the files of the document and those of its annotations; one that is both comes once."""
    count = document.count_attachments()
    named = [document.get_attachment(index) for index in range(min(count, 2 * assembly.limits.max_attachments))]
    known: set[tuple[str, bytes]] = set()
    for attachment in [*named, *files]:
        try:
            name, data = attachment.get_name(), bytes(attachment.get_data())
        except pdfium.PdfiumError:
            assembly.leave_out("A file attached to the PDF could not be read and was left out.")
            continue
        key = name, hashlib.sha256(data).digest()
        if key not in known:
            known.add(key)
            assembly.attach(name, data)


def _judge(count: int, notes: PageNotes, assembly: Assembly) -> None:
    """Say what was not read; refuse when nothing was."""
    if assembly.length == 0 and not assembly.has_kept_files:
        if notes.pictures:
            raise ParseError(
                "scanned",
                f"The PDF holds only pictures of text ({len(notes.pictures)} of {count} pages) and no text itself.",
                pages=notes.pictures,
            )
        if notes.unread:
            raise ParseError("broken", f"None of the {count} pages could be read. Save the PDF again and upload that.")
        shown = "text that shows" if notes.hidden_chars else "text"
        raise ParseError(
            "empty", f"The PDF has {count} {'page' if count == 1 else 'pages'} and no {shown} on any of them."
        )
    if notes.hidden_chars:
        assembly.warn(f"The PDF hides a part of its text ({notes.hidden_chars:,} characters), which was left out.")
    if notes.pictures:
        assembly.describe(scanned_pages=notes.pictures)
        assembly.leave_out(
            f"{_pages(notes.pictures)} of {count} {_one(notes.pictures, 'holds', 'hold')} only pictures and gave no"
            " text. Text recognition (OCR) would add it."
        )
    if notes.thin:
        assembly.describe(pictured_pages=notes.thin)
        assembly.leave_out(
            f"{_pages(notes.thin)} of {count} {_one(notes.thin, 'is a picture', 'are pictures')} with hardly any text"
            " beside it. What the picture shows was not read; text recognition (OCR) would add it."
        )
    if notes.unread:
        were = _one(notes.unread, "was", "were")
        assembly.leave_out(f"{_pages(notes.unread)} of {count} could not be read and {were} left out.")


def _one(numbers: list[int], singular: str, plural: str) -> str:
    return singular if len(numbers) == 1 else plural


def _pages(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:PAGES_NAMED]))
    more = f" and {len(numbers) - PAGES_NAMED} more" if len(numbers) > PAGES_NAMED else ""
    return f"{'Page' if len(numbers) == 1 else 'Pages'} {shown}{more}"
