"""Checks the addresses that a secret may be sent to."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from neuroscale.core.errors import InputError


def is_loopback(host: str) -> bool:
    """Whether the host is this machine, so that plain HTTP to it does not cross a network."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_address(url: str, where: str, secret: str) -> str:
    """`url` without a slash at its end. Raises InputError unless it is https, or http on this machine.

    `where` names the input in the error; `secret` names what is sent there ("the token").
    """
    try:
        address = urlsplit(url)
        host, _ = address.hostname, address.port
    except ValueError:
        host = None
        address = urlsplit("")
    if not host or address.scheme not in ("http", "https") or address.query or address.fragment:
        raise InputError.at(where, "", "is not a web address", "Write something like https://name.example.com.")
    if address.username is not None or address.password is not None:
        raise InputError.at(where, "", "holds a user or a password", f"Remove them: {secret} is enough.")
    if address.scheme == "http" and not is_loopback(host):
        raise InputError.at(
            where, "", f"http://{host} is not encrypted, so {secret} could be read on the way", "Use https."
        )
    return url.rstrip("/")
