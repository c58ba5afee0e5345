"""Which reader reads which media type, and the growing result that it adds to.

The text is normalized piece by piece, with the map from characters to pages that stays exact.
"""

from __future__ import annotations

import importlib
import io
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from types import ModuleType
from typing import Any

from ragd.normalization import normalize
from ragd.readers import signatures as types
from ragd.readers.layout import clean_piece, place_words
from ragd.readers.sniffing import ARCHIVE_TYPES, COMPRESSED_TYPES, mismatch, sniff
from ragd.readers.text.charsets import detect
from ragd.readers.text.markup import drop_packed
from ragd.readers.types import (
    MEBIBYTE,
    Attachment,
    PageLayout,
    ParsedDocument,
    ParseError,
    ParseLimits,
    SheetLines,
    Source,
)
from ragd.text.tables import Cells, spell_columns, spell_numbers

TITLE_CHARS = 300
WARNINGS_KEPT = 50
INVISIBLE = "\u200b\u2060 "
# What programs write into the title when people do not.
TITLES_OF_NOBODY = frozenset(
    {"powerpoint presentation", "slide 1", "untitled", "untitled document", "document", "word document", "(untitled)"}
)
TITLE_OF_PLACE = re.compile(
    r"(?:page|slide|sheet|document|presentation|book|untitled|new document)[ -]?\d*|(?:about|data|file):.*"
)
TITLE_OF_PRINTER = re.compile(r"^Microsoft (?:Office )?(?:Word|PowerPoint|Excel) ?- ")
# The name that a file had when a program wrote its title: the name that it has now says more.
SUFFIX_IN_TITLE = re.compile(
    r"\.(?:docx?|xlsx?|pptx?|pdf|od[tsp]|rtf|txt|tex|dvi|indd|qxd|pages|key|html?)$", re.IGNORECASE
)
FILE_NAME_AS_TITLE = re.compile(r"[^\W_]+(?:-[^\W_]+){2,}|\w*[^\W_]_\w+(?:-\w+)*")
METADATA_CHARS = 2000
# Programs write the first day of their calendar where they know none.
NO_DATE = ("1601-01-01T", "0000-", "0001-01-01T")
SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
SURROGATE = re.compile("[\ud800-\udfff]")


