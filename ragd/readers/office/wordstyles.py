"""Word's styles and numbering: which paragraph is a heading, which a list item, and with what marker."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ragd.readers.text.markup import show_number
from ragd.readers.text.xmldata import Attributes, stream_xml

HEADING_NAME = re.compile(
    r"(?:heading|überschrift|titre|título|titolo|kop|заголовок|标题|見出し)\s*(\d)", re.IGNORECASE
)
TITLE_NAMES = frozenset({"title", "titel", "book title"})
BODY_TEXT_LEVEL = 9
CHAIN_LIMIT = 20
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

    stream_xml(data, start, end)
    return styles


@dataclass(slots=True)
class Level:
    """How one level of a list is counted and shown. legal: the outer levels show in figures too."""

    form: str = "bullet"
    pattern: str = ""
    start: int = 1
    legal: bool = False


@dataclass(slots=True)
class Numbering:
    """Levels by (abstract id, level), those that one list has of its own by (list id, level), and running counters.

    restarts: the value that a list begins with at a level when it is used for the first time. Lists of one abstract
    definition count on from each other.
    """

    abstract_of: dict[str, str] = field(default_factory=dict)
    levels: dict[tuple[str, int], Level] = field(default_factory=dict)
    own_levels: dict[tuple[str, int], Level] = field(default_factory=dict)
    restarts: dict[tuple[str, int], int] = field(default_factory=dict)
    counters: dict[str, list[int]] = field(default_factory=dict)

    def marker(self, number_id: str, at: int) -> str:
        """The next marker of a list: "-" for bullets, "3." or "2.1" for numbers. "" when in no list ("0")."""
        if number_id in ("", "0"):
            return ""
        counters = self.counters.setdefault(self.abstract_of.get(number_id, "") or number_id, [])
        while len(counters) <= at:
            # a level that is passed over counts as used
            skipped = len(counters) < at
            counters.append(self._level(number_id, len(counters)).start - (not skipped))
        restart = self.restarts.pop((number_id, at), None)
        counters[at] = counters[at] + 1 if restart is None else restart
        del counters[at + 1 :]
        if self._level(number_id, at).form in BULLET_FORMATS:
            return "-"
        return self._format(number_id, at, counters) or "-"

    def _level(self, number_id: str, at: int) -> Level:
        own = self.own_levels.get((number_id, at))
        return own or self.levels.get((self.abstract_of.get(number_id, ""), at)) or Level()

    def _format(self, number_id: str, at: int, counters: list[int]) -> str:
        """The counters put into the level's pattern, such as "%1.%2)"."""
        own_level = self._level(number_id, at)

        def show(match: re.Match[str]) -> str:
            index = int(match.group(1)) - 1
            if not 0 <= index < len(counters):
                return ""
            level = self._level(number_id, index)
            form = "decimal" if own_level.legal or level.form in BULLET_FORMATS else level.form
            return show_number(counters[index], form)

        return re.sub(r"%(\d)", show, own_level.pattern or f"%{at + 1}.").strip()


def read_numbering(data: bytes) -> Numbering:
    """The list definitions of a numbering part (or of a whole Word 2003 XML document)."""
    reader = _NumberingReader()
    stream_xml(data, reader.start)
    reader.follow_links()
    return reader.numbering


class _NumberingReader:
    """Handler for stream_xml over list definitions."""

    def __init__(self) -> None:
        self.numbering = Numbering()
        self._abstract = ""
        self._number_id = ""
        self._at = 0
        self._styled_by: dict[str, str] = {}
        self._defined_for: dict[str, str] = {}

    def start(self, name: str, attributes: Attributes) -> None:
        value = attributes.get("val", "")
        if name in ("abstractNum", "listDef"):
            self._abstract = attributes.get("abstractNumId", attributes.get("listDefId", ""))
            self._number_id = ""
        elif name in ("num", "list"):
            self._number_id = attributes.get("numId", attributes.get("ilfo", ""))
        elif name in ("abstractNumId", "ilst") and self._number_id:
            self.numbering.abstract_of[self._number_id] = value
        elif name == "numStyleLink":
            self._styled_by[self._abstract] = value
        elif name == "styleLink":
            self._defined_for[value] = self._abstract
        elif name in ("lvl", "lvlOverride"):
            self._at = number(attributes.get("ilvl", "0"))
        elif name == "startOverride" and self._number_id:
            self.numbering.restarts[self._number_id, self._at] = number(value)
        elif name in ("numFmt", "nfc", "lvlText", "start", "isLgl"):
            self._note(name, value)

    def _note(self, name: str, value: str) -> None:
        levels = self.numbering.own_levels if self._number_id else self.numbering.levels
        level = levels.setdefault((self._number_id or self._abstract, self._at), Level(start=0))
        if name == "lvlText":
            level.pattern = value
        elif name == "start":
            level.start = number(value)
        elif name == "isLgl":
            level.legal = value not in ("0", "false", "off")
        else:
            level.form = value if name == "numFmt" else COUNTED_FORMATS.get(value, "bullet")

    def follow_links(self) -> None:
        """A definition that only names a list style stands for the one that defines this style."""
        for number_id, abstract in self.numbering.abstract_of.items():
            style = self._styled_by.get(abstract, "")
            self.numbering.abstract_of[number_id] = self._defined_for.get(style, abstract)


def number(value: str) -> int:
    """A small whole number; 0 for anything else."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 7 else 0
