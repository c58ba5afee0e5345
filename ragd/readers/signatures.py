"""Magic bytes: which media type, and what to call what cannot be read."""

from __future__ import annotations

PDF = "application/pdf"
RTF = "application/rtf"
ZIP = "application/zip"
TAR = "application/x-tar"
GZIP = "application/gzip"
BZIP2 = "application/x-bzip2"
OLE = "application/x-ole-storage"
DOC = "application/msword"
XLS = "application/vnd.ms-excel"
PPT = "application/vnd.ms-powerpoint"
MSG = "application/vnd.ms-outlook"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
OOXML_ENCRYPTED = "application/x-ooxml-encrypted"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODP = "application/vnd.oasis.opendocument.presentation"
EPUB = "application/epub+zip"
HTML = "text/html"
XML = "application/xml"
JSON = "application/json"
JSONL = "application/x-ndjson"
CSV = "text/csv"
TSV = "text/tab-separated-values"
TEXT = "text/plain"
MARKDOWN = "text/markdown"
RST = "text/x-rst"
VTT = "text/vtt"
SRT = "application/x-subrip"
EML = "message/rfc822"
MBOX = "application/mbox"
WORDML = "application/vnd.ms-word.2003+xml"
SHEETML = "application/vnd.ms-excel.2003+xml"
FLAT_OPC = "application/vnd.ms-office.flat-opc+xml"
FLAT_ODF = "application/vnd.oasis.opendocument.flat+xml"
PNG, JPEG, TIFF, WEBP = "image/png", "image/jpeg", "image/tiff", "image/webp"
IMAGES = (PNG, JPEG, TIFF, WEBP)
GIT_POINTER = "application/x-git-pointer"
UNKNOWN = "application/octet-stream"
EMPTY = "application/x-empty"

# (offset, bytes, media type)
MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", ZIP),
    (0, b"PK\x05\x06", ZIP),
    (0, b"PK\x07\x08", ZIP),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    (0, b"{\\rtf", RTF),
    (0, b"\x1f\x8b", GZIP),
    (0, b"BZh", BZIP2),
    (257, b"ustar", TAR),
    (0, b"\x09\x00\x04\x00", XLS),  # the first record of a worksheet of Excel 2, 3 and 4
    (0, b"\x09\x02\x06\x00", XLS),
    (0, b"\x09\x04\x06\x00", XLS),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"ITSF", "application/vnd.ms-htmlhelp"),
    (0, b"\xffWPC", "application/vnd.wordperfect"),
    (0, b"\x7fELF", "application/x-elf"),
    (0, b"MZ", "application/x-dosexec"),
    (0, b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (0, b"\xce\xfa\xed\xfe", "application/x-mach-binary"),
    (0, b"\xca\xfe\xba\xbe", "application/x-mach-binary"),
    (0, b"JAVA PROFILE", "application/x-java-hprof"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"\x89PNG\r\n\x1a\n", PNG),
    (0, b"\xff\xd8\xff", JPEG),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"II*\x00", TIFF),
    (0, b"MM\x00*", TIFF),
    (8, b"WEBP", WEBP),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/x-matroska"),
    (0, b"%!PS", "application/postscript"),
    (0, b"WARC/", "application/warc"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"\x78\x9f\x3e\x22", "application/vnd.ms-tnef"),
)

# What a ZIP holds, by the name of a member that only it has.
ZIP_MEMBERS: tuple[tuple[str, str], ...] = (
    ("word/document.xml", DOCX),
    ("ppt/presentation.xml", PPTX),
    ("xl/workbook.xml", XLSX),
    ("xl/workbook.bin", XLSB),
    ("meta-inf/container.xml", EPUB),
    ("index/document.iwa", "application/vnd.apple.iwork"),
    ("index.xml", ""),
    ("index.apxl", ""),
)

# Documents that are a ZIP, and documents that are an OLE2 file.
ZIP_DOCUMENTS = frozenset({DOCX, PPTX, XLSX, XLSB, EPUB, ODT, ODS, ODP})
OLE_DOCUMENTS = frozenset({DOC, XLS, PPT, MSG})