class Assembly:
    """Collects one document. Each piece is normalized before its place is noted, so that the map needs no repair.

    Pieces are joined by a blank line (or `joint`), which also keeps a combining mark from joining the piece before.
    """

    def __init__(self, limits: ParseLimits) -> None:
        self.limits = limits
        self.title = ""
        self.metadata: dict[str, Any] = {}
        self.is_partial = False
        self._pieces: list[str] = []
        self._length = 0
        self._page_map: list[tuple[int, int, str]] = []
        self._layout: list[PageLayout] = []
        self._cell_map: list[Cells] = []
        self._warnings: list[str] = []
        self._attachments: list[Attachment] = []
        self._attachment_bytes = 0
        self._attachments_left_out = 0
        self._attachment_names: set[str] = set()
        self._zeros = 0
        self._surrogates = 0
        self._packed = 0

    @property
    def length(self) -> int:
        return self._length

    @property
    def has_kept_files(self) -> bool:
        """Whether files inside are to become documents, so that one without a text of its own is none in vain."""
        return bool(self._attachments) and self.limits.keep_attachments

    def add(
        self,
        text: str,
        label: str = "",
        joint: str = "\n\n",
        page: PageLayout | None = None,
        rows: Sequence[SheetLines] = (),
    ) -> bool:
        """Append a piece without its outer blank lines; a piece without any visible character is dropped (False).

        page: where the piece's words stand, by their offsets in `text`; they come out as those of the document's text.
        rows: which of its lines show rows of a spreadsheet; the text begins with no empty line then.
        """
        if len(text) > 2 * self.limits.max_chars:
            raise self._too_long(len(text))
        self.count_lost(text)
        if page is None:
            text = self._without_packed(text, keeps_lines=bool(rows))
        piece = clean_piece(text)
        if not piece.strip().strip(INVISIBLE):
            return False
        if self._pieces:
            self._pieces.append(joint)
            self._length += len(joint)
        start = self._length
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > self.limits.max_chars:
            raise self._too_long(self._length)
        if label:
            self._page_map.append((start, self._length, _one_line(label)))
        if page is not None and (placed := place_words(page, text, piece, start)).words:
            self._layout.append(placed)
        if rows:
            self._map_rows(piece, start, rows)
        return True

    def _without_packed(self, text: str, *, keeps_lines: bool) -> str:
        """The text without base64. keeps_lines: no line goes, for they show the rows of a spreadsheet."""
        pieces = [drop_packed(piece) for piece in (text.split("\n") if keeps_lines else [text])]
        self._packed += sum(count for _, count in pieces)
        return "\n".join(piece for piece, _ in pieces)

    def _map_rows(self, piece: str, start: int, rows: Sequence[SheetLines]) -> None:
        ends = list(accumulate((len(line) + 1 for line in piece.split("\n")), initial=start))
        for each in rows:
            if each.line + len(each.rows) < len(ends):
                span = (ends[each.line], ends[each.line + len(each.rows)] - 1)
                self._cell_map.append(
                    (*span, _one_line(each.sheet), spell_columns(each.columns), spell_numbers(each.rows))
                )

    def warn(self, sentence: str) -> None:
        if sentence not in self._warnings and len(self._warnings) < WARNINGS_KEPT:
            self._warnings.append(sentence)

    def leave_out(self, sentence: str) -> None:
        """Warn of something that the document holds and the text does not."""
        self.is_partial = True
        self.warn(sentence)

    def entitle_by_property(self, title: str | None) -> None:
        """Set the title that the file's properties state, unless it is one that only says how a file was called."""
        stated = SUFFIX_IN_TITLE.sub("", (title or "").strip())
        if not FILE_NAME_AS_TITLE.fullmatch(TITLE_OF_PRINTER.sub("", stated)):
            self.entitle(stated)

    def entitle(self, title: str | None) -> None:
        """Set the title unless there is one, or it is what programs call what nobody named."""
        cleaned = TITLE_OF_PRINTER.sub("", " ".join(normalize(title or "").split()))[:TITLE_CHARS]
        said = cleaned.lower()
        if cleaned and not self.title and said not in TITLES_OF_NOBODY and not TITLE_OF_PLACE.fullmatch(said):
            self.title = cleaned

    def describe(self, **values: object) -> None:
        """Add metadata; empty values are left out, everything else becomes a JSON value."""
        for name, value in values.items():
            if value is None or value == "" or value == []:
                continue
            if isinstance(value, bool | int | float | list | dict):
                self.metadata[name] = value
            elif (cleaned := normalize(str(value)).strip()[:METADATA_CHARS]) and not cleaned.startswith(NO_DATE):
                self.metadata[name] = cleaned

    def attach(self, name: str, data: bytes, media_type: str = "") -> None:
        """Name a file inside the document, and keep its bytes where the limits ask for it and allow it."""
        limits = self.limits
        if len(self._attachments) >= limits.max_attachments:
            self._attachments_left_out += 1
            return
        stored = b""
        if limits.keep_attachments:
            if self._attachment_bytes + len(data) <= limits.max_attachments_mb * MEBIBYTE:
                stored = data
                self._attachment_bytes += len(data)
            else:
                self._attachments_left_out += 1
                return
        shown = sniff(data, name) if data else types.UNKNOWN
        result = shown if shown != types.UNKNOWN else media_type or types.UNKNOWN
        self._attachments.append(Attachment(self._attachment_name(name), result, len(data), stored))

    def _attachment_name(self, name: str) -> str:
        """The last part of the name, with a number where another file of the document has it already."""
        base = " ".join(normalize(name).replace("\\", "/").rpartition("/")[2].split())[-TITLE_CHARS:]
        if not base.strip("."):
            base = f"attachment-{len(self._attachments) + 1}"
        stem, dot, suffix = base.rpartition(".")
        if not stem:
            stem, dot, suffix = base, "", ""
        unique, number = base, 1
        while unique in self._attachment_names:
            number += 1
            unique = f"{stem} ({number}){dot}{suffix}"
        self._attachment_names.add(unique)
        return unique

    def count_lost(self, text: str) -> None:
        """Count what normalization takes out although it may have meant something: NUL and halves of characters.

        add() does it; a reader calls it for text whose NUL it takes out itself.
        """
        if "\x00" in text:
            self._zeros += text.count("\x00")
        try:
            text.encode()
        except UnicodeEncodeError:
            self._surrogates += len(SURROGATE.findall(SURROGATE_PAIR.sub("", text)))

    def _warn_of_lost(self) -> None:
        if self._zeros:
            self.warn(f"The text held NUL characters ({self._zeros:,}), which were removed.")
        if self._surrogates:
            self.warn(
                f"The text held halves of characters (lone surrogates, {self._surrogates:,}), which show as \ufffd."
            )
        if self._packed:
            self.warn(f"Packed data (base64, {self._packed:,} characters), such as pictures, was left out of the text.")

    def finish(self, media_type: str) -> ParsedDocument:
        """The document. Raises ParseError "empty" when it has no text; one with attachments to keep names them."""
        if not self._length and self.has_kept_files:
            self.add("\n".join(["Files inside:", *(f"- {item.name}" for item in self._attachments)]))
        text = "".join(self._pieces)
        if not text:
            raise self._empty(media_type)
        if normalize(text) != text:
            raise AssertionError("the pieces of a document did not stay normalized when joined")
        self._warn_of_lost()
        if self._attachments_left_out:
            self.leave_out(
                f"{self._attachments_left_out} attached files were left out: more than {self.limits.max_attachments}"
                f" or than {self.limits.max_attachments_mb} MB together."
            )
        if self._attachments:
            self.metadata["attachments"] = [
                {"name": item.name, "media_type": item.media_type, "size_bytes": item.size_bytes}
                for item in self._attachments
            ]
        return ParsedDocument(
            text=text,
            title=self.title,
            media_type=media_type,
            page_map=tuple(self._page_map),
            metadata=self.metadata,
            warnings=tuple(self._warnings),
            attachments=tuple(self._attachments),
            is_partial=self.is_partial,
            layout=tuple(self._layout),
            cell_map=tuple(self._cell_map),
        )

    def _empty(self, media_type: str) -> ParseError:
        names = ", ".join(item.name for item in self._attachments[:5])
        held = f", only files inside it ({names}). Upload those." if names else ". Upload a version that does."
        if self._packed and not names:
            held = ", only packed data (base64). Unpack it, and upload what comes out."
        return ParseError("empty", f"The document holds no text{held}", media_type=media_type)

    def _too_long(self, length: int) -> ParseError:
        return ParseError(
            "too_large",
            f"The document gives at least {length:,} characters of text; the limit is {self.limits.max_chars:,}"
            " (RAGD_PARSE_MAX_CHARS). Split it, or raise the limit.",
        )


