"""How numbers, sizes, durations and names are written for people, and how times that people type are read.

Pages have each as a filter of its name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import wraps
from typing import Any

from django.conf.locale import LANG_INFO
from django.utils import dateformat, timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import get_language, gettext, pgettext

from ragd.errors import InvalidInput

MEGABYTE = 1_000_000
SEPARATOR = re.compile(r"(?<=\d)[.,](?=\d)")
SWAPPED = {".": ",", ",": "."}
AGE = re.compile(r"(\d{1,6})\s*([smhdw])")
AGE_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

LABEL_KINDS = ("message", "page", "row", "rows", "section", "sheet", "slide", "speaker")
FILE_TYPES = {
    "application/epub+zip": "EPUB",
    "application/json": "JSON",
    "application/msword": "Word 97",
    "application/pdf": "PDF",
    "application/rtf": "RTF",
    "application/vnd.ms-excel": "Excel 97",
    "application/vnd.ms-excel.2003+xml": "Excel 2003",
    "application/vnd.ms-office.flat-opc+xml": "Office XML",
    "application/vnd.ms-powerpoint": "PowerPoint 97",
    "application/vnd.ms-word.2003+xml": "Word 2003",
    "application/vnd.oasis.opendocument.flat+xml": "OpenDocument XML",
    "application/vnd.oasis.opendocument.presentation": "ODP",
    "application/vnd.oasis.opendocument.spreadsheet": "ODS",
    "application/vnd.oasis.opendocument.text": "ODT",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "PowerPoint",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "Excel",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "Word",
    "application/mbox": "Mailbox",
    "application/vnd.ms-excel.sheet.binary.macroenabled.12": "Excel",
    "application/vnd.ms-outlook": "Outlook",
    "application/x-ndjson": "JSON Lines",
    "application/x-subrip": "Subtitles",
    "application/xhtml+xml": "HTML",
    "application/xml": "XML",
    "message/rfc822": "E-mail",
    "image/jpeg": "JPEG",
    "image/png": "PNG",
    "image/tiff": "TIFF",
    "image/webp": "WebP",
    "text/csv": "CSV",
    "text/html": "HTML",
    "text/markdown": "Markdown",
    "text/plain": "Text",
    "text/tab-separated-values": "TSV",
    "text/vtt": "Subtitles",
    "text/x-rst": "reStructuredText",
}

FILE_SYMBOLS = {  # by the first word of what they are called
    "file-text": (
        "EPUB", "Markdown", "ODT", "Office", "OpenDocument", "RTF", "Subtitles", "Text", "Word", "reStructuredText",
    ),
    "file-sheet": ("CSV", "Excel", "ODS", "TSV"),
    "file-slides": ("ODP", "PowerPoint"),
    "file-pdf": ("PDF",),
    "file-web": ("HTML",),
    "file-data": ("JSON", "XML"),
    "file-mail": ("E-mail", "Mailbox", "Outlook"),
    "file-image": ("JPEG", "PNG", "TIFF", "WebP"),
}  # fmt: skip


def duration(took_ms: float | str | None) -> str:
    """Milliseconds below one second, then seconds, from two minutes on minutes; an en dash for None and ""."""
    if took_ms is None or took_ms == "":
        return "–"
    value = float(took_ms)
    if value < 1:
        return f"{value:.2f} ms"
    if value < 10:
        return f"{value:.1f} ms"
    if value < 999.5:
        return f"{value:.0f} ms"
    if value < 9_995:
        return f"{value / 1000:.2f} s"
    if value < 119_950:
        return f"{value / 1000:.1f} s"
    minutes, seconds = divmod(round(value / 1000), 60)
    return f"{minutes} min {seconds} s"


def round_duration(took_ms: float) -> str:
    """A round number of milliseconds for a scale, below one second in ms, else in s: "1 ms", "2.5 s"."""
    return f"{took_ms:g} ms" if took_ms < 1000 else f"{took_ms / 1000:g} s"


def number(value: float | str | None) -> str:
    """Grouped thousands; an en dash for None and for what a template lacks."""
    if value is None or isinstance(value, str):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def dollars(amount: float | None) -> str:
    """ "$0.0024": up to three significant digits below a dollar, cents at least; an en dash for None."""
    if amount is None:
        return "–"
    if amount == 0:
        return "$0"
    if abs(amount) >= 1:
        return f"${amount:,.2f}"
    whole, _, part = f"{amount:.{2 - math.floor(math.log10(abs(amount)))}f}".partition(".")
    return f"${whole}.{part.rstrip('0').ljust(2, '0')}"


def size(value: int | None) -> str:
    """Bytes in decimal units, as the size limit counts them."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def amount(value: float | None, unit: str) -> str:
    """A count of bytes in decimal units, of anything else with its name: "chars" -> "1,200 characters"."""
    if value is None:
        return "–"
    if unit == "bytes":
        return size(round(value))
    text = f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.1f}"
    return f"{text} {gettext('characters') if unit == 'chars' else unit}".strip()