# What an OLE2 file holds, by the name of a stream in its root, in the order they are asked for.
OLE_STREAMS: tuple[tuple[str, str], ...] = (
    ("EncryptedPackage", OOXML_ENCRYPTED), ("__properties_version1.0", MSG), ("WordDocument", DOC),
    ("PowerPoint Document", PPT), ("PP97_DUALSTORAGE", PPT), ("Workbook", XLS), ("Book", XLS),
)  # fmt: skip

# In messages: what a media type is called by people.
SPOKEN: dict[str, str] = {
    PDF: "a PDF",
    RTF: "an RTF document",
    ZIP: "a ZIP archive",
    TAR: "a TAR archive",
    GZIP: "a gzip file",
    BZIP2: "a bzip2 file",
    OLE: "an OLE2 container of no known kind",
    DOC: "a Word 97-2003 document",
    XLS: "an Excel 97-2003 workbook",
    PPT: "a PowerPoint 97-2003 presentation",
    MSG: "an Outlook message",
    DOCX: "a Word document",
    PPTX: "a PowerPoint presentation",
    XLSX: "an Excel workbook",
    XLSB: "a binary Excel workbook",
    OOXML_ENCRYPTED: "an office document locked by a password or by rights management",
    ODT: "an OpenDocument text",
    ODS: "an OpenDocument spreadsheet",
    ODP: "an OpenDocument presentation",
    EPUB: "an e-book (EPUB)",
    HTML: "an HTML page",
    XML: "an XML document",
    JSON: "JSON",
    JSONL: "JSON lines",
    CSV: "a CSV table",
    TSV: "a table with tabs",
    TEXT: "plain text",
    MARKDOWN: "Markdown",
    RST: "reStructuredText",
    VTT: "WebVTT subtitles",
    SRT: "SubRip subtitles",
    EML: "an e-mail message",
    MBOX: "a mailbox",
    WORDML: "a Word 2003 XML document",
    SHEETML: "an Excel 2003 XML workbook",
    FLAT_OPC: "an office document as flat XML",
    FLAT_ODF: "an OpenDocument file as flat XML",
    GIT_POINTER: "a pointer of Git LFS or git-annex",
    UNKNOWN: "binary data of no known format",
    EMPTY: "an empty file",
    "application/x-7z-compressed": "a 7z archive",
    "application/vnd.rar": "a RAR archive",
    "application/x-xz": "an xz file",
    "application/zstd": "a zstd file",
    "application/vnd.ms-htmlhelp": "a compiled help file (CHM)",
    "application/vnd.wordperfect": "a WordPerfect document",
    "application/vnd.apple.iwork": "an Apple iWork document",
    "application/x-elf": "an executable program (ELF)",
    "application/x-dosexec": "an executable program (Windows)",
    "application/x-mach-binary": "an executable program (macOS) or Java class",
    "application/x-java-hprof": "a Java heap profile",
    "application/vnd.sqlite3": "a SQLite database",
    "application/postscript": "a PostScript file",
    "application/warc": "a web archive (WARC)",
    "application/vnd.apache.parquet": "a Parquet file",
    "application/vnd.ms-tnef": "an Outlook winmail.dat container",
    "application/vnd.openxmlformats-package": "an Open Packaging container of an unknown kind",
}

POINTER_ADVICE = (
    "This is a pointer of Git LFS or git-annex, a few lines that stand for a file kept elsewhere, and not the file."
    " Fetch the file (git lfs pull, git annex get), and upload that."
)
READABLE = (
    "PDF, Word, PowerPoint, Excel, OpenDocument, RTF, HTML, EPUB, Markdown, reStructuredText, text, CSV, TSV, JSON,"
    " XML, e-mail, mailbox and subtitle files; images (PNG, JPEG, TIFF, WebP) with text recognition"
)


def speak(media_type: str) -> str:
    """The media type in words, with its article."""
    if media_type in SPOKEN:
        return SPOKEN[media_type]
    group = media_type.partition("/")[0]
    names = {"image": "an image", "audio": "an audio file", "video": "a video", "text": "text"}
    return f"{names.get(group, 'a file')} ({media_type})"
