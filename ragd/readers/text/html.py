"""HTML as Markdown: headings, paragraphs, lists, tables, code; scripts, styles, navigation and forms dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from ragd.readers.assembly import Assembly
from ragd.readers.text import markup
from ragd.readers.text.formulas import MathML
from ragd.readers.text.markup import cell, heading, join_blocks, list_item, squeeze, words
from ragd.readers.text.plain import decode_into
from ragd.readers.text.spans import COLUMNS_MAX, ROWS_MAX, SpanningCell, TableRow, read_span, spanned_blocks
from ragd.readers.types import Source

# Attributes, and the parts of inline XBRL that no browser shows.
MARKED = r"[hidden], [aria-hidden=true], ix\:header, ix\:hidden"
RULES_MAX = 1000
STYLE_CHARS = 2_000_000
RULE_NODES_MAX = 4_000_000  # rules times elements
IMPORTANT = 1_000_000
INLINE = 100_000
COMMENT = re.compile(r"/\*.*?\*/|<!--|-->", re.DOTALL)
BRACE = re.compile(r"[{}]")
# A style sheet holds on a wide screen; a condition of another kind than its width never does.
SCREEN_PX, EM_PX = 1280.0, 16.0
WIDTH = re.compile(r"\(\s*(?:(min|max)-width\s*:|width\s*([<>])=?)\s*(\d+(?:\.\d+)?)(px|r?em)\s*\)")
SCREEN_WORDS = frozenset(("", "all", "screen", "only", "and"))
SPECIFIC = ((re.compile(r"#[\w-]+"), 10_000), (re.compile(r"\.[\w-]+|\[[^\]]*\]|:not\b"), 100), (re.compile(r"\w+"), 1))
DYNAMIC = re.compile(r"(?<!\\):(?!not\()")
FAR = re.compile(r"-\d{4,}(?:\.\d+)?(?:px|pt|em|rem|%)?")
ZERO = re.compile(r"0*(?:\.0+)?(?:px|pt|em|rem|%|ex|ch|vw|vh)?")
SMALL = re.compile(rf"{ZERO.pattern}|(?:0*\.\d+|0*1(?:\.0*)?)(?:px|pt)|0*\.0\d*r?em|\d(?:\.\d+)?%")
CLEAR = re.compile(r"transparent|(?:rgb|hsl)a?\([^)]*[,/]\s*0(?:\.0*)?%?\s*\)")
CLIPPED = re.compile(r"rect\((?:[01](?:px)?[\s,]*){4}\)|inset\((?:50|100)%\)|circle\(0\w*\)")
SIZES = ("height", "max-height", "width", "max-width")
COLOURS = {"white": "#ffffff", "#fff": "#ffffff", "black": "#000000", "#000": "#000000"}
MOVES = re.compile(r"transition|animation")  # a program shows it soon
# Properties that a part inside can set anew, so that it shows although what is around it does not.
RESET_INSIDE = ("visibility", "font-size")
PLACES = ("left", "right", "top", "text-indent", "margin-left")
HIDING = {
    "display": re.compile("none"), "visibility": re.compile("hidden|collapse"), "font-size": SMALL,
    "content-visibility": re.compile("hidden"), "opacity": ZERO, "clip": CLIPPED, "clip-path": CLIPPED,
} | dict.fromkeys(PLACES, FAR)  # fmt: skip
RELEVANT = re.compile("|".join(("font", *HIDING)), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Declaration:
    """hides: whether the value hides an element. weight: which of several declarations of a property holds."""

    name: str
    hides: bool
    weight: int


@dataclass(frozen=True, slots=True)
class Rule:
    selector: str
    declarations: tuple[Declaration, ...]


def hidden_parts(tree: LexborHTMLParser, root: LexborNode) -> list[LexborNode]:
    """The hidden elements inside root, the outermost of each, in no order; never the page's body itself."""
    nodes: dict[int, LexborNode] = {node.mem_id: node for node in root.css(MARKED)}
    states = _states(tree, root)
    nodes.update({node.mem_id: node for node, declaration in states if declaration.hides})
    shown_inside = {
        (outer.mem_id, declaration.name)
        for node, declaration in states
        if not declaration.hides and declaration.name in RESET_INSIDE
        for outer in _ancestors(node)
    }
    for node, declaration in states:
        if declaration.hides and (node.mem_id, declaration.name) in shown_inside:
            nodes.pop(node.mem_id, None)
    nodes = {key: node for key, node in nodes.items() if node.tag not in ("body", "html") and not _is_formula(node)}
    return [node for node in nodes.values() if not any(outer.mem_id in nodes for outer in _ancestors(node))]


