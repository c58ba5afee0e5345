"""Which page of the documentation helps with which page of the product."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse

from collections_app.http.places import find_place

# view -> page of docs/, with an anchor where only a part of it is meant
HELP = {
    "evaluation:home": "tutorial",
    "retrieval:chat": "chat",
    "retrieval:playground": "playground",
    "retrieval:run": "scores",
    "retrieval:runs": "search",
    "retrieval:corrective": "corrective",
    "collections:list": "concepts",
    "collections:create": "tutorial",
    "collections:detail": "uploads",
    "collections:upload": "uploads",
    "collections:urls": "sources",
    "collections:sources": "sources",
    "evaluation:content-gaps": "content-gaps",
    "collections:jobs": "jobs",
    "collections:job": "jobs",
    "collections:batches": "jobs",
    "collections:batch": "jobs",
    "collections:import": "export",
    "collections:preview": "chunking",
    "collections:preview-sample": "chunking",
    "collections:chunk": "curation",
    "collections:document": "curation",
    "collections:edit": "curation",
    "collections:trash": "curation",
    "collections:outliers": "curation",
    "collections:findings": "security",
    "collections:generations": "generations",
    "collections:sharing": "permissions",
    "collections:readers": "document-access",
    "collections:settings": "operations",
    "collections:statistics": "scaling",
    "collections:models": "models",
    "collections:keys": "keys",
    "collections:people": "permissions",
    "collections:audit": "audit",
    "evaluation:index": "evaluation",
    "evaluation:evaluation-runs": "evaluation-runs",
    "evaluation:golden-sets": "golden-sets",
    "evaluation:compare": "comparing",
    "evaluation:experiments": "comparing",
    "evaluation:board": "diagnosis",
    "evaluation:review": "reviews",
    "evaluation:live": "evaluation",
    "evaluation:gate": "curation-and-questions",
    "evaluation:traces": "traces",
    "evaluation:conversations": "traces",
    "evaluation:trace-list": "traces",
    "evaluation:spans": "span-store",
    "evaluation:alerts": "alerts",
    "evaluation:operations": "operations",
    "evaluation:upkeep": "operations",
    "evaluation:retention": "operations",
    "evaluation:prices": "metrics",
    "evaluation:evidence": "exports",
    "evaluation:status": "conformance",
    "evaluation:leak-probe": "row-security",
    "evaluation:new-models-experiment": "bake-offs",
    "mfa_index": "sign-on",
    "sessions": "sign-on",
    "password_change": "sign-on",
}


def help_address(request: HttpRequest) -> str:
    """Of the page itself, else of the one that it stands below, else the contents."""
    match = request.resolver_match
    found = find_place(request.path)
    names = [match.view_name if match else "", found[1].view if found else ""]
    page = next((HELP[name] for name in names if name in HELP), None)
    return reverse("collections:help-page", args=[page]) if page else reverse("collections:help")
