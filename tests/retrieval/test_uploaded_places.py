"""From a file that is sent over HTTP to a citation that names its place: a row's cells, the box on a page."""

from __future__ import annotations

import io
from typing import Any

import pytest
import xlsxwriter
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.documents.files import view_page
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestJob
from tests.parsing.builders import make_pdf
from tests.retrieval.corpus import bearer, make_collection, post

pytestmark = pytest.mark.django_db
PAGES = ["The whale sings under the ice.", "The lantern of the keeper burns with rapeseed oil all night."]


@pytest.fixture
def shelf() -> Collection:
    return make_collection("shelf", empty=True)


def send(client: Client, name: str, content: bytes) -> Document:
    files = {"files": [SimpleUploadedFile(name, content)]}
    answer = client.post("/v1/collections/shelf/documents", files, headers=bearer())
    assert answer.status_code == 202, answer.content
    assert [run_job(job.pk) for job in IngestJob.objects.filter(state="queued", doc_id=name)] == ["succeeded"]
    return Document.objects.get(doc_id=name)


def make_workbook() -> tuple[bytes, list[tuple[str, int, int]]]:
    """Two sheets with the same articles in other rows; (key, price, row) of the second one."""
    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, {"in_memory": True})
    rows = [(f"AK-{7919 * number % 100_000:05}", 100 + 7 * number) for number in range(120)]
    book.add_worksheet("Stock 2024").write_column(0, 0, ["Article", *(key[::-1] for key, _ in rows)])
    sheet = book.add_worksheet("Prices")
    sheet.write(0, 1, "Price list")
    sheet.write_row(2, 1, ["Article", "Kind", "Unit price"])
    for at, (key, price) in enumerate(rows):
        sheet.write_row(3 + at, 1, [key, "steel bolt", price])
    book.close()
    return buffer.getvalue(), [(key, price, 4 + at) for at, (key, price) in enumerate(rows)]


def test_a_question_that_names_a_key_is_answered_from_its_row_with_sheet_and_cells(
    client: Client, shelf: Collection
) -> None:
    content, rows = make_workbook()
    document = send(client, "prices.xlsx", content)
    for key, price, row in rows[5:120:23]:
        _, found = post(client, "/v1/collections/shelf/search", {"query": f"unit price of {key}", "k": 3}, bearer())
        best = found["results"][0]["attributes"]
        assert best["sheet"] == "Prices" and best["row"] <= row <= best["row_end"]
        _, body = post(client, "/v1/collections/shelf/ask", {"query": f"What is the unit price of {key}?"}, bearer())
        citation = body["citations"][0]
        assert (citation["cells"], citation["place"]) == (f"Prices!B{row}:D{row}", f"sheet Prices, row {row}")
        quoted = document.text[citation["start"] : citation["end"]]
        assert quoted == citation["quote"] == f"{key} | steel bolt | {price}"


def test_a_citation_of_a_pdf_leads_to_the_words_on_its_page(client: Client, shelf: Collection) -> None:
    document = send(client, "keeper.pdf", make_pdf(PAGES))
    _, body = post(client, "/v1/collections/shelf/ask", {"query": "What does the lantern burn with?"}, bearer())
    citation: dict[str, Any] = body["citations"][0]
    assert citation["page"] == "page 2" and citation["quote"] == PAGES[1]
    page = view_page(document, None, (citation["start"], citation["end"]))
    assert page is not None and page.number == 2 and page.has_file
    (frame,) = page.cited
    assert 0 < frame.x < frame.x + frame.width < page.width and 0 < frame.y < page.height
