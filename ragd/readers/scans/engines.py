"""Engines of text recognition: which there are, and what they find on a picture of a page.

Neither asks the network: rapidocr brings its models in its wheel, Tesseract's are files of this machine.
"""

from __future__ import annotations

import csv
import importlib
import importlib.metadata
import importlib.util
import io
import math
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragd.readers.scans.images import Pixels, encode
from ragd.readers.scans.words import ReadLine, ReadWord, split_words

CHOICES = ("auto", "rapidocr", "tesseract", "off")
THREADS_MAX = 4
TESSERACT_S = 300
# of Tesseract's script detection (https://tesseract-ocr.github.io/tessdoc): the languages to read each with
LANGUAGES: dict[str, tuple[str, ...]] = {
    "Latin": ("eng", "deu", "fra", "spa", "ita", "por", "nld", "pol"),
    "Cyrillic": ("rus", "ukr", "bul", "srp", "bel", "mkd"),
    "Greek": ("ell",),
    "Han": ("chi_sim", "chi_tra"),
    "Japanese": ("jpn",),
    "Hangul": ("kor",),
    "Korean": ("kor",),
    "Arabic": ("ara", "fas", "urd"),
    "Hebrew": ("heb",),
    "Devanagari": ("hin", "mar", "nep"),
    "Bengali": ("ben",),
    "Tamil": ("tam",),
    "Telugu": ("tel",),
    "Thai": ("tha",),
    "Georgian": ("kat",),
    "Armenian": ("hye",),
}
READ_BY_RAPIDOCR = ("Latin", "Han", "Japanese")
# Tesseract's page segmentation (--psm). Of a page that is askew or noisy it may take all lines for a picture, and then
# reads nothing; the page as one block is the other try, kept where it gives clearly more.
FIND_BLOCKS, ONE_BLOCK = "3", "6"
MISSED_SHARE, MORE = 0.3, 1.3
SCRIPT = re.compile(r"^Script: (\w+)", re.MULTILINE)


class Engine(Protocol):
    """identity: name and version, and whatever else decides the result. long_side: pixels that a page should have."""

    identity: str
    long_side: int

    def read(self, pixels: Pixels) -> list[ReadLine]:
        """The lines of a page in reading order. pixels: [height, width, 3] RGB. [] where it finds none."""


