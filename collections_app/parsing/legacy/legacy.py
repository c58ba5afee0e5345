"""DOC and PPT: converted by LibreOffice where it is installed, else read as plain text by the readers beside this.

XLS is read as it is; LibreOffice only helps where that gives nothing, as with text boxes and damaged files.
"""

from __future__ import annotations

import io

import olefile

from collections_app.parsing import signatures as types
from collections_app.parsing.assembly import Assembly
from collections_app.parsing.legacy import binarydoc, binaryppt
from collections_app.parsing.legacy.oleproperties import read_properties
from collections_app.parsing.office import office, sheets
from collections_app.parsing.types import ParseError, Source

CONVERTED = {
    types.DOC: ("doc", "docx", types.DOCX),
    types.PPT: ("ppt", "pptx", types.PPTX),
    types.XLS: ("xls", "xlsx", types.XLSX),
}


def read(source: Source, assembly: Assembly) -> None:
    """Add the document. Raises ParseError "encrypted" before any conversion."""
    if source.media_type == types.XLS:
        _read_workbook(source, assembly)
        return
    with olefile.OleFileIO(io.BytesIO(source.data)) as container:
        check = binarydoc.check_readable if source.media_type == types.DOC else binaryppt.check_readable
        check(container)
        if _is_convertible(source):
            try:
                _read_converted(source, assembly)
                return
            except ParseError as error:
                if error.kind in ("empty", "too_large"):
                    raise
                assembly.leave_out(f"{error.message} The document was read as plain text instead.")
        else:
            reason = "is not installed" if source.limits.use_office else "is switched off"
            assembly.leave_out(
                f"LibreOffice {reason} for this old format, so it was read as plain text. Headings and tables are lost."
            )
        read_properties(container, assembly)
        reader = binarydoc.read_text if source.media_type == types.DOC else binaryppt.read_text
        reader(container, assembly)


def _read_workbook(source: Source, assembly: Assembly) -> None:
    try:
        sheets.read(source, assembly)
    except ParseError as error:
        if error.kind != "broken" or not _is_convertible(source):
            raise
    if not assembly.length and _is_convertible(source):
        _read_converted(source, assembly)


def _is_convertible(source: Source) -> bool:
    return source.limits.use_office and office.is_installed(CONVERTED[source.media_type][0])


def _read_converted(source: Source, assembly: Assembly) -> None:
    from collections_app.parsing.reading import read_into

    old, new, media_type = CONVERTED[source.media_type]
    converted = office.convert(source.data, old, new, source.limits)
    read_into(Source(converted, "", media_type, source.limits, source.depth + 1, converted=True), assembly)
