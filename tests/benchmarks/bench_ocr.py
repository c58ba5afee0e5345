"""Text recognition: character error rate, seconds a page and memory of each engine that is installed.

`python -m tests.benchmarks.bench_ocr [pages of each script, 10]` draws pages in Latin (German), Chinese and Russian
from the translations that Django ships, 8 lines of 28 pixels at 150 dpi, turned by 1 to 3 degrees either way, blurred
and with Gaussian noise, seeded; and as many clean ones of one script beside them. Each engine reads them in a process
of its own through `parsing.scans`, so the figures hold what ragd adds. CER: edits over characters, blanks left out, the
mean over pages. Memory: the most that the process held, its children's added. Fonts: DejaVu and Noto CJK, from the
system's folders (Debian: fonts-dejavu-core, fonts-noto-cjk).
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from collections_app.parsing.scans.engines import find_engine
from collections_app.parsing.scans.packing import mean_confidence
from collections_app.parsing.scans.pictures import Pixels
from collections_app.parsing.scans.words import compose_page
from tests.benchmarks.bench_charsets import sentences

SCRIPTS = {"Latin (German)": ("de", "DejaVuSerif.ttf"), "Chinese": ("zh_Hans", "NotoSansCJK-Regular.ttc"),
           "Cyrillic (Russian)": ("ru", "DejaVuSerif.ttf")}  # fmt: skip
FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", str(Path.home() / ".fonts"))
ENGINES = ("rapidocr", "tesseract", "auto")
LINES, SIZE, FONT, STEP = 8, (1240, 520), 28, 50
SEED = 11


def find_font(name: str) -> str:
    for folder in FONT_FOLDERS:
        for path in Path(folder).rglob(name):
            return str(path)
    sys.exit(f"the font {name} is in none of {', '.join(FONT_FOLDERS)}; install fonts-dejavu-core and fonts-noto-cjk")


def make_page(script: str, number: int, *, clean: bool = False) -> tuple[str, Pixels]:
    """(text, pixels) of one page."""
    language, font_name = SCRIPTS[script]
    dice = random.Random(f"{SEED} {script} {number}")
    font = ImageFont.truetype(find_font(font_name), FONT)
    picture = Image.new("L", SIZE, 248)
    canvas, lines = ImageDraw.Draw(picture), []
    words = " ".join(" ".join(dice.choices(sentences(language), k=30)).split())
    for row in range(LINES):
        fits = 1
        while fits < len(words) and canvas.textlength(words[: fits + 1], font=font) < SIZE[0] - 220:
            fits += 1
        cut = words.rfind(" ", 0, fits + 1) if " " in words[:fits] and language != "zh_Hans" else fits
        lines.append(words[:cut].strip())
        words = words[cut:].strip()
        canvas.text((110, 60 + row * STEP), lines[-1], font=font, fill=30)
    if not clean:
        angle = dice.choice((-1, 1)) * dice.uniform(1, 3)
        picture = picture.rotate(angle, Image.Resampling.BICUBIC, fillcolor=248)
        picture = picture.filter(ImageFilter.GaussianBlur(dice.uniform(0.4, 1.1)))
    pixels = np.asarray(picture, np.float64)
    if not clean:
        pixels = pixels + np.random.default_rng(number).normal(0, dice.uniform(8, 25), pixels.shape)
    grey = pixels.clip(0, 255).astype(np.uint8)
    return "\n".join(lines), np.repeat(grey[:, :, None], 3, axis=2)


def error_rate(expected: str, found: str) -> float:
    """Levenshtein distance over the length of what was expected, blanks left out."""
    wanted, got = ("".join(text.split()) for text in (expected, found))
    row = np.arange(len(got) + 1)
    codes = np.array([ord(each) for each in got], np.int64)
    for index, each in enumerate(wanted, 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(each)))
        values = np.concatenate([[index], best]) - np.arange(len(got) + 1)
        row = np.minimum.accumulate(values) + np.arange(len(got) + 1)
    return float(row[-1]) / len(wanted)


def measure(choice: str, pages: int) -> None:
    """In a process of its own: a JSON line for each script."""
    engine = find_engine(choice)
    assert engine is not None
    engine.read(make_page("Latin (German)", 0, clean=True)[1])  # loads the models
    for script in SCRIPTS:
        for clean in (False, True):
            rates, confidences = [], []
            began, used = time.perf_counter(), time.process_time() + _children_s()
            count = max(1, pages // 10) if clean else pages
            for number in range(count):
                text, pixels = make_page(script, number, clean=clean)
                page = compose_page(1, (595, 250), SIZE, engine.read(pixels))
                rates.append(error_rate(text, page.text))
                confidences.append(mean_confidence({1: page}) or 0.0)
            taken, cpu = time.perf_counter() - began, time.process_time() + _children_s() - used
            peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            result = [script, clean, mean(rates), mean(confidences), taken / count, cpu / count, peak / 1024]
            print(json.dumps([engine.identity, *result]), flush=True)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    print(f"{pages} pages of each of {len(SCRIPTS)} scripts, {LINES} lines, 1 to 3 degrees askew, blur, noise")
    heads = ("CER", "confidence", "s/page", "CPU s", "peak MB")
    print(f"{'engine':10} {'script':20} {'pages':6}", *(f"{head:>10}" for head in heads))
    for choice in ENGINES:
        if find_engine(choice) is None:
            print(f"{choice:10} is not installed")
            continue
        command = [sys.executable, "-m", "tests.benchmarks.bench_ocr", str(pages), choice]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                _, script, clean, rate, confidence, taken, cpu, peak = json.loads(line)
                kind = "clean" if clean else "askew"
                figures = f"{rate:10.2%} {confidence:10.3f} {taken:10.1f} {cpu:10.1f} {peak:10.0f}"
                print(f"{choice:10} {script:20} {kind:6} {figures}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(sys.argv[2], int(sys.argv[1]))
    else:
        main()
