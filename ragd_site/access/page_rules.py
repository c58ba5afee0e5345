"""What each page needs: for reading (GET) and for changing (POST). Where a page is of a collection, it is needed there.

`tests/access/test_rules.py` walks every address: one that is in no table here has the default of a collection's page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Model

from collections_app.domain.permissions import Permission
from collections_app.models import Collection, Operation
from evaluation_app.models import EvaluationRun, Experiment, GoldenSet, ReviewTask
from retrieval_app.models import QueryRun

READ, ASK, WRITE = Permission.READ, Permission.ASK, Permission.WRITE
EVALUATE, ADMINISTER = Permission.EVALUATE, Permission.ADMINISTER


@dataclass(frozen=True, slots=True)
class Rule:
    """None: whoever is logged in. everywhere: in all collections, else in that of the address, or in some."""

    get: Permission | None
    post: Permission | None
    everywhere: bool = False


OF_COLLECTION = Rule(READ, WRITE)
OF_EVALUATION = Rule(READ, EVALUATE)
OF_SHARING = Rule(ADMINISTER, ADMINISTER)
OF_SERVER = Rule(ADMINISTER, ADMINISTER, everywhere=True)
ANYBODY = Rule(None, None)

RULES: dict[str, Rule] = {
    # about nobody's text
    **dict.fromkeys(
        (
            "collections:theme",
            "collections:server-settings",
            "collections:appearance",
            "collections:connections",
            "collections:help",
            "collections:help-page",
            "collections:list",
            "collections:list-view",
            "collections:switcher",
            "evaluation:home",
            "evaluation:palette",
            "evaluation:status",
            "collections:models",
            "collections:model-add",
            "collections:model-edit",
            "collections:model-delete",
            "collections:model-test",
            "collections:operation",
            # their own keys; those of others are seen by administrators of all collections
            "collections:keys",
            "collections:key-create",
            "collections:key-rotate",
            "collections:key-revoke",
        ),
        ANYBODY,
    ),
    "collections:create": Rule(WRITE, WRITE, everywhere=True),
    "collections:import": Rule(WRITE, WRITE, everywhere=True),
    "collections:delete": Rule(ADMINISTER, ADMINISTER),
    "collections:model-choice": Rule(WRITE, WRITE),
    "collections:upload": Rule(WRITE, WRITE),
    "collections:upload-plan": Rule(WRITE, WRITE),
    "collections:upload-members": Rule(WRITE, WRITE),
    "collections:urls": Rule(WRITE, WRITE),
    "collections:text": Rule(WRITE, WRITE),
    **dict.fromkeys(
        (
            "collections:sources",
            "collections:source-add",
            "collections:source",
            "collections:source-edit",
            "collections:source-sync",
            "collections:source-delete",
            "collections:source-run",
            "collections:source-run-cancel",
        ),
        Rule(WRITE, WRITE),
    ),
    "collections:edit": Rule(WRITE, WRITE),
    "collections:edit-text": Rule(WRITE, WRITE),
    "collections:rename": Rule(WRITE, WRITE),
    "collections:trash": Rule(WRITE, WRITE),
    "collections:new-version": Rule(WRITE, WRITE),
    "collections:change": Rule(WRITE, WRITE),
    "collections:readers": Rule(READ, WRITE),
    "collections:settings": Rule(WRITE, WRITE),
    "collections:export": Rule(WRITE, WRITE),
    # forms and questions whether to go on
    **dict.fromkeys(("collections:generation-drop", "collections:rollback"), Rule(WRITE, WRITE)),
    **dict.fromkeys(
        (
            "evaluation:bring-back-golden",
            "evaluation:calibrate",
            "evaluation:delete-evaluation-run",
            "evaluation:delete-experiment",
            "evaluation:delete-golden-set",
            "evaluation:gate",
            "evaluation:golden-from-run",
            "evaluation:golden-set-bands",
            "evaluation:golden-set-rubrics",
            "evaluation:golden-set-settings",
            "evaluation:golden-suggestions",
            "evaluation:import-golden",
            "evaluation:new-evaluation-run",
            "evaluation:new-golden-question",
            "evaluation:new-golden-set",
            "evaluation:new-models-experiment",
            "evaluation:new-plans-experiment",
            "evaluation:review-next",
            "evaluation:review-task",
            "evaluation:run-without",
        ),
        Rule(EVALUATE, EVALUATE),
    ),
    "collections:preview": Rule(READ, WRITE),
    "collections:preview-sample": Rule(READ, WRITE),
    "collections:filter-builder": Rule(READ, READ),
    "collections:folders": Rule(READ, READ),
    "collections:filter-completions": Rule(READ, READ),
    **dict.fromkeys(("collections:sharing", "collections:sharing-open", "collections:sharing-remove"), OF_SHARING),
    **dict.fromkeys(
        (
            "collections:people",
            "collections:new-person",
            "collections:person",
            "collections:person-role",
            "collections:person-groups",
            "collections:person-active",
            "collections:person-invite",
            "collections:mail",
            "collections:role-remove",
            "collections:groups",
            "collections:new-group",
            "collections:group",
            "collections:group-role",
            "collections:group-members",
            "collections:group-delete",
        ),
        OF_SERVER,
    ),
    "collections:check": OF_SERVER,
    "collections:audit": OF_SERVER,
    "collections:audit-event": OF_SERVER,
    "collections:audit-download": OF_SERVER,
    # questions
    **dict.fromkeys(
        (
            "retrieval:chat",
            "retrieval:chat-stream",
            "retrieval:chat-rename",
            "retrieval:chat-share",
            "retrieval:chat-stop",
            "retrieval:chat-delete",
        ),
        Rule(ASK, ASK),
    ),
    "retrieval:public-assistant": ANYBODY,  # its own access, its own limits
    "retrieval:public-stream": ANYBODY,
    "retrieval:chat-assistants": Rule(ASK, ASK),
    **dict.fromkeys(
        ("retrieval:chat-assistant-new", "retrieval:chat-assistant", "retrieval:chat-assistant-delete"),
        Rule(WRITE, WRITE),
    ),
    # one's own, or shared by somebody
    "retrieval:chat-thread": Rule(READ, ASK),
    "retrieval:chat-markdown": Rule(READ, READ),
    "retrieval:chat-json": Rule(READ, READ),
    "retrieval:runs": Rule(READ, ASK),
    "retrieval:run-log": Rule(READ, READ),
    "retrieval:run": Rule(READ, ASK),
    "retrieval:run-ranking": Rule(READ, ASK),
    "retrieval:pin-run": Rule(READ, READ),
    "retrieval:receipt": Rule(READ, READ),
    "retrieval:replay": Rule(ASK, ASK),
    "retrieval:playground": Rule(ASK, ASK),
    "retrieval:playground-answer": Rule(ASK, ASK),
    "retrieval:playground-row": Rule(ASK, ASK),
    "evaluation:feedback": Rule(ASK, ASK),
    # of the server
    "evaluation:operations": OF_SERVER,
    "evaluation:cluster": OF_SERVER,
    **dict.fromkeys(
        (
            "evaluation:alerts",
            "evaluation:new-alert-rule",
            "evaluation:alert-rule",
            "evaluation:delete-alert-rule",
            "evaluation:new-webhook",
            "evaluation:webhook",
            "evaluation:test-webhook",
            "evaluation:delete-webhook",
            "evaluation:deliver-again",
        ),
        OF_SERVER,
    ),
    "evaluation:retry-failed": OF_SERVER,
    "evaluation:upkeep": OF_SERVER,
    "evaluation:retention": OF_SERVER,
    "evaluation:retention-period": OF_SERVER,
    "evaluation:leak-probe": OF_SERVER,
    "evaluation:collector": OF_SERVER,
    "evaluation:try-rules": OF_SERVER,
    "evaluation:prices": Rule(None, ADMINISTER, everywhere=True),
    "evaluation:evidence": OF_SERVER,
    # evaluation
    "evaluation:impact": Rule(READ, READ),
    "evaluation:golden-of-chunk": Rule(READ, READ),
    "evaluation:golden-of-document": Rule(READ, READ),
    "evaluation:document-traces": Rule(READ, READ),
    "evaluation:spans-export": Rule(READ, READ),
}

# How the start of an address says which collection it is of: the argument, the model, the field with its name.
TARGETS: tuple[tuple[str, str, type[Model], str], ...] = (
    ("evaluation/runs/<uuid:pk>", "pk", EvaluationRun, "collection_name"),
    ("evaluation/board/runs/<uuid:pk>", "pk", EvaluationRun, "collection_name"),
    ("evaluation/board/sets/<int:pk>", "pk", GoldenSet, "collection_name"),
    ("evaluation/sets/<int:pk>", "pk", GoldenSet, "collection_name"),
    ("evaluation/experiments/<uuid:pk>", "pk", Experiment, "collection_name"),
    ("evaluation/review/<int:pk>", "pk", ReviewTask, "collection_name"),
    ("runs/<uuid:run_id>", "run_id", QueryRun, "collection_name"),
    ("collections/operation/<uuid:operation_id>", "operation_id", Operation, "subject"),
)


def rule_of(view_name: str) -> Rule:
    """The rule of a page; by default that of a collection's page, or of an evaluation's."""
    if view_name in RULES:
        return RULES[view_name]
    return OF_EVALUATION if view_name.startswith("evaluation:") else OF_COLLECTION


def find_target(route: str, arguments: Mapping[str, Any]) -> tuple[bool, str | None]:
    """(whether the address names something of a collection, the collection's name or None where that is not there)."""
    if route.startswith(("collections/<str:name>", "evaluation/live/<str:name>")):
        return True, str(arguments["name"])
    for start, argument, model, field in TARGETS:
        if route.startswith(start):
            rows = model._default_manager.filter(pk=arguments[argument])
            return True, rows.values_list(field, flat=True).first()
    return False, None


def find_collection_id(name: str) -> int | None:
    return (
        Collection.objects.live().filter(name=name).values_list("pk", flat=True).first() if "\x00" not in name else None
    )
