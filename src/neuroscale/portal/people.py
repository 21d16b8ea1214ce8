"""Says who asks: by a forge's token that was given once, or by the header of a trusted proxy.

A token stays in the server's memory: no page, log or address holds it.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request

from neuroscale.core.errors import InputError
from neuroscale.forge.interface import Account, Token
from neuroscale.forge.token import check_secret
from neuroscale.portal.exposure import Exposure

SESSION = "neuroscale_session"
_LASTS = 8 * 3600.0  # seconds
_MOST = 1000  # sessions; the oldest goes
_MOST_OF_ONE = 20  # of one account, so that it ends no other's
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Person:
    """Somebody who may open pull requests. `name` is shown; `asked_by` stands in the pull request where `token` belongs
    to the server and not to the person ("": it is the person's own)."""

    name: str
    token: Token
    asked_by: str = ""


@dataclass(frozen=True)
class _Session:
    person: Person
    ends: float


class People:
    """The people who are signed in.

    `account_of`: asks the forge whose a token is. `own`: the server's token, for people whom the proxy names and for a
    portal. `portal`: the token by which a portal's server shows itself (None: none may).
    """

    def __init__(
        self,
        exposure: Exposure,
        account_of: Callable[[Token], Account],
        own: Token | None = None,
        portal: Token | None = None,
    ) -> None:
        self._exposure = exposure
        self._account_of = account_of
        self._own = own
        self._portal = portal
        self._sessions: dict[str, _Session] = {}
        self._lock = threading.Lock()

    @property
    def by_proxy(self) -> bool:
        """Whether a proxy names people, so that nobody signs in here."""
        return bool(self._exposure.user_header)

    def sign_in(self, text: str) -> str:
        """A new session for the owner of a token. Raises InputError for a text that is no token, and ForgeError."""
        text = text.strip()
        check_secret(text, "the form")
        token = Token(text)
        person = Person(self._account_of(token).login, token)
        session = secrets.token_urlsafe(32)
        now = time.monotonic()
        with self._lock:
            self._sessions = {key: session for key, session in self._sessions.items() if session.ends > now}
            own = [key for key, session in self._sessions.items() if session.person.name == person.name]
            if len(own) >= _MOST_OF_ONE:
                del self._sessions[own[0]]
            elif len(self._sessions) >= _MOST:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session] = _Session(person, now + _LASTS)
        return session

    def sign_out(self, request: Request) -> None:
        """End the request's session."""
        with self._lock:
            self._sessions.pop(request.cookies.get(SESSION, ""), None)

    def of(self, request: Request) -> Person | None:
        """Who asks for a page. Raises InputError for a proxy's header that names nobody."""
        if self._exposure.user_header:
            return self._named(request)
        with self._lock:
            session = self._sessions.get(request.cookies.get(SESSION, ""))
        return session.person if session is not None and session.ends > time.monotonic() else None

    def _named(self, request: Request) -> Person | None:
        names = request.headers.getlist(self._exposure.user_header)
        if not names or self._own is None:
            return None
        return Person(_name(names[0] if len(names) == 1 else ""), self._own, names[0])

    def bearer(self, request: Request) -> Token | None:
        """The token of the forge with which a route for programs reads: the server's own for a portal. None without
        one. Raises InputError."""
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not text.strip():
            return None
        check_secret(text.strip(), "the request")
        token = Token(text.strip())
        if self._portal is not None and hmac.compare_digest(token.secret, self._portal.secret):
            if self._own is None:
                raise InputError.at("the server", "", "has no token of the forge", "Start it with --token-file.")
            return self._own
        return token

    def by_bearer(self, request: Request, asked_by: str | None) -> Person | None:
        """Who asks a route for programs: a person by a forge's token, or a portal's server for the person `asked_by`
        (None: it only reads). None without a token. Raises InputError and ForgeError."""
        token = self.bearer(request)
        if token is None:
            return None
        if token is self._own:
            name = "the portal" if asked_by is None else _name(asked_by)
            return Person(name, token, name)
        if asked_by:
            message, fix = "is only believed from a portal", "Leave it out: the token says who asks."
            raise InputError.at("the request", "asked_by", message, fix)
        return Person(self._account_of(token).login, token)


def _name(text: str) -> str:
    name = text.strip()
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        message, fix = "does not name exactly one person", f"Send one name of at most {_LONGEST_NAME} characters."
        raise InputError.at("the request", "asked_by", message, fix)
    return name
