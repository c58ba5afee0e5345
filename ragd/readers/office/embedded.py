"""Files inside office documents: attachments, taken out of the containers in which programs embed them."""

from __future__ import annotations

import io
import re
import struct
from typing import Any

import olefile

from ragd.readers import signatures as types
from ragd.readers.assembly import READER_MODULES, Assembly
from ragd.readers.office.ooxml import Parts, related
from ragd.readers.sniffing import ARCHIVE_TYPES, sniff
from ragd.readers.text.markup import squeeze
from ragd.readers.types import ParseError

EMBEDDED = re.compile(r"(?:.*/)?embeddings/[^/]+")
CHART = re.compile(r"(?:.*/)?charts/[^/]+\.xml")
WORKBOOK, SERIES_TEXT = "Workbook", 0x100D
NATIVE, EQUATION = "\x01Ole10Native", "Equation Native"
WHOLE_FILES = ("Package", "CONTENTS", "EmbeddedOdf")
SUFFIXES = {
    types.PDF: ".pdf", types.DOC: ".doc", types.XLS: ".xls", types.PPT: ".ppt", types.DOCX: ".docx",
    types.PPTX: ".pptx", types.XLSX: ".xlsx", types.XLSB: ".xlsb", types.ODT: ".odt", types.ODS: ".ods",
    types.ODP: ".odp", types.RTF: ".rtf", types.MSG: ".msg", types.EML: ".eml", types.HTML: ".html",
    types.TEXT: ".txt",
}  # fmt: skip


def attach_embedded(package: Parts, assembly: Assembly) -> None:
    """Attach the files that an Open XML package embeds, but for the workbooks from which its charts are drawn."""
    drawn = {name for chart in package.names if CHART.fullmatch(chart) for name in related(package, chart, "package")}
    embedded = [name for name in package.names if EMBEDDED.fullmatch(name) and name not in drawn]
    for name in sorted(embedded, key=lambda each: (len(each), each)):
        try:
            attach_object(name.rpartition("/")[2], package.read(name), assembly)
        except ParseError as error:
            if error.kind in ("bomb", "memory"):
                raise
            assembly.leave_out(f"The file {name!r} inside could not be taken out: {error.message}")


def attach_object(name: str, data: bytes, assembly: Assembly) -> None:
    """Attach an embedded object: the file in its container, or itself. Formulas of the old editor are none."""
    unpacked = unpack_object(name, data)
    if unpacked is None:
        return
    name, data = unpacked
    media_type = sniff(data, name) if data else types.EMPTY
    if name.endswith(".bin") and media_type in SUFFIXES:
        name = name.removesuffix(".bin") + SUFFIXES[media_type]
    if media_type not in READER_MODULES and media_type not in ARCHIVE_TYPES:
        assembly.leave_out(f"A file inside was left out: {name!r} is {types.speak(media_type)}, which is not read.")
    assembly.attach(name, data)


def read_beside_cells(data: bytes, assembly: Assembly) -> None:
    """Add the words of an old Excel workbook's charts, and attach the files that it embeds, each in its storage."""
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as container:
            if container.exists(WORKBOOK):
                with container.openstream(WORKBOOK) as stream:
                    assembly.add("\n".join(f"Chart: {text}" for text in chart_texts(stream.read())))
            storages = sorted({path[0] for path in container.listdir() if len(path) > 1 and path[0].startswith("MBD")})
            for storage in storages:
                held = _stored(container, f"{storage}/")
                if held is not None:
                    attach_object(held[0] or f"{storage}.bin", held[1], assembly)
                elif not container.exists(f"{storage}/{EQUATION}"):
                    assembly.leave_out(f"An object inside ({storage}) was left out: save it as a file and upload that.")
    except OSError:
        return  # no compound file: Excel before 5


def chart_texts(stream: bytes) -> list[str]:
    """The titles, series and axes that the charts of an Excel 97 workbook name, each once."""
    texts: dict[str, None] = {}
    at = 0
    while at + 4 <= len(stream):
        kind, size = struct.unpack_from("<HH", stream, at)
        record = stream[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == SERIES_TEXT and len(record) > 4:
            is_wide = record[3] & 1
            raw = record[4 : 4 + record[2] * (2 if is_wide else 1)]
            texts[squeeze(raw.decode("utf-16-le" if is_wide else "latin-1", "replace"))] = None
    return [text for text in texts if text]


def unpack_object(name: str, data: bytes) -> tuple[str, bytes] | None:
    """The name and bytes of the file in an OLE object, the object itself where it is none; None for a formula."""
    if not olefile.isOleFile(io.BytesIO(data)):
        return name, data
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as container:
            if container.exists(EQUATION):
                return None
            held = _stored(container, "")
    except OSError as error:
        raise ParseError("broken", f"it is damaged ({str(error)[:200]})") from error
    return (held[0] or name, held[1]) if held is not None else (name, data)


def _stored(container: olefile.OleFileIO[Any], folder: str) -> tuple[str, bytes] | None:
    """(name, bytes) of the whole file that a storage holds; the name is "" where it states none."""
    if container.exists(folder + NATIVE):
        with container.openstream(folder + NATIVE) as stream:
            return _native_file(stream.read())
    for stream_name in WHOLE_FILES:
        if container.exists(folder + stream_name):
            with container.openstream(folder + stream_name) as stream:
                content: bytes = stream.read()
            if content:
                return "", content
    return None


def _native_file(stream: bytes) -> tuple[str, bytes] | None:
    """The file of an OLE 1 package: its label, path and temporary path, each ended by NUL, then size and bytes."""
    try:
        (size,) = struct.unpack_from("<I", stream)
        label_end = stream.index(b"\0", 6)
        path_end = stream.index(b"\0", label_end + 1)
        (length,) = struct.unpack_from("<I", stream, path_end + 5)
        start = path_end + 9 + length
        (count,) = struct.unpack_from("<I", stream, start)
    except (ValueError, struct.error):
        return None
    if start + 4 + count > len(stream) or length > len(stream):
        return ("", stream[4 : 4 + size]) if size else None
    return stream[6:label_end].decode("cp1252", "replace"), stream[start + 4 : start + 4 + count]
