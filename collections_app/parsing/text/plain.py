"""Text and Markdown: kept as written; a title is looked for."""

from __future__ import annotations

import re

from collections_app.parsing import signatures as types
from collections_app.parsing.assembly import Assembly
from collections_app.parsing.text.charsets import Decoded, decode
from collections_app.parsing.text.folded import unfold
from collections_app.parsing.types import ParseError, Source

HEAD_CHARS = 20_000
FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
FRONT_TITLE = re.compile(r"^title[ \t]*:[ \t]*(.+?)[ \t]*$", re.MULTILINE | re.IGNORECASE)
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
ATX = re.compile(r"^ {0,3}#{1,2}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
SETEXT = re.compile(r"^([^\n\s][^\n]{0,300})\n(?:={2,}|-{2,})[ \t]*$", re.MULTILINE)
MARKS = re.compile(r"[*_`]|\[([^\]]*)\]\([^)]*\)")


def read(source: Source, assembly: Assembly) -> None:
    """Add the text as it is, but for folded lines. Raises ParseError "unsupported" for what is not text after all."""
    text = unfold(decode_into(source.data, assembly))
    assembly.add(text)
    assembly.entitle(find_title(text[:HEAD_CHARS], source.media_type))


def decode_into(data: bytes, assembly: Assembly) -> str:
    """The text of a file; its charset goes into the metadata. Raises ParseError "unsupported" for zero bytes."""
    decoded = decode(data)
    assembly.describe(charset=decoded.charset)
    text = decoded.text.strip("\x00")
    if 3 * text.count("\x00") > len(text):
        raise ParseError("unsupported", "The file is mostly zero bytes and not text in any charset known here.")
    return take_text(decoded, assembly)


def take_text(decoded: Decoded, assembly: Assembly) -> str:
    """The text without its NUL characters, which are counted; a guess of the charset goes into the warnings."""
    if decoded.warning:
        assembly.warn(decoded.warning)
    assembly.count_lost(decoded.text)
    return decoded.text.replace("\x00", "")


def find_title(text: str, media_type: str) -> str:
    """The title of a Markdown document; "" for others or when there is none."""
    if media_type != types.MARKDOWN:
        return ""
    return _markdown_title(text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff"))


def _markdown_title(text: str) -> str:
    if matter := FRONT_MATTER.match(text):
        if title := FRONT_TITLE.search(matter.group(1)):
            return title.group(1).strip("\"'")
        text = text[matter.end() :]
    text = FENCED.sub("", text)
    atx, setext = ATX.search(text), SETEXT.search(text)
    first = min((match for match in (atx, setext) if match), key=lambda match: match.start(), default=None)
    return MARKS.sub(lambda match: match.group(1) or "", first.group(1)) if first else ""
