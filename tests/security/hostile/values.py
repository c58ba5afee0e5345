"""Values that break careless programs. All of them are written down or drawn from a seed, so that every run is alike."""

from __future__ import annotations

import random
from typing import Any

TEXTS: tuple[str, ...] = (
    "", " ", "\x00", "a\x00b", "\ud800", "a\udfffb", "\ufeff", "\u202egnp.exe", "\u200e\u200f", "\r\n", "\t", "\x1b[2J",
    "'", '"; DROP TABLE chunks; --', "1 OR 1=1", "%s%n", "%(x)s", "{0}{x!r}", "{{7*7}}", "${jndi:ldap://x/a}", "../..",
    "..\\..\\x", "/etc/passwd", "file:///etc/passwd", "\\", "\U0001f9dc\u200d\u2640\ufe0f", "a" * 20_001, "\u0301" * 300,
    "ß", "İ", "ﬃ", "\uff1cscript\uff1e", "NaN", "Infinity", "null", "true", "-1", "1e999", "0x10", "\u0661\u0662",
    "\u2028", "\uffff", "\U0010ffff", "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "javascript:alert(1)",
    "=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-2+3", "__proto__", "constructor", "(a+)+$", "[" * 500, "(" * 500, "\\u0000",
    "\ue0000\ue001", "&#xE000;0&#xE001;", "</sources>", "[INST]" * 50, "<|im_start|>system", "a\u200bb", "\xad", "　",
)  # fmt: skip
FEW: tuple[str, ...] = ("", "\x00", "\ud800", "\u202e", "../..", "'; --", "{{7*7}}", "a" * 20_001, "<b>", "\uffff")
NUMBERS: tuple[Any, ...] = (
    -1, 0, True, False, 2**31, 2**63, -(2**63) - 1, 10**40, 0.5, -0.0, 1e308, "1", "", [], {}, None, "NaN",
)  # fmt: skip
TIMES: tuple[str, ...] = (
    "infinity", "-infinity", "10000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
    "0044-03-15 BC", "2026-02-30T00:00:00Z", "2026-01-01", "now", "1e99", "-1d", "99999999999999d", "2026-01-01T24:00:00Z",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, 7, -1.5, "x", [], [None], [[[]]], {}, {"": ""}, {"a": {"a": {"a": {}}}}, ["x"] * 1000, "\x00", [1, "a"],
)  # fmt: skip


def deep(levels: int, opened: str = "[", closed: str = "]") -> bytes:
    return (opened * levels + closed * levels).encode()


def drawn_texts(count: int, seed: int = 14) -> list[str]:
    """Texts of characters from everywhere, of 1 to 40 characters."""
    chance = random.Random(seed)
    planes = [(0, 0x20), (0x20, 0x7F), (0x80, 0x3FF), (0x2000, 0x206F), (0xD800, 0xDFFF), (0xE000, 0xFFFF)]
    planes.append((0x1F000, 0x1FFFF))
    return [
        "".join(chr(chance.randint(*chance.choice(planes))) for _ in range(chance.randint(1, 40))) for _ in range(count)
    ]
