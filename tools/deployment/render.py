"""Writes `tools/deployment/kubernetes/ragd.yaml`, the plain manifests, from the Helm chart, which is their one source.

Run: python -m tools.deployment.render     (needs `pip install --no-deps -r tools/deployment/requirements.txt`)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helm_python.chart import Chart

FOLDER = Path(__file__).parent
CHART, MANIFESTS = FOLDER / "helm" / "ragd", FOLDER / "kubernetes" / "ragd.yaml"
HEADING = """# Made from the Helm chart by tools/deployment/render.py: change it there.
# With an Ingress and with KEDA's ScaledObject; delete what your cluster does not have. Make the Secret `ragd` first,
# and let the Job `ragd-prepare` end before the rest is applied.
"""
WITH_ALL: dict[str, Any] = {"ingress": {"enabled": True}, "worker": {"autoscaling": {"enabled": True}}}


def render(values: dict[str, Any] | None = None) -> str:
    """All manifests of the chart as one file, in the order in which they are applied."""
    made = Chart.load(CHART).render(values or {}, name="ragd", namespace="ragd")
    order = ("configuration", "migrate", "network", "web", "worker")
    parts = [made[f"ragd/templates/{name}.yaml"].strip() for name in order]
    return "\n---\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    MANIFESTS.write_text(HEADING + render(WITH_ALL))
