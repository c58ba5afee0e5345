"""Settings of the server by subject, each page made from the fields of `ragd_site/environment.py`.

On that of backups they are also made, drilled and downloaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.dates import WEEKDAYS
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.mail import can_mail
from collections_app.access.rules import ADMINISTER, needs
from collections_app.endpoints.server_settings import change_settings, stored
from collections_app.http.page_requests import PageRequest, RefusalMessages, render_page, submit_form, tell
from collections_app.models import Operation
from ragd.errors import InvalidInput
from ragd_site.backup.operations import DAYS, KINDS, make_key, next_slot, pack, request_backup
from ragd_site.environment import Environment, check_changes, secret_names
from ragd_site.operations.branding import LOGO_BYTES_MAX, read_logo


@dataclass(frozen=True, slots=True)
class Subject:
    """Settings that stand on one page. key: of its address. names: in the order of the form."""

    key: str
    label: Any
    about: Any
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        return str(self.label)


def _subject(key: str, label: Any, about: Any, names: str) -> Subject:
    return Subject(key, label, about, tuple(f"RAGD_{name}" for name in names.split()))


SUBJECTS = {
    subject.key: subject
    for subject in (
        _subject(
            "limits", gettext_lazy("Limits"), gettext_lazy("How much people, keys and files may take."),
            "MAX_DOCUMENT_MB OWN_FILES_MB IMPORT_MAX_MB PARSE_TIMEOUT_S PARSE_MEMORY_MB PARSE_MAX_CHARS QUEUE_MAX_JOBS"
            " QUEUE_MAX_MB QUEUE_MAX_S JOB_MAX_ATTEMPTS REQUESTS_PER_MINUTE TOKENS_PER_DAY WRONG_KEYS_PER_MINUTE"
            " KEY_MAX_DAYS EXACT_THRESHOLD RECALL_WARNING EVALUATION_BANDS REPLICA_MAX_LAG_S",
        ),
        _subject(
            "sign-on", gettext_lazy("Sign-on"), gettext_lazy("With a password, or by OpenID Connect."),
            "OIDC_CLIENT_ID OIDC_CLIENT_SECRET OIDC_ISSUER OIDC_NAME OIDC_SCOPES OIDC_GROUPS_CLAIM OIDC_ADMIN_GROUP"
            " OIDC_SIGNUP OIDC_LINK_EMAIL PASSWORD_LOGIN REQUIRE_MFA SESSION_HOURS",
        ),
        _subject(
            "name", gettext_lazy("Name and logo"),
            gettext_lazy("What this server is called, and how pages, log-in, public pages and widget look."),
            "NAME LOGO ACCENT",
        ),
        _subject(
            "mail", gettext_lazy("Mail"), gettext_lazy("For invitations and forgotten passwords."),
            "MAIL_FROM MAIL_HOST MAIL_PORT MAIL_SECURITY MAIL_USER MAIL_PASSWORD PUBLIC_URL",
        ),
        _subject(
            "reading", gettext_lazy("Files and sources"), gettext_lazy("Text recognition, and where sources may read."),
            "OCR OCR_MAX_PAGES SOURCE_FOLDERS SOURCE_MAX_ITEMS FETCH_ALLOWED_NETWORKS FETCH_CONTACT"
            " FETCH_TIMEOUT_S FETCH_PAUSE_S",
        ),
        _subject(
            "calls", gettext_lazy("Model calls"), gettext_lazy("How long models take, how often they are asked."),
            "DEGRADE EMBED_TIMEOUT_S EMBED_BATCH_SIZE EMBED_REQUESTS_PER_MINUTE EMBED_TOKENS_PER_MINUTE"
            " RERANK_TIMEOUT_S LLM_TIMEOUT_S LLM_MAX_TOKENS JUDGE_TIMEOUT_S JUDGE_MAX_TOKENS",
        ),
        _subject(
            "content", gettext_lazy("Recorded texts"), gettext_lazy("What traces keep of questions and answers."),
            "CAPTURE_CONTENT CAPTURE_VECTORS OTLP_CONTENT",
        ),
        _subject(
            "backup", gettext_lazy("Backup"), gettext_lazy("When backups are made, where they lie, how many stay."),
            "BACKUP_EVERY BACKUP_HOUR BACKUP_TO BACKUP_KEY BACKUP_KEEP",
        ),
    )
}  # fmt: skip
SECRETS = frozenset(secret_names())
LOGO = "RAGD_LOGO"  # a file
NOT_SHOWN = SECRETS | {LOGO}  # an empty field keeps what is stored
MARK = re.compile(r"(?<=[^`])[:;] (?=[^`]*(`[^`]*`[^`]*)*$)")  # not within code
FORGET = "forget-"  # before the name of a secret: a box that deletes what is stored


class SettingsForm(forms.Form):
    """One field for each name. Empty: the default; for a secret and the logo, what is stored."""

    def __init__(self, names: tuple[str, ...], data: Any, files: Any) -> None:
        super().__init__(data, files)
        self.either = names  # none is called optional: all are
        for name in names:
            self.fields[name] = make_field(name)
            self.fields[name].disabled = name in settings.RAGD_STATED
            if name in NOT_SHOWN and name in stored.setters:
                label = gettext("Delete the stored value")
                self.fields[FORGET + name] = forms.BooleanField(label=label, required=False)

    def clean(self) -> dict[str, Any]:
        """Adds the typed values of what changed: `changes` and `secrets`, by name; None: the default."""
        data = super().clean() or {}
        texts = {name: data[name] for name in self.changed_data if name in data and not name.startswith(FORGET)}
        to_forget = [name.removeprefix(FORGET) for name in data if name.startswith(FORGET) and data[name]]
        usual = [name for name, text in texts.items() if not text and name not in NOT_SHOWN] + to_forget
        typed = {name: text for name, text in texts.items() if text}
        if LOGO in typed:
            typed[LOGO] = self.read_logo(typed[LOGO])
        present = {name: getattr(settings, name) for name in Environment.model_fields}
        values, problems = check_changes(present | {name: settings.RAGD_AT_START[name] for name in usual}, typed)
        for name, expected in problems.items():
            self.add_error(name if name in self.fields else None, gettext("Expected: %(value)s.") % {"value": expected})
        values |= dict.fromkeys(usual)
        data["secrets"] = {name: value for name, value in values.items() if name in SECRETS}
        data["changes"] = {name: value for name, value in values.items() if name not in SECRETS}
        return data

    def read_logo(self, file: Any) -> str:
        try:
            return read_logo(file.read(LOGO_BYTES_MAX + 1))
        except InvalidInput as error:
            self.add_error(LOGO, error.message)
            return ""


def make_field(name: str) -> forms.Field:
    """A field of a form as the declared kind asks for it, with what is set now."""
    declaration = Environment.model_fields[name]
    label, help_text = _split(gettext(str(declaration.description)))
    is_set, usual = name in {*stored.setters, *settings.RAGD_STATED}, settings.RAGD_AT_START[name]
    values = get_args(declaration.annotation) if get_origin(declaration.annotation) is Literal else ()
    is_choice = bool(values) or isinstance(usual, bool)
    notes = [help_text]
    if name in settings.RAGD_STATED:
        notes.append(gettext("Set by the environment (%(name)s).") % {"name": name})
    elif usual not in ("", []) and not is_choice and name not in NOT_SHOWN:
        notes.append(gettext("Default: %(value)s.") % {"value": _show(usual)})
    common: dict[str, Any] = {"label": label, "required": False, "help_text": " ".join([*filter(None, notes), name])}
    if name == LOGO:
        return forms.FileField(**common, widget=forms.FileInput(attrs={"accept": "image/png"}))
    if name in SECRETS:
        attributes = {"placeholder": "••••••••" if is_set else "", "autocomplete": "new-password"}
        return forms.CharField(**common, widget=forms.PasswordInput(attrs=attributes))
    common["initial"] = _show(getattr(settings, name)) if is_set else ""
    if is_choice:
        words = {"true": gettext("Yes"), "false": gettext("No"), "": gettext("none")}
        words |= {"off": gettext("Off"), "daily": gettext("Daily"), **dict(zip(DAYS, WEEKDAYS.values(), strict=True))}
        first = gettext("Default (%(value)s)") % {"value": words.get(_show(usual), _show(usual))}
        choices = [(each, words.get(each, each)) for each in (values or ("true", "false")) if each]
        return forms.ChoiceField(**common, choices=[("", first), *choices])
    if isinstance(usual, list):
        return forms.CharField(**common, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}))
    attributes = {"placeholder": _show(usual), "autocomplete": "off"}
    if isinstance(usual, int | float):
        return forms.CharField(**common, widget=forms.NumberInput(attrs=attributes | {"step": "any"}))
    return forms.CharField(**common, max_length=2000, widget=forms.TextInput(attrs=attributes))


def _split(text: str) -> tuple[str, str]:
    """A description up to its first colon or semicolon, and the rest as a sentence."""
    label, _, rest = MARK.sub("\n", text, count=1).partition("\n")
    sentence = f"{rest[:1].upper()}{rest[1:]}." if rest else ""
    return re.sub("[`*]", "", label), re.sub("[`*]", "", sentence)


def _show(value: object) -> str:
    """As it is typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "\n".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


