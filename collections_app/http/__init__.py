"""What every page and every operation shares: errors, lists, downloads, fields, navigation."""

from __future__ import annotations

from ninja import Schema

# Two thousand shapes of requests and answers: each is built when it is first used, not in every process that starts
Schema.model_config["defer_build"] = True
