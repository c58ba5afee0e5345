"""A page of a document's file beside its text: the cited words framed, drawn for whoever may read the document."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.collections.services import create_collection
from collections_app.documents.services import delete_documents, ingest_text
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, Upload
from collections_app.uploads.services import HeldFile, submit_uploads
from tests.parsing.builders import make_pdf

PAGES = ["The whale sings under the ice", "Krill moves north in March", "A river carries warm water"]
BASE = "/collections/papers/documents/paper.pdf/"
IMAGE = "/collections/papers/page-image/{}/paper.pdf/"


@pytest.fixture
def paper(db: None) -> Collection:
    collection = create_collection(name="papers")
    (outcome,) = submit_uploads(collection, [HeldFile("paper.pdf", make_pdf(PAGES))])
    assert outcome.job is not None and run_job(outcome.job.pk) == "succeeded"
    return collection


def frames(html: str, kind: str = "frame") -> list[dict[str, float]]:
    found = re.findall(rf'<rect class="{kind}"([^>]*)>', html)
    return [{name: float(value) for name, value in re.findall(r'(\w+)="([\d.]+)"', each)} for each in found]


def test_a_citation_opens_the_page_with_its_words_framed(visitor: Client, paper: Collection) -> None:
    document = Document.objects.get()
    start = document.text.index("north")
    html = visitor.get(f"{BASE}?start={start}&end={start + 5}").content.decode()
    (frame,) = frames(html)
    assert IMAGE.format(2) in html and "<mark" in html
    whole = visitor.get(f"{BASE}?start={start - 12}&end={start + 14}").content.decode()
    (line,) = frames(whole)
    assert line["x"] < frame["x"] and line["width"] > 3 * frame["width"] and abs(line["y"] - frame["y"]) < 1
    assert "page-pane" not in visitor.get(f"{BASE}?view=chunks&start={start}&end={start + 5}").content.decode()
    assert "page-pane" not in visitor.get(BASE).content.decode()


def test_the_picture_is_drawn_once_for_a_browser_that_keeps_it(visitor: Client, paper: Collection) -> None:
    answer = visitor.get(IMAGE.format(1))
    assert answer.status_code == 200 and answer["Content-Type"] in ("image/jpeg", "image/png")
    assert answer["Cache-Control"] == "private, no-cache" and answer.content[:2] in (b"\xff\xd8", b"\x89P")
    assert visitor.get(IMAGE.format(1), HTTP_IF_NONE_MATCH=answer["ETag"]).status_code == 304
    assert visitor.get(IMAGE.format(1) + "?zoom=1", HTTP_IF_NONE_MATCH=answer["ETag"]).status_code == 200
    assert visitor.get(IMAGE.format(9)).status_code == 404


def test_a_picture_is_for_those_who_may_read_the_document(visitor: Client, paper: Collection) -> None:
    tag = visitor.get(IMAGE.format(1))["ETag"]
    key = create_key(NewKey("reader"))[1]
    for headers in ({}, {"If-None-Match": tag}, {"Authorization": f"Bearer {key}"}):
        answer = Client().get(IMAGE.format(1), headers=headers)
        assert answer.status_code == 302 and "/login" in answer["Location"] and not answer.content
    other = create_collection(name="other")
    ingest_text(other, "paper.pdf", "Words of another document.")
    ingest_text(other, "scan.pdf", "It has no file.")
    for path in (IMAGE.format(1).replace("papers", "other"), "/collections/other/page-image/1/scan.pdf/"):
        assert visitor.get(path, headers={"If-None-Match": tag}).status_code == 404
    delete_documents(paper, ["paper.pdf"])
    for path in (IMAGE.format(1), f"{BASE}?view=page"):
        assert visitor.get(path, headers={"If-None-Match": tag}).status_code == 404


def test_only_the_present_file_is_shown(visitor: Client, paper: Collection) -> None:
    old = visitor.get(IMAGE.format(1)).content
    (outcome,) = submit_uploads(paper, [HeldFile("paper.pdf", make_pdf(["Words of the new edition"]))])
    assert outcome.job is not None and run_job(outcome.job.pk) == "succeeded"
    assert visitor.get(IMAGE.format(1)).content != old and visitor.get(IMAGE.format(2)).status_code == 404
    html = visitor.get("/collections/papers/documents/paper.pdf/?view=revision&number=1").content.decode()
    assert PAGES[0] in html and "data-no-pages" in html and "page-image" not in html
    later = visitor.get("/collections/papers/documents/paper.pdf/?view=revision&number=2").content.decode()
    assert "data-no-pages" not in later
    ingest_text(paper, "paper.pdf", "Only words are left.")
    assert visitor.get(IMAGE.format(1)).status_code == 404
    assert "page-pane" not in visitor.get(f"{BASE}?view=page").content.decode()


def test_a_file_that_is_gone_is_said_to_be(visitor: Client, paper: Collection) -> None:
    tag = visitor.get(IMAGE.format(1))["ETag"]
    Upload.objects.all().delete()
    html = visitor.get(f"{BASE}?view=page").content.decode()
    assert "data-no-original" in html and "<img" not in html
    assert visitor.get(IMAGE.format(1)).status_code == 404
    assert visitor.get(IMAGE.format(1), HTTP_IF_NONE_MATCH=tag).status_code == 404


@pytest.mark.fault("UX-F10")
def test_the_cited_sentence_is_framed_strongly_and_its_passage_lightly(visitor: Client, paper: Collection) -> None:
    document = Document.objects.get()
    start = document.text.index("north")
    html = visitor.get(f"{BASE}?start={start}&end={start + 5}").content.decode()
    (frame,), (light, *_) = frames(html), frames(html, "frame passage")
    assert light["width"] > frame["width"]
    assert re.findall(r'<mark class="piece"[^>]*>([^<]*)', html) == ["north"]
    around = "".join(re.findall(r'<span class="piece passage"[^>]*>([^<]*)', html))
    assert "Krill moves" in around and "north" not in around
    whole = visitor.get(
        f"{BASE}?start=0&end={document.size_chars}"
    ).content.decode()  # nothing is known but the passage
    assert frames(whole) == [] and len(frames(whole, "frame passage")) == 1
    assert "".join(re.findall(r'<mark class="piece passage"[^>]*>([^<]*)', whole)) == document.text
