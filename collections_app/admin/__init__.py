"""The stock admin over every model; what an action changes goes through the services, which write the audit log."""

from collections_app.admin import tables

__all__ = ["tables"]
