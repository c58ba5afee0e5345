"""Which parts of an HTML page its attributes and style sheets hide from a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

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
    nodes = {key: node for key, node in nodes.items() if node.tag not in ("body", "html")}
    return [node for node in nodes.values() if not any(outer.mem_id in nodes for outer in _ancestors(node))]


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
