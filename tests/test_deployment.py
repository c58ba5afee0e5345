"""The Helm chart, the plain manifests made from it, and the systemd units: sound, and about the product as it is."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import connection
from django.test import Client

from ragd_site.environment import Environment
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "tools" / "deployment"
CHART, MANIFESTS = FOLDER / "helm" / "ragd", FOLDER / "kubernetes" / "ragd.yaml"
KUBERNETES = ("1.30", "1.37")  # the oldest and the newest that the manifests are held against
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
SECRETS = {"DATABASE_URL", "CELERY_BROKER_URL", "RAGD_SECRET_KEY", "RAGD_ADMIN_PASSWORD"}


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFESTS.read_text()))


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in manifests() if each["kind"] == kind}


def pods() -> dict[str, dict[str, Any]]:
    return {
        name: each["spec"]["template"]["spec"] for kind in ("Deployment", "Job") for name, each in of_kind(kind).items()
    }


def test_helm_takes_the_chart_and_the_manifests_are_made_from_it() -> None:
    chart = pytest.importorskip(
        "helm_python.chart", reason="pip install --no-deps -r tools/deployment/requirements.txt"
    )
    from tools.deployment import render

    found = chart.lint(CHART, strict=True)
    assert found["errors"] == [] and all("icon" in each["error"] for each in found["messages"])
    assert MANIFESTS.read_text() == render.HEADING + render.render(render.WITH_ALL), "run tools.deployment.render"
    usual = list(yaml.safe_load_all(render.render()))
    assert not {each["kind"] for each in usual} & {"Ingress", "ScaledObject"}
    with pytest.raises(Exception, match=r"(?i)replicas"):
        render.render({"web": {"replicas": 0}})


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_field(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="tools/deployment/requirements.txt")
    known = [each for each in manifests() if "keda.sh" not in each["apiVersion"]]
    assert len(known) >= 9
    for each in known:
        validate.validate(each, version, strict=True)
    broken = of_kind("Deployment")["ragd-web"] | {"specs": {}}
    with pytest.raises(Exception, match="specs"):
        validate.validate(broken, version, strict=True)


def test_pods_have_no_rights_and_write_to_their_volumes_alone() -> None:
    user = re.search(r"useradd --system --uid (\d+)", (REPOSITORY / "Dockerfile").read_text())
    assert user and set(pods()) == {"ragd-web", "ragd-worker", "ragd-prepare"}
    for name, pod in pods().items():
        assert pod["securityContext"]["runAsUser"] == int(user[1]) and pod["securityContext"]["runAsNonRoot"], name
        assert pod["automountServiceAccountToken"] is False
        [container] = pod["containers"]
        limits = container["securityContext"]
        assert limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"]
        assert limits["capabilities"] == {"drop": ["ALL"]}
        assert {each["mountPath"] for each in container["volumeMounts"]} == {"/opt/ragd/var", "/tmp"}


def test_pods_run_what_compose_runs() -> None:
    services = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    containers = {name.removeprefix("ragd-"): pod["containers"][0] for name, pod in pods().items()}
    assert containers["worker"]["command"] == services["worker"]["command"]
    assert containers["prepare"]["command"] == services["prepare"]["command"]
    assert "command" not in containers["web"], "that of the image"
    assert containers["worker"]["livenessProbe"]["exec"]["command"] == services["worker"]["healthcheck"]["test"][1:]


@pytest.mark.django_db
def test_probes_ask_what_is_there(client: Client) -> None:
    web = pods()["ragd-web"]["containers"][0]
    ready = web["readinessProbe"]["httpGet"]
    [host] = [each["value"] for each in ready["httpHeaders"] if each["name"] == "Host"]
    assert client.get(ready["path"], SERVER_NAME=host).status_code == 200
    port = re.search(r"\bPORT=(\d+)", (REPOSITORY / "Dockerfile").read_text())
    assert port and web["ports"] == [{"name": "http", "containerPort": int(port[1])}]
    assert "httpGet" not in web["livenessProbe"], "a database that is gone restarts no web server"


@pytest.mark.django_db
def test_workers_are_scaled_by_a_question_that_the_database_answers() -> None:
    [trigger] = of_kind("ScaledObject")["ragd-worker"]["spec"]["triggers"]
    with connection.cursor() as cursor:
        cursor.execute(trigger["metadata"]["query"])
        assert cursor.fetchone() == (0,)
    assert of_kind("ScaledObject")["ragd-worker"]["spec"]["scaleTargetRef"]["name"] in of_kind("Deployment")


def test_selectors_find_their_pods() -> None:
    labels = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in of_kind("Deployment").items()}

    def finds(selector: dict[str, str]) -> list[str]:
        return [name for name, own in labels.items() if selector.items() <= own.items()]

    assert finds(of_kind("Service")["ragd"]["spec"]["selector"]) == ["ragd-web"]
    for kind, path in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        for name, each in of_kind(kind).items():
            assert finds(each["spec"][path]["matchLabels"]) == [name], kind
    assert of_kind("NetworkPolicy")["ragd-worker"]["spec"]["ingress"] == []


def test_every_variable_is_one_of_the_server() -> None:
    known = set(Environment.model_fields)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = set(re.findall(r"\b(?:RAGD_[A-Z_]+|DATABASE_URL|CELERY_BROKER_URL)\b", (CHART / "values.yaml").read_text()))
    assert set(values["environment"]) | SECRETS == named <= known
    for unit in UNITS:
        assert set(re.findall(r"\bRAGD_[A-Z_]+", unit.read_text())) <= known, unit.name


def unit_of(path: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def test_units_start_what_the_image_starts() -> None:
    services = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["services"]
    web, worker = (unit_of(path)["Service"] for path in UNITS)
    assert web["ExecStart"].endswith("/gunicorn -c python:ragd_site.web ragd_site.wsgi")
    assert worker["ExecStart"].partition("/bin/")[2].split() == services["worker"]["command"]
    assert web["ExecStartPre"].endswith("-m ragd_site.prepare")
    assert web["NoNewPrivileges"] == worker["NoNewPrivileges"] == "yes"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_knows_every_line(unit: Path, tmp_path: Path) -> None:
    """With programs that are here, since it looks for them."""
    text = re.sub(r"^(Exec\w+=)\S+", r"\1/bin/true", unit.read_text(), flags=re.MULTILINE)
    (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name], capture_output=True, text=True
    )
    told = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not [line for line in told if re.search("unknown|invalid|ignor|failed to parse", line, re.IGNORECASE)], told
