"""What people decide about one failing question in one mode: whose it is, when to look again, that it is dealt with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone

from collections_app.models.library import name_actor
from collections_app.services.governance import audit
from evaluation_app.models import BoardCard, GoldenSet
from evaluation_app.scoring.modes.catalogue import find_mode
from ragd.errors import InvalidInput

State = BoardCard.State
DECISIONS = ("assign", "snooze", "resolve", "reopen")
NOTE_CHARS_MAX = 2000

Place = tuple[str, str]  # (question, mode)


def cards_of(golden_set: GoldenSet, questions: Iterable[str]) -> dict[Place, BoardCard]:
    """By question and mode; where nothing was decided there is none."""
    rows = BoardCard.objects.filter(golden_set=golden_set, question_text__in=list(questions))
    return {(row.question_text, row.mode): row for row in rows}


def is_closed(card: BoardCard | None) -> bool:
    """Resolved, or snoozed until a later day."""
    if card is None or card.state == State.OPEN:
        return False
    if card.state == State.RESOLVED:
        return True
    return card.until is not None and card.until > timezone.localdate()


def people() -> list[str]:
    """Names that a card can be assigned to."""
    users = get_user_model()
    records = users._default_manager.filter(is_active=True).order_by("username").values_list("username", flat=True)
    return list(records)


@transaction.atomic
def decide(
    golden_set: GoldenSet,
    question: str,
    mode: str,
    decision: str,
    *,
    assignee: str | None = None,
    until: date | None = None,
    note: str | None = None,
    actor: audit.Actor = None,
) -> BoardCard:
    """assign: `assignee` has it, "" nobody. snooze: away until the day. resolve: away. reopen: on the board again.

    note: None leaves it as it is; assignee too, and it may come with any decision. Raises InvalidInput for an unknown
    decision, mode or person, a day that is not after today, and a question that the set never asked.
    """
    if decision not in DECISIONS:
        raise InvalidInput(f"decision must be one of {', '.join(DECISIONS)}, not {decision!r}", field="decision")
    if note is not None and len(note) > NOTE_CHARS_MAX:
        raise InvalidInput(f"note may have {NOTE_CHARS_MAX} characters; this has {len(note)}", field="note")
    find_mode(mode)
    if assignee and assignee not in people():
        raise InvalidInput(f"there is no active user {assignee!r}; they are {', '.join(people())}", field="assignee")
    if decision == "snooze" and (until is None or until <= timezone.localdate()):
        raise InvalidInput("until must be a day after today", field="until")
    card = _hold(golden_set, question, mode)
    if decision != "assign":
        card.state = {"snooze": State.SNOOZED, "resolve": State.RESOLVED, "reopen": State.OPEN}[decision]
        card.until = until if decision == "snooze" else None
    if assignee is not None:
        card.assignee = assignee
    if note is not None:
        card.note = note.strip()
    card.changed_by = name_actor(actor)
    card.save()
    audit.record(actor, [card], audit.CHANGE, _say(card, decision))
    return card


def _hold(golden_set: GoldenSet, question: str, mode: str) -> BoardCard:
    known = golden_set.questions.filter(question=question).exists() or _was_asked(golden_set, question)
    if not known:
        raise InvalidInput(f"the golden set {golden_set.name!r} has no question {question!r}", field="question")
    BoardCard.objects.get_or_create(golden_set=golden_set, question_text=question, mode=mode)
    return BoardCard.objects.select_for_update().get(golden_set=golden_set, question_text=question, mode=mode)


def _was_asked(golden_set: GoldenSet, question: str) -> bool:
    return golden_set.runs.filter(items__question_text=question).exists()


def _say(card: BoardCard, decision: str) -> str:
    where = f"{card.mode} of {card.question_text!r} in {card.golden_set.name}"
    match decision:
        case "snooze":
            return f"put {where} away until {card.until}"
        case "resolve":
            return f"resolved {where}"
        case "reopen":
            return f"opened {where} again"
        case _:
            return f"gave {where} to {card.assignee or 'nobody'}"
