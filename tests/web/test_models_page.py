"""The page Models: what is listed, who may change it, what a test finds, and that no key leaves the server.
Choosing an embedding model: the list says what each is, and the page says at once what is chosen or refused."""

from __future__ import annotations

import logging
import re
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.endpoints import endpoints, secrets
from collections_app.endpoints.connection_test import run_test
from collections_app.endpoints.endpoints import chat_endpoint, embedding_endpoint, stored
from collections_app.endpoints.model_presets import CHAT, EMBEDDINGS, JUDGE, RERANK
from collections_app.endpoints.model_settings import (
    SettingValues,
    delete_setting,
    draft_endpoint,
    renew_secrets,
    save_setting,
)
from collections_app.endpoints.providers import ingest_embedder, provider_name
from collections_app.endpoints.registry import find_model, list_models
from collections_app.errors import ServiceError
from collections_app.index.stores import embedder_for
from collections_app.models import AuditEvent, ModelSetting, Provider
from evaluation_app.models import Span
from evaluation_app.runs.lifecycle import process_run
from evaluation_app.sample import SAMPLE_NAME
from evaluation_app.sample.loading import evaluate_sample, load_golden_set
from ragd.errors import EmbedderError
from ragd.models import multilingual_e5
from retrieval_app.models import QueryRun
from retrieval_app.runs.views import initial_of
from tests.collections.test_model_presets import fresh
from tests.fakes import faults
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import raises_with, refuses
from tests.server import free_port
from tests.web.pages import texts, tree
from tests.web.test_every_page import check_page

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
KEY = "sk-leak-me-if-you-can"
AT = "/models/"


@pytest.fixture
def server(openai_server: OpenAIServer) -> OpenAIServer:
    openai_server.dims, openai_server.api_key = 12, KEY
    return openai_server


def filled(server: OpenAIServer, **changes: Any) -> dict[str, Any]:
    """What an administrator sends."""
    form = {"name": "Ours", "base_url": server.base_url, "model": "ours-1", "key": KEY, "dims": "12"}
    return form | changes


def values(server: OpenAIServer, purpose: str = EMBEDDINGS, **changes: Any) -> SettingValues:
    dims = 12 if purpose == EMBEDDINGS else None
    return replace(SettingValues("Ours", purpose, "other", server.base_url, "ours-1", KEY, dims=dims), **changes)


def test_everybody_reads_and_only_administrators_change(
    visitor: Client, admin_client: Client, server: OpenAIServer, django_user_model: Any
) -> None:
    django_user_model.objects.filter(username="ada").update(is_superuser=False)
    row = save_setting(values(server), actor=None)
    page = visitor.get(AT)
    assert page.status_code == 200 and "Ours" in page.content.decode()
    assert reverse("collections:models", query={"view": "new"}) not in page.content.decode()
    edit = f"/models/?view=edit&pk={row.pk}"
    doors = [
        ("get", "/models/?view=new"), ("get", edit), ("post", edit),
        ("post", f"/models/?view=test&key=setting:{row.pk}"), ("post", f"/models/?view=delete&pk={row.pk}"),
    ]  # fmt: skip
    for method, path in doors:
        assert getattr(visitor, method)(path).status_code == 403, path
    assert ModelSetting.objects.get() == row and server.requests == []
    assert admin_client.get(AT).status_code == 200
    assert reverse("collections:models", query={"view": "new"}) in admin_client.get(AT).content.decode()
    assert Client().get(AT).status_code == 302