def _is_formula(node: LexborNode) -> bool:
    """Whether an element holds a formula and nothing else: pages hide one beside the picture that shows it."""
    only = node.first_child
    return only is not None and only.tag in FORMULAS and only.next is None


def _states(tree: LexborHTMLParser, root: LexborNode) -> list[tuple[LexborNode, Declaration]]:
    """The declaration that holds, for each element and property that any of them hides."""
    states: dict[tuple[int, str], tuple[LexborNode, Declaration]] = {}

    def declare(node: LexborNode, declarations: Iterable[Declaration]) -> None:
        for each in declarations:
            key = (node.mem_id, each.name)
            if key not in states or each.weight >= states[key][1].weight:
                states[key] = (node, each)

    sheets = [node for node in tree.css("style") if _holds(f"@media {node.attributes.get('media') or 'all'}")]
    sheets = [node for node in sheets if all(outer.tag != "noscript" for outer in _ancestors(node))]
    styles = "\n".join(node.text() for node in sheets)[:STYLE_CHARS]
    rules = list(_rules(COMMENT.sub("", styles))) if RELEVANT.search(styles) else []
    if any(each.hides for rule in rules for each in rule.declarations):
        count = sum(1 for _ in root.css("*"))
        for rule in rules[: min(RULES_MAX, RULE_NODES_MAX // (count + 1))]:
            try:
                matches = root.css(rule.selector)
            except SelectolaxError:
                continue
            for node in matches:
                declare(node, rule.declarations)
    for node in root.css("[style]"):
        declare(node, _declarations(node.attributes.get("style") or "", INLINE))
    return list(states.values())


def _rules(styles: str) -> Iterator[Rule]:
    """The rules of a style sheet that say whether something shows, one for each selector, in order."""
    start, skipped, selectors = 0, 0, ""
    for match in BRACE.finditer(styles):
        prelude = styles[start : match.start()].strip()
        start = match.end()
        if match.group() == "{":
            head = prelude.rpartition(";")[2].strip()
            if skipped or (head.startswith("@") and not _holds(head)):
                skipped += 1
            elif not head.startswith("@"):
                selectors = head
        elif skipped:
            skipped -= 1
        else:
            for selector in selectors.split(",") if RELEVANT.search(prelude) else ():
                if selector.strip() and not DYNAMIC.search(selector):
                    weight = sum(count * len(form.findall(selector)) for form, count in SPECIFIC)
                    if declarations := tuple(_declarations(prelude, min(weight, INLINE - 1))):
                        yield Rule(selector.strip(), declarations)
            selectors = ""


def _holds(head: str) -> bool:
    """Whether what stands in a block of a style sheet holds on a wide screen."""
    kind, _, condition = head.lower().partition(" ")
    if kind in ("@layer", "@supports"):
        return not condition.strip().startswith("not")
    return kind == "@media" and any(
        SCREEN_WORDS.issuperset(WIDTH.sub(_is_wide, query).split()) for query in condition.split(",")
    )


def _is_wide(match: re.Match[str]) -> str:
    least, sign, number, unit = match.groups()
    width = float(number) * (1.0 if unit == "px" else EM_PX)
    return " " if (width <= SCREEN_PX) == (least == "min" or sign == ">") else " never "


def _declarations(text: str, weight: int) -> Iterator[Declaration]:
    values: dict[str, str] = {}
    for part in COMMENT.sub("", text).lower().split(";"):
        name, _, value = part.partition(":")
        values[name.strip()] = value.strip()
    if size := next((it for it in values.get("font", "").split() if it[0].isdigit() or it[0] == "."), ""):
        values.setdefault("font-size", size.partition("/")[0])
    for name in HIDING.keys() & values.keys():
        value = values[name].removesuffix("!important").strip()
        hides = bool(value and HIDING[name].fullmatch(value)) and not (name == "opacity" and MOVES.search(text))
        yield Declaration(name, hides, weight + IMPORTANT * values[name].endswith("!important"))
    if weight >= INLINE and _is_invisible(values, text):
        yield Declaration("", True, weight)


def _is_invisible(values: Mapping[str, str], text: str) -> bool:
    """Whether an element's own style gives it no size or no colour of its own."""
    colour, ground = (COLOURS.get(values.get(name, ""), values.get(name, "")) for name in ("color", "background-color"))
    ground = ground or COLOURS.get(values.get("background", ""), values.get("background", ""))
    if colour and (colour == ground or (CLEAR.fullmatch(colour) and "background-clip" not in text)):
        return True
    is_cut = values.get("overflow") in ("hidden", "clip") and not MOVES.search(text)
    return is_cut and any(values.get(name) and ZERO.fullmatch(values[name]) for name in SIZES)


def _ancestors(node: LexborNode) -> Iterator[LexborNode]:
    outer = node.parent
    while outer is not None:
        yield outer
        outer = outer.parent


DROPPED = words(
    "script style template noscript nav svg iframe object embed canvas select datalist audio video head map del"
    " dialog menu frameset rp"
)
FORMULAS = words("math m:math mml:math")
NAVIGATION = "[role=navigation]"
WORDS = re.compile(r"\w")
BLOCKS = words(
    "address article aside blockquote body center dd details div dl dt fieldset figcaption figure footer form"
    " header hgroup hr html legend main p section summary option"
)
APART = words("button textarea")  # they stand apart from what is beside them in a line
SCRIPTS = {"sup": markup.RAISE, "sub": markup.LOWER}
HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
DEPTH_LIMIT = 400
# Elements that HTML closes by itself, or that have no content, do not nest however often they are opened.
UNNESTED = "p|li|td|th|tr|dt|dd|option|br|hr|img|input|meta|link|col|area|base|wbr|source|param|tbody|thead"
TAG = re.compile(rf"<(/?)(?!(?:{UNNESTED})\b)[a-zA-Z][^<>]*?(/?)>")
SCRIPTED = re.compile(r"<(script|style)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
EMPTY = re.compile(r"<(?!(?:br|hr|img|meta|input|link|col|area|base|wbr|source|param)\b)([\w:-]++)[^<>]*+(?<=/)>")
LAYOUT_CELL_CHARS = 600
WHITE = re.compile(r"[ \t\r\n\f]+")
DESCRIPTION_CHARS = 1000
# What a page itself marks as its content; a shorter one is a frame that scripts would fill.
MAIN = "main, [role=main]"
MAIN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Page:
    """What an HTML page says. text is Markdown; description and language are "" when the page has none."""

    text: str
    title: str = ""
    description: str = ""
    language: str = ""
    author: str = ""
    warning: str = ""


def read(source: Source, assembly: Assembly) -> None:
    """Add the page. Its charset is found as for all text."""
    text = decode_into(source.data, assembly)
    page = render_page(close_empty(text) if text.lstrip().startswith("<?xml") else text)
    if page.warning:
        assembly.warn(page.warning)
    assembly.describe(description=page.description, language=page.language, author=page.author)
    if not assembly.add(page.text):
        # A page that scripts would fill still says what it is about.
        assembly.add("\n\n".join(part for part in (page.title, page.description) if part))
    assembly.entitle(page.title or first_heading(page.text))


def close_empty(markup: str) -> str:
    """XHTML as HTML, where an element that only a slash closes would hold all that follows it."""
    return EMPTY.sub(r"\g<0></\1>", markup)


def render_page(markup: str) -> Page:
    """The page as Markdown. Deeply nested pages, on which the parser would spend minutes, lose their structure."""
    if is_too_deep(markup):
        return Page(_flat_text(markup), warning="The page is nested too deeply; its text was kept without structure.")
    tree = LexborHTMLParser(markup)
    title = tree.css_first("head > title, title")
    root = tree.body or tree.root
    if root is None:
        return Page("")
    for node in root.css(NAVIGATION):
        if node.tag not in ("body", "html"):
            node.decompose()
    hidden = _take_hidden(tree, root)
    return Page(
        text=_main_text(root),
        title=squeeze(title.text(strip=True)) if title is not None and not _in_drawing(title) else "",
        description=_meta(tree, "description")[:DESCRIPTION_CHARS],
        author=_meta(tree, "author")[:200],
        language=_language(tree),
        warning=f"The page hides a part of its text ({hidden:,} characters), which was left out." if hidden else "",
    )


def _take_hidden(tree: LexborHTMLParser, root: LexborNode) -> int:
    """Take out what the page hides; returns its characters, of parts with a word."""
    count = 0
    for node in hidden_parts(tree, root):
        text = squeeze(" ".join(Walk(node).blocks())) if node.tag not in DROPPED else ""
        count += len(text) if WORDS.search(text) else 0
        node.decompose()
    return count


def _main_text(root: LexborNode) -> str:
    """The text of the page's one <main>, under the page's heading; all of it when there is none or it says little."""
    result = root.css(MAIN)
    if len(result) != 1:
        return render_node(root)
    blocks = Walk(result[0]).blocks()
    if len("".join(blocks)) < MAIN_CHARS:
        return render_node(root)
    heading_of_page = root.css_first("h1")
    if heading_of_page is not None and result[0].css_first("h1") is None:
        blocks.insert(0, heading(squeeze(heading_of_page.text()), 1))
    return join_blocks(blocks)


def render_node(node: LexborNode) -> str:
    """A part of a page as Markdown; hidden parts are the caller's to take out."""
    return join_blocks(node_blocks(node))


def node_blocks(node: LexborNode) -> list[str]:
    """The blocks of a part of a page, each as Markdown."""
    return Walk(node).blocks()


def is_too_deep(markup: str) -> bool:
    """Whether more elements are open at once than people nest. Counts tags, so it is fast on any input."""
    if markup.count("<") <= DEPTH_LIMIT:
        return False
    depth = 0
    for match in TAG.finditer(SCRIPTED.sub("", markup) if "<script" in markup.lower() else markup):
        if match.group(1):
            depth = max(0, depth - 1)
        elif not match.group(2):
            depth += 1
            if depth > DEPTH_LIMIT:
                return True
    return False


def _meta(tree: LexborHTMLParser, name: str) -> str:
    node = tree.css_first(f"meta[name={name} i]")
    return squeeze(node.attributes.get("content") or "") if node is not None else ""


def _language(tree: LexborHTMLParser) -> str:
    node = tree.css_first("html")
    return (node.attributes.get("lang") or "")[:35] if node is not None else ""


def _in_drawing(node: LexborNode) -> bool:
    parent = node.parent
    return parent is not None and parent.tag in ("svg", "symbol", "g")


def first_heading(text: str) -> str:
    """The words of the first heading of level 1 to 3 in Markdown; "" when there is none."""
    match = re.search(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return match.group(1) if match else ""


@dataclass(slots=True)
class Flow:
    """A sequence of blocks with the inline text that is not yet a block."""

    blocks: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    rows: list[TableRow] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)
    group: int = 0
    part: str = ""  # of the table: its head, body or foot


@dataclass(slots=True)
class ItemList:
    """An open list. form: how it is counted, "" for bullets. step: from one item to the next."""

    form: str
    count: int = 0
    step: int = 1

    def advance(self, stated: str | None) -> None:
        """Go on to the next item. stated: the number that it gives itself."""
        self.count = read_span(stated, ROWS_MAX, 0) if stated else self.count + self.step


def _numbered_list(node: LexborNode) -> ItemList:
    attributes = node.attributes
    form = markup.NUMBER_FORMATS.get(attributes.get("type") or "", "decimal")
    if "reversed" not in attributes:
        return ItemList(form, read_span(attributes.get("start"), ROWS_MAX, 0) - 1)
    count = sum(1 for each in node.iter() if each.tag == "li")
    return ItemList(form, 1 + (read_span(attributes["start"], ROWS_MAX, 0) if "start" in attributes else count), -1)


class Walk:
    """One pass over a tree without recursion."""

    def __init__(self, root: LexborNode) -> None:
        self._root = root
        self._flows = [Flow()]
        self._lists: list[ItemList] = []
        self._pre_depth = 0
        self._pre_holds_code = False
        self._formula = MathML()

    def blocks(self) -> list[str]:
        open_nodes: list[LexborNode] = []
        node: LexborNode | None = self._root.first_child
        while node is not None or open_nodes:
            if node is None:
                closed = open_nodes.pop()
                self._leave(closed.tag or "")
                node = closed.next
                continue
            if node.is_text_node:
                self._add_text(node.text_content or "")
                node = node.next
            elif not node.is_element_node or node.tag in DROPPED:
                node = node.next
            else:
                self._enter(node)
                open_nodes.append(node)
                node = node.first_child
        self._flush()
        return self._flows[0].blocks

    def _add_text(self, text: str) -> None:
        if self._formula.is_open:
            self._formula.text(text)
            return
        self._flows[-1].inline.append(text if self._pre_depth else WHITE.sub(" ", text))

    def _enter(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if self._formula.is_open or tag in FORMULAS:
            self._formula.start(node.attributes)
            return
        if tag == "br":
            self._flows[-1].inline.append("\n")
        elif tag in SCRIPTS:
            self._flows[-1].inline.append(SCRIPTS[tag])
        elif tag in APART:
            self._flows[-1].inline.append(" ")
        elif tag == "rt":  # how the word before is spoken
            self._flows[-1].inline.append("(")
        elif tag in BLOCKS or tag in HEADINGS:
            self._flush()
        elif tag in ("ul", "ol"):
            self._flush()
            self._lists.append(_numbered_list(node) if tag == "ol" else ItemList(""))
        elif tag == "li":
            self._flush()
            if self._lists:
                self._lists[-1].advance(node.attributes.get("value"))
            self._flows.append(Flow())
        elif tag in ("pre", "listing", "xmp", "plaintext"):
            self._flush()
            self._pre_depth += 1
            self._pre_holds_code = False
        elif tag in ("code", "samp", "kbd") and self._pre_depth:
            self._pre_holds_code = True
        elif tag == "table":
            self._flush()
            self._flows.append(Flow())
        elif tag in ("thead", "tbody", "tfoot"):
            self._flows[-1].group += 1
            self._flows[-1].part = tag
        elif tag == "tr":
            self._flush()
            flow = self._flows[-1]
            flow.rows.append(TableRow(group=flow.group, is_header=True, is_foot=flow.part == "tfoot"))
        elif tag in ("td", "th"):
            self._flush()
            self._add_cell(node, tag)
            self._flows.append(Flow())
        elif tag == "caption":
            self._flush()
            self._flows.append(Flow())

    def _leave(self, tag: str) -> None:
        if self._formula.is_open:
            self._flows[-1].inline.append(self._formula.end(tag.rpartition(":")[2]))
            return
        if tag in HEADINGS:
            self._flush(HEADINGS[tag])
        elif tag in SCRIPTS:
            self._flows[-1].inline.append(markup.LEVEL)
        elif tag in APART:
            self._flows[-1].inline.append(" ")
        elif tag == "rt":
            self._flows[-1].inline.append(")")
        elif tag in BLOCKS:
            self._flush()
        elif tag in ("ul", "ol"):
            self._flush()
            if self._lists:
                self._lists.pop()
        elif tag == "li":
            self._end_item()
        elif tag in ("pre", "listing", "xmp", "plaintext"):
            self._end_code()
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "caption":
            self._flush()
            flow = self._flows.pop()
            self._flows[-1].blocks.extend(flow.blocks)
        elif tag == "table":
            self._end_table()

    def _flush(self, heading_level: int = 0) -> None:
        """Turn the inline text into a block."""
        flow = self._flows[-1]
        if not flow.inline:
            return
        text = markup.write_scripts("".join(flow.inline))
        flow.inline.clear()
        if self._pre_depth:
            flow.blocks.append(text)
            return
        lines = [WHITE.sub(" ", line).strip(" \u200b") for line in text.split("\n")]
        text = "\n".join(line for line in lines if line)
        if text:
            flow.blocks.append(heading(text, heading_level) if heading_level else text)

    def _end_item(self) -> None:
        self._flush()
        flow = self._flows.pop()
        outer = self._flows[-1].blocks
        if not flow.blocks:
            return
        level = max(0, len(self._lists) - 1)
        form = self._lists[-1].form if self._lists else ""
        marker = f"{markup.show_number(self._lists[-1].count, form)}." if form else "-"
        first, rest = flow.blocks[0], flow.blocks[1:]
        if first.startswith(("#", "|", "```", " ", "- ", "1. ")):
            outer.extend(flow.blocks)
            return
        outer.append(list_item(first, level, marker))
        outer.extend(rest)

    def _end_code(self) -> None:
        flow = self._flows[-1]
        text = markup.write_scripts("".join(flow.inline)).strip("\r\n").rstrip()
        flow.inline.clear()
        self._pre_depth = max(0, self._pre_depth - 1)
        if text:
            is_code = self._pre_holds_code and len(self._flows) == 1
            fence = "```" if "```" not in text else "````"
            flow.blocks.append(f"{fence}\n{text}\n{fence}" if is_code else text)

    def _add_cell(self, node: LexborNode, tag: str) -> None:
        flow = self._flows[-1]
        if not flow.rows:
            return
        attributes = node.attributes if node.attrs else {}
        columns = read_span(attributes.get("colspan"), COLUMNS_MAX)
        rows = read_span(attributes.get("rowspan"), ROWS_MAX, 0)
        flow.rows[-1].cells.append(SpanningCell("", columns, rows))
        flow.rows[-1].is_header &= flow.part == "thead" or tag == "th"

    def _end_cell(self) -> None:
        self._flush()
        flow = self._flows.pop()
        outer = self._flows[-1]
        if outer.rows:
            outer.rows[-1].cells[-1].text = cell(" ".join(flow.blocks))
            outer.cells.append(flow.blocks)
        else:
            outer.blocks.extend(flow.blocks)

    def _end_table(self) -> None:
        """A table of data becomes rows; one that only places things on the page becomes its cells' blocks in order."""
        self._flush()
        flow = self._flows.pop()
        outer = self._flows[-1].blocks
        outer.extend(flow.blocks)
        if any(_is_layout(blocks) for blocks in flow.cells):
            for blocks in flow.cells:
                outer.extend(blocks)
        else:
            outer.extend(spanned_blocks(sorted(flow.rows, key=lambda row: row.is_foot)))


def _is_layout(blocks: list[str]) -> bool:
    return sum(map(len, blocks)) > LAYOUT_CELL_CHARS or any(block.startswith(("#", "| ", "```")) for block in blocks)


class _FlatParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._dropped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._dropped += tag in ("script", "style")
        if tag in BLOCKS or tag in HEADINGS or tag in ("li", "tr", "br"):
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._dropped = max(0, self._dropped - (tag in ("script", "style")))

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self.pieces.append(data)


def _flat_text(markup: str) -> str:
    parser = _FlatParser()
    parser.feed(markup)
    parser.close()
    lines = (squeeze(line) for line in "".join(parser.pieces).split("\n"))
    return "\n".join(line for line in lines if line)
