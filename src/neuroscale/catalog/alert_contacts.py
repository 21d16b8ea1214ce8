"""Defines whom alerts reach: the contact of a team, and what an environment's Alertmanager does with all of them.

No secret stands in Git: an address that holds a token is refused, and a file of Alertmanager's pod holds it instead.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from neuroscale.core.addresses import is_loopback
from neuroscale.core.frozen import Frozen
from neuroscale.core.masked_secrets import masked
from neuroscale.core.validation import wrong

_IN_CLUSTER = (".svc", ".svc.cluster.local")
_FILE = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){1,12}")
_EMAIL = re.compile(r"[^\s@<>,;\"']{1,64}@[A-Za-z0-9]([-A-Za-z0-9.]{0,180}[A-Za-z0-9])?")
_FILE_FIX = "Write the path of a file in Alertmanager's pod, such as /etc/alertmanager/secrets/NAME/KEY."


class AlertContact(Frozen):
    """Whom alerts reach, in one way or in several.

    `webhook`: the address of an HTTP receiver. `webhook_file`: the file in Alertmanager's pod that holds such an
    address with a token in it. `email`: one address.
    """

    webhook: str | None = None
    webhook_file: str | None = None
    email: str | None = None

    @field_validator("webhook")
    @classmethod
    def _without_a_secret(cls, address: str | None) -> str | None:
        # No message repeats the address: it may hold a secret.
        if address is None:
            return None
        try:
            parts = urlsplit(address)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            host, parts = "", urlsplit("")
        plain = is_loopback(host) or host.endswith(_IN_CLUSTER)
        if not host or parts.scheme not in ("https", "http") or not re.fullmatch(r"[!-~]{1,1000}", address):
            raise wrong("is not a web address", "Write something like https://alerts.example.com/team.")
        if parts.scheme == "http" and not plain:
            raise wrong("is not encrypted", "Write https; http is for a Service of the cluster (NAME.NAMESPACE.svc).")
        secret = parts.username is not None or parts.password is not None or parts.query or parts.fragment
        if secret or any(map(_is_token, parts.path.split("/"))) or masked(address) != address:
            fix = "Keep the address in a Secret, and write `webhook_file` with its file in Alertmanager's pod instead."
            raise wrong("holds what looks like a token or a password", fix)
        return address

    @field_validator("webhook_file")
    @classmethod
    def _is_a_file(cls, path: str | None) -> str | None:
        if path is not None and _FILE.fullmatch(path) is None:
            raise wrong("is not the absolute path of a file", _FILE_FIX)
        return path

    @field_validator("email")
    @classmethod
    def _is_one_address(cls, address: str | None) -> str | None:
        if address is not None and _EMAIL.fullmatch(address) is None:
            raise wrong("is not one e-mail address", "Write something like oncall@example.com.")
        return address

    @model_validator(mode="after")
    def _reaches_somebody(self) -> AlertContact:
        if self.webhook is None and self.webhook_file is None and self.email is None:
            raise wrong("names no way to reach anybody", "Write `webhook`, `webhook_file` or `email`.")
        if self.webhook is not None and self.webhook_file is not None:
            raise wrong("names a webhook twice", "Write either `webhook` or `webhook_file`.")
        return self

    @property
    def text(self) -> str:
        """The contact in a sentence for people: every way to reach it."""
        ways = (self.email, self.webhook, self.webhook_file and "the webhook of its secret")
        return ", ".join(way for way in ways if way)


class Smtp(Frozen):
    """The mail server that takes Alertmanager's e-mail: `HOST:PORT`, with TLS. `username` and the file of its password
    belong together."""

    smarthost: Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9.]{0,252}:[0-9]{1,5}$")]
    sender: Annotated[str, Field(pattern=r"^[^\s@<>]+@[^\s@<>]+$", max_length=254)]
    username: Annotated[str, Field(pattern=r"^[!-~]{1,254}$")] | None = None
    password_file: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Smtp:
        if (self.username is None) != (self.password_file is None):
            raise wrong("has one of username and password_file", "Write both, or neither.")
        if self.password_file is not None and _FILE.fullmatch(self.password_file) is None:
            raise wrong("password_file is not the absolute path of a file", _FILE_FIX)
        return self


class Alerting(Frozen):
    """What an environment's Alertmanager does. `fallback`: whom alerts reach that no team with a contact owns.

    The times are Alertmanager's own defaults: how long it collects alerts of one group before it sends the first
    notification (seconds), how long before it tells of new ones of the group (seconds), and how long before it repeats
    what still fires (hours).
    """

    fallback: AlertContact
    smtp: Smtp | None = None
    group_wait_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    group_interval_seconds: Annotated[int, Field(ge=1, le=86400)] = 300
    repeat_hours: Annotated[int, Field(ge=1, le=240)] = 4


def _is_token(segment: str) -> bool:
    """Whether a part of an address's path is rather a token than a name: long, and with digits or both cases."""
    return any(
        (len(piece) >= 10 and re.search(r"\d", piece)) or (len(piece) >= 20 and piece != piece.lower())
        for piece in re.split(r"[-_.~]", segment)
    )
