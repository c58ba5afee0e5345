"""Formulas in one line, such as (a+b)/2, x^2, y_i, √(z): those of Word, and MathML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from ragd.readers.text.xmldata import stream_xml

ATOM = re.compile(r"[\w.,]+|\W|\([^()]*\)", re.DOTALL)
ROOTS = {"": "√", "2": "√", "3": "∛", "4": "∜"}
SILENT = frozenset({"annotation", "annotation-xml", "mphantom"})
# What is written between the children of an element.
SEPARATORS = {"mtable": "; ", "mtr": ", ", "mlabeledtr": ", ", "mfenced": ",", "mmultiscripts": " "}
# Before the second child, and before the third.
SIGNS = {
    "mfrac": "/", "msup": "^", "msub": "_", "msubsup": "_^", "munder": "_", "mover": "^", "munderover": "_^",
}  # fmt: skip
ATTACHED = re.compile(r"[^\w\s(+\-\u2212]+")  # primes, degrees, accents
INVISIBLE = dict.fromkeys(range(0x2061, 0x2065))
WORD_ENDS, WORD_BEGINS = re.compile(r"[^\W\d_]{2,}$"), re.compile(r"[^\W\d_]{2,}")


def enclose(text: str) -> str:
    """The text in parentheses where it is more than a number, a name, a sign or in parentheses already."""
    return text if not text or ATOM.fullmatch(text) else f"({text})"


def root_sign(degree: str) -> str:
    """What stands before the text below a root."""
    return ROOTS.get(degree.strip(), f"√[{degree.strip()}]")


# The parts of a formula of Word that change their meaning when they stand side by side: what is written before each.
PARTS = {"num": "", "den": "/", "sup": "^", "sub": "_", "lim": "_", "deg": "", "e": ""}
HOLDERS = frozenset(("rad", "d", "f", "sSup", "sSub", "nary", "acc", "func", "m", "mr", "eqArr"))
BETWEEN = {"mr": ", ", "eqArr": "; ", "m": "; "}
EDGES = {"begChr": "begin", "sepChr": "separator", "endChr": "end"}


@dataclass(slots=True)
class Holder:
    """An element of a formula that holds parts, and how many came. The signs are those of brackets, or of an accent."""

    name: str
    parts: int = 0
    begin: str = "("
    separator: str = "|"
    end: str = ")"


class Formula:
    """Writes a formula of Word in one line. The pieces are those of its paragraph."""

    def __init__(self) -> None:
        self.depth = 0
        self._starts: list[int] = []
        self._holders: list[Holder] = []

    def start(self, name: str, value: str, pieces: list[str]) -> None:
        """value: the attribute "val", which names the sign of a sum, a bracket or an accent."""
        if name == "oMath":
            self.depth += 1
        if not self.depth:
            return
        holder = self._holders[-1] if self._holders else Holder("")
        if name in PARTS:
            if name == "e":
                pieces.append(self._before(holder))
            self._starts.append(len(pieces))
        elif name in HOLDERS:
            if name == "mr":
                pieces.append(self._before(holder))
            self._holders.append(Holder(name, end="\u0302" if name == "acc" else ")"))
            pieces.append(root_sign("") if name == "rad" else "")
        elif name in EDGES:
            setattr(holder, EDGES[name], value)
        elif name == "chr" and holder.name == "acc":
            holder.end = value
        elif name == "chr" and value:
            pieces.append(value)

    def _before(self, holder: Holder) -> str:
        """What stands before the next part of a holder."""
        holder.parts += 1
        if holder.name == "func":
            return " "
        if holder.name == "d":
            return holder.begin if holder.parts == 1 else holder.separator
        return BETWEEN.get(holder.name, "") if holder.parts > 1 else ""

    def end(self, name: str, pieces: list[str]) -> None:
        if not self.depth:
            return
        if name in PARTS and self._starts:
            self._end_part(name, pieces)
        elif self._holders and name == self._holders[-1].name:
            holder = self._holders.pop()
            if name in ("d", "acc"):
                pieces.append(holder.end)
        elif name == "oMath":
            self.depth -= 1

    def _end_part(self, name: str, pieces: list[str]) -> None:
        start = self._starts.pop()
        text = "".join(pieces[start:])
        del pieces[start:]
        holder = self._holders[-1].name if self._holders else ""
        if not text.strip():
            return
        if name != "e" or holder in ("rad", "sSup", "sSub"):
            text = enclose(text)
        if name == "deg" and pieces[-1:] == [root_sign("")]:
            pieces[-1] = root_sign(text)
            return
        is_mixed = name == "num" and text[0].isdigit() and "".join(pieces)[-1:].isdigit()  # such as 2 1/2
        pieces.append(f" {text}" if is_mixed else PARTS[name] + text)


@dataclass(slots=True)
class Term:
    """An element that is open: its attributes and what its children say."""

    attributes: Mapping[str, str | None]
    parts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MathML:
    """Writes MathML, element by element. is_open: inside a formula."""

    _terms: list[Term] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return bool(self._terms)

    def start(self, attributes: Mapping[str, str | None]) -> None:
        self._terms.append(Term(attributes))

    def text(self, piece: str) -> None:
        if piece := piece.translate(INVISIBLE).strip(" \t\r\n\f"):
            self._terms[-1].parts.append(piece)

    def end(self, name: str) -> str:
        """Close an element; returns the formula when it was the outermost one, else ""."""
        term = self._terms.pop()
        text = _write(name, term.attributes, term.parts)
        if not self._terms:
            return text or term.attributes.get("alttext") or ""
        self._terms[-1].parts.append(text)
        return ""


def read_mathml(data: bytes) -> str:
    """The formula of an XML file that is one. Raises ParseError."""
    formula = MathML()
    result: list[str] = []
    stream_xml(
        data,
        lambda _, attributes: formula.start(attributes),
        lambda name: result.append(formula.end(name)),
        lambda piece: formula.text(piece) if formula.is_open else None,
        doctype_allowed=True,
    )
    return "".join(result)


def _write(name: str, attributes: Mapping[str, str | None], parts: list[str]) -> str:
    if name in SILENT:
        return ""
    if name == "mspace":
        return " "
    if name in SIGNS and len(parts) == 1 + len(SIGNS[name]):
        return enclose(parts[0]) + "".join(map(_attach, SIGNS[name], parts[1:]))
    if name == "mroot" and len(parts) == 2:
        return root_sign(parts[1]) + enclose(parts[0])
    if name == "msqrt":
        return root_sign("") + enclose(_join(parts))
    if name in SEPARATORS:
        text = SEPARATORS[name].join(part for part in parts if part.strip())
        return f"{attributes.get('open', '(')}{text}{attributes.get('close', ')')}" if name == "mfenced" else text
    return _join(parts)


def _attach(sign: str, text: str) -> str:
    return text if not text or (sign == "^" and ATTACHED.fullmatch(text)) else f"{sign}{enclose(text)}"


def _join(parts: list[str]) -> str:
    """Terms one after the other, with a blank where two would be read as one."""
    parts = [part for part in parts if part]
    pieces = [f"{one} " if _is_apart(one, two) else one for one, two in pairwise(parts)]
    return "".join([*pieces, *parts[-1:]])


def _is_apart(one: str, two: str) -> bool:
    before, after = one[-1], two[0]
    if not ((before.isalnum() or before == ")") and (after.isalnum() or after in ROOTS.values())):
        return False
    if before.isdigit() and (after.isdigit() or after in "∛∜"):
        return True
    return any(sign in one for sign in "_^/") or bool(WORD_ENDS.search(one) or WORD_BEGINS.match(two))