def score(value: float | None) -> str:
    """Four digits after the point: enough to tell neighbours of a ranking apart."""
    return "–" if value is None else f"{value:.4f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def counted(value: int, noun: str) -> str:
    """counted(1, "document") -> "1 document"; "query,queries" gives the plural; else an s is added."""
    one, _, many = noun.partition(",")
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def localized(written: Callable[..., str]) -> Callable[..., str]:
    """What is written, with the separators of numbers as the language of the page has them."""

    @wraps(written)
    def write(*values: Any) -> str:
        text = written(*values)
        if (get_language() or "en") == "en":
            return text
        return SEPARATOR.sub(lambda found: SWAPPED[found[0]], text)

    return write


def between(low: str, high: str) -> str:
    return gettext("%(low)s to %(high)s") % {"low": low, "high": high}


def day_words(day: date) -> str:
    """ "1 Dec"."""
    return dateformat.format(day, pgettext("format of a date", "j M"))


def words(name: str) -> str:
    """embed_query -> embed query: a name of the code as words."""
    return name.replace("_", " ")


def page_label(label: object) -> str:
    """Where in its file a chunk stands: "3" and "page 3" -> "p. 3", "sheet Totals" as it is, "" for none.

    A label without a kind is the heading of a section: "Contents" -> "section Contents".
    """
    text = str(label or "")
    kind, _, rest = text.partition(" ")
    if text.isdigit() or (kind == "page" and rest):
        return f"p. {rest or text}"
    return text if not text or (kind in LABEL_KINDS and rest) else f"section {text}"


def strategy(kind: str) -> str:
    """structure, words -> what the interface calls the chunking strategy."""
    return {"structure": gettext("structure-aware"), "words": gettext("sliding window")}.get(kind, kind)


def file_type(media_type: str) -> str:
    """application/pdf -> PDF: a media type as people call it; an unknown one as it is."""
    return FILE_TYPES.get(media_type.partition(";")[0].strip(), media_type)


def file_symbol(media_type: str) -> str:
    """The symbol of the sprite for files of that type."""
    word = file_type(media_type).partition(" ")[0]  # Word 97 -> Word
    return next((symbol for symbol, words in FILE_SYMBOLS.items() if word in words), "file")


def language_name(code: str) -> str:
    """de -> German: an ISO 639-1 code as people call the language; an unnamed one as it is, none as unknown."""
    code = {"zh": "zh-hans", "no": "nb"}.get(code, code)
    if code == "zh-hans":
        return gettext("Chinese")
    return gettext(str(LANG_INFO.get(code, {}).get("name", code)) or "unknown")


def stemming(language: str) -> str:
    """What a collection's language is called: auto goes by each document's, simple stems no word."""
    known = {"auto": gettext("language by document"), "simple": gettext("No stemming")}
    return known.get(language) or gettext(language.capitalize())


def span(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def seconds(value: float | None) -> str:
    """A number of seconds in its largest whole unit."""
    return "–" if value is None else span(int(value))


def pretty(value: Any) -> str:
    """A value as indented JSON with sorted keys."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str)


def shown(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def exactly(value: Any) -> str:
    """A value as JSON, to the last digit: what tests and scripts read from data attributes."""
    return json.dumps(value, ensure_ascii=False)


def parse_moment(field: str, text: str) -> datetime | None:
    """A time, or an age before now; None for "". Raises InvalidInput."""
    if not text:
        return None
    try:
        if age := AGE.fullmatch(text.strip()):
            return timezone.now() - timedelta(**{AGE_UNITS[age[2]]: int(age[1])})
        moment = parse_datetime(text) or datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{field} must be a time such as 2026-01-31T08:00:00Z or an age such as 30m, 24h or 7d, not {text!r}",
            field=field,
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