BACKUPS, SHOWN_BACKUPS = {"backups": "shell/parts/backups.html"}, 8


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def server_settings(request: PageRequest) -> HttpResponseBase:
    """Of `subject`, by default the first. A POST keeps what is filled in; what is not changed is left alone.

    Of the subject backup, do=backup and do=drill have a worker make one, do=key makes a key and shows it once; a GET
    with download=ID gives the backup of that operation.
    """
    subject = request.GET.get("subject", "limits")
    if subject not in SUBJECTS:
        raise Http404(f"there are no settings {subject!r}; there are {', '.join(SUBJECTS)}")
    page, do, key = SUBJECTS[subject], request.POST.get("do", ""), ""
    address = f"{request.path}?subject={subject}"
    if subject == "backup" and (answer := _act_on_backups(request, address)):
        return answer
    if subject == "backup" and do == "key":
        with RefusalMessages(request):
            key = make_key(actor=request.user)
    sent = (request.POST, request.FILES) if request.method == "POST" and not do else (None, None)
    form = SettingsForm(page.names, *sent)

    def save() -> HttpResponse:
        change_settings(form.cleaned_data["changes"], form.cleaned_data["secrets"], actor=request.user)
        return tell(request, gettext("Saved. It holds within seconds, without a restart."), address)

    response, status = (None, 200) if do else submit_form(request, form, save)
    context = {"page": page, "subjects": SUBJECTS.values(), "form": form, "can_mail": can_mail(), "key": key}
    if subject == "backup":
        rows = list(Operation.objects.filter(kind__in=KINDS)[:SHOWN_BACKUPS])
        context |= {"rows": rows, "is_busy": any(row.is_running for row in rows), "next": next_slot()}
        context["may_make_key"] = not (settings.RAGD_BACKUP_KEY or form.errors)
    response = response or render_page(request, "shell/server_settings.html", context, parts=BACKUPS, status=status)
    if key:
        response.headers["Cache-Control"] = "no-store"
    return response


def _act_on_backups(request: PageRequest, address: str) -> HttpResponseBase | None:
    """What the buttons do; None for what is no button of these."""
    if operation := request.GET.get("download"):
        with RefusalMessages(request):
            name, content = pack(operation, actor=request.user)
            file = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
            return StreamingHttpResponse(content, content_type="application/x-tar", headers=file)
        return redirect(address)
    if request.POST.get("do") not in KINDS:
        return None
    with RefusalMessages(request):
        request_backup(request.POST["do"], actor=request.user)
        messages.success(request, gettext("Started. A worker does it; this page follows it."))
    return redirect(address)
