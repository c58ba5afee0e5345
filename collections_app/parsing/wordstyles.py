"""Word's styles and numbering: which paragraph is a heading, which a list item, and with what marker."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from collections_app.parsing.xmlstream import Attributes, stream_xml

HEADING_NAME = re.compile(
    r"(?:heading|überschrift|titre|título|titolo|kop|заголовок|标题|見出し)\s*(\d)", re.IGNORECASE
)
TITLE_NAMES = frozenset({"title", "titel", "book title"})
BODY_TEXT_LEVEL = 9
CHAIN_LIMIT = 20
ROMAN = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    )
)
# Word 2003 XML counts its formats.
COUNTED_FORMATS = {"0": "decimal", "1": "upperRoman", "2": "lowerRoman", "3": "upperLetter", "4": "lowerLetter"}
BULLET_FORMATS = frozenset({"bullet", "none", "picture"})


@dataclass(slots=True)
class Style:
    """A paragraph style. outline counts from 0; None when the style does not say."""

    name: str = ""
    based_on: str = ""
    outline: int | None = None
    number_id: str = ""
    number_level: int = 0


@dataclass(slots=True)
class Styles:
    by_id: dict[str, Style] = field(default_factory=dict)

    def heading_level(self, style_id: str, direct_outline: int | None) -> int:
        """1 to 9 for a heading, 0 for body text. The paragraph's own outline level wins over its style's."""
        if direct_outline is not None:
            return 0 if direct_outline >= BODY_TEXT_LEVEL else direct_outline + 1
        for style in self._chain(style_id):
            if style.name.lower() in TITLE_NAMES:
                return 1
            if match := HEADING_NAME.match(style.name):
                return max(1, int(match.group(1)))
            if style.outline is not None:
                return 0 if style.outline >= BODY_TEXT_LEVEL else style.outline + 1
        if style_id not in self.by_id and (match := re.fullmatch(r"heading\s?(\d)", style_id, re.IGNORECASE)):
            return max(1, int(match.group(1)))
        return 0

    def is_title(self, style_id: str) -> bool:
        return style_id.lower() == "title" or any(style.name.lower() in TITLE_NAMES for style in self._chain(style_id))

    def numbering(self, style_id: str) -> tuple[str, int]:
        """(number id, level) that a style gives its paragraphs; ("", 0) for none."""
        for style in self._chain(style_id):
            if style.number_id:
                return style.number_id, style.number_level
        return "", 0

    def _chain(self, style_id: str) -> list[Style]:
        chain: list[Style] = []
        while style_id in self.by_id and len(chain) < CHAIN_LIMIT:
            chain.append(self.by_id[style_id])
            style_id = self.by_id[style_id].based_on
        return chain


def read_styles(data: bytes) -> Styles:
    """The paragraph styles of a styles part (or of a whole Word 2003 XML document)."""
    styles = Styles()
    current: Style | None = None

    def start(name: str, attributes: Attributes) -> None:
        nonlocal current
        value = attributes.get("val", "")
        if name == "style":
            current = styles.by_id.setdefault(attributes.get("styleId", ""), Style())
        elif current is None:
            return
        elif name == "name":
            current.name = current.name or value
        elif name == "basedOn":
            current.based_on = value
        elif name == "outlineLvl":
            current.outline = number(value)
        elif name in ("numId", "ilfo"):
            current.number_id = value
        elif name == "ilvl":
            current.number_level = number(value)

    def end(name: str) -> None:
        nonlocal current
        if name == "style":
            current = None

    stream_xml(data, start, end, lambda _: None)
    return styles


@dataclass(slots=True)
class Numbering:
    """Formats and patterns by (abstract id, level), and the running counters by abstract id."""

    abstract_of: dict[str, str] = field(default_factory=dict)
    formats: dict[tuple[str, int], str] = field(default_factory=dict)
    patterns: dict[tuple[str, int], str] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    counters: dict[str, list[int]] = field(default_factory=dict)

    def marker(self, number_id: str, level: int) -> str:
        """The next marker of a list: "-" for bullets, "3." or "2.1" for numbers. "" when in no list ("0")."""
        if number_id in ("", "0"):
            return ""
        abstract = self.abstract_of.get(number_id, "")
        counters = self.counters.setdefault(abstract or number_id, [])
        while len(counters) <= level:
            counters.append(self.starts.get((abstract, len(counters)), 1) - 1)
        counters[level] += 1
        del counters[level + 1 :]
        form = self.formats.get((abstract, level), "bullet")
        return "-" if form in BULLET_FORMATS else self._shown(abstract, level, counters) or "-"

    def _shown(self, abstract: str, level: int, counters: list[int]) -> str:
        """The counters put into the level's pattern, such as "%1.%2)"."""
        pattern = self.patterns.get((abstract, level)) or f"%{level + 1}."

        def show(match: re.Match[str]) -> str:
            place = int(match.group(1)) - 1
            if not 0 <= place < len(counters):
                return ""
            count = max(counters[place], self.starts.get((abstract, place), 1))
            return show_number(count, self.formats.get((abstract, place), "decimal"))

        return re.sub(r"%(\d)", show, pattern).strip()


def show_number(count: int, form: str) -> str:
    """A counter as Word writes it: decimal, letters, Roman."""
    if form in ("lowerLetter", "upperLetter") and count > 0:
        letter = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letter.upper() if form == "upperLetter" else letter
    if form in ("lowerRoman", "upperRoman") and 0 < count < 4000:
        return _roman(count) if form == "upperRoman" else _roman(count).lower()
    return f"{count:02d}" if form == "decimalZero" else str(count)


def _roman(count: int) -> str:
    shown = ""
    for value, letters in ROMAN:
        shown += letters * (count // value)
        count %= value
    return shown


def read_numbering(data: bytes) -> Numbering:
    """The list definitions of a numbering part (or of a whole Word 2003 XML document)."""
    numbering = Numbering()
    abstract, number_id, level = "", "", 0

    def start(name: str, attributes: Attributes) -> None:
        nonlocal abstract, number_id, level
        value = attributes.get("val", "")
        if name in ("abstractNum", "listDef"):
            abstract, number_id = attributes.get("abstractNumId", attributes.get("listDefId", "")), ""
        elif name in ("num", "list"):
            number_id = attributes.get("numId", attributes.get("ilfo", ""))
        elif name in ("abstractNumId", "ilst") and number_id:
            numbering.abstract_of[number_id] = value
        elif name == "lvl":
            level = number(attributes.get("ilvl", "0"))
        elif name in ("numFmt", "nfc") and not number_id:
            numbering.formats[abstract, level] = value if name == "numFmt" else COUNTED_FORMATS.get(value, "bullet")
        elif name == "lvlText" and not number_id:
            numbering.patterns[abstract, level] = value
        elif name == "start" and not number_id:
            numbering.starts[abstract, level] = number(value)

    stream_xml(data, start, lambda _: None, lambda _: None)
    return numbering


def number(value: str) -> int:
    """A small whole number; 0 for anything else."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 7 else 0
