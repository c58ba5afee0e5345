"""The visual language: contrast of the tokens, icons that exist, nothing inline, nothing from another host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ragd_site.operations.branding import find_shades

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
CODE = sorted(
    path for app in ("collections_app", "retrieval_app", "evaluation_app") for path in (ROOT / app).rglob("*.py")
)
TOKENS = (ROOT / "static" / "css" / "tokens.css").read_text()
STYLES = [path for path in sorted((ROOT / "static" / "css").glob("*.css")) if path.name != "tokens.css"]
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


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_controls_have_contrast(theme: int) -> None:
    known = colours()
    for ground in GROUNDS:
        assert contrast(known["line-strong"][theme], known[ground][theme]) >= 3, ground


def test_colours_and_sizes_are_named_in_one_file() -> None:
    for path in STYLES:
        css = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        css = css.replace("#fff", "").replace("#000", "").replace("rgb(0 0 0 / 0.4)", "")  # print and the backdrop
        if path.name != "admin.css":
            assert not re.findall(r"#[0-9a-f]{3,8}\b|rgb\(", css), path.name
        used = set(re.findall(r"var\(--([\w-]+)\)", css))
        assert not used - set(re.findall(r"--([\w-]+):", TOKENS + path.read_text())), path.name


def test_every_icon_is_in_the_sprite_and_used() -> None:
    sprite = (ROOT / "templates" / "components" / "sprite.html").read_text()
    known = set(re.findall(r'<symbol id="i-([\w-]+)"', sprite))
    texts = [path.read_text() for path in TEMPLATES]
    named = {name for text in texts for name in re.findall(r'{% icon "([\w-]+)"', text)}
    code = "".join(path.read_text() for path in CODE) + (ROOT / "static" / "js" / "ragd.js").read_text()
    assert named <= known
    assert {name for name in known - named if f'"{name}"' not in code and f'"#i-{name}"' not in code} == set()


def test_templates_hold_no_script_style_or_foreign_address() -> None:
    for path in TEMPLATES:
        html = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", html), path
        assert not re.search(r"""(?:href|src|action)=["'](?:https?:)?//""", html), path
    for path in [*STYLES, ROOT / "static" / "js" / "ragd.js"]:
        assert not re.search(r"https?://|@import", path.read_text()), path
