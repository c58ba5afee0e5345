"""Which parts of an HTML page its attributes and style sheets hide from a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
# What a screen shows: no print, and no condition on its size.
SHOWN_MEDIA = re.compile(r"@media\s+(?:only\s+)?(?:all|screen)\s*", re.IGNORECASE)
SPECIFIC = ((re.compile(r"#[\w-]+"), 10_000), (re.compile(r"\.[\w-]+|\[[^\]]*\]|:not\b"), 100), (re.compile(r"\w+"), 1))
DYNAMIC = re.compile(r":(?!not\()")
FAR = re.compile(r"-\d{4,}(?:\.\d+)?(?:px|pt|em|rem|%)?")
ZERO = re.compile(r"0*(?:\.0+)?(?:px|pt|em|rem|%|ex|ch|vw|vh)?")
# Properties that a part inside can set anew, so that it shows although what is around it does not.
RESET_INSIDE = ("visibility", "font-size")
PLACES = ("left", "right", "top", "text-indent", "margin-left")
RELEVANT = re.compile(r"display|visibility|font-size|left|right|top|text-indent", re.IGNORECASE)


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

    styles = "\n".join(node.text() for node in tree.css("style"))[:STYLE_CHARS]
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
            if skipped or (head.startswith("@") and not SHOWN_MEDIA.fullmatch(head)):
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


def _declarations(text: str, weight: int) -> Iterator[Declaration]:
    for part in text.split(";"):
        name, colon, value = part.lower().partition(":")
        name, value = name.strip(), value.strip()
        if not colon:
            continue
        heavy = weight + IMPORTANT * value.endswith("!important")
        value = value.removesuffix("!important").strip()
        if name == "display":
            yield Declaration(name, value == "none", heavy)
        elif name == "visibility":
            yield Declaration(name, value in ("hidden", "collapse"), heavy)
        elif name == "font-size":
            yield Declaration(name, bool(ZERO.fullmatch(value)) and bool(value), heavy)
        elif name in PLACES:
            yield Declaration(name, bool(FAR.fullmatch(value)), heavy)


def _ancestors(node: LexborNode) -> Iterator[LexborNode]:
    outer = node.parent
    while outer is not None:
        yield outer
        outer = outer.parent
