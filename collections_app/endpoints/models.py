"""Model endpoints that administrators set up in the interface.

What models cost where the kept price table is silent or wrong for this team.
"""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from collections_app.endpoints.model_presets import PURPOSES


class ModelSetting(models.Model):
    """A model at an endpoint, beside those that the environment names, which go first.

    preset: the provider, a key of PRESETS. api_version: of Azure's dated API, "" for the v1 API. identity: the name
    that collections keep of an embedding model: the model's, with a hash of the prompts where there are any. dims,
    window (tokens; null: the usual one), prompts and send_dimensions are of embeddings alone. secret: the key,
    encrypted (`endpoints/secrets.py`), "" for none. is_default: the one of its purpose that is used where nobody
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


class ModelPrice(models.Model):
    """A price that goes before the table's. US dollars per million tokens.

    system: the provider as spans name it (gen_ai.system), "" for any. model: the name as it is asked for. cached_input:
    of input tokens that the provider read from its cache; None: the price of input.
    """

    id = models.BigAutoField(primary_key=True)
    system = models.CharField(max_length=100, default="", blank=True)
    model = models.CharField(max_length=200)
    input_per_million = models.FloatField(validators=[MinValueValidator(0.0)])
    output_per_million = models.FloatField(default=0.0, validators=[MinValueValidator(0.0)])
    cached_input_per_million = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.0)])
    note = models.CharField(max_length=200, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "model_prices"
        ordering: ClassVar[list[str]] = ["model", "system"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["system", "model"], name="modelprice_once")
        ]

    def __str__(self) -> str:
        return f"{self.system}/{self.model}" if self.system else self.model
