"""Examples for the style page: every component once, with made-up content that says so."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.paginator import Paginator
from django.http import HttpRequest

from collections_app.passages import ChunkSpan, cut_pieces
from collections_app.templatetags.interface import STATES

COLOURS = (
    "ground", "surface", "sunken", "raised", "hover", "line", "line-strong", "text", "muted", "accent", "accent-strong",
    "accent-soft", "good", "good-soft", "watch", "watch-soft", "bad", "bad-soft", "mark-cited", "mark-overlap",
    "mark-active", "series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7", "series-8",
)  # fmt: skip
TEXT = "A chunk is an exact slice of its document. Two chunks may share a sentence. A citation marks its place."


class ExampleForm(forms.Form):
    name = forms.CharField(label="A field", help_text="The label stands above, the help below, an error beside it.")
    wrong = forms.IntegerField(label="A field with an error", min_value=1, initial=0)
    choice = forms.ChoiceField(label="A choice", choices=[("a", "First"), ("b", "Second")])
    check = forms.BooleanField(label="A check box", required=False, help_text="With its help.")
    text = forms.CharField(label="A longer text", required=False, widget=forms.Textarea(attrs={"rows": 3}))


def style_examples(request: HttpRequest) -> dict[str, Any]:
    form = ExampleForm({"name": "typed", "wrong": 0, "choice": "a", "check": True})
    form.is_valid()
    return {
        "colours": COLOURS,
        "states": sorted(STATES),
        "form": form,
        "page": Paginator(range(120), 50).page(2),
        "sort": "-chunks",
        "pieces": cut_pieces(TEXT, 0, [ChunkSpan(0, 0, 75), ChunkSpan(1, 43, len(TEXT))], (76, len(TEXT))),
        "spark": [2, 3, 3, 5, 4, 6, 8, 7, 9, 12],
        "histogram": [1, 4, 9, 15, 22, 18, 11, 6, 3, 1],
        "tones": [("bad", "alert"), ("watch", "alert"), ("good", "check"), ("accent", "info"), ("neutral", "info")],
        "bars": [
            ("rag.pipeline example", 0, 0, 100, "pipeline", 84.0),
            ("rag.query", 1, 0, 22, "embed", 18.5),
            ("rag.retrieve", 1, 22, 40, "retrieve", 33.6),
            ("rag.rerank", 1, 62, 12, "rank", 10.1),
            ("chat", 1, 74, 26, "generate", 21.8),
        ],
    }
