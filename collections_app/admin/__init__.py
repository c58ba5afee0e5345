"""The stock admin over every model; what an action changes goes through the services, which write the audit log."""

from collections_app.admin import (
    collections,
    documents,
    indexes,
    keys,
    model_settings,
    operations,
    people,
    prices,
    sources,
    work,
)

__all__ = [
    "collections",
    "documents",
    "indexes",
    "keys",
    "model_settings",
    "operations",
    "people",
    "prices",
    "sources",
    "work",
]
