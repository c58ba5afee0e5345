"""Mail that the server sends: a test message, an invitation, the link that sets a forgotten password."""

from __future__ import annotations

import smtplib
import ssl
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.core.mail import EmailMessage
from django.http import HttpRequest
from django.urls import get_script_prefix, reverse
from django.utils.crypto import salted_hmac
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.utils.translation import gettext, override

from collections_app.audit import services
from collections_app.errors import ServiceError

SEND_RESET = "sign_on.send_password_reset"  # the task, with (address as it was typed, start of links, language)


class PasswordLinks:
    """Links that set a password once: a password, an address or a log-in that came since ends them.

    Django's views take it in place of a token generator. purpose: part of what is signed, and the name of the page.
    """

    def __init__(self, purpose: str, lifetime: timedelta) -> None:
        self.purpose, self.lifetime = purpose, lifetime

    def make_token(self, user: User) -> str:
        return signing.dumps(self._state(user), salt=self.purpose)

    def check_token(self, user: User | None, token: str | None) -> bool:
        """Whether it was made for this user, who has changed nothing since, within the lifetime."""
        if user is None or not token:
            return False
        try:
            return bool(signing.loads(token, salt=self.purpose, max_age=self.lifetime) == self._state(user))
        except signing.BadSignature:
            return False

    def link_for(self, user: User, base: str) -> str:
        """base: of `link_base`; a worker does not know a path that a proxy puts before."""
        code = urlsafe_base64_encode(force_bytes(user.pk))
        path = reverse(self.purpose, args=[code, self.make_token(user)])
        return f"{base}/{path.removeprefix(get_script_prefix())}"

    def _state(self, user: User) -> str:
        values = (user.pk, user.password, user.last_login, user.email.lower())
        return salted_hmac(self.purpose, repr(values), algorithm="sha256").hexdigest()


RESETS = PasswordLinks("password_reset_confirm", timedelta(hours=1))
INVITATIONS = PasswordLinks("invitation", timedelta(days=7))


def can_mail() -> bool:
    """Whether a mail server is set up."""
    return bool(settings.EMAIL_HOST)


def can_mail_passwords() -> bool:
    """Whether people may set passwords by links in mails: there is a mail server, and passwords are asked for."""
    return can_mail() and bool(settings.RAGD_PASSWORD_LOGIN)


def link_base(request: HttpRequest) -> str:
    """What links in mails begin with: RAGD_PUBLIC_URL, else where the request went. Without a slash at its end."""
    return (settings.RAGD_PUBLIC_URL or request.build_absolute_uri(get_script_prefix())).rstrip("/")


def send_test(address: str, *, actor: services.Actor) -> None:
    """Raises ServiceError (502) with what the mail server said."""
    send_mail(
        address,
        gettext("Test message of ragd"),
        gettext("%(name)s sent this message from the page Connections. Mail works.") % {"name": str(actor)},
    )


def can_be_invited(user: User) -> bool:
    """Whether a link may set a first password: for an active person who logs in with one and never has."""
    is_waiting = user.is_active and user.has_usable_password() and user.last_login is None
    return is_waiting and bool(settings.RAGD_PASSWORD_LOGIN)


def note_link(user: User, *, actor: services.Actor) -> None:
    """Write down that somebody was shown the link of an invitation."""
    services.record(actor, [user], services.CHANGE, "invited by a link")


def send_invitation(user: User, base: str, *, actor: services.Actor) -> None:
    """Send a person the link to their first password, in the language of the request.

    Raises ServiceError: 409 for a person without an address, or who logs in without a password or has logged in
    already; 502 with what the mail server said.
    """
    if not user.email or not can_be_invited(user):
        raise ServiceError(
            f"{user.get_username()} cannot be invited: that is for people with an email address who log in with a"
            " password and never have; give the address in the admin, or let them use Forgot password"
        )
    values = {"name": user.get_username(), "link": INVITATIONS.link_for(user, base), "days": INVITATIONS.lifetime.days}
    send_mail(
        user.email,
        gettext("Your account at ragd"),
        gettext(
            "You have an account at ragd, with the user name %(name)s. Set your password here, within %(days)s days;"
            " the link works once:\n\n%(link)s\n"
        )
        % values,
    )
    services.record(actor, [user], services.CHANGE, "invited by mail")


def send_reset(user: User, base: str, language: str) -> None:
    """Raises ServiceError (502)."""
    with override(language):
        send_mail(
            user.email,
            gettext("Set a new password at ragd"),
            gettext(
                "Somebody asked for a new password for the user name %(name)s. If that was you, set it here within an"
                " hour; the link works once:\n\n%(link)s\n\nIf it was not you, do nothing: your password stays as it"
                " is.\n"
            )
            % {"name": user.get_username(), "link": RESETS.link_for(user, base)},
        )


def send_mail(address: str, subject: str, body: str) -> None:
    """Raises ServiceError (502) with what the mail server said."""
    message = EmailMessage(subject, body, settings.DEFAULT_FROM_EMAIL, [address])
    try:
        message.send()
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise ServiceError(
            f"the mail was not sent: {_describe(error)}", type="mail_failed", status=502, field="to"
        ) from error


def _describe(error: Exception) -> str:
    """What went wrong and which variables to look at."""
    server = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
    match error:
        case smtplib.SMTPAuthenticationError():
            return f"{server} refused user and password ({_said(error)}); look at RAGD_MAIL_USER and RAGD_MAIL_PASSWORD"
        case smtplib.SMTPSenderRefused():
            return f"{server} refused the sender {error.sender} ({_said(error)}); look at RAGD_MAIL_FROM"
        case smtplib.SMTPRecipientsRefused():
            said = "; ".join(f"{name}: {code} {text.decode(errors='replace')}" for name, (code, text) in
                             error.recipients.items())  # fmt: skip
            return f"{server} refused the recipient ({said})"
        case smtplib.SMTPNotSupportedError():
            return f"{server} does not offer what is set ({error}); look at RAGD_MAIL_SECURITY and RAGD_MAIL_USER"
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {server} is not trusted ({error.verify_message}); name the host that it is issued"
                " for in RAGD_MAIL_HOST, or add its issuer to those that this machine trusts (SSL_CERT_FILE)"
            )
        case smtplib.SMTPException():
            return f"{server} did not take it ({error}); look at RAGD_MAIL_PORT and RAGD_MAIL_SECURITY"
        case _:
            return f"{server} was not reached ({error}); look at RAGD_MAIL_HOST, RAGD_MAIL_PORT and RAGD_MAIL_SECURITY"


def _said(error: smtplib.SMTPResponseException) -> str:
    said = error.smtp_error
    return f"{error.smtp_code} {said.decode(errors='replace') if isinstance(said, bytes) else said}"
