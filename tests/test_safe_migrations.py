"""The linter of migrations: each rule finds what it is there for, and lets through what it advises."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from tools.safe_migrations import LARGE, RULES, check, check_all

TEXT = models.TextField(default="")
INDEX = models.Index(fields=["created_at"], name="newest")


@pytest.fixture(scope="module")
def now() -> ProjectState:
    """The models as the last migrations leave them."""
    return MigrationLoader(None).project_state()


def rules(state: ProjectState, *operations: Any, app: str = "retrieval_app", **values: Any) -> list[str]:
    kind = type("Migration", (migrations.Migration,), {"operations": list(operations), **values})
    return [found.rule for found in check(kind("0999_new", app), state.clone())]


@pytest.mark.parametrize(
    ("operation", "broken"),
    [
        (migrations.AddIndex("queryrun", INDEX), ["index"]),
        (migrations.AddIndex("savedplan", INDEX), []),
        (AddIndexConcurrently("queryrun", INDEX), []),
        (migrations.AddField("queryrun", "mood", TEXT), ["required"]),
        (migrations.AddField("savedplan", "mood", TEXT), ["required"]),
        (migrations.AddField("queryrun", "mood", models.TextField(default="", db_default="")), []),
        (migrations.AddField("queryrun", "mood", models.TextField(null=True)), []),
        (migrations.RemoveField("queryrun", "channel"), ["removed"]),
        (migrations.DeleteModel("SavedPlan"), ["removed"]),
        (migrations.RenameField("queryrun", "channel", "gate"), ["renamed"]),
        (migrations.AlterField("queryrun", "evidence", models.TextField(null=True)), ["retyped"]),
        (migrations.AlterField("queryrun", "evidence", models.FloatField()), ["constraint"]),
        (
            migrations.AddConstraint(
                "queryrun", models.CheckConstraint(condition=models.Q(risk_score__gte=0), name="c")
            ),
            ["constraint"],
        ),
        (migrations.RunSQL("UPDATE documents SET language = 'simple'"), ["filled"]),
        (migrations.RunSQL("UPDATE alert_rules SET threshold = 1"), []),
        (migrations.RunSQL("CREATE INDEX new ON documents (language)"), ["blocking"]),
        (migrations.RunSQL("CREATE INDEX CONCURRENTLY new ON documents (language)"), []),
        (migrations.RunSQL("LOCK TABLE spans IN EXCLUSIVE MODE"), ["blocking"]),
        (migrations.RunSQL("VACUUM FULL webhooks"), ["blocking"]),
    ],
)
def test_each_rule(now: ProjectState, operation: Any, broken: list[str]) -> None:
    assert rules(now, operation) == broken


def test_a_named_reason_excuses_one_rule_alone(now: ProjectState) -> None:
    both = (migrations.AddIndex("queryrun", INDEX), migrations.RemoveField("queryrun", "channel"))
    assert rules(now, *both, safe={"index": "the table is new"}) == ["removed"]
    assert rules(now, migrations.RunSQL("UPDATE spans SET name = ''"), atomic=False) == []


def test_the_large_tables_are_there_and_all_migrations_keep_the_rules(now: ProjectState) -> None:
    assert check_all() == [] and set(RULES) == {
        "index", "required", "removed", "renamed", "retyped", "constraint", "filled", "blocking",
    }  # fmt: skip
    known = {model.options.get("db_table", f"{app}_{name}") for (app, name), model in now.models.items()}
    assert {"chunk_postings", "chunk_segments", "chunk_terms", "document_access"} == LARGE - known, "made by SQL"
