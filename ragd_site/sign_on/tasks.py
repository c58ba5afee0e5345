"""Mails that are sent after the page has answered, so that its time tells nothing of accounts."""

from __future__ import annotations

import logging

from celery import shared_task

from collections_app.access.mail import SEND_RESET, send_reset
from collections_app.errors import ServiceError
from ragd_site.sign_on.forms import people_to_reset

log = logging.getLogger(__name__)


@shared_task(name=SEND_RESET, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def send_password_reset(address: str, base: str, language: str) -> None:
    """A link to each account of the address that may have one; none where there is no such account."""
    for user in people_to_reset(address):
        try:
            send_reset(user, base, language)
        except ServiceError as error:
            log.error("a link for a new password was not sent: %s", error.message)
