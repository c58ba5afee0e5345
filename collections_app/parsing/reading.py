"""Which reader reads which media type, and the one function that the child process calls."""

from __future__ import annotations

import importlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from collections_app.parsing import signatures as types
from collections_app.parsing.archives import ARCHIVE_TYPES, COMPRESSED_TYPES
from collections_app.parsing.assembly import Assembly
from collections_app.parsing.sniffing import mismatch, sniff
from collections_app.parsing.text.charsets import detect
from collections_app.parsing.types import ParsedDocument, ParseError, Source

Reader = Callable[[Source, Assembly], None]

# Every module has `read(source, assembly)`: it adds the text and raises ParseError where there is a reason to.
READER_MODULES: dict[str, str] = {
    types.PDF: "pdf",
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
    return importlib.import_module(f"collections_app.parsing.{module}")


def import_readers() -> None:
    """Import every reader and its library, so that a fork finds them there, with what they load when first used."""
    for module in sorted(set(READER_MODULES.values())):
        load(module)
    detect("é".encode("cp1252"))
