"""The collector that an administrator sets: what is kept, and how processes take it up."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from opentelemetry.sdk.trace import ReadableSpan

from collections_app.access.context import using_access
from collections_app.access.services import access_of_user
from collections_app.endpoints.secrets import decrypt
from collections_app.errors import ServiceError
from collections_app.models import AuditEvent, ServerSetting, Status
from evaluation_app.telemetry.store import collector as collector_module
from evaluation_app.telemetry.store.collector import CollectorExporter
from evaluation_app.telemetry.store.stored_collector import (
    CollectorSetting,
    CollectorValues,
    read_headers,
    remove_collector,
    save_collector,
    stored_collector,
)
from ragd.errors import InvalidInput
from ragd_site.observability import tracing as site_telemetry
from tests.fakes.web_server import Page, WebServer, web_server  # noqa: F401  (a fixture)
from tests.refusals import raises_with
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_query_spans
from tests.web.pages import wrong_fields

PAGE = "/settings/server/?view=collector"
KEY = "KEY-0123456789"


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def receiver(web_server: WebServer) -> WebServer:  # noqa: F811
    web_server.pages["/v1/traces"] = Page(b"")
    return web_server


def save(endpoint: str, actor: Any = None, **values: Any) -> CollectorSetting:
    return save_collector(CollectorValues(endpoint, **values), actor=actor)


@pytest.mark.django_db
def test_headers_are_encrypted_and_go_only_to_where_they_were_given_for() -> None:
    row = save("http://127.0.0.1:4318", headers={"api-key": KEY})
    assert (row.endpoint, row.header_names) == ("http://127.0.0.1:4318/v1/traces", ["api-key"])
    assert KEY not in row.secret and decrypt(row.secret) == f'{{"api-key": "{KEY}"}}'
    assert KEY not in str(list(AuditEvent.objects.values()))
    kept = save("http://127.0.0.1:4318/v1/traces", protocol="http/json")
    assert (kept.secret, kept.protocol, ServerSetting.objects.count()) == (row.secret, "http/json", 1)
    with raises_with(InvalidInput, field="headers"):
        save("http://127.0.0.1:4319")
    assert save("http://127.0.0.1:4319", headers={}).secret == ""
    remove_collector(actor=None)
    assert stored_collector() is None
    assert list(AuditEvent.objects.order_by("id").values_list("action", flat=True))[-1] == "serversetting.delete"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "file:///etc/passwd"}, "endpoint"),
        ({"endpoint": "http://h:0"}, "endpoint"),
        ({"endpoint": "http://ada:word@127.0.0.1:4318"}, "endpoint"),
        ({"endpoint": "http://127.0.0.1:4318/?key=1"}, "endpoint"),
        ({"endpoint": "http://169.254.169.254"}, "endpoint"),
        ({"endpoint": "http://[::ffff:169.254.169.254]"}, "endpoint"),
        ({"endpoint": "http://[fe80::1]"}, "endpoint"),
        ({"endpoint": "http://127.0.0.1/" + 500 * "a"}, "endpoint"),
        ({"endpoint": "http://127.0.0.1", "protocol": "grpc"}, "protocol"),
        ({"endpoint": "http://127.0.0.1", "headers": {"a b": "1"}}, "headers"),
        ({"endpoint": "http://127.0.0.1", "headers": {"Host": "1"}}, "headers"),
        ({"endpoint": "http://127.0.0.1", "headers": {"a": "1\r\nb: 2"}}, "headers"),
        ({"endpoint": "http://127.0.0.1", "headers": {str(n): "1" for n in range(21)}}, "headers"),
    ],
)
def test_what_is_no_collector_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        save(**values)
    assert refused.value.field == field and not ServerSetting.objects.exists()


def test_headers_are_lines() -> None:
    assert read_headers("api-key: a=b:c\n\n x-team=rag ") == {"api-key": "a=b:c", "x-team": "rag"}
    with pytest.raises(InvalidInput):
        read_headers("secret")


@pytest.mark.django_db
def test_the_environment_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with raises_with(ServiceError, type="set_by_environment", status=409):
        save("http://127.0.0.1:4318")


@pytest.mark.django_db(transaction=True)
def test_a_process_takes_up_what_is_set_without_a_restart(
    recorder: Recorder, receiver: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "REFRESH_S", 0.0)
    monkeypatch.setattr(collector_module, "NOTE_EVERY_S", 0.0)
    make_query_spans()
    spans: list[ReadableSpan] = recorder.spans
    exporter = CollectorExporter(site_telemetry.connect, name="web@test")

    def export() -> int:
        for _ in spans:
            exporter.offer()
        before = len(receiver.asked)
        exporter.export(spans)
        return len(receiver.asked) - before

    assert (export(), exporter.delivered, exporter.lost) == (0, 0, 0)
    senders = Status.objects.span_writers().filter(name__startswith="web@test:")  # others are of tests before
    assert not senders.exists()
    save(receiver.url(""), headers={"api-key": KEY})
    assert (export(), exporter.delivered) == (1, len(spans))
    asked = receiver.asked[-1]
    assert (asked.path, asked.headers["api-key"]) == ("/v1/traces", KEY)
    assert asked.headers["content-type"] == "application/x-protobuf" and asked.body
    save(receiver.url(""), protocol="http/json")
    assert export() == 1 and receiver.asked[-1].headers["content-type"] == "application/json"
    save(receiver.url(""), is_enabled=False)
    assert (export(), exporter.delivered, exporter.lost) == (0, 2 * len(spans), 0)
    save(receiver.url(""))
    ServerSetting.objects.update(secret="of another server key")
    assert (export(), exporter.lost) == (0, len(spans))
    assert "decrypted" in senders.get().values["last_error"]
    remove_collector(actor=None)
    assert (export(), exporter.lost) == (0, len(spans))
    exporter.shutdown()


@pytest.mark.django_db
def test_the_page_tries_saves_and_forgets(admin_client: Client, receiver: WebServer) -> None:
    sent = {"endpoint": receiver.url(""), "protocol": "http/json", "headers": f"api-key: {KEY}", "is_enabled": "on"}
    tried = admin_client.post(PAGE, sent | {"do": "test"})
    assert tried.context["trial"].endpoint == receiver.url("/v1/traces")
    assert receiver.asked[-1].headers["api-key"] == KEY and not ServerSetting.objects.exists()
    saved = admin_client.post(PAGE, sent | {"do": "save"})
    assert saved.status_code == 200 and 'data-collector="on"' in saved.content.decode()
    page = admin_client.get(PAGE).content.decode()
    assert KEY not in page and "api-key" in page and "admin" in page
    admin_client.post(PAGE, sent | {"do": "test", "headers": ""})  # with the stored ones
    assert receiver.asked[-1].headers["api-key"] == KEY
    elsewhere = admin_client.post(PAGE, sent | {"do": "test", "headers": "", "endpoint": "http://127.0.0.1:1"})
    assert (elsewhere.status_code, wrong_fields(elsewhere)) == (422, ["headers"])
    admin_client.post(PAGE, sent | {"do": "save", "headers": "", "forget_headers": "on"})
    assert ServerSetting.objects.get().value["header_names"] == []
    gone = admin_client.post(PAGE, {"do": "remove"})
    assert 'data-collector="none"' in gone.content.decode() and not ServerSetting.objects.exists()


@pytest.mark.django_db
def test_only_administrators_of_the_server_read_the_row() -> None:
    save("http://127.0.0.1:4318", headers={"api-key": KEY})
    ada = User.objects.create_user("ada")
    with using_access(access_of_user(ada)):
        assert stored_collector() is None
    assert stored_collector() is not None
