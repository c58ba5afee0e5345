"""The media type of a document, from its content. The name only decides between text formats that look alike."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import tarfile
import zipfile
import zlib

from ragd.readers import signatures as types
from ragd.readers.text.charsets import decode
from ragd.readers.text.markup import words

ZIP_TYPE = "application/zip"
TAR_TYPE = "application/x-tar"
GZIP_TYPE = "application/gzip"
BZIP2_TYPE = "application/x-bzip2"
COMPRESSED_TYPES = (GZIP_TYPE, BZIP2_TYPE)
ARCHIVE_TYPES = (ZIP_TYPE, TAR_TYPE)
UNPACK_ERRORS = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, ValueError)
PACKED_STARTS = (b"PK", b"\x1f\x8b", b"BZh")

HEAD_BYTES = 16 * 1024
PDF_WITHIN_BYTES = 1024
ZIP_START = b"PK\x03\x04"
ZIP_TAIL_BYTES = 64 * 1024 + 22
ZIP_DIRECTORY_BYTES = 4 * 1024 * 1024

# Text formats that a name may choose. A name never turns text into a binary format, nor the other way round.
TEXT_SUFFIXES: dict[str, str] = {
    ".md": types.MARKDOWN,
    ".markdown": types.MARKDOWN,
    ".mdown": types.MARKDOWN,
    ".mkd": types.MARKDOWN,
    ".mdx": types.MARKDOWN,
    ".rst": types.RST,
    ".rest": types.RST,
    ".csv": types.CSV,
    ".tsv": types.TSV,
    ".tab": types.TSV,
    ".json": types.JSON,
    ".geojson": types.JSON,
    ".ipynb": types.JSON,
    ".jsonl": types.JSONL,
    ".ndjson": types.JSONL,
    ".html": types.HTML,
    ".htm": types.HTML,
    ".xhtml": types.HTML,
    ".xml": types.XML,
    ".rss": types.XML,
    ".atom": types.XML,
    ".eml": types.EML,
    ".mbox": types.MBOX,
    ".vtt": types.VTT,
    ".srt": types.SRT,
    ".txt": types.TEXT,
    ".text": types.TEXT,
    ".log": types.TEXT,
}
# What a name promises, for the warning about a file that is something else.
PROMISED_SUFFIXES: dict[str, tuple[str, ...]] = {
    **{suffix: (media_type,) for suffix, media_type in TEXT_SUFFIXES.items()},
    ".eml": (types.EML, types.MBOX),
    ".pdf": (types.PDF,),
    ".docx": (types.DOCX,),
    ".docm": (types.DOCX,),
    ".dotx": (types.DOCX,),
    ".pptx": (types.PPTX,),
    ".ppsx": (types.PPTX,),
    ".pptm": (types.PPTX,),
    ".xlsx": (types.XLSX,),
    ".xlsm": (types.XLSX,),
    ".xlsb": (types.XLSB,),
    ".doc": (types.DOC,),
    ".xls": (types.XLS,),
    ".ppt": (types.PPT,),
    ".msg": (types.MSG,),
    ".odt": (types.ODT,),
    ".ods": (types.ODS,),
    ".odp": (types.ODP,),
    ".rtf": (types.RTF,),
    ".epub": (types.EPUB,),
    ".zip": (types.ZIP,),
    ".tar": (types.TAR,),
    ".gz": (types.GZIP,),
    ".bz2": (types.BZIP2,),
    ".xml": (types.XML, types.HTML, types.WORDML, types.SHEETML, types.FLAT_OPC, types.FLAT_ODF),
    ".xhtml": (types.HTML, types.XML),
    ".json": (types.JSON, types.JSONL),
    ".txt": (types.TEXT, types.MARKDOWN, types.RST, types.CSV, types.TSV, types.JSON, types.JSONL, types.SRT),
}
MAIL_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]{1,60})[ \t]*:")
MAIL_HEADERS = words(
    "from to cc bcc date subject sender received reply-to return-path message-id mime-version content-type"
    " delivered-to content-transfer-encoding in-reply-to references x-mailer list-id dkim-signature envelope-to"
)
MAIL_HEADERS_WANTED = 2
MBOX_START = re.compile(r"From \S+.{0,60}\d\d:\d\d")
SRT_START = re.compile(r"\s*\d+\s*\n\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")
MARKUP_PROLOG = re.compile(
    r"(?:\s+|<\?.*?\?>|<!--.*?-->|<!doctype(?:[^\[>]*\[.*?\]\s*>|[^>]*>))*", re.DOTALL | re.IGNORECASE
)
DOCTYPE_HTML = re.compile(r"\s*(?:<\?xml.*?\?>\s*|<!--.*?-->\s*)*<!doctype\s+html\b", re.DOTALL | re.IGNORECASE)
ROOT_NAME = re.compile(r"<([A-Za-z_][\w.:-]*)")
HTML_ROOTS = words("html head body title meta link script style div span p table h1 h2 h3 ul ol a font center br")
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
CONTROLS_ACCEPTED, CONTROLS_ALWAYS_ACCEPTED = 0.02, 3
POINTER = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:version https://(?:git-lfs|hawser)\.github\.com/spec/\S+\s+(?:ext-\S+ \S+\s+)*"
    rb"oid \w+:[0-9a-f]{32}"
    rb"|(?:\.\./)*(?:\.git)?/annex/objects/\S+\s*\Z)"
)
POINTER_BYTES = 1024
BLANKS = "\x00 \t\r\n\x0b\x0c\x85\xa0\u2028\u2029\u3000\ufeff\u200b\u2060"
OFFICE_XML_ROOTS: tuple[tuple[str, str, str], ...] = (
    ("wordDocument", "schemas.microsoft.com/office/word/2003", types.WORDML),
    ("Workbook", "urn:schemas-microsoft-com:office:spreadsheet", types.SHEETML),
    ("package", "schemas.microsoft.com/office/2006/xmlPackage", types.FLAT_OPC),
    ("document", "urn:oasis:names:tc:opendocument", types.FLAT_ODF),
)


def sniff(data: bytes, name: str) -> str:
    """The media type of the content. "application/octet-stream" for unknown binary data, never an error.

    name is a file name or path, or "". It counts only where the content is text of no unmistakable kind.
    """
    if not data:
        return types.EMPTY
    if b"%PDF-" in data[:PDF_WITHIN_BYTES] and not data.startswith(ZIP_START):  # its first member may be one
        return types.PDF
    if is_pointer(data):
        return types.GIT_POINTER
    stripped = data[:64].lstrip()
    if stripped.startswith(b"{\\rtf"):
        return types.RTF
    for offset, magic, media_type in types.MAGIC:
        if data[offset : offset + len(magic)] == magic:
            return _inside(data, media_type, name)
    return _sniff_text(data, name)


def is_pointer(data: bytes) -> bool:
    """Whether the content is what Git LFS or git-annex keeps in a repository in place of a large file."""
    return len(data) <= POINTER_BYTES and POINTER.match(data) is not None


def suffix_of(name: str) -> str:
    """The suffix with its dot, in small letters; "" when there is none."""
    base = name.replace("\\", "/").rpartition("/")[2]
    stem, dot, suffix = base.rpartition(".")
    return f".{suffix.lower()}" if dot and stem else ""


def mismatch(name: str, media_type: str) -> str:
    """A sentence when the name promises another format than the content has; "" when it does not."""
    suffix = suffix_of(name)
    promised = PROMISED_SUFFIXES.get(suffix)
    if promised is None or media_type in promised:
        return ""
    return f"The name ends in {suffix}, but the content is {types.speak(media_type)}; it was read as that."


def _inside(data: bytes, media_type: str, name: str) -> str:
    if media_type == types.ZIP:
        return _sniff_zip(data, name)
    if media_type == types.OLE:
        return _sniff_ole(data, name)
    if media_type == "application/x-dosexec" and not _looks_binary(data[:4096].decode("latin-1")):
        return types.TEXT
    return media_type


def _sniff_zip(data: bytes, name: str) -> str:
    if _has_long_directory(data):
        return types.ZIP
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = {name.replace("\\", "/").lstrip("/").lower() for name in archive.namelist()}
            declared = archive.read("mimetype")[:200].decode("ascii", "replace").strip() if _small(archive) else ""
    except Exception:  # zipfile raises errors of a dozen classes on hostile bytes; each means: no whole ZIP
        return _sniff_cut_zip(data, name)
    if declared.startswith("application/"):
        base = declared.removesuffix("-template")
        return base if base in types.SPOKEN else declared
    for member, media_type in types.ZIP_MEMBERS:
        if member in names and media_type:
            return media_type
    if "content.xml" in names and "meta-inf/manifest.xml" in names:
        return types.ODT
    if names & {"index.xml", "index.apxl"} and "buildversionhistory.plist" in names:
        return "application/vnd.apple.iwork"
    if "[content_types].xml" in names:
        return _sniff_package(names)
    return types.ZIP


def _has_long_directory(data: bytes) -> bool:
    """Whether the directory of a ZIP is longer than that of any document: listing it would take memory for nothing."""
    index = data.rfind(b"PK\x05\x06", max(0, len(data) - ZIP_TAIL_BYTES))
    return index >= 0 and int.from_bytes(data[index + 12 : index + 16], "little") > ZIP_DIRECTORY_BYTES


def _sniff_package(names: set[str]) -> str:
    """An Open Packaging container whose main part has an unusual name."""
    for folder, media_type in (("word/", types.DOCX), ("ppt/", types.PPTX), ("xl/", types.XLSX)):
        if any(name.startswith(folder) for name in names):
            return media_type
    return "application/vnd.openxmlformats-package"


def _small(archive: zipfile.ZipFile) -> bool:
    try:
        return archive.getinfo("mimetype").file_size < 1000
    except KeyError:
        return False


def _sniff_cut_zip(data: bytes, name: str) -> str:
    """The format of a ZIP whose end is missing: its first members still name themselves, else its name does."""
    head = data[: 1024 * 1024]
    if b"mimetypeapplication/" in head[:100]:
        declared = head[38:].split(b"PK", 1)[0].decode("ascii", "replace").strip()
        return declared if declared in types.SPOKEN else types.ZIP
    for member, media_type in ((b"word/", types.DOCX), (b"ppt/", types.PPTX), (b"xl/", types.XLSX)):
        if b"[Content_Types].xml" in head and member in head:
            return media_type
    return _promised(name, types.ZIP_DOCUMENTS) or types.ZIP


def _promised(name: str, kinds: frozenset[str]) -> str:
    """What the name says of a container that cannot be opened, if that is one of these; else ""."""
    promised = PROMISED_SUFFIXES.get(suffix_of(name), ("",))[0]
    return promised if promised in kinds else ""


def _sniff_ole(data: bytes, name: str) -> str:
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(data)) as container:
            names = {entry[0].lower() for entry in container.listdir(streams=True, storages=True)}
    except Exception:  # olefile raises struct, index, value and type errors on hostile bytes; each means: not readable
        return _promised(name, types.OLE_DOCUMENTS) or types.OLE
    for stream, media_type in types.OLE_STREAMS:
        if stream.lower() in names:
            return media_type
    return types.OLE


def _sniff_text(data: bytes, name: str) -> str:
    head = decode(data[:HEAD_BYTES]).text
    if not head.strip(BLANKS):
        return types.TEXT if decode(data).text.strip(BLANKS) else types.EMPTY
    if _looks_binary(head):
        return types.UNKNOWN
    start = head.lstrip("\ufeff \t\r\n\x00")
    chosen = TEXT_SUFFIXES.get(suffix_of(name), "")
    if start.startswith("WEBVTT"):
        return types.VTT
    if start.startswith("<") and (markup := _sniff_markup(start, chosen)):
        return markup
    if SRT_START.match(start):
        return types.SRT
    if start.startswith("From ") and MBOX_START.match(start):
        return types.MBOX
    if _starts_like_mail(start, chosen):
        return types.EML
    if start[0] in "{[" and chosen in ("", types.JSON, types.JSONL, types.TEXT):
        return _sniff_json(start, chosen)
    # A message or page that its name promises but its content does not show is text.
    return chosen if chosen not in ("", types.EML, types.MBOX, types.VTT, types.SRT, types.XML) else types.TEXT


def _sniff_markup(start: str, chosen: str) -> str:
    if DOCTYPE_HTML.match(start):
        return types.HTML
    rest = start[_prolog_end(start) :]
    root = ROOT_NAME.match(rest)
    if root is None:
        return types.XML if start.startswith("<?xml") else ""
    local = root.group(1).rpartition(":")[2]
    for office_root, namespace, media_type in OFFICE_XML_ROOTS:
        if local == office_root and namespace in start:
            return media_type
    if local.lower() == "html":
        return types.HTML
    if start.startswith("<?xml") or chosen == types.XML:
        return types.XML
    if chosen in (types.MARKDOWN, types.RST, types.CSV, types.TSV, types.JSON, types.JSONL):
        return chosen
    if local.lower() in HTML_ROOTS or chosen == types.HTML:
        return types.HTML
    return types.XML if "xmlns" in rest[:2000] or f"</{root.group(1)}>" in rest else ""


def _prolog_end(start: str) -> int:
    match = MARKUP_PROLOG.match(start)
    return match.end() if match else 0


def _starts_like_mail(start: str, chosen: str) -> bool:
    """Header lines before the first empty line: all of them well formed, and enough of them those of mail."""
    known = 0
    for number, line in enumerate(start.split("\n")[:60]):
        line = line.rstrip("\r")
        if not line:
            break
        if line[0] in " \t" and number:
            continue
        match = MAIL_HEADER.match(line)
        if match is None:
            if chosen != types.EML or number > 0:
                break
            continue
        known += match.group(1).lower() in MAIL_HEADERS
    return known >= (1 if chosen == types.EML else MAIL_HEADERS_WANTED)


def _sniff_json(start: str, chosen: str) -> str:
    """JSON lines have a whole value on each of the first two lines; else JSON by name or by how it starts."""
    lines = [line.strip() for line in start.split("\n")[:3] if line.strip()]
    if len(lines) > 1 and all(line[0] in "{[" and line[-1] in "}]" for line in lines[:2]):
        return types.JSONL
    looks_json = re.match(r"[{\[]\s*(?:[\"{\[\]}]|-?\d|true|false|null)", start)
    if chosen in (types.JSON, types.JSONL):
        return chosen
    return types.JSON if looks_json else types.TEXT


def _looks_binary(head: str) -> bool:
    head = head.strip("\x00")  # what pads a block
    return len(CONTROLS.findall(head)) > CONTROLS_ACCEPTED * len(head) + CONTROLS_ALWAYS_ACCEPTED


def archive_type(data: bytes, name: str = "") -> str:
    """The media type when the content is an archive to unpack, a ZIP or a TAR (also packed in gzip or bzip2); else "".

    A ZIP that is a document (office, e-book) is not an archive here, nor is a single compressed file. name: of a ZIP
    that cannot be opened it tells whether it was to be a document. Cheap and safe in any process: of a compressed file
    only the first block is unpacked.
    """
    kind = packed_type(data, name)
    if kind in COMPRESSED_TYPES:
        return TAR_TYPE if _begins_as_tar(data, kind) else ""
    return kind


def packed_type(data: bytes, name: str = "") -> str:
    """The media type when the bytes are a ZIP, a TAR or a compressed file, and no document; else ""."""
    if not data[:4].startswith(PACKED_STARTS) and data[257:262] != b"ustar":
        return ""
    media_type = sniff(data, name)
    return media_type if media_type in ARCHIVE_TYPES or media_type in COMPRESSED_TYPES else ""


def _begins_as_tar(data: bytes, kind: str) -> bool:
    raw = io.BytesIO(data)
    try:
        with gzip.open(raw) if kind == GZIP_TYPE else bz2.open(raw) as stream:
            return stream.read(tarfile.BLOCKSIZE)[257:262] == b"ustar"
    except UNPACK_ERRORS:
        return False
