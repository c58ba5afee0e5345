"""What goes into a parser and what comes out. No Django here: the child process imports this package alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from ragd.text.tables import Cells

ErrorKind = Literal[
    "encrypted", "broken", "unsupported", "empty", "scanned", "timeout", "memory", "too_large", "bomb", "crashed"
]
ERROR_KINDS: tuple[str, ...] = get_args(ErrorKind)

MEBIBYTE = 1024 * 1024
COPYING_RESTRICTED = "The PDF's author has not allowed copying its text. Make sure that you may use it."


class ParseError(Exception):
    """A document that gave no text. kind is one of ERROR_KINDS; the message says what was expected, came, and to do.

    media_type is what the content was taken for, "" when that was not reached. pages: which hold pictures of text, of a
    "scanned" document.
    """

    def __init__(self, kind: ErrorKind, message: str, *, media_type: str = "", pages: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.pages = tuple(pages)
        self.kind: ErrorKind = kind
        self.message = message
        self.media_type = media_type


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """What one document may cost. The child process dies rather than exceed them.

    timeout_s: wall clock, and CPU seconds. memory_mb: what the child may write to. max_chars: characters of the text.
    max_members, max_unpacked_mb, max_ratio: of an archive, be it a ZIP or an office document; the ratio counts above
    the first 8 MiB. max_depth: nesting of archives and messages.
    max_archive_mb: of the archive itself, where max_input_mb holds for a document and for each member.
    archive_timeout_s: wall clock of unpacking one archive, with the caller's own work between its members.
    keep_attachments: whether the bytes of attachments come back, up to max_attachments and max_attachments_mb together.
    """

    timeout_s: float = 60.0
    memory_mb: int = 1536
    max_input_mb: int = 200
    max_chars: int = 50_000_000
    max_members: int = 20_000
    max_unpacked_mb: int = 200
    max_ratio: int = 200
    max_depth: int = 3
    max_archive_mb: int = 200
    archive_timeout_s: float = 900.0
    keep_attachments: bool = False
    max_attachments: int = 200
    max_attachments_mb: int = 100

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ParseLimits:
        known = {entry.name for entry in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file inside a document. data is empty unless ParseLimits.keep_attachments; size_bytes is always its size.

    name: unique in its document, without "/", never empty. media_type: by the content, or as declared when the content
    shows none.
    """

    name: str
    media_type: str
    size_bytes: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive, or the error of reading it, which leaves data, sha256 and media_type empty.

    name: its path, relative, with "/" between folders. data is empty when only the list was asked for. sha256: of the
    unpacked bytes, in hexadecimal. media_type: by the content.
    """

    name: str
    data: bytes = b""
    error: ParseError | None = None
    size_bytes: int = 0
    sha256: str = ""
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """A word on a page. start, end: characters of the document's text. confidence: 0 to 1; None: of a text layer.

    x0, y0, x1, y1: its box in points (1/72 inch) from the top left corner of the page as it is shown.
    """

    start: int
    end: int
    x0: float
    y0: float
    x1: float
    y1: float
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class PageLayout:
    """Where the words of a page stand, by their offsets, none overlapping another. page counts from 1.

    width, height: in points, of the page as it is shown, so turned if the file says so.
    """

    page: int
    width: float
    height: float
    words: Sequence[Word] = ()


@dataclass(frozen=True, slots=True)
class RecognizedPage:
    """A page that was read by text recognition. words: with offsets of its own text."""

    page: int
    width: float
    height: float
    text: str
    words: Sequence[Word] = ()

    @property
    def layout(self) -> PageLayout:
        return PageLayout(self.page, self.width, self.height, self.words)


@dataclass(frozen=True, slots=True)
class SheetLines:
    """Lines of a text that show rows of a spreadsheet, one each, from line number `line` on, which counts from 0.

    columns, rows: by number from 1, ascending; every row has a cell in each column. sheet: "" in a file without sheets.
    """

    line: int
    sheet: str
    columns: Sequence[int]
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """text is normalized (`ragd.normalization.normalize(text) == text`).

    page_map: (start, end, label) in characters of text, in order, not overlapping; labels such as "page 3",
    "slide 2", "sheet Prices", "message 4". metadata holds only JSON values. warnings are sentences for people;
    is_partial: one of them names something that the document holds and the text does not. layout: of the pages whose
    words have a known place, by page. cell_map: which lines show which rows of a spreadsheet, ascending.
    """

    text: str
    title: str
    media_type: str
    page_map: tuple[tuple[int, int, str], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    is_partial: bool = False
    layout: tuple[PageLayout, ...] = ()
    cell_map: tuple[Cells, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One document as a reader gets it. recognized: pages that hold pictures of text, by number."""

    data: bytes
    name: str
    media_type: str
    limits: ParseLimits
    depth: int = 0
    recognized: Mapping[int, RecognizedPage] = field(default_factory=dict)
