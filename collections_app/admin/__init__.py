"""The stock admin over every model; what an action changes goes through the services, which write the audit log."""

from collections_app.admin import documents, people, tables

__all__ = ["documents", "people", "prices", "tables"]
