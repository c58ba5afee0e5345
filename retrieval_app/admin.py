"""The rows of retrieval_app in the admin: runs and presets."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.db.models import Model

from collections_app.admin.base import ERASE, Listing, register, row_action
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.plans import services
from retrieval_app.runs.models import LIST_DEFERRED


def _mark_default(saved: SavedPlan, user: Any, *, is_default: bool) -> None:
    services.update_plan(saved.collection, saved.name, is_default=is_default, actor=user)


TABLE: dict[type[Model], Listing] = {
    QueryRun: Listing(
        columns=("query", "kind", "collection_name", "status", "answerer", "cost_usd", "channel", "created_at"),
        filters=("kind", "status", "channel", "collection_name", "answerer", "created_at"),
        search=("query", "answer", "error", "trace_id", "plan_hash", "api_key_label"),
        dates="created_at",
        hidden=LIST_DEFERRED,
        page=QueryRun.get_absolute_url,
        deletable=True,
    ),
    SavedPlan: Listing(
        columns=("name", "collection", "is_default", "description", "created_by", "updated_at"),
        filters=("is_default", "collection"),
        search=("name", "description", "collection__name"),
        order=("collection__name", "name"),
        actions=(
            row_action(
                "Set as collection default", partial(_mark_default, is_default=True), "changed", name="make_default"
            ),
            row_action(
                "Remove as default", partial(_mark_default, is_default=False), "changed", name="unmark_default"
            ),
            row_action(
                "Delete selected presets",
                lambda row, user: services.delete_plan(row.collection, row.name, actor=user), "deleted",
                name="delete_plans", permission=ERASE,
            ),
        ),
    ),
}  # fmt: skip

register(TABLE)
