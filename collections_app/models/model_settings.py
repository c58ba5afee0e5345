"""Model endpoints that administrators set up in the interface."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone

from collections_app.domain.model_presets import PURPOSES


class ModelSetting(models.Model):
    """A model at an endpoint, beside those that the environment names, which go first.

    preset: the provider, a key of PRESETS. api_version: of Azure's dated API, "" for the v1 API. identity: the name
    that collections keep of an embedding model: the model's, with a hash of the prompts where there are any. dims,
    window (tokens; null: the usual one), prompts and send_dimensions are of embeddings alone. secret: the key,
    encrypted (`model_endpoints/secrets.py`), "" for none. is_default: the one of its purpose that is used where nobody
    names another.
    """

    encrypted_fields = ("secret",)

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=100, unique=True)
    purpose = models.CharField(max_length=16, choices=list(PURPOSES.items()))
    preset = models.CharField(max_length=32)
    base_url = models.CharField(max_length=500)
    model = models.CharField(max_length=200, blank=True)
    identity = models.CharField(max_length=210, blank=True, editable=False)
    dims = models.IntegerField(null=True, blank=True)
    window = models.IntegerField(null=True, blank=True)
    query_prompt = models.CharField(max_length=1000, default="", blank=True)
    passage_prompt = models.CharField(max_length=1000, default="", blank=True)
    send_dimensions = models.BooleanField(default=False)
    api_version = models.CharField(max_length=32, default="", blank=True)
    secret = models.TextField(default="", blank=True, editable=False)
    is_default = models.BooleanField(default=False)
    created_by = models.TextField(default="", blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "model_settings"
        ordering: ClassVar[list[str]] = ["purpose", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["identity"], condition=models.Q(purpose="embeddings"), name="model_settings_identity"
            ),
            models.UniqueConstraint(
                fields=["purpose"], condition=models.Q(is_default=True), name="model_settings_default"
            ),
        ]

    def __str__(self) -> str:
        return self.name
