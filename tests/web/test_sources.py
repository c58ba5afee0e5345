"""The pages that bring documents from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from collections_app.models import Collection, IngestBatch, IngestJob
from tests.web.pages import wrong_fields

pytestmark = pytest.mark.usefixtures("bound")

URLS = "/collections/nature/upload/?view=urls"


@pytest.fixture
def nature(fill: Callable[..., Collection]) -> Collection:
    return fill("nature", 1)


def test_a_look_first_writes_nothing(visitor: Client, nature: Collection) -> None:
    answer = visitor.post(URLS, {"urls": "https://example.org/a\nnothing\n", "tags": "x, y"})
    page = answer.content.decode()
    assert answer.status_code == 200
    assert ">New 1<" in page and ">Rejected 1<" in page
    assert "https://example.org/a\nnothing" in page and 'value="x, y"' in page
    assert not IngestBatch.objects.exists()


def test_addresses_are_queued_and_the_attempt_is_shown(visitor: Client, nature: Collection) -> None:
    answer = visitor.post(URLS, {"urls": "https://example.org/a", "tags": "x", "metadata": '{"y": 1}', "go": "1"})
    batch = IngestBatch.objects.get()
    assert answer["Location"] == f"/collections/nature/uploads/{batch.pk}/"
    job = IngestJob.objects.get()
    assert (job.kind, job.tags, job.metadata, job.created_by) == ("fetch", ["x"], {"y": 1}, "ada")
    page = visitor.get(answer["Location"]).content.decode()
    assert "1 document queued." in page and "example.org/a" in page


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.txt", b"# ours\nhttps://example.org/a\n\nhttps://example.org/b\n"),
        ("list.csv", b"\xef\xbb\xbftitle;url;doc_id\nA;https://example.org/a;\nB;https://example.org/b;mine\n"),
        ("list.csv", b"link,other\nhttps://example.org/a,x\nhttps://example.org/b,y\n"),
    ],
)
def test_a_list_comes_as_a_file(visitor: Client, nature: Collection, name: str, content: bytes) -> None:
    visitor.post(URLS, {"file": SimpleUploadedFile(name, content), "urls": "https://example.org/c", "go": "1"})
    jobs = {job.origin.address: job for job in IngestJob.objects.all()}
    assert sorted(jobs) == [f"https://example.org/{letter}" for letter in "abc"]
    if b"doc_id" in content:
        assert (jobs["https://example.org/b"].doc_id, jobs["https://example.org/a"].title) == ("mine", "A")


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [
        ({"urls": ""}, "urls"),
        ({"urls": "https://a.org", "metadata": "[1]"}, "metadata-key"),
        ({"urls": "https://a.org", "tags": "x" * 300}, "tags"),
        ({"urls": "\n".join(f"https://a.org/{number}" for number in range(10_001))}, "urls"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(
    visitor: Client, nature: Collection, typed: dict[str, str], wrong: str
) -> None:
    answer = visitor.post(URLS, {**typed, "go": "1"})
    assert answer.status_code == 422
    assert wrong_fields(answer) == [wrong]
    assert not IngestJob.objects.exists()
