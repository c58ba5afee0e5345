"""Scans: pages that are pictures become text in the background, and nothing of it is done twice."""

from __future__ import annotations

import io
import socket
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from collections_app.documents import files
from collections_app.documents.files import find_pages
from collections_app.documents.services import reindex_documents
from collections_app.jobs.attempts import JobProgress
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.recovery import cancel_job, retry_job
from collections_app.jobs.stages import stage_rows
from collections_app.models import Collection, Document, IngestJob, StoredPage, Upload, WorkPart
from collections_app.uploads.services import HeldFile, submit_uploads
from ragd.readers import ParseError, ParseLimits, parse
from ragd.readers.process.process import draw_page
from ragd.readers.scans import engines
from ragd.readers.scans.engines import find_engine
from ragd.readers.scans.words import ReadLine, ReadWord, compose_page
from tests.collections.test_jobs import reload
from tests.refusals import raises_with

LINES = ("The whale sings under ice", "Krill moves north in March", "A river carries warm water")


@pytest.fixture(autouse=True)
def use_rapidocr(settings: Any) -> None:
    """The one that is installed with the tests, whatever else this machine has."""
    settings.RAGD_OCR = "rapidocr"


def draw(line: str) -> Image.Image:
    """A page of 300 by 100 points at 150 dpi with one line near its top."""
    page = Image.new("RGB", (625, 208), "white")
    ImageDraw.Draw(page).text((40, 40), line, fill="black", font=ImageFont.load_default(36))
    return page


def make_scan(kind: str, *lines: str) -> bytes:
    pages, file = [draw(line) for line in lines], io.BytesIO()
    pages[0].save(file, kind, save_all=True, append_images=pages[1:], resolution=150)
    return file.getvalue()


def submit(collection: Collection, name: str, content: bytes) -> IngestJob:
    (outcome,) = submit_uploads(collection, [HeldFile(name, content)])
    assert outcome.job is not None
    return outcome.job


def words_of(document: Document, page: int) -> list[tuple[str, float, float]]:
    (layout,) = find_pages(document, page, page)
    return [(document.text[word.start : word.end], word.x0, word.confidence or 0.0) for word in layout.words]