def _one_line(name: str) -> str:
    return normalize(name).replace("\n", " ").strip()


Reader = Callable[[Source, Assembly], None]

# Every module has `read(source, assembly)`: it adds the text and raises ParseError where there is a reason to.
READER_MODULES: dict[str, str] = {
    types.PDF: "pdf.reader",
    types.DOCX: "office.word",
    types.FLAT_OPC: "office.word",
    types.WORDML: "office.word",
    types.PPTX: "office.slides",
    types.XLSX: "office.sheets",
    types.XLSB: "office.sheets",
    types.XLS: "office.sheets",
    types.ODS: "office.sheets",
    types.SHEETML: "office.sheetml",
    types.ODT: "office.opendocument",
    types.ODP: "office.opendocument",
    types.FLAT_ODF: "office.opendocument",
    types.RTF: "legacy.tika",
    types.DOC: "legacy.tika",
    types.PPT: "legacy.tika",
    types.OOXML_ENCRYPTED: "legacy.tika",
    types.MSG: "legacy.outlook",
    types.EML: "mail",
    types.MBOX: "mail",
    types.HTML: "text.html",
    types.EPUB: "epub",
    types.MARKDOWN: "text.plain",
    types.RST: "text.rst",
    types.TEXT: "text.plain",
    types.VTT: "text.subtitles",
    types.SRT: "text.subtitles",
    types.CSV: "text.delimited",
    types.TSV: "text.delimited",
    types.JSON: "text.records",
    types.JSONL: "text.records",
    types.XML: "text.xmldata",
    **dict.fromkeys(types.IMAGES, "scans.images"),
    **dict.fromkeys(COMPRESSED_TYPES, "compressed"),
}


