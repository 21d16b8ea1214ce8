"""Gives pods their addresses.

A pod has `10.127.A.B`; its process listens on the loopback address `127.127.A.B`. Kubernetes does not accept a loopback
address for a pod, and a process of this machine cannot have another of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

_POD, _LOOPBACK = "10.127.", "127.127."
_LAST = 254


def address_of(uid: str, taken: Collection[str]) -> str:
    """The address of a pod: the same one as long as no other pod has it."""
    number = int(hashlib.sha256(uid.encode()).hexdigest(), 16) % (_LAST * _LAST)
    for offset in range(_LAST * _LAST):
        third, fourth = divmod((number + offset) % (_LAST * _LAST), _LAST)
        address = f"{_POD}{third + 1}.{fourth + 1}"
        if address not in taken:
            return address
    raise RuntimeError("every address of a pod is taken")


def is_address(text: str) -> bool:
    """Whether the text is the address of a pod."""
    return text.startswith(_POD)


def loopback(address: str) -> str:
    """The address on which the process of the pod with that address listens."""
    return _LOOPBACK + address.removeprefix(_POD)
