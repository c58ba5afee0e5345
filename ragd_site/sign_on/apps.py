from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class SignOnConfig(AppConfig):
    name = "ragd_site.sign_on"
    label = "sign_on"
    verbose_name = gettext_lazy("Log-in")
    default_auto_field = "django.db.models.BigAutoField"
