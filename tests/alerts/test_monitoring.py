"""The files for Prometheus and Grafana: they ask for metrics and labels that ragd has, and promtool takes them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from evaluation_app.telemetry.metrics.instruments import prometheus_name
from ragd.telemetry import metrics
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "tools" / "monitoring"
RULES, DASHBOARD = FOLDER / "ragd-alerts.yml", FOLDER / "ragd-dashboard.json"
SERIES = re.compile(r"\b((?:ragd|aitf|gen_ai)_[a-z0-9_]+)(?:\{([^}]*)\})?")
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def known() -> dict[str, set[str]]:
    """Series -> their labels, as Prometheus sees them."""
    every = [each for each in vars(metrics).values() if isinstance(each, metrics.Metric)]
    return {
        prometheus_name(each.name).removesuffix("_total") + suffix: {prometheus_name(label) for label in each.labels}
        for each in every
        for suffix in SUFFIXES[each.kind]
    }


def expressions() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [*rules, *(target["expr"] for panel in panels for target in panel["targets"])]


def test_every_series_and_label_is_one_that_ragd_has() -> None:
    series, labels = known(), {label for names in known().values() for label in names}
    asked = [match for text in expressions() for match in SERIES.finditer(text)]
    assert len(asked) > 20
    for match in asked:
        name, filters = match.groups()
        assert name in series or name in labels, name
        for label in re.findall(r"(\w+)\s*=~?", filters or ""):
            assert label in series[name], (name, label)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of the package prometheus")
@pytest.mark.parametrize("command", [("check", "rules", RULES), ("test", "rules", FOLDER / "ragd-alerts.test.yml")])
def test_promtool_takes_the_rules_and_their_tests_pass(command: tuple[str | Path, ...]) -> None:
    done = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
