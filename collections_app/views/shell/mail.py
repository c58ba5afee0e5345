"""Through which server mails are sent, and a test message, with what the server said."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.http import HttpResponse
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from collections_app.http.page_requests import PageRequest, render_page, submit_form
from collections_app.services.governance.mail import can_mail, link_base, send_test

PARTS = {"mail": "shell/parts/mail.html"}


class RecipientForm(forms.Form):
    to = forms.EmailField(label=gettext_lazy("To"))


@require_http_methods(["GET", "POST"])
def mail(request: PageRequest) -> HttpResponse:
    """POST sends the test message; without a mail server the form is not there."""
    form = RecipientForm(request.POST if request.method == "POST" else None, initial={"to": request.user.email})
    context = {
        "form": form,
        "is_set": can_mail(),
        "server": f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}",
        "security": "tls" if settings.EMAIL_USE_SSL else "starttls" if settings.EMAIL_USE_TLS else "off",
        "user": settings.EMAIL_HOST_USER,
        "sender": settings.DEFAULT_FROM_EMAIL,
        "base": link_base(request),
    }

    def save() -> HttpResponse:
        address = form.cleaned_data["to"]
        send_test(address, actor=request.user)
        return render_page(request, "shell/mail.html", context | {"sent_to": address}, parts=PARTS)

    if not can_mail():
        return render_page(
            request, "shell/mail.html", context, parts=PARTS, status=409 if request.method == "POST" else 200
        )
    response, status = submit_form(request, form, save)
    return response or render_page(request, "shell/mail.html", context, parts=PARTS, status=status)