def read_document(source: Source) -> ParsedDocument:
    """Parse one document in this process, without limits of its own. Raises ParseError for anything that went wrong."""
    assembly = Assembly(source.limits)
    media_type = read_into(source, assembly)
    return assembly.finish(media_type)


def read_into(source: Source, assembly: Assembly) -> str:
    """Read a document into an assembly; the media type found. source.media_type, when given, is not asked again."""
    media_type = source.media_type or sniff(source.data, source.name)
    source = replace(source, media_type=media_type)
    try:
        if sentence := mismatch(source.name, media_type):
            assembly.warn(sentence)
        reader_for(source)(source, assembly)
    except ParseError as error:
        error.media_type = error.media_type or media_type
        raise
    except (MemoryError, AssertionError):
        raise
    except RecursionError as error:
        raise ParseError(
            "bomb",
            f"The document is nested too deeply to be read as {types.speak(media_type)}. Flatten it.",
            media_type=media_type,
        ) from error
    except Exception as error:
        raise ParseError(
            "broken",
            f"The content looks like {types.speak(media_type)} but could not be read as one"
            f" ({type(error).__name__}: {str(error)[:200]}). Open it in its own program, save it again, upload that.",
            media_type=media_type,
        ) from error
    return media_type


def reader_for(source: Source) -> Reader:
    """The reader of a source's media type. Raises ParseError with the reason when there is none."""
    module = READER_MODULES.get(source.media_type)
    if module is not None:
        reader: Reader = load(module).read
        return reader
    raise refusal(source)


def refusal(source: Source) -> ParseError:
    media_type = source.media_type
    if media_type == types.EMPTY:
        size = "no bytes" if not source.data else "only blanks"
        return ParseError("empty", f"The file holds {size}. Upload a version with content.", media_type=media_type)
    if media_type == types.ZIP and not zipfile.is_zipfile(io.BytesIO(source.data)):
        return ParseError(
            "broken",
            "The file begins as a ZIP archive, as office documents and e-books do, but its end is missing: it is cut"
            " off or damaged. Upload a whole copy.",
            media_type=media_type,
        )
    if media_type == types.GIT_POINTER:
        return ParseError("unsupported", types.POINTER_ADVICE, media_type=media_type)
    if media_type in ARCHIVE_TYPES:
        return ParseError(
            "unsupported",
            f"One document was expected, but this is {types.speak(media_type)}, which holds several. Upload it by"
            " itself, and each file in it becomes a document.",
            media_type=media_type,
        )
    return ParseError(
        "unsupported",
        f"The file is {types.speak(media_type)}, which is not read. Convert it to one of: {types.READABLE}.",
        media_type=media_type,
    )


def load(module: str) -> ModuleType:
    return importlib.import_module(f"ragd.readers.{module}")


def import_readers() -> None:
    """Import every reader and its library, so that a fork finds them there, with what they load when first used."""
    for module in sorted(set(READER_MODULES.values())):
        load(module)
    detect("é".encode("cp1252"))
