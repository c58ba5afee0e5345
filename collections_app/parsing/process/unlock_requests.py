"""Documents under a password that the child process opens with it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from collections_app.parsing import signatures as types
from collections_app.parsing.process import process
from collections_app.parsing.sniffing import sniff
from collections_app.parsing.types import ParseError

OFFICE = frozenset({types.OOXML_ENCRYPTED, types.DOC, types.XLS, types.PPT})


def send_unlocked(connection: Connection, data: bytes, request: Mapping[str, Any]) -> None:
    """The document of the request without its password."""
    media_type = sniff(data, request["name"])
    if media_type == types.PDF:
        content = _unlock_pdf(data, request["unlock"])
    elif media_type in OFFICE:
        content = _unlock_office(data, request["unlock"])
    else:
        raise ParseError(
            "unsupported",
            f"A PDF, Word, Excel or PowerPoint file was expected, but this is {types.speak(media_type)}. Save a copy"
            " without the password and upload that.",
            media_type=media_type,
        )
    process.send(connection, {}, content)


def _unlock_pdf(data: bytes, password: str) -> bytes:
    try:
        document = pdfium.PdfDocument(data, password=password)
    except pdfium.PdfiumError as error:
        raise _wrong_password(types.PDF) from error
    copy = io.BytesIO()
    try:
        document.save(copy, flags=raw.FPDF_REMOVE_SECURITY)
    finally:
        document.close()
    return copy.getvalue()


def _unlock_office(data: bytes, password: str) -> bytes:
    import msoffcrypto  # with a library of ciphers, which few documents need

    copy = io.BytesIO()
    try:
        document = msoffcrypto.OfficeFile(io.BytesIO(data))
        document.load_key(password=password)
        document.decrypt(copy)
    except Exception as error:  # of a dozen classes on damaged files and wrong passwords alike
        raise _wrong_password(types.OOXML_ENCRYPTED) from error
    return copy.getvalue()


def _wrong_password(media_type: str) -> ParseError:
    return ParseError(
        "encrypted", "The password does not open the file. Check it and enter it again.", media_type=media_type
    )
