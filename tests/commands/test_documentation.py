"""Every example of docs/cli.md runs."""

from __future__ import annotations

import re
import shlex
import zipfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command

from collections_app.collections.services import create_collection
from collections_app.models import IngestJob
from collections_app.uploads.services import submit_uploads
from evaluation_app.models import GoldenQuestion, GoldenSet
from retrieval_app.models import QueryRun
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.s3_server import S3Server

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PAGE = (REPOSITORY / "docs" / "cli.md").read_text()
EXAMPLES = re.findall(r"^python manage\.py ragd (.+)$", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_every_example_runs(
    committed: None,
    embeddings: OpenAIServer,
    s3_server: S3Server,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.RAGD_S3_ENDPOINT = s3_server.url
    settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY = s3_server.access_key, s3_server.secret_key
    s3_server.put("docs", "reports/one.txt", b"a report")
    User.objects.create_user("ada")
    User.objects.create_user("grace")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "one.txt").write_text("The largest pump moves 400 litres.")
    (tmp_path / "pumps.csv").write_text("input,docs\nWhich pump moves 40 litres?,all.zip\n")
    with zipfile.ZipFile(tmp_path / "papers" / "all.zip", "w") as archive:
        archive.writestr("two.txt", "A smaller pump moves 40 litres.")
    (other,) = submit_uploads(create_collection(name="other"), [SimpleUploadedFile("a.txt", b"some text")])
    assert other.job and other.batch
    pumps = GoldenSet.objects.create(name="pumps", collection_name="notes")
    GoldenQuestion.objects.create(golden_set=pumps, question="Which pump is the largest?", expected_doc_ids=["one.txt"])
    for example in EXAMPLES:
        words = shlex.split(example.replace("BATCH_ID", str(other.batch.pk)))
        if "RUN_ID" in example:
            words = [word.replace("RUN_ID", str(QueryRun.objects.newest_first()[0].pk)) for word in words]
        out = StringIO()
        try:
            call_command("ragd", *words, stdout=out)
        except SystemExit as exit:  # what waits for a worker is left; there is none here
            assert "--watch" in words, (example, exit.code, out.getvalue())
        assert out.getvalue().strip() or "--output" in words, example
    assert IngestJob.objects.filter(collection__name="notes", state="succeeded").count() >= 4
    assert (tmp_path / "notes.ragd.zip").stat().st_size
