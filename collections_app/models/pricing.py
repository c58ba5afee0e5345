"""What models cost where the kept price table is silent or wrong for this team."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone


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
