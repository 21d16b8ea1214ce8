"""Makes and checks the token by which a form shows that a page of this server sent it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from fastapi import HTTPException, Request

from neuroscale.portal.people import SESSION

VISIT = "neuroscale_visit"
"""The cookie of everybody who looks at a page; the tokens in forms belong to it."""


class FormTokens:
    """The tokens of one server, for as long as it runs."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, request: Request, visit: str) -> str:
        """What a form carries to show that it came from a page of this server, for this visit and session."""
        bound = f"{visit}\n{request.cookies.get(SESSION, '')}"
        return hmac.new(self._key, bound.encode(), hashlib.sha256).hexdigest()

    def check(self, request: Request, fields: Mapping[str, str]) -> None:
        """Raises HTTPException for a form that no page of this server sent in this session."""
        visit, text = request.cookies.get(VISIT, ""), fields.get("form_token", "")
        if not visit or not hmac.compare_digest(self.token(request, visit).encode(), text.encode()):
            raise HTTPException(403, "The form is from an earlier session: load its page again")
