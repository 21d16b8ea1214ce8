"""Renders the pages from the templates beside it: every text is escaped, and shows nothing that cannot be seen."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from neuroscale import __version__
from neuroscale.core.printable import counted, one_line
from neuroscale.portal.form_token import VISIT, FormTokens
from neuroscale.portal.people import People

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_LONGEST = 20_000  # characters of a text on a page


class Renderer:
    """Renders pages for people, with the token that their forms carry."""

    def __init__(self, people: People, *, secure: bool) -> None:
        self.form_tokens = FormTokens()
        self._secure = secure
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_visible,
        )
        self._environment.filters["ticks"] = _with_code
        self._environment.globals |= {"version": __version__, "counted": counted, "by_proxy": people.by_proxy}

    def page(self, request: Request, name: str, status: int = 200, **context: Any) -> HTMLResponse:
        """A page or a part of one."""
        visit = request.cookies.get(VISIT, "")
        new = not visit
        visit = visit or secrets.token_urlsafe(16)
        template = self._environment.get_template(name)
        text = template.render(form_token=self.form_tokens.token(request, visit), here=request.url.path, **context)
        response = HTMLResponse(text, status)
        if new:
            response.set_cookie(VISIT, visit, httponly=True, samesite="strict", secure=self._secure)
        return response


def _with_code(text: str) -> Markup:
    """Text whose parts between backticks are code."""
    parts = _visible(text).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts))


def _visible(value: Any) -> Any:
    """Text from anywhere, without control characters and what turns the direction of writing."""
    return one_line(value, _LONGEST) if type(value) is str else "" if value is None else value
