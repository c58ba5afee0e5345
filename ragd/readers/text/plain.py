"""Text and Markdown: kept as written; a title is looked for.

vCard and iCalendar: folded lines joined, quoted-printable values decoded, escapes undone.
"""

from __future__ import annotations

import binascii
import re

from ragd.readers import signatures as types
from ragd.readers.assembly import Assembly
from ragd.readers.text.charsets import Decoded, decode
from ragd.readers.types import ParseError, Source

START = re.compile(r"\ufeff?\s*BEGIN:(?:VCARD|VCALENDAR)\s*\r?\n", re.IGNORECASE)
QUOTED = re.compile(
    r"^([^:\r\n]*;(?:ENCODING=)?QUOTED-PRINTABLE[^:\r\n]*):((?:[^\r\n]*=\r?\n)*[^\r\n]*)(?=\r?\n|\Z)", re.I | re.M
)
PARAMETERS = re.compile(r";(?:(?:ENCODING=)?QUOTED-PRINTABLE|CHARSET=[^;:]*)", re.IGNORECASE)
CHARSET = re.compile(r"CHARSET=\"?([^;:\"]+)", re.IGNORECASE)
FOLD = re.compile(r"\r?\n[ \t]")
ESCAPE = re.compile(r"\\([nN,;\\])")


def unfold(text: str) -> str:
    """The lines as they were meant; text of another kind stays as it is."""
    if not START.match(text):
        return text
    return ESCAPE.sub(_unescaped, FOLD.sub("", QUOTED.sub(_decoded, text)))


def _decoded(match: re.Match[str]) -> str:
    name, value = match.groups()
    charset = CHARSET.search(name)
    data = binascii.a2b_qp(value.encode())
    lines = decode(data, charset.group(1) if charset else "").text.splitlines()
    return f"{PARAMETERS.sub('', name)}:{' '.join(lines)}"


def _unescaped(match: re.Match[str]) -> str:
    return " " if match.group(1) in "nN" else match.group(1)


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
