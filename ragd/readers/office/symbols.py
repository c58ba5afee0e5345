"""The characters of the fonts Symbol and Wingdings, which documents name by their places in the font."""

from __future__ import annotations

import re

# From 0x20 to 0x7E, and from 0xA0 to 0xFE; a blank where the font only has a piece of a large sign.
SYMBOL_LOW = " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_ αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
SYMBOL_HIGH = "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…  ↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑           ⟩∫"
WINGDINGS = {
    0x28: "☎", 0x2A: "✉", 0x6C: "●", 0x6E: "■", 0x6F: "☐", 0x78: "☒", 0xA7: "▪", 0xA8: "☐", 0xDF: "←", 0xE0: "→",
    0xF0: "⇨", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
}  # fmt: skip
# Symbol fonts have their characters in the private range from here.
PRIVATE = 0xF000
PRIVATE_SIGN = re.compile("[\uf020-\uf0ff]")


def read_symbols(font: str, text: str) -> str:
    """The text of a run in a font, with its signs: those of the private range, and one of Wingdings that is alone."""
    if font not in ("Symbol", "Wingdings"):
        return text
    if font == "Wingdings" and len(sign := text.strip()) == 1 and 0x80 <= ord(sign) <= 0xFF:
        return text.replace(sign, read_symbol(font, f"{ord(sign):x}") or sign)
    return PRIVATE_SIGN.sub(lambda match: read_symbol(font, f"{ord(match[0]):x}") or match[0], text)


def read_symbol(font: str, code: str) -> str:
    """The character at a place, in hexadecimal, of a font; "" for one that is not known."""
    try:
        place = int(code, 16)
    except ValueError:
        return ""
    if PRIVATE <= place <= PRIVATE + 0xFF:
        place -= PRIVATE
    elif place > 0xFF:
        return chr(place) if place <= 0xFFFF and chr(place).isprintable() else ""
    if font == "Symbol":
        start, signs = (0x20, SYMBOL_LOW) if place < 0x80 else (0xA0, SYMBOL_HIGH)
        return signs[place - start].strip() if start <= place < start + len(signs) else ""
    return WINGDINGS.get(place, "") if font == "Wingdings" else ""
