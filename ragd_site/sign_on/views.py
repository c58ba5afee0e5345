"""Mails that are sent after the page has answered, so that its time tells nothing of accounts.

The forms of the log-in page, and of a password that is forgotten.

The pages of logging in, and of the sessions that it makes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from allauth.account.utils import get_next_redirect_url
from allauth.core import ratelimit
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from celery import shared_task
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm, PasswordResetForm, UsernameField
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.translation import get_language, gettext, ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from requests import RequestException

from collections_app.access.mail import RESETS, SEND_RESET, can_mail_passwords, link_base, send_reset
from collections_app.audit.services import note_failed_login, note_logout, note_password
from collections_app.errors import ServiceError
from collections_app.jobs.leases import enqueue
from ragd_site.sign_on.provider import CheckingAdapter
from ragd_site.sign_on.sessions import SEEN_KEY, end_sessions, list_sessions, user_of_link

log = logging.getLogger(__name__)


@shared_task(name=SEND_RESET, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def send_password_reset(address: str, base: str, language: str) -> None:
    """A link to each account of the address that may have one; none where there is no such account."""
    for user in list(ForgottenPasswordForm().get_users(address)):
        try:
            send_reset(user, base, language)
        except ServiceError as error:
            log.error("a link for a new password was not sent: %s", error.message)


class LoginForm(AuthenticationForm):
    """Refuses a user name that no account can have, before django-axes stores it in a column of 255 characters."""

    username = UsernameField(
        max_length=User._meta.get_field("username").max_length, widget=forms.TextInput(attrs={"autofocus": True})
    )

    def clean(self) -> dict[str, Any]:
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            note_failed_login(str(self.cleaned_data.get("username") or ""))
            if "username" in self.cleaned_data:  # the name stays as it was typed: the password is to be typed again
                self.fields["username"].widget.attrs.pop("autofocus", None)
                self.fields["password"].widget.attrs["autofocus"] = True
            raise
        return cleaned


class ForgottenPasswordForm(PasswordResetForm):
    """Whether there is an account is looked up by a worker, after the answer."""

    def get_users(self, email: str) -> Iterator[User]:
        """Active people of this address who have a password and do not come by single sign-on."""
        by_sign_on = set(SocialAccount.objects.values_list("user_id", flat=True).filter(user__email__iexact=email))
        return (user for user in super().get_users(email) if user.pk not in by_sign_on)

    def send_later(self, request: HttpRequest) -> None:
        enqueue(SEND_RESET, self.cleaned_data["email"], link_base(request), get_language() or "en")


class LoginView(auth_views.LoginView):
    """The password form and the ways beside it. What follows a right password is allauth's: a second factor, the
    session."""

    authentication_form = LoginForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(
            has_passwords=settings.RAGD_PASSWORD_LOGIN,
            provider_name=settings.RAGD_OIDC_NAME if settings.RAGD_OIDC_ISSUER else "",
            can_reset=can_mail_passwords(),
            **kwargs,
        )

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.RAGD_PASSWORD_LOGIN:
            raise PermissionDenied
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        return log_in(self.request, form.get_user(), "password", self.get_redirect_url())


class PasswordChangeView(auth_views.PasswordChangeView):
    """Of people who have a password here. Django ends their other sessions."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.user.is_authenticated and not request.user.has_usable_password():
            raise Http404
        return super().dispatch(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        note_password(cast(User, self.request.user))
        self.request.session.pop(SEEN_KEY, None)  # the session has another key now, under which it is listed next
        return answer


@method_decorator(login_not_required, name="dispatch")
class ForgottenPasswordView(auth_views.PasswordResetView):
    """Asks for the address; a worker sends the link. The answer is the same whether there is an account."""

    form_class = ForgottenPasswordForm
    template_name = "registration/forgotten.html"

    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        require_password_mail()
        return super().dispatch(*args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        email = form.cleaned_data["email"].lower()
        refused = ratelimit.consume_or_429(self.request, action="reset_password", key=email)
        if refused is not None:
            return cast(HttpResponse, refused)
        form.send_later(self.request)
        return redirect("password_reset_done")


@method_decorator(login_not_required, name="dispatch")
class ForgottenSentView(auth_views.PasswordResetDoneView):
    template_name = "registration/forgotten_sent.html"

    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        require_password_mail()
        return super().dispatch(*args, **kwargs)


@method_decorator(login_not_required, name="dispatch")
class SetPasswordView(auth_views.PasswordResetConfirmView):
    """A link of a mail. Django keeps its token in the session, so that it stands in no address that others see."""

    links = RESETS
    template_name = "registration/set_password.html"
    success_url = reverse_lazy("login")

    def dispatch(self, *args: Any, **kwargs: Any) -> Any:
        if not settings.RAGD_PASSWORD_LOGIN:
            raise Http404
        self.token_generator = self.links
        return super().dispatch(*args, **kwargs)

    def get_user(self, uidb64: str) -> User | None:
        user = super().get_user(uidb64)
        return user if user is not None and user.is_active else None

    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        return super().render_to_response(context, **kwargs | ({} if self.validlink else {"status": 410}))

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        note_password(form.user, how="by the link of a mail")
        messages.success(self.request, gettext("The password is set. Log in with it."))
        return answer


def require_password_mail() -> None:
    if not can_mail_passwords():
        raise Http404


class LogoutView(auth_views.LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if isinstance(request.user, User):
            note_logout(request.user)
        return super().post(request, *args, **kwargs)


def admin_password_page(request: HttpRequest) -> HttpResponseBase:
    """The admin's own page of it."""
    response = admin.site.password_change(request)
    if request.method == "POST" and response.status_code == 302 and isinstance(request.user, User):
        note_password(request.user)
    return response


def admin_logout_page(request: HttpRequest) -> HttpResponseBase:
    if request.method == "POST" and isinstance(request.user, User):
        note_logout(request.user)
    return admin.site.logout(request)


def log_in(request: HttpRequest, user: User, method: str, next_url: str) -> HttpResponse:
    """Go on after a first factor that was right. It is fresh enough to set up a second one."""
    record_authentication(request, user, method=method, reauthenticated=True)
    return cast(HttpResponse, perform_login(request, Login(user=user, redirect_url=next_url or None)))


@never_cache
@login_not_required
@require_safe
def oidc_login(request: HttpRequest) -> HttpResponse:
    """Off to the provider. It only ever logs in: linking an account that is open would let another site choose it."""
    adapter = oidc_adapter(request)
    provider = adapter.get_provider()
    try:
        found: HttpResponse = provider.redirect(
            request, process=AuthProcess.LOGIN, next_url=get_next_redirect_url(request)
        )
    except (RequestException, OAuth2Error, KeyError) as error:
        return cast(HttpResponse, render_authentication_error(request, provider, exception=error))
    return found


@never_cache
@login_not_required
@require_safe
def oidc_callback(request: HttpRequest) -> HttpResponse:
    """Back from the provider."""
    answer = OAuth2CallbackView.adapter_view(oidc_adapter(request))(request)
    return cast(HttpResponse, answer)


def oidc_adapter(request: HttpRequest) -> CheckingAdapter:
    if not settings.RAGD_OIDC_ISSUER:
        raise Http404
    return CheckingAdapter(request, settings.RAGD_OIDC_ISSUER)


@login_not_required
@require_safe
def oidc_cancelled(request: HttpRequest) -> HttpResponse:
    return render(request, "socialaccount/login_cancelled.html")


@login_not_required
@require_safe
def account_inactive(request: HttpRequest) -> HttpResponse:
    return render(request, "account/account_inactive.html", status=403)


@never_cache
@login_not_required
@require_http_methods(["GET", "HEAD", "POST"])
def login_link(request: HttpRequest, code: str, token: str) -> HttpResponse:
    """A link of `manage.py login_link`: opened by a button, so that no program that looks at links uses it up."""
    user = user_of_link(code, token)
    if user is None:
        return render(request, "sign_on/link_ended.html", status=410)
    if request.method == "POST":
        return log_in(request, user, "link", "")
    return render(request, "sign_on/link.html", {"owner": user})


@require_http_methods(["GET", "HEAD", "POST"])
def sessions(request: HttpRequest) -> HttpResponse:
    """One's own sessions. POST: `end` is the number of one of them, or "others"."""
    user, key = cast(User, request.user), request.session.session_key
    if request.method == "POST":
        chosen = request.POST.get("end", "")
        if chosen == "others" or chosen.isdecimal():
            count = end_sessions(user, keep_key=key, pk=None if chosen == "others" else int(chosen[:18]))
            words = ngettext("%(count)d session ended.", "%(count)d sessions ended.", count) % {"count": count}
            messages.success(request, words) if count else messages.info(request, gettext("That session has ended."))
        return redirect("sessions")
    return render(request, "sign_on/sessions.html", {"sessions": list_sessions(user, key)})