def test_a_model_is_added_tested_used_and_deleted(admin_client: Client, server: OpenAIServer) -> None:
    form = reverse("collections:models", query={"view": "new"}) + "&preset=other&purpose=embeddings"
    for address in (form, reverse("collections:models", query={"view": "new"}), AT):
        check_page(admin_client.get(address).content.decode())
    tried = admin_client.post(
        form, filled(server, do="test", dims=""), headers={"HX-Request": "true", "HX-Target": "test-result"}
    )
    assert tried.status_code == 200 and tried.content.decode().lstrip().startswith('<div id="test-result"')
    assert "12 dimensions" in tried.content.decode() and not ModelSetting.objects.exists()
    assert admin_client.post(form, filled(server, dims="")).status_code == 422
    assert admin_client.post(form, filled(server)).status_code == 302
    row = ModelSetting.objects.get()
    assert (row.identity, row.created_by) == ("ours-1", "admin") and row.secret not in ("", KEY)
    page = admin_client.get("/collections/?view=new").content.decode()
    assert '<option value="ours-1">ours-1: 12 dimensions</option>' in page
    made = create_collection(name="with-ours", embed_model="ours-1")
    assert (made.embed_dims, len(embedder_for("ours-1", 12).embed(["one text"])[0])) == (12, 12)
    assert server.bodies("/v1/embeddings")[-1]["model"] == "ours-1"
    entry = find_model(f"setting:{row.pk}")
    assert entry is not None and [(use.collection, use.is_active) for use in entry.uses] == [("with-ours", True)]
    assert admin_client.post(f"/models/?view=delete&pk={row.pk}").status_code == 302
    assert ModelSetting.objects.exists(), "an index needs it"
    edited = admin_client.post(f"/models/?view=edit&pk={row.pk}", filled(server, key="", dims="24"))
    assert edited.status_code == 409 and ModelSetting.objects.get().dims == 12
    renamed = admin_client.post(f"/models/?view=edit&pk={row.pk}", filled(server, key="", name="New name"))
    assert renamed.status_code == 302
    assert embedding_endpoint("ours-1").api_key == KEY  # type: ignore[union-attr]
    made.delete()
    assert admin_client.post(f"/models/?view=delete&pk={row.pk}").status_code == 302
    assert not ModelSetting.objects.exists() and embedding_endpoint("ours-1") is None


def test_a_chat_model_is_offered_once_by_its_name(admin_client: Client, server: OpenAIServer) -> None:
    form = reverse("collections:models", query={"view": "new"}) + "&preset=other&purpose=chat"
    values = {"base_url": server.base_url, "key": KEY, "model": "gpt-4o-mini", "name": "House"}
    assert admin_client.post(form, values).status_code == 302
    create_collection(name="with-house")
    for page, field in (
        ("/chat/", "llm_model"),
        ("/chat/", "other_model"),
        ("/chat/assistants/?view=new", "llm_model"),
    ):
        options = tree(admin_client.get(page)).css(f"select[name={field}] option")
        assert [option.attributes["value"] for option in options] == ["", "House", "extractive"]
    run = QueryRun(kind="ask", answerer="gpt-4o-mini", plan={})
    assert initial_of(run)["llm_model"] == "House"