@pytest.mark.slow
def test_a_scan_is_refused_without_an_engine_and_read_page_by_page_by_retries_that_go_on_where_the_last_stopped(
    committed: None, notes: Collection, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(engines.importlib.util, "find_spec", lambda _: None)
        patch.setattr(engines.shutil, "which", lambda _: None)
        job = submit(notes, "scan.pdf", make_scan("PDF", *LINES, "left out"))
        assert run_job(job.pk) == "failed"
        assert reload(job).error_type == "scanned" and 'EXTRAS="ocr"' in reload(job).error
        assert not files.can_read("image/png") and files.can_read("text/csv")
    settings.RAGD_OCR = "off"
    assert run_job(retry_job(reload(job)).pk) == "failed" and "RAGD_OCR=auto" in reload(job).error
    settings.RAGD_OCR, settings.RAGD_OCR_MAX_PAGES = "rapidocr", 3
    assert files.can_read("image/png")
    job = retry_job(reload(job))
    advance = JobProgress.advance

    def stop_after_one(self: JobProgress, done: int, total: int) -> None:
        advance(self, done, total)
        if self.stage == "ocr" and done == 1:
            cancel_job(reload(job))

    with monkeypatch.context() as patch:
        patch.setattr(JobProgress, "advance", stop_after_one)
        assert run_job(job.pk) == "cancelled"
    assert not Document.objects.exists() and not StoredPage.objects.exists()
    assert list(WorkPart.objects.filter(kind="page").values_list("position", flat=True)) == [1]

    asked: list[Any] = []
    recognize = files.recognize
    monkeypatch.setattr(files, "recognize", lambda *a, **k: asked.append(list(a[2])) or recognize(*a, **k))
    job = retry_job(reload(job))
    assert run_job(job.pk) == "succeeded" and asked == [[2, 3]]
    document = Document.objects.get()
    assert [document.text[start:end] for start, end, _ in document.page_map] == list(LINES)
    assert [label for _, _, label in document.page_map] == ["page 1", "page 2", "page 3"]
    assert any("RAGD_OCR_MAX_PAGES" in each for each in document.warnings)
    found = words_of(document, 2)
    assert [word for word, _, _ in found] == LINES[1].split()
    assert [x0 for _, x0, _ in found] == sorted(x0 for _, x0, _ in found) and 15 < found[0][1] < 25
    assert all(confidence > 0.8 for _, _, confidence in found)
    assert document.file_metadata["recognized_pages"] == [1, 2, 3] and document.file_metadata["confidence"] > 0.9
    stages = {row.stage: (row.done, row.total, row.unit) for row in stage_rows("file", "succeeded", reload(job).stages)}
    assert stages["ocr"] == (3, 3, "pages") and list(stages)[:2] == ["parse", "ocr"]

    (again,) = reindex_documents(notes, ["scan.pdf"])
    asked.clear()
    assert run_job(again.pk) == "succeeded" and asked == []
    assert len(words_of(Document.objects.get(), 3)) == 5
    assert files.drop_unused_recognition() == 0
    Upload.objects.all().delete()
    assert files.drop_unused_recognition() == 3


@pytest.mark.slow
def test_rapidocr_asks_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("it asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    engine = find_engine("rapidocr")
    assert engine is not None

    (line,) = engine.read(np.asarray(draw(LINES[1])))
    assert [word.text for word in line.words] == LINES[1].split()


def test_an_image_is_turned_as_its_camera_says_and_a_bomb_is_not_unpacked() -> None:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    draw("sideways").rotate(90, expand=True).save(file, "JPEG", exif=exif)

    drawn = draw_page(io.BytesIO(file.getvalue()), "a.jpg", 1, long_side=300, limits=ParseLimits())
    assert (drawn.count, drawn.width > drawn.height) == (1, True)
    shown = Image.open(io.BytesIO(drawn.data))
    assert max(shown.size) == 300 and shown.width > shown.height

    frame = draw_page(io.BytesIO(make_scan("TIFF", *LINES[:2])), "a.tiff", 2, long_side=300, limits=ParseLimits())
    assert frame.count == 2

    png = make_scan("PNG", "x")
    head = b"IHDR" + (60000).to_bytes(4, "big") * 2 + png[24:29]
    huge = png[:12] + head + zlib.crc32(head).to_bytes(4, "big") + png[33:]
    with raises_with(ParseError, kind="bomb"):
        parse(huge, "bomb.png")


def line(text: str, x: float, y: float, slope: float = 0.0) -> ReadLine:
    words, left = [], x
    for index, word in enumerate(text.split()):
        width = 12 * len(word)
        words.append(
            ReadWord(word, (left, y + slope * left, left + width, y + slope * left + 20), 0.9, " " * bool(index))
        )
        left += width + 12
    return ReadLine(tuple(words), slope)


@pytest.mark.parametrize("slope", [0.0, 0.04, -0.04])
def test_columns_are_read_one_after_the_other_and_rows_of_a_table_across(slope: float) -> None:
    left = [line(f"left column line {n} runs on", 50, 200 + 30 * n, slope) for n in range(5)]
    right = [line(f"right column line {n} goes so", 500, 210 + 30 * n, slope) for n in range(5)]
    table = [line(cell, x, 500 + 40 * n, slope) for n in range(3) for x, cell in ((50, f"row{n}"), (500, f"{n}9,5"))]
    head = line("a heading stands over both of the columns and is as wide as both", 50, 100, slope)
    page = compose_page(1, (600, 800), (1000, 1300), [*right, head, *table, *left])
    lines = [each for each in page.text.split("\n") if each]
    assert lines[0].startswith("a heading")
    assert lines[1:6] == [f"left column line {n} runs on" for n in range(5)]
    assert lines[6:11] == [f"right column line {n} goes so" for n in range(5)]
    assert lines[11:] == [f"row{n} {n}9,5" for n in range(3)]
    assert all(
        page.text[word.start : word.end].strip() == page.text[word.start : word.end] != "" for word in page.words
    )


def test_a_word_that_a_line_end_divides_is_joined_and_keeps_both_boxes() -> None:
    page = compose_page(
        1, (600, 800), (600, 800), [line("the trans-", 10, 10), line("lation of Ger-", 10, 40), line("Many", 10, 70)]
    )
    assert page.text == "the translation of Ger-\nMany"
    assert [(page.text[word.start : word.end], word.y0) for word in page.words[:3]] == [
        ("the", 10),
        ("trans", 10),
        ("lation", 40),
    ]
