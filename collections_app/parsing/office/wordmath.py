"""Formulas of Word written in one line: (a+b)/2, x^2, y_i, √(z)."""

from __future__ import annotations

import re

# The parts of a formula that change their meaning when they simply stand side by side: what is written before each.
PARTS = {"num": "", "den": "/", "sup": "^", "sub": "_", "lim": "_", "deg": "", "e": ""}
ATOM = re.compile(r"[\w.,]+|\W", re.DOTALL)
ROOT, OPEN, CLOSE = "√", "(", ")"


class Formula:
    """Follows the elements inside a formula. The pieces are those of the paragraph that it stands in."""

    def __init__(self) -> None:
        self.depth = 0
        self._starts: list[int] = []
        self._holders: list[str] = []

    def start(self, name: str, value: str, pieces: list[str]) -> None:
        """value: the attribute "val", which names the sign of a sum or product."""
        if name == "oMath":
            self.depth += 1
        if not self.depth:
            return
        if name in PARTS:
            self._starts.append(len(pieces))
        elif name in ("rad", "d", "f", "sSup", "sSub", "nary"):
            self._holders.append(name)
            pieces.append({"rad": ROOT, "d": OPEN}.get(name, ""))
        elif name == "chr" and value:
            pieces.append(value)

    def end(self, name: str, pieces: list[str]) -> None:
        if not self.depth:
            return
        if name in PARTS and self._starts:
            self._end_part(name, pieces)
        elif self._holders and name == self._holders[-1]:
            self._holders.pop()
            if name == "d":
                pieces.append(CLOSE)
        elif name == "oMath":
            self.depth -= 1

    def _end_part(self, name: str, pieces: list[str]) -> None:
        start = self._starts.pop()
        text = "".join(pieces[start:])
        del pieces[start:]
        holder = self._holders[-1] if self._holders else ""
        is_bound = name != "e" or holder in ("rad", "sSup", "sSub")
        if text.strip() and is_bound and not ATOM.fullmatch(text):
            text = f"{OPEN}{text}{CLOSE}"
        if text.strip():
            pieces.append(PARTS[name] + text)