def test_no_key_leaves_the_server(admin_client: Client, server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    """In pages, the admin, the audit log, spans, logs, the command's JSON: also where the server repeats the key."""
    caplog.set_level(logging.DEBUG)
    server.script(faults.Fault(400, f"bad key {KEY}".encode()))
    form = reverse("collections:models", query={"view": "new"}) + "&preset=other&purpose=embeddings"
    answers = [admin_client.post(form, filled(server, do="test"))]
    answers.append(admin_client.post(form, filled(server, dims="0")))
    admin_client.post(form, filled(server))
    row = ModelSetting.objects.get()
    server.script(faults.failing(500), faults.failing(401))
    paths = [AT, f"/models/?view=edit&pk={row.pk}", "/audit/"]
    admin = [reverse("admin:collections_app_modelsetting_changelist")]
    admin += [reverse("admin:collections_app_modelsetting_change", args=[row.pk])]
    test = f"/models/?view=test&key=setting:{row.pk}"
    answers += [admin_client.post(test, headers={"HX-Request": "true"}) for _ in range(3)]
    answers += [admin_client.get(path) for path in paths + admin]
    assert [answer.status_code for answer in answers] == [200, 422] + [200] * 8
    told = [answer.content.decode() for answer in answers]
    told += [str(entry.__dict__) for entry in AuditEvent.objects.all()]
    told += [repr(embedding_endpoint("ours-1")), str(list(Span.objects.values_list("attributes", flat=True)))]
    server.script(*[faults.Fault(500, f"no such key {KEY}".encode())] * 8)
    with pytest.raises(EmbedderError) as caught:
        ingest_embedder("ours-1", 12).embed(["one text"])
    told += traceback.format_exception(caught.value)
    told += list(Provider.objects.values_list("error", flat=True))
    told += [str([entry.test for entry in list_models()]), repr(values(server)), caplog.text]
    assert all(KEY not in text for text in told)
    assert all(row.secret not in text for text in told)
    assert secrets.decrypt(row.secret) == KEY and AuditEvent.objects.filter(subject_id=str(row.pk)).count() == 1


def test_credentials_in_an_address_of_the_environment_are_not_shown(visitor: Client, settings: Any) -> None:
    settings.RAGD_EMBED_BASE_URL = f"http://user:{KEY}@127.0.0.1:9/v1?api-key={KEY}"
    page = visitor.get(AT).content.decode()
    assert "http://127.0.0.1:9/v1" in page and KEY not in page
    assert KEY not in provider_name("a-model")


@pytest.mark.parametrize("key", ["line\n", "snow☃"])
def test_a_key_that_no_header_can_hold_is_not_repeated(server: OpenAIServer, settings: Any, key: str) -> None:
    with refuses("invalid_input", "key"):
        save_setting(values(server, key=key.strip() + key), actor=None)
    settings.RAGD_EMBED_BASE_URL, settings.RAGD_EMBED_API_KEY = server.base_url, KEY + key
    with pytest.raises((EmbedderError, UnicodeEncodeError)) as caught:
        embedder_for("a-model", 12).embed(["one"])
    assert KEY not in "".join(traceback.format_exception(caught.value)) and server.requests == []


def test_a_stored_key_goes_only_to_the_server_that_it_was_given_for(server: OpenAIServer) -> None:
    row = save_setting(values(server), actor=None)
    elsewhere = values(server, base_url="http://127.0.0.1:9/v1", key=None)
    for do in (lambda: draft_endpoint(elsewhere, row), lambda: save_setting(elsewhere, actor=None, row=row)):
        with refuses("invalid_input", "key", server.base_url.removesuffix("/v1")):
            do()
    moved = save_setting(replace(elsewhere, key="another"), actor=None, row=row)
    assert secrets.decrypt(moved.secret) == "another"


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("ftp://host/v1", "http"), ("http://user:word@host/v1", "user"), ("http://host/v1?key=1", "?"),
        ("http://169.254.169.254/latest", "169.254"), ("http://[fe80::1]/v1", "fe80"),
        ("https://RESOURCE.x/v1", "RESOURCE"),
    ],
)  # fmt: skip
def test_addresses_that_no_model_has_are_refused(server: OpenAIServer, address: str, part: str) -> None:
    with refuses("invalid_input", "base_url", part):
        save_setting(values(server, base_url=address), actor=None)
    assert not ModelSetting.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": " "}, "name"), ({"model": ""}, "model"), ({"model": "all-MiniLM-L6-v2"}, "model"),
        ({"dims": None}, "dims"), ({"dims": 5000}, "dims"), ({"preset": "jina", "key": None}, "key"),
        ({"preset": "tei", "purpose": CHAT}, "preset"), ({"purpose": "sparse"}, "purpose"),
        ({"purpose": RERANK, "name": "builtin"}, "name"), ({"query_prompt": "x" * 1001}, "query_prompt"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_with_their_field(server: OpenAIServer, changes: Any, field: str) -> None:
    with pytest.raises(ServiceError) as caught:
        save_setting(values(server, **changes), actor=None)
    assert (caught.value.field, caught.value.status, ModelSetting.objects.count()) == (field, 422, 0)


def test_the_environment_goes_first(server: OpenAIServer, settings: Any, visitor: Client) -> None:
    save_setting(values(server, CHAT), actor=None)
    save_setting(values(server, name="Vectors"), actor=None)
    assert chat_endpoint().model == "ours-1"  # type: ignore[union-attr]
    settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_MODEL = "http://127.0.0.1:9/v1", "theirs"
    settings.RAGD_EMBED_BASE_URL, settings.RAGD_EMBED_MODEL = "http://127.0.0.1:9/v1", "ours-1"
    assert (chat_endpoint("Ours").source, chat_endpoint().model) == ("environment", "theirs")  # type: ignore[union-attr]
    assert embedding_endpoint("ours-1").source == "environment"  # type: ignore[union-attr]
    assert [entry.state for entry in list_models() if entry.source == "database"] == ["overridden", "overridden"]
    assert "overridden" in visitor.get(AT).content.decode()
    settings.RAGD_EMBED_MODEL = "another"
    assert embedding_endpoint("ours-1").source == "database", "several stand side by side, by model"  # type: ignore[union-attr]
    assert embedding_endpoint("unknown").source == "environment"  # type: ignore[union-attr]


def test_the_default_of_a_purpose_and_its_followers(server: OpenAIServer) -> None:
    first = save_setting(values(server, CHAT), actor=None)
    second = save_setting(values(server, CHAT, name="Second", model="two", is_default=True), actor=None)
    first.refresh_from_db()
    assert (first.is_default, second.is_default) == (False, True)
    assert [chat_endpoint(name).model for name in ("", "Ours", "ours-1", "unknown")] == [  # type: ignore[union-attr]
        "two", "ours-1", "ours-1", "two",
    ]  # fmt: skip
    assert chat_endpoint("unknown").model_for("unknown") == "unknown"  # type: ignore[union-attr]
    delete_setting(second, actor=None)
    first.refresh_from_db()
    assert first.is_default and chat_endpoint().model == "ours-1"  # type: ignore[union-attr]


def test_another_server_key_reads_the_secrets_while_the_earlier_one_is_named(
    server: OpenAIServer, settings: Any, admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    row = save_setting(values(server), actor=None)
    before, settings.SECRET_KEY = settings.SECRET_KEY, "another server key"
    stored.forget()
    broken = embedding_endpoint("ours-1")
    assert broken is not None and "RAGD_SECRET_KEY_FALLBACKS" in broken.problem
    with pytest.raises(EmbedderError, match="RAGD_SECRET_KEY_FALLBACKS"):
        embedder_for("ours-1", 12).embed(["one"])
    assert run_test(broken).kind == "key_unreadable" and server.requests == []
    settings.SECRET_KEY_FALLBACKS = [before]
    stored.forget()
    assert embedding_endpoint("ours-1").api_key == KEY  # type: ignore[union-attr]
    assert renew_secrets(actor=None) == 1
    settings.SECRET_KEY_FALLBACKS = []
    stored.forget()
    assert embedding_endpoint("ours-1").api_key == KEY  # type: ignore[union-attr]
    row.refresh_from_db()
    assert renew_secrets(actor=None) == 1 and KEY not in capsys.readouterr().out


def test_what_another_process_saves_is_read_within_seconds(server: OpenAIServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(endpoints, "REFRESH_S", 2.0)
    save_setting(values(server, CHAT), actor=None)
    assert chat_endpoint().model == "ours-1"  # type: ignore[union-attr]
    ModelSetting.objects.update(model="changed elsewhere")
    assert chat_endpoint().model == "ours-1"  # type: ignore[union-attr]
    stored._read_at -= 2.1  # type: ignore[operator]
    assert chat_endpoint().model == "changed elsewhere"  # type: ignore[union-attr]


FAILURES = [
    (faults.failing(401), "auth"), (faults.failing(403), "forbidden"), (faults.failing(404), "model_missing"),
    (faults.Fault(404, b"page not found"), "not_found"), (faults.rate_limited(), "rate_limited"),
    (faults.out_of_quota(), "quota"), (faults.failing(503), "server"), (faults.not_json(), "malformed"),
    (faults.Fault(307, b"", {"Location": "http://127.0.0.1:9/"}), "redirect"), (faults.failing(400), "rejected"),
    (faults.connection_reset(), "connection"), (faults.slow(1.0), "timeout"), (faults.fewer_vectors(), "count"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "kind"), FAILURES, ids=[kind for _, kind in FAILURES])
def test_a_failure_has_a_kind_and_says_what_to_do(server: OpenAIServer, fault: faults.Fault, kind: str) -> None:
    server.script(fault)
    result = run_test(draft_endpoint(values(server)), timeout_s=0.5 if kind == "timeout" else 10)
    assert (result.passed, result.kind) == (False, kind) and result.message and result.advice
    assert (len(server.requests) == 1 and result.status == fault.status) or kind == "malformed"


def test_failures_before_an_answer(server: OpenAIServer) -> None:
    kinds = {
        f"http://127.0.0.1:{free_port()}/v1": "refused",
        "http://no-such-host.invalid/v1": "unknown_host",
        server.base_url.replace("http://", "https://"): "tls",
    }
    for address, kind in kinds.items():
        result = run_test(draft_endpoint(values(server, base_url=address)), timeout_s=2)
        assert (result.passed, result.kind, result.status) == (False, kind, None) and result.advice
    wrong = run_test(draft_endpoint(values(server, dims=99)))
    assert (wrong.passed, wrong.kind, wrong.dims) == (False, "wrong_dimensions", 12)


def test_the_command_lists_and_tests(server: OpenAIServer, capsys: pytest.CaptureFixture[str]) -> None:
    save_setting(values(server), actor=None)
    call_command("ragd", "status", "--test")
    out = capsys.readouterr().out
    assert "builtin:all-MiniLM-L6-v2" in out and "passed yes" in out and KEY not in out
    server.script(faults.failing(500))
    with raises_with(SystemExit, code=1):
        call_command("ragd", "status", "--test", "--json")


def test_a_folder_that_is_gone_says_so(settings: Any, tmp_path: Any) -> None:
    settings.RAGD_EMBED_PATH = str(tmp_path / "gone")
    settings.RAGD_CROSS_ENCODER_PATH = str(tmp_path)
    found = {entry.key: entry for entry in list_models() if entry.kind == "folder"}
    assert {key: entry.state for key, entry in found.items()} == {
        "folder:embeddings:0": "missing",
        "folder:rerank": "ready",
    }
    assert found["folder:embeddings:0"].note


def test_the_server_lists_its_models_and_none_is_called(admin_client: Client, openai_server: OpenAIServer) -> None:
    """Neither by the list, nor by saving, nor by the evaluation of the sample."""
    address = f"{AT}?view=new&preset=openai&purpose=chat"
    form = {"base_url": openai_server.base_url, "key": "wrong", "do": "models"}
    assert tree(admin_client.post(address, form)).css("#test-result .banner[data-tone=bad]"), "a wrong key"
    page = tree(admin_client.post(address, form | {"key": openai_server.api_key}))
    listed = [option.attributes["value"] for option in page.css("select[name=model] option")]
    assert listed == sorted(openai_server.models) and not ModelSetting.objects.exists()
    save = {"base_url": openai_server.base_url, "key": openai_server.api_key, "model": "gpt-4o-mini"}
    for purpose in (CHAT, JUDGE):
        assert admin_client.post(f"{AT}?view=new&preset=openai&purpose={purpose}", save).status_code == 302, purpose
        save["name"] = "The judge"
    assert set(ModelSetting.objects.values_list("name", "is_default")) == {("OpenAI gpt-4o-mini", True),
                                                                           ("The judge", True)}  # fmt: skip
    sample = create_collection(name=SAMPLE_NAME)
    ingest_text(sample, "docs/backup.md", "# Backup\n\nBackups are encrypted.")
    load_golden_set(
        SAMPLE_NAME, SAMPLE_NAME, [{"question": "Are backups encrypted?", "expected_doc_ids": ["docs/backup.md"]}]
    )
    run = evaluate_sample()
    assert run is not None
    process_run(str(run.pk))
    run.refresh_from_db()
    assert run.state == "succeeded" and {request.method for request in openai_server.requests} == {"GET"}


ENGLISH, MULTILINGUAL = "all-MiniLM-L6-v2", multilingual_e5.MODEL


def choose(client: Client, model: str, dims: str = "", language: str = "auto") -> dict[str, str]:
    """What the page says, by its data attributes."""
    values = {"embed_model": model, "embed_dims": dims, "language": language}
    html = client.get("/models/", {"view": "choice"} | values, headers={"HX-Request": "true"}).content.decode()
    return dict(re.findall(r'data-(model|dims|advised|installed|refused)="([^"]*)"', html)) | {"html": html}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"x" * 2_000_000)
    monkeypatch.setattr(multilingual_e5, "find_model", lambda: tmp_path)


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilingual_e5, "find_model", lambda: None)


@pytest.mark.parametrize("language", ["auto", "german", "simple"])
def test_the_multilingual_model_is_offered_for_other_languages(
    language: str, admin_client: Client, installed: None
) -> None:
    said = choose(admin_client, ENGLISH, language=language)
    assert (said["model"], said["dims"]) == (ENGLISH, "384")
    assert (said["advised"], said["installed"]) == (MULTILINGUAL, "true")
    assert "advised" not in choose(admin_client, ENGLISH, language="english")
    taken = choose(admin_client, MULTILINGUAL, language=language)
    assert (taken["model"], taken["dims"]) == (MULTILINGUAL, "384") and "advised" not in taken
    assert "2.0 MB" in taken["html"]


def test_one_that_is_not_installed_is_offered_with_how_to_install_it(admin_client: Client, missing: None) -> None:
    said = choose(admin_client, ENGLISH, language="german")
    assert (said["advised"], said["installed"]) == (MULTILINGUAL, "false") and "EXTRAS=multilingual" in said["html"]
    refused = choose(admin_client, MULTILINGUAL)
    assert refused["refused"] == "embed_model" and "EXTRAS=multilingual" in refused["html"]


def test_an_unknown_model_is_refused_at_once_with_what_is_known(admin_client: Client, installed: None) -> None:
    said = choose(admin_client, "no-such-model")
    assert said["refused"] == "embed_model" and ENGLISH in said["html"] and MULTILINGUAL in said["html"]
    assert choose(admin_client, "")["model"] == ENGLISH, "the default"
    assert choose(admin_client, ENGLISH, "512")["refused"] == "embed_dims"
    assert choose(admin_client, ENGLISH, "many")["refused"] == "embed_dims"


def test_with_an_endpoint_any_name_may_be_typed(admin_client: Client, settings: Any, missing: None) -> None:
    settings.RAGD_EMBED_BASE_URL = "http://127.0.0.1:9/v1"
    for page in ("/collections/?view=new", "/collections/docs/index-versions/"):
        create_collection(name="docs") if "docs" in page else None
        assert texts(admin_client.get(page), "#embed-models option")
    typed = choose(admin_client, "our-own", "12")
    assert (typed["model"].partition("#")[0], typed["dims"]) == ("our-own", "12")
    assert choose(admin_client, "our-own")["refused"] == "embed_dims", "nobody knows how many it makes"
    assert choose(admin_client, "text-embedding-3-small")["dims"] == "1536", "its documentation says so"
