"""What is stated of documents, and what a job keeps of where one came from."""

from __future__ import annotations

from typing import Any

import pytest

from collections_app.models import Collection, IngestJob
from collections_app.uploads.options import IngestOptions, Origin


@pytest.mark.parametrize(
    ("origin", "stored"),
    [
        (Origin(), {}),
        (Origin("url", "https://a.org/", etag='"1"'), {"type": "url", "address": "https://a.org/", "etag": '"1"'}),
        (Origin(language="", access=(), held=(0, 7)), {"language": "", "access": [], "held": [0, 7]}),
        (Origin("archive", prefix="", unstated=("tags",)), {"type": "archive", "prefix": "", "unstated": ["tags"]}),
        (Origin(sender=(None, 3)), {"sender": [None, 3]}),
    ],
    ids=["an upload", "a page", "stated as empty", "an archive", "sent with a key"],
)
def test_a_job_reads_the_origin_that_it_was_stored_with(
    notes: Collection, origin: Origin, stored: dict[str, Any]
) -> None:
    job = IngestJob.objects.create(collection=notes, doc_id="a", origin=origin)
    assert IngestJob.objects.get(pk=job.pk).origin == origin
    assert IngestJob.objects.filter(pk=job.pk, origin=stored).exists()
    assert Origin.parse(stored | {"unknown": 1}) == origin


def test_options_are_cleaned_as_they_are_stored() -> None:
    options = IngestOptions([" b ", "a", "b"], {"k": 1}, {"target_tokens": 9, "max_chars": None}, "en").cleaned()
    assert (options.policy, options.language, options.metadata) == ({"target_tokens": 9}, "en", {"k": 1})
    assert set(options.tags or ()) == {"a", "b"}
    assert IngestOptions().cleaned() == IngestOptions()
