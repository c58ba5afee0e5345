from __future__ import annotations

from ninja import Router

from collections_app.auth import BearerAuth

router = Router(auth=BearerAuth(), tags=["evaluation"])