@dataclass(slots=True)
class RapidOcr:
    """PP-OCR by rapidocr: Latin, Chinese and Japanese."""

    identity: str
    long_side: int = 2000
    model: Any = None

    def read(self, pixels: Pixels) -> list[ReadLine]:
        if self.model is None:
            threads = min(THREADS_MAX, os.cpu_count() or 1)
            settings = {
                "Global.log_level": "critical",
                "Global.return_word_box": True,
                "EngineConfig.onnxruntime.intra_op_num_threads": threads,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
            self.model = importlib.import_module("rapidocr").RapidOCR(params=settings)
        found = self.model(pixels[:, :, ::-1])  # BGR
        if not found.txts:
            return []
        parts = found.word_results if len(found.word_results) == len(found.txts) else [()] * len(found.txts)
        lines = zip(found.txts, found.boxes, found.scores, parts, strict=True)
        return [split_words(text, corners, float(score), part) for text, corners, score, part in lines]


@dataclass(slots=True)
class Tesseract:
    """Tesseract's command, with the languages that are installed of the script that it finds on the page."""

    identity: str
    installed: frozenset[str]
    long_side: int = 3300

    def read(self, pixels: Pixels) -> list[ReadLine]:
        return self.read_script(pixels, self.find_script(pixels))

    def find_script(self, pixels: Pixels) -> str:
        """Such as "Cyrillic"; "" where it cannot tell, as on a page with few characters."""
        if "osd" not in self.installed:
            return ""
        match = SCRIPT.search(_tesseract(["--psm", "0", "-l", "osd"], encode(pixels)[1]))
        return match.group(1) if match else ""

    def languages(self, script: str) -> str:
        """What to read a script with; "" where nothing is installed for it."""
        if f"script/{script}" in self.installed:
            return f"script/{script}"
        return "+".join(name for name in LANGUAGES.get(script, ()) if name in self.installed)

    def read_script(self, pixels: Pixels, script: str) -> list[ReadLine]:
        languages = self.languages(script) or self.languages("Latin") or "eng"
        picture = encode(pixels)[1]
        lines = _read_blocks(picture, languages, FIND_BLOCKS)
        if _missed_share(pixels, lines) > MISSED_SHARE:
            whole = _read_blocks(picture, languages, ONE_BLOCK)
            if _sure_chars(whole) > MORE * _sure_chars(lines):
                return whole
        return lines


@dataclass(slots=True)
class ByScript:
    """rapidocr for the scripts that it was taught, Tesseract for the others that it has languages for."""

    rapid: RapidOcr
    tesseract: Tesseract
    identity: str
    long_side: int = 3300

    def read(self, pixels: Pixels) -> list[ReadLine]:
        script = self.tesseract.find_script(pixels)
        if script and script not in READ_BY_RAPIDOCR and self.tesseract.languages(script):
            return self.tesseract.read_script(pixels, script)
        return self.rapid.read(pixels)


def find_engine(choice: str) -> Engine | None:
    """The engine for the setting RAGD_OCR, without loading it; None for "off" and where none of it is installed."""
    rapid = _rapidocr() if choice in ("auto", "rapidocr") else None
    tesseract = _find_tesseract() if choice in ("auto", "tesseract") else None
    if rapid and tesseract:
        return ByScript(rapid, tesseract, f"{rapid.identity}, {tesseract.identity}")
    return rapid or tesseract


def _rapidocr() -> RapidOcr | None:
    importlib.invalidate_caches()  # it may have been installed since this process started
    if importlib.util.find_spec("rapidocr") is None:
        return None
    return RapidOcr(f"rapidocr {importlib.metadata.version('rapidocr')}")


def _find_tesseract() -> Tesseract | None:
    if shutil.which("tesseract") is None:
        return None
    try:
        version = _tesseract(["--version"]).split("\n", 1)[0]
        names = _tesseract(["--list-langs"]).splitlines()[1:]
    except (OSError, subprocess.SubprocessError):
        return None
    return Tesseract(f"{version} ({'+'.join(sorted(names))})", frozenset(names))


def _tesseract(options: list[str], picture: bytes | None = None) -> str:
    command = ["tesseract", *(["stdin", "stdout"] if picture is not None else []), *options]
    done = subprocess.run(command, input=picture, capture_output=True, timeout=TESSERACT_S, check=False)
    return done.stdout.decode("utf-8", "replace") or (done.stderr.decode("utf-8", "replace") if picture is None else "")


def _read_blocks(picture: bytes, languages: str, segmentation: str) -> list[ReadLine]:
    table = _tesseract(["--psm", segmentation, "-l", languages, "tsv"], picture)
    return list(_lines(csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE)))


def _missed_share(pixels: Pixels, lines: Sequence[ReadLine]) -> float:
    """How much of what is dark on a page lies outside of the lines that were found; 0 for a page of one shade."""
    grey = pixels.min(axis=2)
    dark = grey < (int(grey.min()) + int(grey.max())) / 2
    total = int(dark.sum())
    for x0, y0, x1, y1 in (line.box for line in lines):
        dark[math.floor(y0) : math.ceil(y1), math.floor(x0) : math.ceil(x1)] = False
    return int(dark.sum()) / total if total else 0.0


def _sure_chars(lines: Sequence[ReadLine]) -> float:
    return sum(len(word.text) * word.confidence for line in lines for word in line.words)


def _lines(rows: Iterator[dict[str, str]] | csv.DictReader[str]) -> Iterator[ReadLine]:
    """Lines from Tesseract's table of words, in its order."""
    place: tuple[str, ...] = ()
    words: list[ReadWord] = []
    for row in rows:
        if row["level"] != "5" or not (row["text"] or "").strip():
            continue
        line = (row["block_num"], row["par_num"], row["line_num"])
        if words and line != place:
            yield ReadLine(tuple(words), ordered=True)
            words = []
        place = line
        left, top, width, height = (float(row[name]) for name in ("left", "top", "width", "height"))
        box = (left, top, left + width, top + height)
        words.append(ReadWord(row["text"].strip(), box, max(0.0, float(row["conf"])) / 100))
    if words:
        yield ReadLine(tuple(words), ordered=True)
