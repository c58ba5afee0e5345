"""How the server looks: readable shades of its accent colour, its logo, its manifest, the script of the widget.

All are for whoever reaches the server: the log-in page and other sites show them.
"""

from __future__ import annotations

import colorsys
import hashlib
import json
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import lru_cache

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.staticfiles.storage import staticfiles_storage
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import condition, require_safe

from ragd.errors import InvalidInput

ACCENT = "#0a6a7d"  # of static/css/tokens.css, in the light theme
CONTRAST_MIN = 4.5  # AA of WCAG 2
LIGHT_WORST, DARK_WORST = "#eef2f2", "#1f272a"  # the grounds of the tokens that accents stand out from least
LOGO_BYTES_MAX, LOGO_SIDES = 100_000, range(192, 1025)
PNG, PNG_URL = b"\x89PNG\r\n\x1a\n", "data:image/png;base64,"
PNG_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"sRGB", b"gAMA", b"IDAT", b"IEND")  # no other may hold what was not meant
PIXEL_BYTES_MAX = 8


def find_brand() -> dict[str, str]:
    """Hashes of what is set, "" for nothing; part of addresses, so that browsers keep what stays."""
    return {"theme": _hash(settings.RAGD_ACCENT), "logo": _hash(settings.RAGD_LOGO)}


@lru_cache(maxsize=8)
def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def luminance(colour: str) -> float:
    """The relative one of WCAG 2, of `#rrggbb`."""
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@lru_cache(maxsize=8)
def find_shades(accent: str) -> dict[str, tuple[str, str]]:
    """Token of the style sheet -> its colour in the light and in the dark theme, of the hue of the accent.

    The lightness is moved as little as makes text in it, and text on it, readable.
    """
    hue, lightness, saturation = colorsys.rgb_to_hls(*(int(accent[place : place + 2], 16) / 255 for place in (1, 3, 5)))

    def colour(light: float, strength: float = 1.0) -> str:
        parts = colorsys.hls_to_rgb(hue, light, saturation * strength)
        return "#" + "".join(f"{round(part * 255):02x}" for part in parts)

    def readable(start: float, step: float, *grounds: str) -> tuple[float, str]:
        light = start
        while min(contrast(colour(light), ground) for ground in grounds) < CONTRAST_MIN:  # black or white end it
            light = min(max(light + step, 0.0), 1.0)
        return light, colour(light)

    soft = colour(0.93, 0.6), colour(0.14, 0.5)
    light, light_accent = readable(lightness, -0.01, LIGHT_WORST)
    dark, dark_accent = readable(max(lightness, 0.5), 0.01, DARK_WORST)
    return {
        "accent": (light_accent, dark_accent),
        "accent-strong": (
            readable(max(light - 0.08, 0.0), -0.01, LIGHT_WORST, soft[0])[1],
            readable(min(dark + 0.12, 1.0), 0.01, DARK_WORST, soft[1])[1],
        ),
        "accent-soft": soft,
        "on-accent": ("#ffffff", colour(0.06)),
    }


def read_logo(content: bytes) -> str:
    """A square PNG as its `data:` URL, of the chunks that draw it alone. Raises InvalidInput with the reason."""
    expected = f"a square PNG of {LOGO_SIDES.start} to {LOGO_SIDES.stop - 1} pixels a side, at most 100 kB"
    if len(content) > LOGO_BYTES_MAX:
        raise InvalidInput(f"expected {expected}; this file has {len(content) // 1000} kB. Save it smaller")
    try:
        chunks = [(kind, data) for kind, data in _read_chunks(content) if kind in PNG_CHUNKS]
        width, height = struct.unpack(">II", dict(chunks)[b"IHDR"][:8])
        pixels = zlib.decompressobj()
        pixels.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"), PIXEL_BYTES_MAX * 1100 * 1100)
    except (KeyError, ValueError, struct.error, zlib.error):
        raise InvalidInput(f"expected {expected}; this file is none or is damaged. Save it as PNG again") from None
    if width != height or width not in LOGO_SIDES:
        raise InvalidInput(f"expected {expected}; this one has {width} x {height}. Save it in another size")
    if not pixels.eof:
        raise InvalidInput(f"expected {expected}; its pixels are incomplete. Save it as PNG again")
    return PNG_URL + b64encode(PNG + b"".join(_write_chunk(kind, data) for kind, data in chunks)).decode()


def _read_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Up to IEND; what follows is left out. Raises ValueError and struct.error where it is not as PNG says."""
    if not content.startswith(PNG):
        raise ValueError("no PNG")
    at, kind = len(PNG), b""
    while kind != b"IEND":
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        data = content[at + 8 : at + 8 + size]
        if content[at + 8 + size : at + 12 + size] != _write_chunk(kind, data)[-4:]:
            raise ValueError("a wrong checksum")
        yield kind, data
        at += 12 + size


def _write_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def describe_theme() -> str:
    """The style sheet of the accent colour, after that of the tokens."""
    shades = find_shades(settings.RAGD_ACCENT or ACCENT)
    rules = " ".join(f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in shades.items())
    return f":root {{ {rules} }}\n"


def describe_manifest() -> str:
    """That of an installed web app."""
    own = (("ragd.svg", "svg+xml", "any"), ("ragd-192.png", "png", "192x192"), ("ragd-512.png", "png", "512x512"))
    icons = [
        {"src": staticfiles_storage.url(f"icons/{file}"), "type": f"image/{kind}", "sizes": sizes}
        for file, kind, sizes in own
    ]
    if settings.RAGD_LOGO:
        (side,) = struct.unpack(">I", b64decode(settings.RAGD_LOGO.removeprefix(PNG_URL)[:64])[16:20])
        address = f"{reverse('brand', args=['logo.png'])}?{_hash(settings.RAGD_LOGO)}"
        icons = [{"src": address, "type": "image/png", "sizes": f"{side}x{side}"}]
    home, name = reverse("operations:home"), settings.RAGD_NAME
    accent = find_shades(settings.RAGD_ACCENT)["accent"][0] if settings.RAGD_ACCENT else ACCENT
    manifest = {
        "id": home, "name": name, "short_name": name[:12], "start_url": home, "scope": home, "display": "standalone",
        "background_color": "#f7f9f9", "theme_color": accent, "icons": icons,
    }  # fmt: skip
    return json.dumps(manifest)


def describe_widget() -> str:
    """The script that other sites load, in the accent colour."""
    script = (settings.BASE_DIR / "static" / "js" / "widget.js").read_text("utf-8")
    return script.replace(ACCENT, find_shades(settings.RAGD_ACCENT)["accent"][0]) if settings.RAGD_ACCENT else script


FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "theme.css": (lambda: describe_theme().encode(), "text/css; charset=utf-8"),
    "manifest.webmanifest": (lambda: describe_manifest().encode(), "application/manifest+json"),
    "widget.js": (lambda: describe_widget().encode(), "text/javascript; charset=utf-8"),
    "logo.png": (lambda: b64decode(settings.RAGD_LOGO.removeprefix(PNG_URL)), "image/png"),
}


def _etag(request: HttpRequest, name: str) -> str | None:
    content = FILES[name][0]() if name in FILES else b""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"' if content else None


@login_not_required
@require_safe
@cache_control(public=True, max_age=300)
@condition(etag_func=_etag)
def brand_file(request: HttpRequest, name: str) -> HttpResponse:
    """Its address stays the same whatever is in it; browsers ask after five minutes whether it changed."""
    content = FILES[name][0]() if name in FILES else b""
    if not content:
        raise Http404(f"there is no file {name!r} here")
    return HttpResponse(content, content_type=FILES[name][1])
