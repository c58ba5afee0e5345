"""The forms and pages of logging in and out; each leaves an event in the audit log."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth import views
from django.contrib.auth.forms import AuthenticationForm, UsernameField
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from collections_app.services.governance.audit_sessions import note_failed_login, note_login, note_logout, note_password


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
            raise
        user = self.get_user()
        if user is not None:
            note_login(user)
        return cleaned


class AdminLoginForm(LoginForm, AdminAuthenticationForm):
    """The admin's: of staff alone."""


class LogoutPage(views.LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if isinstance(request.user, User):
            note_logout(request.user)
        return super().post(request, *args, **kwargs)


class PasswordPage(views.PasswordChangeView):
    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        note_password(form.user)
        return response


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
