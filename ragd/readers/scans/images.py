"""Images as documents: a page for each frame, with the text that recognition found on it.

Pages of PDFs and images as pixels: of one size in points, turned as a reader sees them, encoded for a browser.
"""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pypdfium2 as pdfium
import pypdfium2.raw as raw

from ragd.readers import signatures as types
from ragd.readers.assembly import Assembly
from ragd.readers.scans.words import describe
from ragd.readers.types import ParseError, Source


def read(source: Source, assembly: Assembly) -> None:
    """Raises ParseError: "scanned" with all pages when none was recognized, "empty", "broken", "bomb"."""
    with open_pages(source.data, source.media_type) as pages:
        count = pages.count
    if not source.recognized:
        raise ParseError("scanned", "The file is an image, which holds no text itself.", pages=range(1, count + 1))
    assembly.describe(pages=count)
    for number in range(1, count + 1):
        page = source.recognized.get(number)
        if page is not None:
            assembly.add(page.text, f"page {number}", page=page.layout)
    describe(source.recognized, assembly)
    if left := [number for number in range(1, count + 1) if number not in source.recognized]:
        shown = f"{len(left)} of {count} pages"
        assembly.leave_out(f"{shown} were not read by text recognition (OCR), the first of them page {left[0]}.")


Pixels = npt.NDArray[np.uint8]

POINTS_PER_INCH = 72
USUAL_DPI, BELIEVED_DPI = 150, range(50, 1201)
PIXELS_MAX = 120_000_000  # of an image as its head states them: more is refused before a pixel is unpacked
FRAMES_MAX = 5_000
ENLARGED = 4.0  # pixels of a point at most: 288 dpi
JPEG_QUALITY = 82
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)  # of Exif: turned by a quarter
NEEDS_PILLOW = "Images are read with the extra `ocr`, which is not installed."


class Pages(Protocol):
    """The pages of one file, by number from 1."""

    @property
    def count(self) -> int: ...

    def size(self, number: int) -> tuple[float, float]:
        """Width and height in points."""

    def draw(self, number: int, long_side: int) -> Pixels:
        """[height, width, 3] RGB; the longer side has at most so many pixels."""


@dataclass(frozen=True, slots=True)
class PdfPages:
    document: pdfium.PdfDocument

    @property
    def count(self) -> int:
        return len(self.document)

    def size(self, number: int) -> tuple[float, float]:
        width, height = self.document.get_page_size(number - 1)
        return float(width), float(height)

    def draw(self, number: int, long_side: int) -> Pixels:
        page = self.document[number - 1]
        try:
            scale = min(ENLARGED, long_side / max(page.get_size()))
            bitmap = page.render(scale=scale, rev_byteorder=True, fill_color=(255, 255, 255, 255))
            return np.ascontiguousarray(np.atleast_3d(bitmap.to_numpy())[:, :, :3])
        finally:
            page.close()


class ImagePages:
    """The frames of an image, each turned as its camera says."""

    def __init__(self, data: bytes) -> None:
        pillow = _pillow()
        pillow.MAX_IMAGE_PIXELS = PIXELS_MAX
        try:
            self.image = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG", "TIFF", "WEBP"))
            self.count = int(getattr(self.image, "n_frames", 1))
        except pillow.DecompressionBombError as error:
            raise _too_large() from error
        if self.count > FRAMES_MAX:
            raise ParseError(
                "too_large", f"The image has {self.count:,} pages; at most {FRAMES_MAX:,} are read. Split it."
            )
        self._seek(1)

    def _seek(self, number: int) -> None:
        self.image.seek(number - 1)
        if self.image.width * self.image.height > PIXELS_MAX:
            raise _too_large()

    def size(self, number: int) -> tuple[float, float]:
        self._seek(number)
        dpi = self.image.info.get("dpi") or (USUAL_DPI, USUAL_DPI)
        across, down = (float(each) if each == each and int(each) in BELIEVED_DPI else USUAL_DPI for each in dpi[:2])
        size = self.image.width * POINTS_PER_INCH / across, self.image.height * POINTS_PER_INCH / down
        return size[::-1] if self.image.getexif().get(ORIENTATION, 1) in SIDEWAYS else size

    def draw(self, number: int, long_side: int) -> Pixels:
        self._seek(number)
        frame = importlib.import_module("PIL.ImageOps").exif_transpose(self.image)
        if frame.mode in ("RGBA", "LA", "PA") or "transparency" in frame.info:
            frame = frame.convert("RGBA")
            paper = _pillow().new("RGBA", frame.size, "white")
            frame = _pillow().alpha_composite(paper, frame)
        elif frame.mode.startswith("I") or frame.mode == "F":  # 16 bits and more a pixel
            values = np.asarray(frame, np.float32)
            frame = _pillow().fromarray((values * (255 / max(values.max(), 1))).astype(np.uint8))
        frame = frame.convert("RGB")
        frame.thumbnail((long_side, long_side))
        return np.asarray(frame, np.uint8)


def _pillow() -> Any:
    """Pillow's module Image. It comes with the extra `ocr`; ParseError "scanned" without it."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ParseError("scanned", NEEDS_PILLOW) from error


def _too_large() -> ParseError:
    return ParseError(
        "bomb", f"The image has more than {PIXELS_MAX:,} pixels, so it was not unpacked. Upload a smaller one."
    )


@contextmanager
def open_pages(data: bytes, media_type: str) -> Iterator[Pages]:
    """Raises ParseError "unsupported" for what has no pages to draw, and those of opening the file."""
    if media_type in types.IMAGES:
        try:
            yield ImagePages(data)
        except (OSError, ValueError, SyntaxError, struct.error, EOFError) as error:  # whose text shows the bytes object
            raise ParseError(
                "broken", "The image is damaged or of no known format. Save it again and upload that."
            ) from error
        return
    if media_type != types.PDF:
        raise ParseError("unsupported", f"Pages are drawn of PDFs and images, not of {types.speak(media_type)}.")
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        raise ParseError("broken", f"The PDF cannot be opened: {error}") from error
    try:
        if document.get_formtype() != raw.FORMTYPE_NONE:
            document.init_forms()
        yield PdfPages(document)
    finally:
        document.close()


def encode(pixels: Pixels) -> tuple[str, bytes]:
    """(media type, bytes) for a browser: JPEG where Pillow is installed, else PNG."""
    try:
        image = _pillow().fromarray(pixels)
    except ParseError:
        return types.PNG, _png(pixels)
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return types.JPEG, packed.getvalue()


def _png(pixels: Pixels) -> bytes:
    """PNG (ISO/IEC 15948) of 8 bits a channel, without filters."""
    height, width = pixels.shape[:2]
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    head = struct.pack("!2I5B", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    chunks = (
        struct.pack("!I", len(body)) + kind + body + struct.pack("!I", zlib.crc32(kind + body)) for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
