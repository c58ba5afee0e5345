"""The visual language: contrast of the tokens, icons that exist, nothing inline, nothing from another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ragd_site.operations.branding import find_shades

ROOT = Path(__file__).resolve().parents[2]
TOKENS = (ROOT / "static" / "css" / "tokens.css").read_text()
GROUNDS = ("ground", "surface", "sunken", "raised", "hover")


def colours() -> dict[str, tuple[str, str]]:
    return {
        name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", TOKENS)
    }


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("accent", ["", "#000000", "#ffffff", "#ff0000", "#ffff00", "#00ff00", "#0000ff", "#808080"])
def test_text_has_contrast_on_every_ground(theme: int, accent: str) -> None:
    """Also in the shades of an accent colour that an administrator enters."""
    known = colours() | (find_shades(accent) if accent else {})
    for text in ("text", "muted", "accent", "accent-strong", "good", "watch", "bad", "neutral"):
        for ground in GROUNDS:
            assert contrast(known[text][theme], known[ground][theme]) >= 4.5, (text, ground)
    for meaning in ("good", "watch", "bad", "neutral"):
        assert contrast(known[meaning][theme], known[f"{meaning}-soft"][theme]) >= 4.5, meaning
    for mark in ("mark-cited", "mark-overlap", "mark-active", "accent-soft"):
        assert contrast(known["text"][theme], known[mark][theme]) >= 4.5, mark
    assert contrast(known["accent-strong"][theme], known["accent-soft"][theme]) >= 4.5
    assert contrast(known["on-accent"][theme], known["accent"][theme]) >= 4.5
